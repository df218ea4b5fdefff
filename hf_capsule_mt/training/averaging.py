"""Average the weights of several checkpoints, in a new folder."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import new_folder, read_json, write_json
from hf_capsule_mt.loading import load_config
from hf_capsule_mt.modeling.portable_model import allow_readers

from .checkpoint_folders import TRAINER_STATE, checkpoints, is_whole, step_of
from .resuming import SavedRun

RECORD = "averaging.json"
_NOT_COPIED = ("*.safetensors", "*.bin", "*.pt", "*.pth", TRAINER_STATE)


def average_checkpoints(checkpoints: Sequence[str | Path], output_dir: str | Path) -> None:
    """Write a checkpoint with the mean of the weights of `checkpoints`.

    Sums are float64 and rounded once. Integers, the configuration and the tokenizer are those of the newest checkpoint.

    Args:
        checkpoints: folders with `config.json` and safetensors weights. The newest is the one with the largest number
            if all are named `checkpoint-<step>`, else the last.
        output_dir: the folder to make. It appears when complete, with the list of checkpoints in `averaging.json`.

    Raises:
        FileExistsError: if `output_dir` exists.
        UserError: if checkpoints are of different runs or models, or a weight is not finite.
    """
    output_dir = Path(output_dir)
    folders = _oldest_first(checkpoints)
    if output_dir.exists():
        raise FileExistsError(f"{output_dir} exists. Name another folder, or delete it.")
    _check_one_run(folders)

    files = [_tensor_files(folder) for folder in folders]
    newest_files = files[-1]
    if any(tensors.keys() != newest_files.keys() for tensors in files):
        raise UserError(f"{_listed(folders)} have different weights, so they have no average.")

    with new_folder(output_dir) as temporary:
        _copy_other_files(folders[-1], temporary)
        # One file after the other, so that the weights of only one are in memory.
        for path in sorted(set(newest_files.values())):
            averages = {}
            for name, file in newest_files.items():
                if file == path:
                    averages[name] = _average([tensors[name] for tensors in files], name)
            save_file(averages, temporary / path.name, metadata={"format": "pt"})
            allow_readers([temporary / path.name])
        write_json(temporary / RECORD, {"checkpoints": folders})


def averaged_checkpoints(folder: Path) -> tuple[str, ...]:
    """Return the names of the checkpoints that a folder is the average of, none if it is no average."""
    if not (folder / RECORD).is_file():
        return ()
    paths = read_json(folder / RECORD)["checkpoints"]
    return tuple(Path(path).name for path in paths)


def last_checkpoints(run_dir: str | Path, count: int) -> list[Path]:
    """Return the `count` newest complete checkpoints of a run, the oldest of them first."""
    folders = _complete_checkpoints(run_dir)
    _check_enough(folders, count, run_dir)
    return folders[-count:]


def best_checkpoints(run_dir: str | Path, count: int, metric: str = "bleu") -> list[Path]:
    """Return the `count` best complete checkpoints of a run, best first.

    Args:
        run_dir: the output folder of the run.
        count: how many.
        metric: a score of the evaluations, such as "bleu" or "loss". Less is better if its name ends in "loss".

    Raises:
        UserError: if fewer checkpoints have such a score. Scores of other validation data or settings than the last
            ones do not count.
    """
    folders = _complete_checkpoints(run_dir)
    _check_enough(folders, 1, run_dir)

    name = f"eval_{metric.removeprefix('eval_')}"
    log = SavedRun.read(folders[-1]).comparable_log
    scores = {entry["step"]: entry[name] for entry in log if name in entry}
    scored = [folder for folder in folders if step_of(folder) in scores]
    _check_enough(scored, count, run_dir)

    def score_and_step(folder: Path) -> tuple[float, int]:
        # Of equal scores the newer checkpoint's is the better BLEU, and the older one's the better loss.
        step = step_of(folder)
        return scores[step], step

    less_is_better = name.endswith("loss")
    scored.sort(key=score_and_step, reverse=not less_is_better)
    return scored[:count]


def _complete_checkpoints(run_dir: str | Path) -> list[Path]:
    return [folder for folder in checkpoints(run_dir) if is_whole(folder)]


def _check_enough(folders: list[Path], count: int, run_dir: str | Path) -> None:
    if len(folders) < count:
        raise UserError(f"{run_dir} has {len(folders)} such checkpoints, and {count} are asked for.")


def _listed(folders: Sequence[Path]) -> str:
    return ", ".join(str(folder) for folder in folders)


def _oldest_first(checkpoints: Sequence[str | Path]) -> list[Path]:
    """Return folders by their number of updates, or in the given order if one has none in its name."""
    folders = [Path(folder) for folder in checkpoints]
    if any(step_of(folder) is None for folder in folders):
        return folders
    return sorted(folders, key=step_of)


def _check_one_run(folders: Sequence[Path]) -> None:
    """Raise a UserError if there are no checkpoints, one is named twice, or they are of several models or runs."""
    if not folders or len({folder.resolve() for folder in folders}) < len(folders):
        raise UserError("There are no checkpoints, or one is named twice.")

    model_types = {load_config(folder).model_type for folder in folders}
    runs = set()
    for folder in folders:
        if (folder / TRAINER_STATE).is_file():
            runs.add(SavedRun.read(folder).run)
    # Checkpoints of a plain Trainer do not say of which run they are.
    runs.discard(None)

    if len(model_types) > 1 or len(runs) > 1:
        raise UserError(f"{_listed(folders)} are of different runs. Average checkpoints of one run.")


def _copy_other_files(checkpoint: Path, folder: Path) -> None:
    """Copy the files of a checkpoint that are no weights and no state of training."""
    for file in checkpoint.iterdir():
        if file.is_file() and not any(file.match(pattern) for pattern in _NOT_COPIED):
            shutil.copy2(file, folder)


def _tensor_files(folder: Path) -> dict[str, Path]:
    """Return the file of each weight of a checkpoint, by the weight's name."""
    index = folder / SAFE_WEIGHTS_INDEX_NAME
    if index.is_file():
        return {tensor: folder / name for tensor, name in read_json(index)["weight_map"].items()}
    whole = folder / SAFE_WEIGHTS_NAME
    with safe_open(whole, "pt") as file:
        return dict.fromkeys(file.keys(), whole)


def _read_tensor(path: Path, name: str) -> Tensor:
    with safe_open(path, "pt") as file:
        return file.get_tensor(name)


def _average(paths: Sequence[Path], name: str) -> Tensor:
    """Return the average of a tensor over files, the newest last, in the dtype and with the integers of the newest."""
    newest = _read_tensor(paths[-1], name)
    if not newest.is_floating_point():
        return newest

    total = newest.double()
    for path in paths[:-1]:
        tensor = _read_tensor(path, name)
        if tensor.shape != total.shape:
            raise UserError(f"{name} has another size in {path}, so it has no average.")
        total += tensor

    if not torch.isfinite(total).all():
        raise UserError(f"{name} is not finite in one of {_listed(paths)}.")
    return (total / len(paths)).to(newest.dtype)
