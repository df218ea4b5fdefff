"""What the runner does with commands that fail, that lie, and that somebody else runs already."""

import dataclasses
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock
from tiny_study import study_of_two, write_record, write_study

from benchmarks.studies import run as ablate
from benchmarks.studies import runner
from benchmarks.studies.runner import run_jobs
from benchmarks.studies.steps import Job, Plan, Step
from benchmarks.studies.study import Row
from benchmarks.studies.study_file import read_study
from hf_capsule_mt.files import LOCK

ROW = Row("row", "transformer", "tiny", {}, (1,), {})


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Three commands: one writes its product and notes that it ran, one fails, one ends well and writes nothing."""
    monkeypatch.setattr(runner, "COMMANDS", "commands")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    tmp_path = tmp_path / "commands"
    tmp_path.mkdir()
    (tmp_path / "write.py").write_text(
        "import sys, pathlib\npathlib.Path(sys.argv[2]).write_text('{}')\nopen(sys.argv[2] + '.ran', 'a').write('x')\n"
    )
    (tmp_path / "fail.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "nothing.py").write_text("")
    return tmp_path


def job(folder, name, *commands, needs=()):
    """A job whose last command makes its record."""
    row = Row(name, "transformer", "tiny", {}, (1,), {})
    steps = []
    for number, command in enumerate(commands):
        product = folder / f"{name}{number}.json"
        steps.append(Step(command, {"output_file": product}, product))
    records = {folder / "records" / f"{name}.json": steps[-1].product}
    return Job(row, 1, tuple(steps), records, frozenset(f"{other}, seed 1" for other in needs))


def test_a_crash_stops_no_other_row(commands, tmp_path):
    jobs = [job(tmp_path, "bad", "write", "fail"), job(tmp_path, "empty", "nothing"), job(tmp_path, "good", "write")]
    said = []
    failures = run_jobs(jobs, tmp_path, "unused", said.append)
    assert [failure.partition(",")[0] for failure in failures] == ["bad", "empty"]
    assert f"python -m commands.fail --output_file {tmp_path}/bad1.json" in failures[0]
    assert [file.name for file in (tmp_path / "records").iterdir()] == ["good.json"]
    assert said[-1] == "== good, seed 1: done"
    (commands / "fail.py").write_text((commands / "write.py").read_text())
    assert run_jobs(jobs, tmp_path, "unused", said.append) == failures[1:]
    assert (tmp_path / "bad0.json.ran").read_text() == (tmp_path / "good0.json.ran").read_text() == "x"


def test_what_is_left_out_is_made_by_a_later_call(commands, tmp_path):
    """A row without its scores has no record, and scores of other weights are none."""
    for name in ("train", "evaluate"):
        (commands / f"{name}.py").write_text((commands / "write.py").read_text())
    run, record, said = tmp_path / "run", tmp_path / "records" / "r", []
    run.mkdir()
    (run / "test.json").write_text("of other weights")
    products = (("train", run / "run_record.json"), ("evaluate", run / "test.json"))
    steps = tuple(Step(command, {"output_file": product}, product) for command, product in products)
    whole = Job(ROW, 1, steps, {record: run / "test.json"})
    assert run_jobs([dataclasses.replace(whole, without_scores=True)], tmp_path, "python", said.append) == []
    assert said[-1] == "== row, seed 1: done but for its scores"
    assert not record.exists()
    assert run_jobs([whole], tmp_path, "python", said.append) == []
    assert said[-1] == "== row, seed 1: done"
    assert record.read_text() == "{}"
    assert (run / "run_record.json.ran").read_text() == "x"


MEETING = """
import sys, time
from pathlib import Path
own, until = Path(sys.argv[2]), time.monotonic() + 600
own.with_suffix(".there").touch()
print("waiting for the other")
while len(list(own.parent.glob("*.there"))) < 2 and time.monotonic() < until:
    time.sleep(0.01)
