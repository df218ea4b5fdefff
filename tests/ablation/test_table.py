"""Tables are made from records alone: their numbers are those that one gets by hand."""

import json
import shlex
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_study import STORED, study_of_two, write_record, write_study

from benchmarks.studies.results import mean_and_spread, read_results
from benchmarks.studies.study_file import read_study
from benchmarks.studies.table import (
    adequacy_table,
    caption,
    curve_table,
    length_table,
    metric_table,
    score_table,
    time_curve_table,
)
from hf_capsule_mt.files import hash_file
from hf_capsule_mt.records import Comparison, Rates, SpeedRecord, read

SMALL = {"d_model": 16, "dropout": 0.1}


@pytest.fixture
def study(tmp_path):
    found = study_of_two(tmp_path) | {"seeds": [1, 2, 3]}
    found["rows"][0]["published"] = {"test": 27.31}
    return read_study(write_study(tmp_path / "two.yaml", found))


@pytest.fixture
def records(tmp_path):
    folder = tmp_path / "records"
    folder.mkdir()
    for seed, bleu in ((1, 20.0), (2, 21.0), (3, 25.0)):
        marked = "two_plain" if seed == 1 else f"two_plain_seed{seed}"
        log = [{"step": 4, "eval_bleu": bleu - 10}, {"step": 8, "eval_bleu": bleu}, {"step": 8, "eval_bleu": bleu}]
        training = {"seed": seed}
        write_record(folder, marked, bleu, method="transformer", config=SMALL, training=training, log=log)
    resumed = {"resume_from_checkpoint": "run/checkpoint-2"}
    write_record(folder, "two_student", 18.0, method="capsnmt", config=SMALL, training=resumed, parameters=1_234_567)
    return folder


def test_scores(study, records):
    """(20 + 21 + 25) / 3 = 22; sqrt((4 + 1 + 9) / 2) = 2.6; 8 updates in 4 s; of the resumed run, 8 - 2 in 4 s."""
    columns, plain, student = score_table(study, read_results(study, records))
    assert columns == ["row", "parameters", "updates", "seeds", "test", "test, published", "updates/s"]
    assert plain == ["plain", "2.61M", "8", "3", "22.0 ± 2.6", "27.31", "2.00"]
    assert student == ["student", "1.23M", "8", "1", "18.0", "", "1.50"]


def test_other_metrics(study, records):
    """Two sentences of 6 and 4 words beside references of 4 each are 1.25 times as long."""
    assert metric_table(study, read_results(study, records)) == [["row", "test: chrF", "test: TER", "test: words"]]
    statistics = [[1, 0, 0, 0, 6, 5, 4, 3, 6, 4], [1, 0, 0, 0, 4, 3, 2, 1, 4, 4]]
    changed = {"method": "transformer", "config": SMALL, "statistics": statistics}
    for seed, chrf in ((1, 50.0), (2, 52.0)):
        marked = "two_plain" if seed == 1 else f"two_plain_seed{seed}"
        write_record(records, marked, 20.0, training={"seed": seed}, **changed)
        path = records / f"{marked}_test.json"
        record = json.loads(path.read_text())
        record["scores"]["chrf"] = {"score": chrf, "signature": "chrF2"}
        path.write_text(json.dumps(record))
    _, *rows = metric_table(study, read_results(study, records))
    assert rows == [["plain", "51.0 ± 1.4", "", "1.250 ± 0.000"]]


