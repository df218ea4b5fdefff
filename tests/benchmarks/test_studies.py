"""Studies: their rows, their commands, what their records answer, and the pages that are made from them."""

import importlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.common.records import read_records
from benchmarks.studies import __main__ as studies
from benchmarks.studies import report, run
from benchmarks.studies.compare import Comparison, compare_seeds, judge
from benchmarks.studies.plan import Job, Plan
from benchmarks.studies.run import estimate
from benchmarks.studies.study import Question, read_study
from hf_capsule_mt import preset_config
from hf_capsule_mt.quickstart import read_corpus

ROOT = Path(__file__).parents[2]
PAPERS = sorted((ROOT / "benchmarks" / "studies" / "papers").glob("*.yaml"))
OWN = [
    path for name in ("multi30k", "routing", "tatoeba") for path in sorted((ROOT / "benchmarks" / name).glob("*.yaml"))
]
STUDIES = [*PAPERS, *OWN]
SMALL = {"d_model": 16, "dropout": 0.1}


def study_of_two(folder):
    """What the file says; its data are in `folder`."""
    return {
        "title": "Two rows",
        "data": {
            "train_file": [f"{folder}/train.en", f"{folder}/train.de"],
            "validation_file": [f"{folder}/test.en", f"{folder}/test.de"],
        },
        "tests": {"test": [f"{folder}/test.en", f"{folder}/test.de"]},
        "train_tokenizer": {"vocab_size": 300},
        "train": {
            **{"max_tokens_per_batch": 200, "max_steps": 8, "warmup_steps": 4, "learning_rate": "1e-3"},
            **{"logging_steps": 2, "save_strategy": "steps", "save_steps": 2, "use_cpu": True, "report_to": "none"},
        },
        "average_checkpoints": {"last": 2},
        "translate": {"num_beams": 2, "max_new_tokens": 8, "device": "cpu"},
        "distill": {"num_beams": 1, "max_new_tokens": 8, "device": "cpu"},
        "evaluate": {"metrics": ["bleu"]},
        "size": "tiny",
        "rows": [
            {"name": "plain", "method": "transformer", "config": SMALL},
            {"name": "student", "method": "capsnmt", "config": SMALL, "teacher": "plain"},
        ],
    }


def write_study(path, study):
    """Write the file; returns its path."""
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    return path


def parser_of(command):
    return importlib.import_module(f"hf_capsule_mt.cli.{command}").build_parser()


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_row_can_be_run(path):
    """Methods and fields exist, and the commands know their options."""
    study = read_study(path)
    plan = Plan(study, Path("runs"), Path("records.jsonl"))
    parsers = {}
    for row in study.rows:
        preset_config(row.method, row.size, **row.config)
        for step in plan.steps(Job(row.name, row.seeds[0])):
            if step.command != "export":
                parser = parsers.setdefault(step.command, parser_of(step.command))
                line = step.command_line(study.launcher)
                parser.parse_args(line[line.index("-m") + 3 :])
    averaged = study.options.get("average_checkpoints", {"last": 1})["last"]
    assert averaged < study.options["train"]["save_total_limit"]


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_every_paper_has_its_cost_and_its_scores(path):
    study = read_study(path)
    assert sum(bool(row.published) for row in study.rows) >= 2
    text = estimate(study, Plan(study, Path("runs"), Path("records.jsonl")).jobs())
    hours, gpu, runs = re.match(r"about ([\d,]+) hours of one (.*?): (\d+) run", text).groups()
    readme = (ROOT / "benchmarks" / "studies" / "README.md").read_text(encoding="utf-8")
    assert f"| `{path.stem}` | {runs} | {hours} | {gpu} |\n" in readme


@pytest.mark.parametrize(
    ("study", "page"),
    [
        ("multi30k/multi30k.yaml", "multi30k/README.md"),
        ("routing/deep_encoders.yaml", "routing/deep_encoders.md"),
        pytest.param(
            "routing/does_routing_pay_french.yaml", "routing/does_routing_pay_french.md", marks=pytest.mark.slow
        ),
    ],
)
def test_the_page_is_made_from_the_records(study, page, tmp_path, monkeypatch):
    """If not: python -m benchmarks.studies report benchmarks/STUDY --page benchmarks/PAGE"""
    monkeypatch.chdir(ROOT)
    studies.main(["report", f"benchmarks/{study}", "--page", str(tmp_path / "page.md")])
    committed = ROOT / "benchmarks" / page
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == committed.read_text(encoding="utf-8")


def commands_of(study, tmp_path, name):
    plan = Plan(study, tmp_path, tmp_path / "records.jsonl")
    return {step.command: step.command_line(study.launcher) for step in plan.steps(Job(name, 1))}, plan