own.write_text("{}")
raise SystemExit(time.monotonic() >= until)
"""


def test_jobs_at_once(commands, tmp_path, capfd):
    """Two that end only when both run, of which each makes what both need first, unless the other has; then a third."""
    (commands / "meet.py").write_text(MEETING)
    (commands / "slow.py").write_text("import time\ntime.sleep(0.5)\n" + (commands / "write.py").read_text())
    shared = Step("slow", {"output_file": tmp_path / "tokenizer"}, tmp_path / "tokenizer")
    met = [job(tmp_path, name, "meet") for name in ("one", "other")]
    met = [dataclasses.replace(each, steps=(shared, *each.steps)) for each in met]
    said = []
    jobs = [job(tmp_path, "late", "write", needs=["one", "other"]), *met]
    assert run_jobs(jobs, tmp_path, "unused", said.append, at_once=2) == []
    assert said[-1] == "== late, seed 1: done"
    assert sorted(line for line in said[:-2] if line.endswith("done")) == [
        *("== one, seed 1: done", "== other, seed 1: done")
    ]
    assert (tmp_path / "tokenizer.ran").read_text() == "x"
    assert "waiting for the other\n" in (tmp_path / "logs" / "one-seed1.log").read_text()
    assert capfd.readouterr().out == ""


def test_a_failure_of_one_of_several(commands, tmp_path):
    """The log is named, and what cannot be published is no hindrance to others."""
    jobs = [job(tmp_path, "bad", "fail"), job(tmp_path, "full", "write"), job(tmp_path, "good", "write")]
    (tmp_path / "file").touch()
    jobs[1] = dataclasses.replace(jobs[1], records={tmp_path / "file" / "record": tmp_path / "full0.json"})
    failures = sorted(run_jobs(jobs, tmp_path, "unused", lambda line: None, at_once=2))
    assert failures[0].endswith(f"(see {tmp_path}/logs/bad-seed1.log)")
    assert failures[1].startswith("full, seed 1: [Errno ")
    assert len(failures) == 2
    assert (tmp_path / "records" / "good.json").exists()


def test_an_interruption_ends_what_runs(commands, tmp_path, monkeypatch):
    """And begins nothing more."""
    (commands / "wait.py").write_text("import sys, time, pathlib\npathlib.Path(sys.argv[2]).touch()\ntime.sleep(600)\n")
    waiting = job(tmp_path, "row", "wait", "write")

    def interrupted(futures, **options):
        while not (tmp_path / "row0.json").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_jobs([waiting, job(tmp_path, "next", "write")], tmp_path, "unused", lambda line: None)
    assert not (tmp_path / "row1.json").exists()
    assert not (tmp_path / "next0.json").exists()


LAUNCHER = "import subprocess, sys\nraise SystemExit(subprocess.run([sys.executable, *sys.argv[1:]]).returncode)\n"
SAVING = """
import pathlib, signal, sys, time
checkpoint = pathlib.Path(sys.argv[2])
def save(*of_the_signal):
    time.sleep(0.5)
    checkpoint.write_text("saved")
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
checkpoint.write_text("at work")
time.sleep(600)
"""


def test_an_interruption_reaches_what_a_launcher_started(commands, tmp_path, monkeypatch):
    """And is over when that has ended."""
    (commands / "launch.py").write_text(LAUNCHER)
    (commands / "train.py").write_text(SAVING)
    checkpoint = tmp_path / "run" / "checkpoint"

    def interrupted(futures, **options):
        while not (checkpoint.exists() and checkpoint.read_text()):
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "wait", interrupted)
    step = Step("train", {"output_file": checkpoint}, tmp_path / "run" / "run_record.json")
    with pytest.raises(KeyboardInterrupt):
        run_jobs(
            [Job(ROW, 1, (step,), {tmp_path / "record": step.product})],
            tmp_path,
            f"{sys.executable} {commands}/launch.py",
            lambda line: None,
        )
    assert checkpoint.read_text() == "saved"


def test_sigterm_is_an_interruption(tmp_path, monkeypatch):
    """Of what `ablate` runs alone."""
    ended = []

    def run_jobs(*arguments):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(600)
        finally:
            ended.append("with what runs")

    monkeypatch.setattr(ablate, "run_jobs", run_jobs)
    monkeypatch.setattr(ablate, "check_files", lambda *of_the_study: None)
    study, before = write_study(tmp_path / "study.yaml", study_of_two(tmp_path)), signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as end:
        ablate.main([str(study), "--runs_dir", str(tmp_path / "runs")])
    assert (end.value.code, ended) == (143, ["with what runs"])
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_was_made_of_other_weights_is_made_again(commands, tmp_path):
    (commands / "train.py").write_text((commands / "write.py").read_text())
    run = tmp_path / "run"
    (run / "average").mkdir(parents=True)
    (run / "checkpoint-3").mkdir()
    (run / "test.json").write_text("of other weights")
    (tmp_path / "data.json").write_text("of all rows")
    products = (("train", run / "run_record.json"), ("write", tmp_path / "data.json"), ("write", run / "test.json"))
    steps = [Step(command, {"output_file": product}, product) for command, product in products]
    trained = Job(ROW, 1, (*steps, Step("nothing", {}, run / "average")), {tmp_path / "r": run / "test.json"})
    assert len(run_jobs([trained], tmp_path, "python", lambda line: None)) == 1
    assert (run / "test.json").read_text() == "{}"
    assert (tmp_path / "data.json").read_text() == "of all rows"
    assert sorted(path.name for path in run.iterdir()) == [
        *("run_record.json", "run_record.json.ran", "test.json", "test.json.ran")
    ]


def test_two_runners_in_one_folder(commands, tmp_path, monkeypatch):
    (commands / "locked.py").write_text(
        "import sys\nfrom pathlib import Path\nfrom filelock import FileLock, Timeout\n"
        f"try:\n    FileLock({str(tmp_path / LOCK)!r}).acquire(timeout=0)\n"
        "except Timeout:\n    Path(sys.argv[2]).write_text('it is')\n"
    )
    assert run_jobs([job(tmp_path, "row", "locked")], tmp_path, "unused", lambda line: None) == []
    assert (tmp_path / "row0.json").read_text() == "it is"
    monkeypatch.setattr("hf_capsule_mt.files.GRACE", 0)
    busy = pytest.raises(BlockingIOError, match=f"another process works in {tmp_path}; wait for it")
    with FileLock(tmp_path / LOCK), busy:
        run_jobs([], tmp_path, "unused")


def test_a_training_that_outlived_its_study(commands, tmp_path, monkeypatch):
    """What it writes is left alone."""
    run = tmp_path / "run"
    (run / "checkpoint-3").mkdir(parents=True)
    trained = Job(ROW, 1, (Step("train", {}, run / "run_record.json"),), {tmp_path / "r": run / "run_record.json"})
    monkeypatch.setattr("hf_capsule_mt.files.GRACE", 0)
    with FileLock(run / LOCK):
        [failure] = run_jobs([trained], tmp_path, "python", lambda line: None)
    assert failure.startswith(f"row, seed 1: another process works in {run}; wait for it")
    assert (run / "checkpoint-3").exists()


def test_commands():
    step = Step("train", {"use_cpu": True, "seed": None, "config_overrides": ["a=1", "b=2"]}, Path("run"))
    words = runner.command_line(step, "accelerate launch --num_processes 8")
    assert words[:6] == ["accelerate", "launch", "--num_processes", "8", "-m", "hf_capsule_mt.cli.train"]
    assert words[6:] == ["--use_cpu", "true", "--config_overrides", "a=1", "b=2"]
    assert Step("evaluate", {"lowercase": True}, Path("x")).words() == ["--lowercase"]
    exact = Step("train", {}, Path("run", "run_record.json"), "no")
    launcher = "accelerate launch --mixed_precision bf16 --dynamo_backend no"
    assert runner.command_line(exact, launcher)[2:6] == ["--mixed_precision", "no", "--dynamo_backend", "no"]
    assert "bf16" in runner.command_line(step, launcher)
    assert runner.command_line(exact, "torchrun")[:2] == ["torchrun", "-m"]
    with pytest.raises(
        ValueError, match="without --mixed_precision, and run is to be trained in bf16; add that option"
    ):
        runner.command_line(Step("train", {}, Path("run", "run_record.json"), "bf16"), "torchrun")
    evaluate = runner.command_line(Step("evaluate", {}, Path("x")), "unused")
    assert evaluate == ["python", "-m", "hf_capsule_mt.cli.evaluate"]
    assert runner.command_environment()["PATH"].startswith(str(Path(sys.executable).parent))
    assert runner.command_environment()["MALLOC_MMAP_MAX_"] == "0"


def test_jobs_at_once_share_the_cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("torch.get_num_threads", lambda: 16)
    assert "OMP_NUM_THREADS" not in runner.command_environment()
    assert runner.command_environment(5)["OMP_NUM_THREADS"] == "3"
    assert runner.command_environment(20)["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert runner.command_environment(5)["OMP_NUM_THREADS"] == "2"


@pytest.fixture
def study(tmp_path):
    return write_study(tmp_path / "two.yaml", study_of_two(tmp_path))


def test_dry_run(study, tmp_path, capsys, monkeypatch):
    """It prints commands that can be typed, and needs no data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs" / "two" / "records").mkdir(parents=True)
    write_record(tmp_path / "outputs" / "two" / "records", "two_plain", 20, method="transformer")
    ablate.main([str(study), "--dry_run", "--launcher", "torchrun --nproc_per_node 2"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["# plain, seed 1: done", "# student, seed 1: to do"]
    commands = [next(word for word in line.split() if word.startswith("hf_capsule_mt.")) for line in lines[2:]]
    names = ["train_tokenizer", "distill", "train", "average_checkpoints", "translate", "evaluate"]
    assert [command.rpartition(".")[2] for command in commands] == names
    assert lines[4].startswith("torchrun --nproc_per_node 2 ")
    assert "--method capsnmt --size tiny --config_overrides d_model=16 dropout=0.1" in lines[4]


def test_rows_are_selected(study, tmp_path, capsys):
    ablate.main([str(study), "--runs_dir", str(tmp_path), "--dry_run", "--rows", "st*"])
    assert capsys.readouterr().out.splitlines()[0] == "# student, seed 1: to do"
    ablate.main([str(study), "--runs_dir", str(tmp_path), "--dry_run", "--rows", "st*", "--without_scores"])
    assert "cli.translate" in (shown := capsys.readouterr().out)
    assert "cli.evaluate" not in shown
    for option, value, message in (
        ("--rows", "teacher", "--rows has 'teacher'; the study has plain, student"),
        ("--jobs", "0", "--jobs: 0 is too small; it must be at least 1"),
    ):
        with pytest.raises(SystemExit) as exit_:
            ablate.main([str(study), "--runs_dir", str(tmp_path), "--dry_run", option, value])
        assert exit_.value.code == 2
        assert message in capsys.readouterr().err


def test_jobs_know_what_they_need(study, tmp_path):
    """The student its teacher; in a study with starts, each seed that of its own."""
    plan = Plan(read_study(study), tmp_path, tmp_path)
    assert {job.name: set(job.needs) for job in plan.jobs()} == {
        "plain, seed 1": set(),
        "student, seed 1": {"plain, seed 1"},
    }
    rows = [{"name": "plain", "method": "transformer"}, {"name": "on", "method": "gdr", "start": "plain"}]
    both = write_study(tmp_path / "both.yaml", {**study_of_two(tmp_path), "rows": rows, "seeds": [1, 2]})
    needs = {job.name: set(job.needs) for job in Plan(read_study(both), tmp_path, tmp_path).jobs()}
    assert needs["on, seed 2"] == {"plain, seed 2"}


def test_a_run_with_other_settings_is_not_taken_for_the_row(study, tmp_path):
    from benchmarks.studies.checks import check_files

    for name in ("train.en", "train.de", "test.en", "test.de"):
        (tmp_path / name).touch()
    plan = Plan(read_study(study), tmp_path / "runs", tmp_path / "records")
    run = tmp_path / "runs" / "plain" / "seed1"
    run.mkdir(parents=True)
    write_record(run, "x", 20, method="transformer", training={"max_steps": 9})
    (run / "x_run_record.json").rename(run / "run_record.json")
    with pytest.raises(ValueError, match="the record of another run: its max_steps is 9, that of the row 'plain' is 8"):
        check_files(plan, plan.jobs())
