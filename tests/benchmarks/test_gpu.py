"""benchmarks/gpu/gpu.sh on a CPU: pieces go through, and what is measured is not measured again."""

import json
from pathlib import Path

from benchmarks.gpu import gpu
from hf_capsule_mt import CapsuleAggregatedMarianConfig
from hf_capsule_mt.configuration import presets


def test_pieces(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gpu, "METHODS", ("transformer",))
    tiny = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    sizes = presets._SIZES[CapsuleAggregatedMarianConfig]
    monkeypatch.setitem(sizes, "tiny", sizes["tiny"] | tiny)
    options = ["train", "decode", "profile", "--device", "cpu", "--quick", "--output_dir", str(tmp_path)]
    assert gpu.main(options) == 0
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    names = {piece: [each["name"] for each in records if each["piece"] == piece] for piece in options[:3]}
    assert names["train"] == ["Marian of Transformers", *gpu.METHODS]
    assert names["decode"] == ["1", "2"]
    assert len(names["profile"]) == 2 * len(gpu.METHODS) + 1
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert gpu.main(options) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")] == printed
    assert (tmp_path / "records.jsonl").read_text().count("\n") == len(records)


def test_every_test_of_a_gpu_is_run_there():
    tests = Path(__file__).parents[1]
    here = Path(__file__).relative_to(tests)
    marked = {str(path.relative_to(tests)) for path in tests.rglob("*.py") if "mark.cuda" in path.read_text("utf-8")}
    assert marked - {str(here)} == set(gpu.TESTS)


def test_a_command_that_takes_too_long_is_ended():
    waiting = ["sh", "-c", "echo begun; sleep 600"]
    assert gpu._run(waiting, 0.5) == (None, "begun\n")
