"""benchmarks/gpu.sh on a CPU: every piece goes through, what is done is not done again, and a lack is named."""

import contextlib
import importlib
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.sh"
GPU = runpy.run_path(str(SCRIPT.with_suffix(".py")), run_name="gpu")


def run_here(piece, output, folder, limit):
    """Run two of the commands in this process; test_speed runs the others."""
    with output.open("w") as file, contextlib.redirect_stdout(file):
        if piece.name in ("growth_tiny", "speed_tiny_rnmt"):
            importlib.import_module(f"{piece.words[0]}.__main__").main(piece.words[1:])
    return "done"


@pytest.mark.slow
def test_every_piece(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.speed.train.MEMORY_LENGTH", 16)
    options = ["--device", "cpu", "--quick", "--output_dir", str(tmp_path)]
    assert GPU["main"](options, run_here) == 0
    names = {path.stem for path in tmp_path.glob("*.md")}
    assert names == {
        "tests",
        "growth_tiny",
        "decoders_tiny_1",
        "does_routing_pay",
        "does_routing_pay_french",
        *(f"speed_tiny_{name}" for name in GPU["_FAMILIES"]),
    }
    assert len([*(tmp_path / "records").glob("*.json")]) == 2
    assert "rnmt" in (tmp_path / "speed_tiny_rnmt.md").read_text()
    capsys.readouterr()

    def never(*arguments):
        raise AssertionError("done already")

    assert GPU["main"](options, never) == 0
    assert capsys.readouterr().out.count(": done\n") == len(names)
    with pytest.raises(AssertionError, match="done already"):
        GPU["main"]([option for option in options if option != "--quick"], never)


def test_every_test_of_a_gpu_is_run_there():
    tests = Path(__file__).parents[1]
    here = Path(__file__).relative_to(tests)
    marked = {str(path.relative_to(tests)) for path in tests.rglob("*.py") if "mark.cuda" in path.read_text("utf-8")}
    assert marked - {str(here)} == set(GPU["_TESTS"])


def test_what_a_piece_started_ends_with_it(tmp_path):
    """A grandchild that saves what it has when it is told to end."""
    training = (
        "import signal, sys, time, pathlib\n"
        "signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path('saved').touch(), sys.exit()))\n"
        "pathlib.Path('begun').touch()\ntime.sleep(600)\n"
    )
    (tmp_path / "training.py").write_text(training)
    child = "import subprocess, sys; subprocess.run([sys.executable, 'training.py'])"
    process = subprocess.Popen([sys.executable, "-c", child], cwd=tmp_path, start_new_session=True)
    while not (tmp_path / "begun").exists():
        time.sleep(0.05)
    GPU["_end"](process)
    assert (tmp_path / "saved").exists()
    assert process.returncode is not None


def test_the_script_lists_its_pieces():
    """Every size and method, without importing more than Python has."""
    listed = subprocess.run([SCRIPT, "--list"], capture_output=True, text=True, check=True)
    assert listed.stdout.count("needs") == 1 + 3 * 4 + 3 + 2 * 3 + 2
    methods = {method for family in GPU["_FAMILIES"].values() for method in family} | set(GPU["_CAPSNMT"])
    from hf_capsule_mt.configuration import METHODS

    assert methods <= set(METHODS)
