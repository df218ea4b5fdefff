"""The check that a run resumes from a checkpoint of its own model."""

import dataclasses
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from hf_capsule_mt.checkpoints import load_config, read_config, tensor_files, tensor_shapes

# Names, or ends of names, of the fields that a resumed run may change.
_FREE = ("dropout", "layerdrop", "label_smoothing", "loss_weight", "use_cache", "init_std")


def check_same_model(checkpoint: str | Path, model: PreTrainedModel) -> None:
    """Check that a checkpoint is one of `model`, as it is configured now.

    Raises:
        FileNotFoundError: if it holds no weights or no configuration.
        OSError: if its weights are damaged.
        ValueError: if it is of another type, or a field of the configuration or a tensor differs.
    """
    found = read_config(checkpoint).get("model_type")
    if found != model.config.model_type:
        differences = [f"model_type is {found!r} there and {model.config.model_type!r} here"]
    else:
        differences = _different_fields(load_config(checkpoint), model.config) or _different_tensors(checkpoint, model)
    if differences:
        shown = ", ".join(differences[:4]) + (f" and {len(differences) - 4} more" if len(differences) > 4 else "")
        raise ValueError(
            f"resume_from_checkpoint is {str(checkpoint)!r}, a checkpoint of another model: {shown}; train with the "
            "options of its run, or name a checkpoint of this one"
        )


def _different_fields(there: PreTrainedConfig, here: PreTrainedConfig) -> list[str]:
    of_all = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    names = [field.name for field in dataclasses.fields(here) if field.name not in of_all]
    pairs = {name: (getattr(there, name), getattr(here, name)) for name in names if not name.endswith(_FREE)}
    return [f"{name} is {old!r} there and {new!r} here" for name, (old, new) in pairs.items() if old != new]


def _different_tensors(checkpoint: str | Path, model: PreTrainedModel) -> list[str]:
    saved: dict[str, Any] = tensor_shapes(tensor_files(Path(checkpoint)))
    state = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    wrong = [name for name, shape in saved.items() if state.get(name) != shape]
    # A checkpoint holds one of several tied parameters.
    names_of: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names_of.setdefault(id(parameter), []).append(name)
    known = {*saved, *(model._keys_to_ignore_on_save or ())}
    missing = [names[0] for names in names_of.values() if not known.intersection(names)]
    return [
        f"{name} has shape {saved.get(name, 'none')} there and {state.get(name, 'none')} here"
        for name in sorted([*wrong, *missing])
    ]
