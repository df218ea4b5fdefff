"""Averages are exact, choose the right checkpoints, and are written whole or not at all."""

import json
import shutil
from contextlib import nullcontext

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_marian import save_tiny_marian, tiny_model
from transformers import AutoTokenizer, MarianMTModel

from hf_capsule_mt.cli.average_checkpoints import main
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.training.averaging import average_checkpoints, best_checkpoints, last_checkpoints

# Evaluated after 100 and 900 and 1000 updates; the one after 500 is gone.
HISTORY = [
    {"step": 50, "loss": 9.0},
    {"step": 100, "eval_loss": 4.0, "eval_bleu": 10.0},
    {"step": 500, "eval_loss": 1.0, "eval_bleu": 40.0},
    {"step": 900, "eval_loss": 2.0, "eval_bleu": 20.0},
    {"step": 1000, "eval_loss": 3.0, "eval_bleu": 30.0},
    {"step": 900, "eval_general_loss": 5.0},
    {"step": 1000, "eval_general_loss": 6.0},
]


def write_checkpoint(folder, tensors, model_type="marian"):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_run(folder):
    """Checkpoints 100, 900 and 1000 whose only weight is their number."""
    folder.mkdir()
    for step in (100, 900, 1000):
        checkpoint = write_checkpoint(folder / f"checkpoint-{step}", {"w": torch.tensor([float(step)])})
        state = {"log_history": [entry for entry in HISTORY if entry["step"] <= step]}
        (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    write_checkpoint(folder / "checkpoint-last", {"w": torch.zeros(1)})
    return folder


def averaged(folder, checkpoints):
    average_checkpoints(checkpoints, folder / "average")
    return load_file(folder / "average" / "model.safetensors")


def steps(checkpoints):
    return [int(folder.name.removeprefix("checkpoint-")) for folder in checkpoints]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_copies_average_to_the_original_bit_for_bit(tmp_path, dtype):
    tiny_model().to(dtype).save_pretrained(tmp_path / "a")
    for copy in "bcdefg":
        shutil.copytree(tmp_path / "a", tmp_path / copy)
    original = load_file(tmp_path / "a" / "model.safetensors")
    result = averaged(tmp_path, [tmp_path / name for name in "abcdefg"])
    assert result.keys() == original.keys()
    for name, tensor in original.items():
        assert result[name].dtype == dtype
        assert torch.equal(result[name], tensor), name


def test_known_averages_are_rounded_once(tmp_path):
    # In bfloat16 256 + 1 is 256, so a sum in that dtype would lose both ones.
    values = [torch.tensor([256.0, -3.0, 0.0]), torch.tensor([1.0, 3.0, 1.0]), torch.tensor([1.0, 3.0, 1.0])]
    folders = [
        write_checkpoint(
            tmp_path / name,
            {"half": value.bfloat16(), "single": value, "count": torch.tensor([number]), "flag": torch.tensor(True)},
        )
        for number, (name, value) in enumerate(zip("abc", values))
    ]
    result = averaged(tmp_path, folders)
    expected = sum(value.double() for value in values) / 3
    assert torch.equal(result["single"], expected.float())
    assert torch.equal(result["half"], expected.bfloat16())
    assert result["count"].tolist() == [2]
    assert result["flag"].item() is True


def test_average_loads_and_keeps_the_newest_files_only(tmp_path):
    folders = [save_tiny_marian(tmp_path / f"checkpoint-{step}", seed=step) for step in (100, 20)]
    newest = folders[0]
    for name in ("optimizer.pt", "rng_state.pth", "training_args.bin", "trainer_state.json", "modeling_own.py"):
        (newest / name).write_text("{}")
    # Of a run with a moving average.
    (newest / "training_weights.safetensors").touch()
    (newest / "global_step100").mkdir()
    average_checkpoints(folders, tmp_path / "average")

    names = {file.name for file in (tmp_path / "average").iterdir()}
    copied = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "modeling_own.py"}
    assert names == copied | {"model.safetensors", "averaging.json"}
    record = json.loads((tmp_path / "average" / "averaging.json").read_text())
    assert record["checkpoints"] == [str(folders[1]), str(newest)]
    model, info = MarianMTModel.from_pretrained(tmp_path / "average", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    weights = [tiny_model(seed).model.shared.weight for seed in (100, 20)]
    assert torch.allclose(model.model.shared.weight, sum(weights) / 2, rtol=0, atol=1e-7)
    assert AutoTokenizer.from_pretrained(tmp_path / "average")("a b")["input_ids"] == [3, 4, 2]


def test_sharded_checkpoints(tmp_path):
    tiny_model(0).save_pretrained(tmp_path / "whole")
    tiny_model(1).save_pretrained(tmp_path / "sharded", max_shard_size="4KB")
    assert len(list((tmp_path / "sharded").glob("model-*.safetensors"))) > 1
    average_checkpoints([tmp_path / "whole", tmp_path / "sharded"], tmp_path / "into shards")
    average_checkpoints([tmp_path / "sharded", tmp_path / "whole"], tmp_path / "into one")
    one, shards = (MarianMTModel.from_pretrained(tmp_path / name).state_dict() for name in ("into one", "into shards"))
    assert not (tmp_path / "into shards" / "model.safetensors").exists()
    assert (tmp_path / "into one" / "model.safetensors").exists()
    for name, tensor in one.items():
        assert torch.equal(tensor, shards[name]), name


def test_last(tmp_path):
    run = write_run(tmp_path / "run")
    assert steps(last_checkpoints(run, 2)) == [900, 1000]
    with pytest.raises(ValueError, match="has 3 such checkpoints"):
        last_checkpoints(run, 4)
    # This one was not saved to its end.
    (run / "checkpoint-1000" / "trainer_state.json").unlink()
    assert steps(last_checkpoints(run, 2)) == [100, 900]
    assert steps(best_checkpoints(run, 2, "bleu")) == [900, 100]


@pytest.mark.parametrize(("metric", "expected"), [("bleu", [1000, 900]), ("loss", [100, 900])])
def test_of_equal_scores(tmp_path, metric, expected):
    """The newer checkpoint has the better BLEU, and the older one the better loss."""
    run = write_run(tmp_path / "run")
    log = [{"step": step, "eval_bleu": 9.0, "eval_loss": 2.0} for step in (100, 900, 1000)]
    (run / "checkpoint-1000" / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    assert steps(best_checkpoints(run, 2, metric)) == expected


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("bleu", [1000, 900]), ("eval_bleu", [1000, 900]), ("loss", [900, 1000]), ("general_loss", [900, 1000])],
)
def test_best(tmp_path, metric, expected):
    assert steps(best_checkpoints(write_run(tmp_path / "run"), 2, metric)) == expected
    for folder, name in ((tmp_path / "run", "rouge"), (tmp_path, "bleu")):
        with pytest.raises(UserError, match="has 0 such checkpoints, and 1 are asked for"):
            best_checkpoints(folder, 1, name)


