"""The command chooses checkpoints as its options say."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_capsule_mt.cli.average_checkpoints import main


@pytest.fixture
def run_dir(tmp_path):
    """A run whose checkpoints 9, 10 and 11 hold their number, with validation losses 1, 3 and 2."""
    losses = {9: 1.0, 10: 3.0, 11: 2.0}
    state = {
        "log_history": [{"step": step, "eval_loss": loss} for step, loss in losses.items()],
        "best_metric": 1.0,
        "best_global_step": 9,
    }
    for step in losses:
        folder = tmp_path / "run" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"model_type": "marian"}')
        (folder / "trainer_state.json").write_text(json.dumps(state))
        save_file({"w": torch.tensor([float(step)])}, folder / "model.safetensors")
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--last", "2"], 10.5),
        (["--best", "2", "--metric", "loss"], 10.0),
    ],
)
def test_of_a_run(run_dir, tmp_path, options, expected):
    main(["--run_dir", str(run_dir), *options, "--output_dir", str(tmp_path / "average")])
    assert load_file(tmp_path / "average" / "model.safetensors")["w"].item() == expected


def test_of_folders(run_dir, tmp_path, capsys):
    folders = [str(run_dir / f"checkpoint-{step}") for step in (10, 11, 9)]
    main(["--checkpoints", *folders, "--output_dir", str(tmp_path / "average")])
    assert load_file(tmp_path / "average" / "model.safetensors")["w"].item() == 10
    assert folders[2] in capsys.readouterr().out