def test_a_data_set_of_the_hub_and_adequacy(tmp_path):
    found = study_of_two(tmp_path)
    found["data"] = {"dataset_name": "wmt/wmt14", "dataset_config_name": "de-en"}
    found["data"] |= {"source_lang": "en", "target_lang": "de"}
    found["tests"] = {"newstest": "test"}
    found["train"]["eval_strategy"] = "steps"
    words, _ = commands_of(read_study(write_study(tmp_path / "s.yaml", found)), tmp_path, "student")
    assert words["export"][1:4] == ["-m", "benchmarks.studies", "export"]
    assert [str(tmp_path / "data" / f"validation.{end}") for end in ("en", "de")] == (
        words["train"][words["train"].index("--validation_file") + 1 :][:2]
    )
    assert str(tmp_path / "data" / "test.en") in words["translate"]
    found["data"], found["tests"] = study_of_two(tmp_path)["data"], study_of_two(tmp_path)["tests"]
    found["evaluate"] = {"adequacy": True}
    words, _ = commands_of(read_study(write_study(tmp_path / "s.yaml", found)), tmp_path, "plain")
    text = " ".join(words["evaluate"])
    assert (
        f"--input_file {tmp_path}/test.en --alignment_data {tmp_path}/train.en {tmp_path}/train.de --adequacy" in text
    )


def without_tokenizer(rows, **fields):
    study = {**study_of_two("data"), "rows": rows, **fields}
    if "train_tokenizer" not in fields:
        del study["train_tokenizer"]
    return study


FROM_MODEL = {"name": "on", "method": "transformer", "start": "user/model"}
SCRATCH = {"name": "new", "method": "transformer"}
FROM_ROW = {"name": "again", "method": "transformer", "start": "on"}


def test_a_row_that_starts_from_a_model_has_its_tokenizer(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = write_study(tmp_path / "s.yaml", without_tokenizer([FROM_MODEL, FROM_ROW]))
    studies.main(["run", str(file), "--dry_run"])
    commands = capsys.readouterr().out
    assert "--model user/model" in commands
    assert f"--model {Path('outputs/s/on/seed1/average')}" in commands
    assert "tokenizer" not in commands
    # Rows that train from scratch have the study's.
    file = write_study(tmp_path / "s.yaml", without_tokenizer([SCRATCH, FROM_MODEL], tokenizer="mine"))
    studies.main(["run", str(file), "--dry_run"])
    scratch, started = capsys.readouterr().out.split("# on, seed 1")
    assert "--tokenizer_name mine" in scratch
    assert "tokenizer" not in started


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (without_tokenizer([SCRATCH, FROM_MODEL]), "new must have a tokenizer. Give `tokenizer` or `train_tokenizer`"),
        (without_tokenizer([FROM_MODEL], tokenizer="other"), "every row starts from a model"),
        (without_tokenizer([FROM_MODEL], train_tokenizer={"vocab_size": 300}), "every row starts from a model"),
        (without_tokenizer([FROM_MODEL], train={"tokenizer_name": "other"}), "`train` cannot have tokenizer_name"),
        (without_tokenizer([SCRATCH, SCRATCH], tokenizer="mine"), "new must be the name of exactly one row"),
        (without_tokenizer([SCRATCH], tokenizer="mine", baseline="plain"), "plain must be the name of exactly one row"),
    ],
)
def test_mistakes_in_a_study(study, message, tmp_path, capsys):
    file = write_study(tmp_path / "s.yaml", study)
    with pytest.raises(SystemExit) as ended:
        studies.main(["run", str(file), "--dry_run"])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_the_tokenizer_of_the_start_may_be_named(tmp_path):
    study = without_tokenizer([FROM_MODEL], tokenizer="user/model")
    assert read_study(write_study(tmp_path / "s.yaml", study)).tokenizer == "user/model"


@pytest.fixture
def small(tmp_path):
    # Only the first German word: within seconds a teacher learns where such translations end.
    pairs = [(english, german.split()[0]) for english, german in read_corpus(130)]
    for name, part in (("train", pairs[:120]), ("test", pairs[120:])):
        for language, side in zip(("en", "de"), zip(*part, strict=True), strict=True):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{line}\n" for line in side))
    study = study_of_two(tmp_path)
    study["rows"][0] |= {
        "config": {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.1},
        "train": {"max_steps": 40, "warmup_steps": 10, "learning_rate": "1e-2", "save_steps": 5},
    }
    return write_study(tmp_path / "two.yaml", study)


def in_this_process(words, *others):
    """Run a command here, where its imports are done."""
    name, *options = words[words.index("-m") + 2 :]
    importlib.import_module(f"hf_capsule_mt.cli.{name}").main(options)
    return 0


