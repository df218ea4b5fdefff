"""Average the weights of several checkpoints of a run, tensor by tensor."""

import shutil
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from hf_capsule_mt.checkpoints import (
    check_folder,
    checkpoints,
    is_whole,
    read_config,
    step_of,
    tensor_files,
    tensor_shapes,
)
from hf_capsule_mt.files import new_folder, read_json, write_json
from hf_capsule_mt.modeling.checkpoint_files import explained_weights
from hf_capsule_mt.modeling.finite_weights import check_finite
from hf_capsule_mt.modeling.weight_hashes import WEIGHTS_HASHES, write_hashes
from hf_capsule_mt.saving import explained_saving
from hf_capsule_mt.trainer_state import TRAINER_STATE, read_trainer_state

from .run_identity import identity_in

RECORD = "averaging.json"
# The weights, since they are averaged, and the state of the run.
_NOT_COPIED = ("*.safetensors", "*.bin", "*.pt", "*.pth", TRAINER_STATE, WEIGHTS_HASHES, RECORD)


def average_checkpoints(checkpoints: Sequence[str | Path], output_dir: str | Path) -> None:
    """Write a checkpoint whose weights are the mean of those of `checkpoints`, and a record of what is in it.

    Sums are taken in float64 and rounded once, to the dtype of the newest checkpoint; integer and boolean tensors are
    the newest's. So are config, tokenizer, source files and the division of the weights into files. In memory are
    one file of averaged weights and one tensor of a checkpoint at a time.

    Args:
        checkpoints: folders with `config.json` and safetensors weights, in one file or several. The newest is the one
            with the largest number if all are named `checkpoint-<step>`, else the last.
        output_dir: the folder to make; it appears when complete, with the list of checkpoints in `averaging.json`.

    Raises:
        OSError: if a folder or a file in it is missing, or weights are damaged.
        FileExistsError: if `output_dir` exists.
        ValueError: if there is no checkpoint or one comes twice, a file should hold JSON and does not, a tensor is not
            finite, or they differ in run, as far as that is known, in model type, or in a tensor's name or shape.
    """
    folders, output_dir = [Path(folder) for folder in checkpoints], Path(output_dir)
    if None not in map(step_of, folders):
        folders.sort(key=step_of)
    if not folders:
        raise ValueError("there are no checkpoints to average")
    if output_dir.exists():
        raise FileExistsError(f"{output_dir} exists; name another folder, or delete it first")
    for folder in folders:
        check_folder(folder, "config")
    _check_different(folders)
    _check_model_types(folders)
    _check_runs(folders)
    files = [tensor_files(folder) for folder in folders]
    _check_tensors(folders, files)
    with new_folder(output_dir) as temporary:
        _copy_model_files(folders[-1], temporary)
        for file in sorted(set(files[-1].values())):
            _write_averaged(files, file, temporary)
        write_hashes(temporary)
        write_json(temporary / RECORD, {"checkpoints": folders})


def averaged_checkpoints(folder: Path) -> tuple[str, ...]:
    """Return the names of the checkpoints whose mean a folder's weights are; none if they are no average.

    Raises:
        ValueError: if the record of it is damaged.
    """
    if not (folder / RECORD).is_file():
        return ()
    found = read_json(folder / RECORD).get("checkpoints")
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"{folder / RECORD} names no checkpoints; copy it again from where the average was made")
    return tuple(Path(name).name for name in found)


def check_selection(
    run_dir: str | Path | None,
    last: int | None,
    best: int | None,
    metric: str | None = None,
    greater_is_better: bool | None = None,
) -> None:
    """Check the options that choose the checkpoints of a run.

    Raises:
        ValueError: if a run is named without a number of its checkpoints or the reverse, or the last are asked for by
            a metric.
    """
    if (run_dir is None) != (last is None and best is None):
        raise ValueError("--run_dir needs --last N or --best N, and --checkpoints takes neither")
    if best is None and (metric is not None or greater_is_better is not None):
        raise ValueError("--metric and --greater_is_better belong to --best N")


def last_checkpoints(run_dir: str | Path, count: int) -> list[Path]:
    """Return the `count` newest checkpoints of a run that were saved to their end, the oldest of them first.

    Raises:
        NotADirectoryError: if there is no such folder.
        ValueError: if the run has fewer.
    """
    return _at_least(count, _whole_checkpoints(run_dir), f"checkpoints in {run_dir} that were saved to their end")[
        -count:
    ]


def best_checkpoints(
    run_dir: str | Path, count: int, metric: str | None = None, greater_is_better: bool | None = None
) -> list[Path]:
    """Return the `count` checkpoints with the best evaluation results, of those that a run saved to their end.

    The best is first.

    Args:
        run_dir: the Trainer's output folder; the history is that of the newest checkpoint's `trainer_state.json`.
        count: how many.
        metric: name of an evaluation metric, with or without `eval_`; default: the run's `metric_for_best_model`.
        greater_is_better: default: as the run had it for its own metric; else False for names that end in `loss`.

    Raises:
        NotADirectoryError: if there is no such folder.
        ValueError: if fewer checkpoints were evaluated, or the run tracked no best model and no metric is named.
    """
    state = read_trainer_state(last_checkpoints(run_dir, 1)[0])
    metric, greater_is_better = _ranking(state, metric, greater_is_better)
    values = _values(state, metric)
    folders = [folder for folder in _whole_checkpoints(run_dir) if step_of(folder) in values]
    _at_least(count, folders, f"checkpoints with {metric} in {run_dir}")
    folders.sort(key=lambda folder: (values[step_of(folder)], step_of(folder)), reverse=greater_is_better)
    return folders[:count]