def test_scores_of_before_do_not_compare(tmp_path):
    """As after other validation data."""
    run = write_run(tmp_path / "run")
    file = run / "checkpoint-1000" / "trainer_state.json"
    state = json.loads(file.read_text())
    # The 40 of update 500 was the best, and 10 is left out as well.
    begins_at = HISTORY.index({"step": 900, "eval_loss": 2.0, "eval_bleu": 20.0})
    state["stateful_callbacks"] = {"RunIdentity": {"attributes": {"scores_began": begins_at}}}
    file.write_text(json.dumps(state))
    assert steps(best_checkpoints(run, 2)) == [1000, 900]
    with pytest.raises(UserError, match="has 2 such checkpoints, and 3 are asked for"):
        best_checkpoints(run, 3)


MISTAKES = {
    "nan": "w is not finite",
    "inf": "w is not finite",
    "type": "are of different runs",
    "shape": "w has another size in",
    "names": "have different weights",
    "absent": "absent",
    "good": "one is named twice",
    "type/../good": "one is named twice",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_leave_nothing(tmp_path, name):
    good = write_checkpoint(tmp_path / "good", {"w": torch.zeros(2, 3)})
    write_checkpoint(tmp_path / "type", {"w": torch.zeros(2, 3)}, model_type="bart")
    write_checkpoint(tmp_path / "nan", {"w": torch.full((2, 3), torch.nan)})
    write_checkpoint(tmp_path / "inf", {"w": torch.full((2, 3), torch.inf)})
    write_checkpoint(tmp_path / "shape", {"w": torch.zeros(3, 2)})
    write_checkpoint(tmp_path / "names", {"w": torch.zeros(2, 3), "v": torch.zeros(1)})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises((UserError, OSError), match=MISTAKES[name]):
        average_checkpoints([tmp_path / name, good], tmp_path / "average")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_existing_folder_is_not_replaced(tmp_path, capsys):
    good = write_checkpoint(tmp_path / "good", {"w": torch.zeros(2, 3)})
    with pytest.raises(FileExistsError, match="Name another folder"):
        average_checkpoints([good], good)
    with pytest.raises(SystemExit, match="2"):
        main(["--run_dir", str(tmp_path), "--output_dir", str(tmp_path / "average")])
    assert "--run_dir needs --last N or --best N" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("runs", "is_refused"), [("ab", True), ("aa", False), ([None, None], False), (["a", None], False)], ids=str
)
def test_only_checkpoints_of_one_run_have_an_average(tmp_path, runs, is_refused):
    """A checkpoint of a plain Trainer does not say of which run it is."""
    folders = [tmp_path / f"checkpoint-{step}" for step in (1, 2)]
    for number, folder in enumerate(folders):
        write_checkpoint(folder, {"w": torch.tensor([float(number)])})
        run = {"RunIdentity": {"attributes": {"run": runs[number]}}} if runs[number] else {}
        (folder / "trainer_state.json").write_text(json.dumps({"stateful_callbacks": run}))
    with pytest.raises(ValueError, match="are of different runs") if is_refused else nullcontext():
        average_checkpoints(folders, tmp_path / "average")
    assert (tmp_path / "average").exists() != is_refused


def test_of_folders_without_numbers_the_last_is_the_newest(tmp_path):
    """Also if only one of them has no number."""
    names = ["checkpoint-9", "other", "checkpoint-3"]
    folders = [
        write_checkpoint(tmp_path / name, {"count": torch.tensor([number])}) for number, name in enumerate(names)
    ]
    assert averaged(tmp_path, folders)["count"].tolist() == [2]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--run_dir", "run", "--last", "2"], 950),
        (["--run_dir", "run", "--best", "2", "--metric", "loss"], 950),
        (["--run_dir", "run", "--best", "1"], 1000),
        (["--checkpoints", "run/checkpoint-100", "run/checkpoint-1000", "run/checkpoint-900"], 2000 / 3),
    ],
)
def test_the_command_chooses_as_its_options_say(tmp_path, monkeypatch, capsys, options, expected):
    write_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    main([*options, "--output_dir", "average"])
    assert load_file("average/model.safetensors")["w"].item() == pytest.approx(expected)
    assert "run/checkpoint-" in capsys.readouterr().out
