"""The probing command: all ten tasks, the table, and what happens when it is run again."""

import json
import random
from pathlib import Path
from statistics import mean, stdev
from types import SimpleNamespace

import pytest
from filelock import FileLock
from tiny_marian import save_tiny_marian

from benchmarks.probing.classifiers import ProbingSettings, Trainer
from benchmarks.probing.data import TASKS
from benchmarks.probing.encoders import AGGREGATIONS
from benchmarks.probing.run import build_parser, main
from hf_capsule_mt.files import LOCK

QUICK = ["--size", "tiny", "--vocab_size", "20", "--epochs", "1", "--batch_size", "8"]
LABELS = {"past_present": ["PAST", "PRES"], "top_constituents": ["NP_VP_.", "S_CC_S_.", "OTHER"]}


class Interrupted(Exception):
    """Takes the place of a kill."""


def write_task(folder, name, sizes=(12, 4, 5)):
    rng = random.Random(name)
    labels = LABELS.get(name, ["0", "1"])
    lines = [
        f"{split}\t{labels[number % len(labels)]}\t{' '.join(rng.choices('abcdef', k=5))}"
        for split, size in zip(("tr", "va", "te"), sizes)
        for number in range(size)
    ]
    (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def data_dir(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("bigram_shift", "word_content"):
        write_task(folder, name)
    return folder


def run(data_dir, output_dir, *options):
    main(["--data_dir", str(data_dir), "--output_dir", str(output_dir), *QUICK, *options])


def refused(capsys, *arguments):
    """The message with which the command ends."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_:
        run(*arguments)
    assert exit_.value.code == 2
    return capsys.readouterr().err


def rows(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]


def pretend(monkeypatch, accuracies=None):
    """Let classifiers be trained in no time, with these test accuracies; returns the runs as they come."""
    accuracies, done = iter(accuracies or [0.5] * 99), []

    def probe(data, encoder, seed, settings, run_dir):
        done.append(Path(run_dir).name)
        sizes = {split: len(examples) for split, examples in data.splits.items()}
        others = {
            "validation_accuracy": 0.5,
            "validation_accuracies": [0.5],
            "labels": 2,
            "parameters": 1,
            "config": {},
        }
        return {"test_accuracy": next(accuracies), "majority_accuracy": 0.25, "sentences": sizes, **others}

    monkeypatch.setattr("benchmarks.probing.run.probe", probe)
    return done


def test_one_process_at_a_time(data_dir, tmp_path, monkeypatch, capsys):
    done, folder = pretend(monkeypatch), tmp_path / "runs"
    folder.mkdir()
    monkeypatch.setattr("hf_capsule_mt.files.GRACE", 0)
    with FileLock(folder / LOCK):
        assert f"another process works in {folder}; wait for it" in refused(capsys, data_dir, folder)
    assert not done


@pytest.mark.slow
def test_all_ten_tasks_of_senteval(tmp_path, capsys):
    for name in TASKS:
        write_task(tmp_path, name)
    run(tmp_path, tmp_path / "runs", "--aggregations", "base", "--seeds", "3")
    groups, _, columns, majority, base = rows(capsys.readouterr().out)
    assert groups == ["", "Surface", "", "Syntactic", "", "", "Semantic", "", "", "", ""]
    assert columns == ["model", "SeLen", "WC", "TrDep", "ToCo", "BShif", "Tense", "SubNm", "ObjNm", "SOMO", "CoIn"]
    assert [majority[0], base[0]] == ["majority class", "BASE"]
    for name, chance, cell in zip(TASKS, majority[1:], base[1:], strict=True):
        record = json.loads((tmp_path / "runs" / f"{name}-base-3.json").read_text())
        assert record["labels"] == len(LABELS.get(name, "01"))
        assert record["sentences"] == {"tr": 12, "va": 4, "te": 5}
        assert cell == f"{100 * record['test_accuracy']:.2f}"
        assert chance == f"{100 * record['majority_accuracy']:.2f}"


def test_a_record_says_how_it_was_made(data_dir, tmp_path, capsys):
    run(data_dir, tmp_path / "runs", "--tasks", "word_content", "--aggregations", "simple", "em", "--seeds", "0")
    files = {file.name for file in (tmp_path / "runs").iterdir()}
    assert files == {"word_content-simple-0.json", "word_content-em-0.json", "table.md"}
    record = json.loads((tmp_path / "runs" / "word_content-em-0.json").read_text())
    digest = record["settings"].pop("data_sha256")
    assert len(digest) == 64
    chosen = {name: value for name, value in record["settings"].items() if value is not None}
    assert chosen == {
        "task": "word_content",
        "aggregation": "em",
        "seed": 0,
        "size": "tiny",
        "vocab_size": 20,
        "epochs": 1,
        "batch_size": 8,
        "learning_rate": 5e-4,
    }
    assert record["config"]["head_aggregation"] == "em_routing"
    assert record["validation_accuracies"] == [record["validation_accuracy"]]
    assert record["parameters"] > 0
    assert record["environment"]["packages"]["torch"]
    output = capsys.readouterr()
    assert output.out == (tmp_path / "runs" / "table.md").read_text()
    assert output.out.startswith("| ")
    assert "1 of 2: word_content-simple-0 is trained" in output.err


def test_the_table_has_means_and_deviations_of_the_records(data_dir, tmp_path, monkeypatch, capsys):
    accuracies = [0.1, 0.3, 0.4, 0.8, 0.5, 0.5, 0.9, 0.7]
    done = pretend(monkeypatch, accuracies)
    run(data_dir, tmp_path / "runs", "--aggregations", "em", "base", "--seeds", "1", "7")
    names = [
        f"{task}-{row}-{seed}" for task in ("word_content", "bigram_shift") for row in ("em", "base") for seed in (1, 7)
    ]
    assert done == names
    header, alignment, columns, majority, em, base = rows(capsys.readouterr().out)
    assert header == ["", "Surface", "Syntactic"]
    assert alignment == ["---", "---:", "---:"]
    assert columns == ["model", "WC", "BShif"]
    assert majority == ["majority class", "25.00", "25.00"]
    pairs = [accuracies[start : start + 2] for start in (0, 4, 2, 6)]
    cells = [f"{100 * mean(pair):.2f} ± {100 * stdev(pair):.2f}" for pair in pairs]
    assert [em, base] == [["EM", *cells[:2]], ["BASE", *cells[2:]]]
    caption = (tmp_path / "runs" / "table.md").read_text().splitlines()[-1]
    for part in ("seeds 1, 7", "`tiny`", "1 epochs", "word_content 12/4/5, bigram_shift 12/4/5", "torch"):
        assert part in caption


def test_what_has_a_record_is_not_done_again(data_dir, tmp_path, monkeypatch, capsys):
    output_dir = tmp_path / "runs"
    done = pretend(monkeypatch, [0.1, 0.2, 0.3])
    run(data_dir, output_dir, "--tasks", "bigram_shift", "--aggregations", "base", "--seeds", "1", "2")
    assert done == ["bigram_shift-base-1", "bigram_shift-base-2"]
    # As if killed after the record was written.
    (output_dir / "bigram_shift-base-1").mkdir()
    run(data_dir, output_dir, "--tasks", "bigram_shift", "--aggregations", "base", "--seeds", "1", "2", "3")
    assert done[2:] == ["bigram_shift-base-3"]
    assert not (output_dir / "bigram_shift-base-1").exists()
    output = capsys.readouterr()
    assert "1 of 3: bigram_shift-base-1 has a record" in output.err
    assert rows(output.out)[-1] == ["BASE", "20.00 ± 10.00"]


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (["--size", "base"], "size 'tiny', and now it is 'base'"),
        (["--epochs", "2"], "epochs 1, and now it is 2"),
        (["--learning_rate", "0.1"], "learning_rate 0.0005, and now it is 0.1"),
        ([], "data_sha256 '"),
    ],
)
def test_a_record_of_other_settings_is_refused(data_dir, tmp_path, monkeypatch, capsys, options, difference):
    done = pretend(monkeypatch)
    chosen = ["--aggregations", "base", "--seeds", "1"]
    run(data_dir, tmp_path / "runs", "--tasks", "bigram_shift", *chosen)
    if not options:
        write_task(data_dir, "bigram_shift", (13, 4, 5))
    message = refused(capsys, data_dir, tmp_path / "runs", *chosen, *options)
    assert f"{tmp_path}/runs/bigram_shift-base-1.json is of a run with {difference}" in message
    assert "or name another --output_dir" in message
    # Not even the other task is begun.
    assert done == ["bigram_shift-base-1"]


@pytest.mark.parametrize("record", ["{}", '{"settings": []}'])
def test_a_record_without_settings_is_refused(data_dir, tmp_path, monkeypatch, capsys, record):
    done = pretend(monkeypatch)
    (tmp_path / "bigram_shift-base-1.json").write_text(record)
    message = refused(capsys, data_dir, tmp_path, "--aggregations", "base", "--seeds", "1", "--tasks", "bigram_shift")
    assert "bigram_shift-base-1.json is of a run with task None, and now it is 'bigram_shift'; repeat" in message
    assert not done


def test_an_interrupted_run_goes_on_with_the_same_settings(data_dir, tmp_path, monkeypatch, capsys):
    chosen = ["--tasks", "bigram_shift", "--aggregations", "base", "--seeds", "1", "--epochs", "3"]
    run(data_dir, tmp_path / "whole", *chosen)
    original, steps = Trainer.training_step, []

    def step(*arguments, **options):
        if len(steps) == 3:
            raise Interrupted
        steps.append(1)
        return original(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "training_step", step)
        with pytest.raises(Interrupted):
            run(data_dir, tmp_path / "parts", *chosen)
    folder = tmp_path / "parts" / "bigram_shift-base-1"
    # An epoch has two updates.
    assert {path.name for path in folder.iterdir()} == {"settings.json", "checkpoint-2"}
    message = refused(capsys, data_dir, tmp_path / "parts", *chosen, "--batch_size", "4")
    assert f"{folder}/settings.json is of a run with batch_size 8, and now it is 4" in message
    run(data_dir, tmp_path / "parts", *chosen)
    whole, parts = (json.loads((tmp_path / name / f"{folder.name}.json").read_text()) for name in ("whole", "parts"))
    del whole["seconds_of_this_call"], parts["seconds_of_this_call"]
    assert parts == whole
    assert {path.name for path in (tmp_path / "parts").iterdir()} == {"bigram_shift-base-1.json", "table.md"}


def test_defaults_are_those_of_the_settings():
    args = build_parser().parse_args(["--data_dir", "a", "--output_dir", "b"])
    assert ProbingSettings() == ProbingSettings(args.epochs, args.batch_size, args.learning_rate)
    assert args.size is args.vocab_size is args.models is None
    assert args.aggregations == list(AGGREGATIONS)
    assert args.seeds == [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tasks", "sentlen"], "unknown task 'sentlen'"),
        (["--tasks", "tree_depth"], "holds no tree_depth.txt"),
        (["--data_dir", "absent"], "absent is not a folder"),
        (["--aggregations", "base", "gru"], "'gru'; allowed are 'base', 'simple', 'em'"),
        (["--seeds", "1", "-2"], "seeds has -2; seeds are 0 or more"),
        (["--size", "huge"], "size is 'huge'"),
        (["--epochs", "0"], "epochs is 0; it must be at least 1"),
        (["--models", "a=folder"], "--size is of use with new encoders alone"),
        (["--models", "a=b", "--aggregations", "em"], "not allowed with argument --models"),
    ],
)
def test_mistakes(data_dir, tmp_path, monkeypatch, capsys, options, message):
    done = pretend(monkeypatch)
    assert message in refused(capsys, data_dir, tmp_path / "runs", *options)
    assert not done
    assert not (tmp_path / "runs").exists()


def test_several_processes(data_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.probing.run.process_state", lambda device: SimpleNamespace(num_processes=2))
    done = pretend(monkeypatch)
    assert "there are 2 processes; start this command in one" in refused(capsys, data_dir, tmp_path / "runs")
    assert not done


def probe_models(data_dir, output_dir, *models):
    main(["--data_dir", str(data_dir), "--output_dir", str(output_dir), "--epochs", "1", "--models", *models])


def test_trained_models(data_dir, tmp_path, capsys):
    models = [f"{row}={save_tiny_marian(tmp_path / row, seed)}" for row, seed in (("plain", 1), ("a.b-c_2", 2))]
    probe_models(data_dir, tmp_path / "runs", *models)
    table = capsys.readouterr().out
    assert [row[0] for row in rows(table)] == ["", "---", "model", "majority class", "plain", "a.b-c_2"]
    assert "seeds 1, 2, 3. Encoders of trained models, as they are, 1 epochs" in table
    record = json.loads((tmp_path / "runs" / "bigram_shift-plain-2.json").read_text())
    assert record["settings"]["model"] == "plain"
    assert record["settings"]["aggregation"] is record["settings"]["size"] is None
    assert "model.safetensors" in record["settings"]["model_sha256"]
    with pytest.raises(SystemExit):
        probe_models(data_dir, tmp_path / "runs", "plain" + models[1].removeprefix("a.b-c_2"))
    assert "is of a run with model_sha256 {" in capsys.readouterr().err


@pytest.mark.parametrize("models", [["plain"], ["plain="], ["=folder"], ["a/b=folder"], ["a={folder}", "a={folder}"]])
def test_models_without_a_row_of_their_own(data_dir, tmp_path, capsys, models):
    folder = save_tiny_marian(tmp_path / "model")
    with pytest.raises(SystemExit):
        probe_models(data_dir, tmp_path / "runs", *(model.format(folder=folder) for model in models))
    assert "name each model once, by its row" in capsys.readouterr().err


def test_a_malformed_line_of_the_last_task_ends_it_before_the_first_is_trained(data_dir, tmp_path, monkeypatch, capsys):
    done = pretend(monkeypatch)
    file = data_dir / "coordination_inversion.txt"
    file.write_text("tr\tO\ta b\ntr\tI\n")
    assert f"error: {file}:2: 2 column(s) with text" in refused(capsys, data_dir, tmp_path / "runs")
    assert not done
