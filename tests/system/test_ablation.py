"""A study of two rows, killed while it trains and started again: the commands that users type."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_study import run_here, study_of_two, subprocess_here, write_study

from benchmarks.studies import report_command as ablation_report
from benchmarks.studies import run as ablate
from benchmarks.studies import runner, sections
from hf_capsule_mt.checkpoints import is_whole
from hf_capsule_mt.quickstart.corpus import read_corpus

ROOT = Path(__file__).parents[2]
RECORDS = ["run_record.json", "test.json", "trainer_state.json"]


@pytest.fixture
def study(tmp_path):
    # Of the German the first word alone: within seconds a teacher learns where such translations end.
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


def train_the_tokenizer(study, runs, monkeypatch):
    """Do the first step of the study here, and let the next one fail."""

    def run(words, *others):
        return run_here(words) if "hf_capsule_mt.cli.train_tokenizer" in words else 1

    monkeypatch.setattr(runner, "run_command", run)
    with pytest.raises(SystemExit):
        ablate.main([str(study), "--runs_dir", str(runs)])


def start(study, runs):
    command = [sys.executable, "-m", "benchmarks.studies.run", str(study), "--runs_dir", str(runs)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True)


def wait_for_a_checkpoint(process, run):
    while not any(is_whole(folder) for folder in run.glob("checkpoint-*")):
        assert process.poll() is None, "the runner ended before it could be killed"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_kill_costs_little_and_what_is_done_is_not_done_again(study, tmp_path, monkeypatch, capsys):
    runs = tmp_path / "runs"
    records, run = runs / "records", runs / "plain" / "seed1"
    train_the_tokenizer(study, runs, monkeypatch)
    process = start(study, runs)
    wait_for_a_checkpoint(process, run)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not records.exists()
    assert not (run / "run_record.json").exists()
    # As a kill in the middle of saving leaves it.
    (run / "checkpoint-3").mkdir()

    # Here the rest goes on; in processes of their own its commands have just been shown to run.
    monkeypatch.setattr(runner, "run_command", run_here)
    ablate.main([str(study), "--runs_dir", str(runs)])
    names = [f"two_{row}_{record}" for row in ("plain", "student") for record in RECORDS]
    assert sorted(file.name for file in records.iterdir()) == sorted(names)
    resumed = json.loads((records / "two_plain_run_record.json").read_text())
    assert Path(resumed["training"]["resume_from_checkpoint"]).parent == run
    assert resumed["updates"] == 40
    assert not (run / "checkpoint-3").exists()
    student = json.loads((records / "two_student_run_record.json").read_text())
    assert student["data"]["train_file"] == [str(runs / "distilled" / f"plain.{end}") for end in ("en", "de")]
    averaged = json.loads((runs / "student" / "seed1" / "average" / "averaging.json").read_text())
    assert [Path(folder).name for folder in averaged["checkpoints"]] == ["checkpoint-6", "checkpoint-8"]

    capsys.readouterr()
    monkeypatch.setattr(runner, "run_command", lambda words, *others: pytest.fail(f"{words} was run again"))
    ablate.main([str(study), "--runs_dir", str(runs)])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0] for line in lines] == ["| row", "| ---", "| plain", "| student"]

    # The report has a checkpoint that routes analyzed.
    monkeypatch.setattr(sections, "subprocess", subprocess_here())
    ablation_report.main([str(study), "--runs_dir", str(runs), "--output_dir", str(tmp_path / "report")])
    page = (tmp_path / "report" / "index.html").read_text()
    translated = (runs / "student" / "seed1" / "test.de").read_text().splitlines()
    assert len(translated) == 10
    assert all(heading in page for heading in ("Scores", "Figures", "Examples", "learning_curves.svg"))