def _whole_checkpoints(run_dir: str | Path) -> list[Path]:
    if not Path(run_dir).is_dir():
        raise NotADirectoryError(f"{run_dir} is not a folder; name the output folder of a training run")
    return [folder for folder in checkpoints(run_dir) if is_whole(folder)]


def _at_least(count: int, folders: list[Path], what: str) -> list[Path]:
    if not 1 <= count <= len(folders):
        raise ValueError(
            f"{count} asked for, but there are {len(folders)} {what}; ask for fewer, or train with more of them "
            "(--save_steps, --save_total_limit)"
        )
    return folders


def _values(state: Mapping, metric: str) -> dict[int, float]:
    return {entry["step"]: entry[metric] for entry in state["log_history"] if metric in entry}


def _ranking(state: Mapping, metric: str | None, greater_is_better: bool | None) -> tuple[str, bool]:
    """Return the metric's name in the history and its direction; defaults are the run's."""
    settings = identity_in(state).get("settings") or {}
    tracked = _in_history(settings["metric_for_best_model"]) if settings else _tracked_metric(state)
    if metric is None and tracked is None:
        names = {name for entry in state["log_history"] for name in entry if name.startswith("eval_")}
        raise ValueError(f"the run tracked no best model; name a metric among {', '.join(sorted(names)) or 'none'}")
    metric = tracked if metric is None else _in_history(metric)
    if greater_is_better is None and metric == tracked:
        greater_is_better = settings.get("greater_is_better")
    if greater_is_better is None:
        values = set(_values(state, metric).values())
        if metric == tracked and len(values) > 1:
            greater_is_better = state["best_metric"] == max(values)
        else:
            greater_is_better = not metric.endswith("loss")
    return metric, greater_is_better


def _in_history(metric: str) -> str:
    return f"eval_{metric.removeprefix('eval_')}"


def _tracked_metric(state: Mapping) -> str | None:
    """Return the `metric_for_best_model` of a plain Trainer's run, whose state lacks the name, by its best value."""
    for entry in state["log_history"]:
        if entry["step"] == state["best_global_step"]:
            for name, value in entry.items():
                if name.startswith("eval_") and value == state["best_metric"]:
                    return name
    return None


def _check_different(folders: Sequence[Path]) -> None:
    seen: set[Path] = set()
    for folder in folders:
        if folder.resolve() in seen:
            raise ValueError(f"{folder} is among the checkpoints twice, and would count twice; name it once")
        seen.add(folder.resolve())


def _check_model_types(folders: Sequence[Path]) -> None:
    types = [read_config(folder).get("model_type") for folder in folders]
    for folder, model_type in zip(folders, types):
        if model_type != types[-1]:
            raise ValueError(f"{folder} is a {model_type} model, but {folders[-1]} is a {types[-1]} model")


def _check_runs(folders: Sequence[Path]) -> None:
    """Raise a ValueError if checkpoints are known to be of different runs; without their states nothing is known.

    A run has an identifier, in the state of its checkpoints; one of a plain Trainer has none. And what it has logged is
    the beginning of what it has logged later.
    """
    states = [(folder, read_trainer_state(folder)) for folder in folders if (folder / TRAINER_STATE).is_file()]
    states.sort(key=lambda found: found[1].get("global_step", 0))
    for (folder, state), (newer, later) in pairwise(states):
        runs = identity_in(state).get("run"), identity_in(later).get("run")
        logs = state.get("log_history") or [], later.get("log_history") or []
        if (None not in runs and runs[0] != runs[1]) or logs[0] != logs[1][: len(logs[0])]:
            raise ValueError(
                f"{folder} and {newer} are checkpoints of different runs, whose weights have no mean that is of use; "
                "name those of one run"
            )


def _check_tensors(folders: Sequence[Path], files: Sequence[Mapping[str, Path]]) -> None:
    newest = tensor_shapes(files[-1])
    for folder, checkpoint in zip(folders[:-1], files):
        shapes = tensor_shapes(checkpoint)
        for tensor in sorted(shapes.keys() | newest.keys()):
            if shapes.get(tensor) != newest.get(tensor):
                raise ValueError(
                    f"{tensor} has shape {shapes.get(tensor, 'none')} in {folder} but {newest.get(tensor, 'none')} in "
                    f"{folders[-1]}"
                )


def _copy_model_files(source: Path, target: Path) -> None:
    for file in source.iterdir():
        if file.is_file() and not any(file.match(pattern) for pattern in _NOT_COPIED):
            shutil.copy2(file, target)


def _write_averaged(files: Sequence[Mapping[str, Path]], file: Path, target: Path) -> None:
    """Write to `target` the averages of the tensors in `file`, a file of the newest checkpoint."""
    tensors = [tensor for tensor, path in files[-1].items() if path == file]
    averages = {tensor: _average([checkpoint[tensor] for checkpoint in files], tensor) for tensor in tensors}
    with explained_saving(target / file.name):
        save_file(averages, target / file.name, metadata={"format": "pt"})


def _average(paths: Sequence[Path], tensor: str) -> torch.Tensor:
    """Return the mean; raise a ValueError if a value is not finite."""
    newest = _read(paths[-1], tensor)
    if not newest.is_floating_point():
        return newest
    total = newest.double()
    for path in paths[:-1]:
        total += _read(path, tensor)
    return (total / len(paths)).to(newest.dtype)


def _read(path: Path, tensor: str) -> torch.Tensor:
    with explained_weights(path), safe_open(path, "pt") as file:
        values = file.get_tensor(tensor)
    check_finite(path, [(tensor, values)])
    return values