def test_speed_ratios_are_those_of_the_same_model(study, records):
    found = Comparison(2_605_056, 1_234_567, Rates([1000.0], [756.0]), Rates([1000.0], [884.0]))
    # In another order than the run's.
    name = "capsnmt dropout=0.1 d_model=16"
    speed = replace(read(SpeedRecord, STORED / "speed_tiny.json"), results={name: found})
    columns, plain, student = score_table(study, read_results(study, records), [speed])
    assert columns[-2:] == ["training, of Marian", "decoding, of Marian"]
    assert (plain[-2:], student[-2:]) == (["", ""], ["0.76", "0.88"])
    path = records / "two_student_run_record.json"
    record = json.loads(path.read_text())
    # As of a run that starts from a model.
    of_no_method = {"method": None, "size": None, "model_name_or_path": "a/model"}
    path.write_text(json.dumps({**record, "model": {**record["model"], **of_no_method}}))
    started = replace(study, rows=(study.rows[0], replace(study.rows[1], start="a/model")))
    assert score_table(started, read_results(started, records), [speed])[2][-2:] == ["0.76", "0.88"]
    speed.results[name] = replace(found, parameters=1)
    assert len(score_table(started, read_results(started, records), [speed])[0]) == 7


def test_spread():
    assert mean_and_spread([3.0]) == (3.0, None)
    assert mean_and_spread([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))


def test_curves(study, records):
    """(10 + 11 + 15) / 3 = 12; a row without the Trainer's log has no line."""
    assert curve_table(read_results(study, records)) == [
        ["updates", "4", "8"],
        ["plain", "12.0 ± 2.6", "22.0 ± 2.6"],
    ]


def test_caption(study, records):
    text = caption(study, read_results(study, records))
    assert text.startswith("BLEU: nrefs:1. Trained on a machine, 1 thread(s), torch 2. After ± is the standard")
    path = records / "two_student_run_record.json"
    environment = {**json.loads(path.read_text())["environment"], "device": "another"}
    path.write_text(json.dumps({**json.loads(path.read_text()), "environment": environment}))
    text = caption(study, read_results(study, records))
    assert "Trained on a machine, 1 thread(s), torch 2; on another, 1 thread(s), torch 2: student." in text
    path = records / "two_plain_seed3_run_record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "environment": environment}))
    assert "torch 2: plain of seed 3, student." in caption(study, read_results(study, records))
    (records / "two_student_test.json").unlink()
    assert caption(study, read_results(study, records)).endswith("Without records so far: student.")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "capsnmt"}, "its method is 'capsnmt', that of the row 'plain' is 'transformer'"),
        ({"config": {**SMALL, "d_model": 32}}, "its d_model is '32', that of the row 'plain' is 16"),
        ({"config": {"d_model": 16}}, "its dropout is 'that of the preset', that of the row 'plain' is 0.1"),
        (
            {"config": {**SMALL, "head_aggregation_cross_layers": None}},
            "its head_aggregation_cross_layers is 'None', that of the row 'plain' is 'that of the preset'",
        ),
        ({"data": {"train_file": ["other.en", "other.de"]}}, r"its train_file is \['other.en', 'other.de'\]"),
        (
            {"command": "-m cli.train --max_steps 8 --rdrop_alpha 5 --save_steps 2"},
            "its rdrop_alpha is None, that of the row 'plain' is 'the default'",
        ),
        ({"training": {"seed": 2}}, "its seed is 2, that of the row 'plain' is 1"),
        ({"training": {"learning_rate": 0.002}}, "its learning_rate is 0.002, that of the row 'plain' is 0.001"),
    ],
)
def test_records_of_another_run(study, records, changes, message):
    write_record(records, "two_plain", 20, **{"method": "transformer", "config": SMALL, **changes})
    with pytest.raises(ValueError, match=f"two_plain_run_record.json is the record of another run: {message}"):
        read_results(study, records)


@pytest.mark.parametrize(
    ("name", "value", "word", "recorded"),
    [
        ("metric_for_best_model", "eval_bleu", "eval_bleu", "bleu"),
        ("lr_scheduler_kwargs", {"factor": 0.5}, '{"factor": 0.5}', {"mode": "max", "factor": 0.5}),
        ("include_num_input_tokens_seen", True, "true", "all"),
        ("label_names", ["labels"], "labels", ["Labels", "more"]),
    ],
)
def test_an_option_is_recorded_as_what_became_of_it(study, records, name, value, word, recorded):
    """The command of the record says as what it was given."""
    asked = replace(study, rows=(replace(study.rows[0], train={**study.rows[0].train, name: value}, seeds=(1,)),))
    for said, fits in ((word, True), ("other", False)):
        command = shlex.join(["-m", "cli.train", f"--{name}", said, "--seed", "1"])
        options = {"method": "transformer", "config": SMALL, "training": {name: recorded}}
        write_record(records, "two_plain", 20, **options, command=command)
        with nullcontext() if fits else pytest.raises(ValueError, match=f"its {name} is "):
            assert len(read_results(asked, records)) == 1


