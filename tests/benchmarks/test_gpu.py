"""benchmarks/gpu.sh on a CPU: pieces go through, and what is measured is not measured again."""

import json
import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.sh"
GPU = runpy.run_path(str(SCRIPT.with_suffix(".py")), run_name="gpu")


def test_pieces(tmp_path, capsys):
    options = ["train", "decode", "profile", "--device", "cpu", "--quick", "--output_dir", str(tmp_path)]
    assert GPU["main"](options) == 0
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    names = {piece: [each["name"] for each in records if each["piece"] == piece] for piece in options[:3]}
    assert names["train"] == ["Marian of Transformers", *GPU["METHODS"]]
    assert names["decode"] == ["1", "2"]
    assert len(names["profile"]) == 2 * len(GPU["METHODS"]) + 1
    printed = capsys.readouterr().out
    assert GPU["main"](options) == 0
    assert capsys.readouterr().out == printed
    assert (tmp_path / "records.jsonl").read_text().count("\n") == len(records)


def test_every_test_of_a_gpu_is_run_there():
    tests = Path(__file__).parents[1]
    here = Path(__file__).relative_to(tests)
    marked = {str(path.relative_to(tests)) for path in tests.rglob("*.py") if "mark.cuda" in path.read_text("utf-8")}
    assert marked - {str(here)} == set(GPU["TESTS"])


def test_a_command_that_takes_too_long_is_ended():
    waiting = ["sh", "-c", "echo begun; sleep 600"]
    assert GPU["_run"](waiting, 0.5) == (None, "begun\n")