@pytest.mark.slow
def test_a_study_is_run_once_and_reported(small, tmp_path, monkeypatch, capsys):
    options = [str(small), "--records", str(tmp_path / "records.jsonl")]
    runs = ["--output_dir", str(tmp_path / "runs")]
    commands = []

    def fails_at_the_average(words, *others):
        commands.append(words[words.index("-m") + 2])
        return 1 if commands[-1] == "average_checkpoints" else in_this_process(words)

    monkeypatch.setattr(run, "run_command", fails_at_the_average)
    with pytest.raises(SystemExit, match="student, seed 1: a row that it needs failed"):
        studies.main(["run", *options, *runs])
    assert commands == ["train_tokenizer", "train", "average_checkpoints"]
    monkeypatch.setattr(run, "run_command", in_this_process)
    studies.main(["run", *options, *runs, "--without_scores"])
    assert "done but for its scores" in capsys.readouterr().out
    assert not read_records(tmp_path / "records.jsonl")
    studies.main(["run", *options, *runs, "--jobs", "2"])
    names = [f"two_{row}_{kind}" for row in ("plain", "student") for kind in ("run_record", "test", "trainer_state")]
    records = read_records(tmp_path / "records.jsonl")
    assert sorted(records) == sorted(names)
    distilled = [str(tmp_path / "runs" / "distilled" / f"plain.{end}") for end in ("en", "de")]
    assert records["two_student_run_record"]["data"]["train_file"] == distilled
    capsys.readouterr()
    monkeypatch.setattr(run, "run_command", lambda words, *others: pytest.fail(f"{words} was run again"))
    studies.main(["run", *options, *runs])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0] for line in lines] == ["| row", "| ---", "| plain", "| student"]
    studies.main(["report", *options, "--figures_dir", str(tmp_path / "figures")])
    page = capsys.readouterr().out
    assert "| student | plain (other training text) | test | 1 |" in page
    assert (tmp_path / "figures" / "learning_curves.svg").is_file()
    # Another row by the same name.
    changed = yaml.safe_load(small.read_text())
    changed["rows"][0]["train"]["max_steps"] = 41
    write_study(small, changed)
    for records in (tmp_path / "other.jsonl", tmp_path / "records.jsonl"):
        with pytest.raises(SystemExit):
            studies.main(["run", str(small), "--records", str(records), *runs, "--rows", "plain"])
        assert "row.json is of another row" in capsys.readouterr().err


def runs_of(matches, seeds, sentences=40, draw=0):
    """Statistics of runs whose sentences of ten words have so many matches of one word, about."""
    generator = np.random.default_rng(len(seeds) + int(10 * matches) + draw)
    found = []
    for shift in seeds:
        ones = np.clip(generator.normal(matches + shift, 1, sentences).round(), 4, 10)
        counts = np.stack([ones, ones - 1, ones - 2, ones - 3], 1)
        totals = np.tile([10, 9, 8, 7, 10, 10], (sentences, 1))
        found.append(np.concatenate([counts, totals], 1))
    return found


def test_the_better_of_two_systems():
    close, far = (compare_seeds(runs_of(6, [0, 0]), runs_of(better, [0, 0], draw=1), 500) for better in (6, 8))
    assert far["score"] - far["baseline"] > 20
    assert far["low"] > 0
    assert far["p_value"] == pytest.approx(1 / 501)
    assert close["low"] < 0 < close["high"]
    assert close["p_value"] > 0.05


@pytest.mark.parametrize(
    ("seeds", "low", "difference", "high", "answer"),
    [
        (2, 0.1, 0.6, 1.1, "yes"),
        (2, -0.1, 0.6, 1.1, "undecided"),
        (2, -0.5, 0.1, 0.4, "no"),
        (1, 0.1, 0.6, 1.1, "open"),
        (1, -5.0, -4.0, -3.0, "no"),
    ],
)
def test_answers(seeds, low, difference, high, answer, tmp_path):
    found = {**study_of_two(tmp_path), "seeds": [1, 2]}
    study = read_study(write_study(tmp_path / "s.yaml", found))
    question = Question("q", "?", 0.5, ["student"])
    one = Comparison("student", "plain", "test", ["machine"], seeds, 30.0, 30.0 + difference, low, high, 0.01)
    found, why = judge(study, question, [one])
    assert found == answer
    assert "against `plain`" in why
    assert judge(study, question, []) == ("open", "nothing to compare yet")
    assert judge(study, question, [replace(one, p_value=0.2)])[0] == ("undecided" if answer == "yes" else answer)


@pytest.mark.parametrize(("baseline", "score"), [(0.7, 0.9), (30.0, 0.9), (0.7, 30.0)])
def test_models_that_have_learned_nothing_answer_nothing(baseline, score, tmp_path):
    study = read_study(write_study(tmp_path / "s.yaml", {**study_of_two(tmp_path), "seeds": [1, 2]}))
    question = Question("q", "?", 0.5, ["student"])
    gain = score - baseline
    one = Comparison("student", "plain", "test", [], 2, baseline, score, gain - 0.1, gain + 0.1, 0.001)
    answer, why = judge(study, question, [one])
    assert answer == "undecided"
    assert f"{score:.1f} BLEU, and {baseline:.1f} of `plain`, are too little to tell" in why


def test_a_template_cannot_run_code(tmp_path):
    template = tmp_path / "page.md.jinja"
    template.write_text("{{ study.__class__.__mro__ }}")
    study = read_study(write_study(tmp_path / "two.yaml", {**study_of_two(tmp_path), "page": str(template)}))
    with pytest.raises(Exception, match="unsafe"):
        report.render_pages(study, tmp_path / "none.jsonl")