def test_records_of_another_precision(study, records):
    write_record(records, "two_plain", 20, method="transformer", config=SMALL, mixed_precision="bf16")
    assert read_results(study, records)
    exact = replace(study, rows=tuple(replace(row, mixed_precision="no") for row in study.rows))
    with pytest.raises(ValueError, match="its mixed_precision is 'bf16', that of the row 'plain' is 'no'"):
        read_results(exact, records)


@pytest.mark.parametrize(
    ("files", "teacher"),
    [(["runs/distilled/other.en", "runs/distilled/other.de"], "'other'"), (None, "None")],
)
def test_records_of_a_run_that_another_or_none_has_taught(study, records, files, teacher):
    data = {"train_file": [str(file) for file in study.data["train_file"]] if files is None else files}
    write_record(records, "two_student", 20, method="capsnmt", config=SMALL, data=data)
    with pytest.raises(ValueError, match=f"its teacher is {teacher}, that of the row 'student' is 'plain'"):
        read_results(study, records)


def test_scores_of_another_text_of_the_same_name(study, records, tmp_path, monkeypatch):
    [test] = study.tests
    file = Path(test.references[0])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("ein hund\n")
    path = records / "two_plain_test.json"
    record = json.loads(path.read_text())
    record["references"] = [{"file": f"elsewhere/{file.name}", "sha256": hash_file(file)}]
    path.write_text(json.dumps(record))
    (records / "two_student_test.json").unlink()
    assert len(read_results(study, records)) == 1
    file.write_text("eine katze\n")
    with pytest.raises(ValueError, match="is the record of another evaluation: its SHA-256 of "):
        read_results(study, records)


@pytest.mark.parametrize(
    ("start", "model", "fits"),
    [
        (None, "runs/other/seed1", False),
        ("other", None, False),
        ("other", "runs/plain/seed1", False),
        ("other", "runs/other/seed1/average", True),
        ("a/model", "a/model", True),
    ],
)
def test_what_a_row_starts_from_is_what_its_run_started_from(study, records, start, model, fits):
    path = records / "two_plain_run_record.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "model": {**record["model"], "model_name_or_path": model}}))
    started = replace(study, rows=(replace(study.rows[0], start=start, seeds=(1,)),))
    message = f"its model_name_or_path is {model!r}, that of the row 'plain' is {start!r}"
    with nullcontext() if fits else pytest.raises(ValueError, match=message):
        assert len(read_results(started, records)) == 1


