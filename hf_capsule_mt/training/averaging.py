"""Average the weights of several checkpoints, or of all updates of a run."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import TrainerCallback, TrainerState, TrainingArguments
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import new_folder, read_json, write_json
from hf_capsule_mt.loading import load_config

from .resuming import TRAINER_STATE, checkpoints, identity_in, is_whole, read_trainer_state, step_of

RECORD = "averaging.json"
TRAINING_WEIGHTS = "training_weights.safetensors"
"""A file of checkpoints with averaged weights: the weights that training continues with."""
_NOT_COPIED = ("*.safetensors", "*.bin", "*.pt", "*.pth", TRAINER_STATE, RECORD)


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
    folders, output_dir = [Path(folder) for folder in checkpoints], Path(output_dir)
    if None not in map(step_of, folders):
        folders.sort(key=step_of)
    if output_dir.exists():
        raise FileExistsError(f"{output_dir} exists. Name another folder, or delete it.")
    if not folders or len({folder.resolve() for folder in folders}) < len(folders):
        raise UserError("There are no checkpoints, or one is named twice.")
    types = {load_config(folder).model_type for folder in folders}
    states = [read_trainer_state(folder) for folder in folders if (folder / TRAINER_STATE).is_file()]
    if len(types) > 1 or len({identity_in(state).get("run") for state in states} - {None}) > 1:
        raise UserError(f"{', '.join(map(str, folders))} are of different runs. Average checkpoints of one run.")
    files = [_tensor_files(folder) for folder in folders]
    if any(each.keys() != files[-1].keys() for each in files):
        raise UserError(f"{', '.join(map(str, folders))} have different weights, so they have no average.")
    with new_folder(output_dir) as temporary:
        for file in folders[-1].iterdir():
            if file.is_file() and not any(file.match(pattern) for pattern in _NOT_COPIED):
                shutil.copy2(file, temporary)
        for path in sorted(set(files[-1].values())):
            names = [name for name, place in files[-1].items() if place == path]
            averages = {name: _average([checkpoint[name] for checkpoint in files], name) for name in names}
            save_file(averages, temporary / path.name, metadata={"format": "pt"})
        write_json(temporary / RECORD, {"checkpoints": folders})


def averaged_checkpoints(folder: Path) -> tuple[str, ...]:
    """Return the names of the checkpoints that a folder is the average of, none if it is no average."""
    found = read_json(folder / RECORD)["checkpoints"] if (folder / RECORD).is_file() else []
    return tuple(Path(name).name for name in found)


def last_checkpoints(run_dir: str | Path, count: int) -> list[Path]:
    """Return the `count` newest complete checkpoints of a run, the oldest of them first."""
    return _at_least(count, [folder for folder in checkpoints(run_dir) if is_whole(folder)], run_dir)[-count:]


def best_checkpoints(run_dir: str | Path, count: int, metric: str = "bleu") -> list[Path]:
    """Return the `count` best checkpoints of a run, best first. Less is better if `metric` ends in `loss`."""
    folders = [folder for folder in checkpoints(run_dir) if is_whole(folder)]
    state = read_trainer_state(_at_least(1, folders, run_dir)[-1])
    log = state["log_history"][identity_in(state).get("scores_began", 0) :]
    name = f"eval_{metric.removeprefix('eval_')}"
    values = {entry["step"]: entry[name] for entry in log if name in entry}
    folders = _at_least(count, [folder for folder in folders if step_of(folder) in values], run_dir)
    folders.sort(key=lambda folder: (values[step_of(folder)], step_of(folder)), reverse=not name.endswith("loss"))
    return folders[:count]


def _at_least(count: int, folders: list[Path], run_dir: str | Path) -> list[Path]:
    if len(folders) < count:
        raise UserError(f"{run_dir} has {len(folders)} such checkpoints, and {count} are asked for.")
    return folders


def _tensor_files(folder: Path) -> dict[str, Path]:
    index, whole = folder / SAFE_WEIGHTS_INDEX_NAME, folder / SAFE_WEIGHTS_NAME
    if index.is_file():
        return {tensor: folder / name for tensor, name in read_json(index)["weight_map"].items()}
    with safe_open(whole, "pt") as file:
        return dict.fromkeys(file.keys(), whole)


def _average(paths: Sequence[Path], name: str) -> Tensor:
    def read(path: Path) -> Tensor:
        with safe_open(path, "pt") as file:
            return file.get_tensor(name)

    newest = read(paths[-1])
    if not newest.is_floating_point():
        return newest
    total = newest.double()
    for path in paths[:-1]:
        total += read(path)
    if not torch.isfinite(total).all():
        raise UserError(f"{name} is not finite in one of {', '.join(map(str, paths))}.")
    return (total / len(paths)).to(newest.dtype)


class WeightAverage(TrainerCallback):
    """Keeps an exponential moving average of the weights, which is evaluated and saved.

    The average moves by 1 - decay towards the weights, where decay is min(`decay`, (1 + n) / (10 + n)) after update n.
    Otherwise the first, random weights would count for long. 0.999 averages about a thousand updates.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.checkpoint: str | None = None
        """The folder that the run continues from. Its weights are averages."""
        self._weights: dict[str, nn.Parameter] = {}
        self._averages: list[Tensor] | None = None

    @torch.no_grad()
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start with the weights of the model."""
        self._weights = {name: weight for name, weight in kwargs["model"].named_parameters() if weight.requires_grad}
        self._averages = [weight.detach().float().clone() for weight in self._weights.values()]
        if self.checkpoint is not None:
            saved = load_file(Path(self.checkpoint, TRAINING_WEIGHTS))
            self._put([saved[name] for name in self._weights])

    @torch.no_grad()
    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Move the averages."""
        decay = min(self.decay, (1 + state.global_step) / (10 + state.global_step))
        weights = [weight.detach().float() for weight in self._weights.values()]
        get_ema_multi_avg_fn(decay)(self._averages, weights, None)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Leave the averages in the model, unless it has the weights of the best checkpoint, which are averages."""
        if not (args.load_best_model_at_end and state.best_model_checkpoint):
            self._put(self._averages)
        self._averages = None

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Let the model have the averages within the block, if it is being trained."""
        if self._averages is None:
            yield
            return
        own = [weight.detach().clone() for weight in self._weights.values()]
        self._put(self._averages)
        try:
            yield
        finally:
            self._put(own)

    def save_training_weights(self, folder: Path) -> None:
        """Write the weights that training continues with into a checkpoint."""
        weights = {name: weight.detach().contiguous() for name, weight in self._weights.items()}
        save_file(weights, folder / TRAINING_WEIGHTS)

    @torch.no_grad()
    def _put(self, values: Sequence[Tensor]) -> None:
        for weight, value in zip(self._weights.values(), values, strict=True):
            weight.copy_(value)