@pytest.mark.parametrize(("text", "message"), [("{", "not valid JSON"), ("[]", "is no object"), ("{}", "is no record")])
def test_records_that_are_none(study, records, text, message):
    (records / "two_plain_run_record.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_results(study, records)


@pytest.mark.parametrize("history", [{}, [5], [{"loss": 1.0}], [{"step": "a", "loss": 1.0}], {"a": 1}])
def test_a_damaged_log(study, records, history):
    log = records / "two_plain_trainer_state.json"
    log.write_text(json.dumps({"log_history": history}))
    if not history:
        assert read_results(study, records)[0].seeds[0].log == []
        return
    with pytest.raises(ValueError, match=f"{log} is damaged: its log_history is no list"):
        read_results(study, records)


def test_what_a_run_records_of_itself_is_its_row(tmp_path):
    """The options of a stored record, as the Trainer writes them, are those that a row would name."""
    record = json.loads((STORED / "multi30k_em-routing_run_record.json").read_text())
    study = study_of_two(tmp_path)
    study["train"] = {"learning_rate": "5e-3", "use_cpu": True, "report_to": "tensorboard", "eval_strategy": "steps"}
    study["train"] |= {"data_seed": None, "max_source_length": 256, "label_smoothing": 0.1}
    study["train"] |= {"max_tokens_per_batch": 4096, "max_steps": 3000, "warmup_steps": 2000}
    study["rows"] = [{"name": "em", "method": "em-routing"}]
    study["data"] = {name: record["data"][name] for name in ("train_file", "validation_file")}
    (tmp_path / "two_em_run_record.json").write_text(json.dumps(record))
    write_record(tmp_path, "other", 30.0, method="em-routing")
    (tmp_path / "other_test.json").rename(tmp_path / "two_em_test.json")
    [result] = read_results(read_study(write_study(tmp_path / "two.yaml", study)), tmp_path)
    assert result.bleu("test") == [30.0]


def test_adequacy_and_lengths(study, records):
    """Means over the seeds that were measured; a row of which none was has no line."""
    results = read_results(study, records)
    assert len(adequacy_table(study, results)) == len(length_table("test", results)) == 1
    for seed, covered, bleu in (("", 90, 30.0), ("_seed3", 80, 35.0)):
        path = records / f"two_plain{seed}_test.json"
        counts = {"source_words": 200, "covered_by_reference": 100, "covered": covered, "cdr": covered / 100}
        counts |= {"under_translated": 100 - covered, "over_translated": 1}
        buckets = [{"name": "≤ 9", "systems": {"test.de": {"bleu": bleu}}}, {"name": "> 9", "systems": {}}]
        measured = {"adequacy": {"systems": {"test.de": counts}}, "by_length": {"buckets": buckets}}
        path.write_text(json.dumps(json.loads(path.read_text()) | measured))
    results = read_results(study, records)
    columns, plain = adequacy_table(study, results)
    assert columns == ["row", "test: CDR", "test: under-translated", "test: over-translated"]
    assert plain == ["plain", "0.850 ± 0.071", "7.50%", "0.50%"]
    assert length_table("test", results) == [["test", "≤ 9"], ["plain", "32.5 ± 3.5"]]


def test_curves_by_time(study, records):
    """The student's update takes as long as two of the plain row's, by what both have of the plain model's speed."""
    log = [{"step": 2, "eval_bleu": 5.0}, {"step": 4, "eval_bleu": 6.0}, {"step": 8, "eval_bleu": 7.0}]
    (records / "two_student_trainer_state.json").write_text(json.dumps({"log_history": log}))
    results, study = read_results(study, records), replace(study, baseline="plain")
    stored = read(SpeedRecord, STORED / "speed_tiny.json")
    fast = Comparison(2_605_056, 2_605_056, Rates([1000.0], [2000.0]), Rates([1.0], [1.0]))
    slow = Comparison(2_605_056, 1_234_567, Rates([1000.0], [1000.0]), Rates([1.0], [1.0]))
    names = ("transformer d_model=16 dropout=0.1", "capsnmt d_model=16 dropout=0.1")
    speed = replace(stored, results=dict(zip(names, (fast, slow), strict=True)))
    columns, plain, student = time_curve_table(study, results, [speed])
    assert columns == ["time, in updates of plain", "4", "8"]
    assert plain[1:] == ["12.0 ± 2.6", "22.0 ± 2.6"]
    assert student == ["student", "5.0", "6.0"]
    short = replace(speed, results={names[0]: fast, names[1]: replace(slow, training=Rates([1.0], [4.0]))})
    assert time_curve_table(study, results, [short])[2] == ["student", "7.0", ""]
    other = replace(speed, results={names[0]: fast, names[1]: replace(slow, plain_parameters=9)})
    assert len(time_curve_table(study, results, [other])) == 2
    assert len(time_curve_table(study, results, [])) == 1
    path = records / "two_student_run_record.json"
    of_pairs = json.loads(path.read_text())
    of_pairs["training"]["rdrop_alpha"] = 1.0
    path.write_text(json.dumps(of_pairs))
    assert len(time_curve_table(study, read_results(study, records), [speed])) == 2
