"""Files of a checkpoint that are looked at before or after a model is loaded, and what to say of them."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from safetensors import SafetensorError
from transformers import PreTrainedModel
from transformers.utils import cached_file

from .decoding_settings import check_decoding_settings, check_settings_for_commands

WEIGHTS_INDEX = "model.safetensors.index.json"
GENERATION_CONFIG = "generation_config.json"
CONFIG = "config.json"
ADAPTER = "adapter_config.json"
OTHER_WEIGHTS = "pytorch_model.bin"
"""Weights in a format that runs what it holds."""
WHERE = ("revision", "cache_dir", "token", "local_files_only", "subfolder")
"""Arguments of from_pretrained that say where files are."""


def conversion(checkpoint: object, revision: str | None = None, model: str = "MarianMTModel") -> str:
    """Return what to say of a checkpoint whose weights are in pytorch_model.bin: how they become safetensors."""
    where = f"{str(checkpoint)!r}" + ("" if revision is None else f", revision={revision!r}")
    parts = (f"{name}.from_pretrained({where}).save_pretrained(FOLDER)" for name in (model, "AutoTokenizer"))
    return f"if you trust whoever made it, convert it: {'; '.join(parts)}"


def damaged_weights(checkpoint: object, error: Exception) -> str:
    """Return what to say of weights that safetensors cannot read."""
    reason = one_line(error)[:300]
    return f"the weights in {checkpoint} are damaged: {reason}; copy or download them again, or name another checkpoint"


@contextmanager
def explained_weights(checkpoint: object, fields: Mapping[str, Any] = MappingProxyType({})) -> Iterator[None]:
    """Explain errors that `from_pretrained` raises for the weights of `checkpoint`, loaded with other `fields`, if any.

    Raises:
        OSError: if they are damaged, or of other shapes than the configuration's.
    """
    try:
        yield
    except SafetensorError as error:
        raise OSError(damaged_weights(checkpoint, error)) from error
    # Transformers raises it for weights of another shape.
    except RuntimeError as error:
        raise OSError(misfit(checkpoint, fields, one_line(error)[:800])) from error


def misfit(checkpoint: object, fields: Mapping[str, Any], reason: str) -> str:
    """Return what to say of weights that do not fit a configuration with other `fields`, if any."""
    changed = f" with {dict(fields)}" if fields else ""
    remedy = "Leave the fields as they were" if fields else f"Put back the {CONFIG} that was saved with them"
    return (
        f"the weights in {checkpoint} do not fit its configuration{changed}: {reason} {remedy}, or name another "
        "checkpoint"
    )


def one_line(error: Exception) -> str:
    """Return the message of an error in one line."""
    return " ".join(str(error).split())


def first_names(names: Sequence[str], most: int = 8) -> str:
    """Return the first of `names`, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def check_generation_config(checkpoint: object, file: Path | None) -> None:
    """Check that a checkpoint's `file` of decoding settings is there, holds some, and misspells none.

    Without it, Transformers decodes with other settings, and does not say so.

    Raises:
        OSError: if it does not.
    """
    settings = None if file is None else _json(file)
    try:
        if file is None:
            raise ValueError("there is none")
        if not isinstance(settings, dict) or not settings:
            raise ValueError("it is damaged")
    except ValueError as error:
        raise OSError(
            f"{checkpoint}: {GENERATION_CONFIG}, which says how its model decodes (beams, length penalty), cannot be "
            f"used: {error}; copy it again from where the checkpoint came from, or give generation_config=..."
        ) from error


def check_settings_of(checkpoint: object, model: PreTrainedModel, *, for_commands: bool = False) -> None:
    """Raise a ValueError, with the file, if a setting that the model of a `checkpoint` decodes with is not allowed, or,
    `for_commands`, asks for more than they do.
    """
    try:
        weight = model.get_output_embeddings().weight
        # DeepSpeed leaves a process a part of each weight, and notes its shape.
        check_decoding_settings(model.generation_config, getattr(weight, "ds_shape", weight.shape)[0])
        if for_commands:
            check_settings_for_commands(model.generation_config)
    except ValueError as error:
        raise ValueError(f"{checkpoint}: {GENERATION_CONFIG} cannot be used: {error}") from error


def check_weight_files(checkpoint: str | os.PathLike | None, where: dict[str, Any], variant: str | None = None) -> None:
    """Check that a checkpoint's weights are the files of safetensors beside its configuration.

    Raises:
        OSError: if the configuration names others, or the index of their files or an adapter does.
    """
    check_no_adapter(checkpoint, where)
    file = find_file(checkpoint, CONFIG, where)
    fields = None if file is None else _json(file)
    named = fields.get("transformers_weights") if isinstance(fields, dict) else None
    if named is not None:
        raise OSError(
            f"{file} names weights of its own: transformers_weights is {named!r:.80}. Do not trust this checkpoint, or "
            "take the field out"
        )
    index = WEIGHTS_INDEX if variant is None else f"model.safetensors.index.{variant}.json"
    check_weight_map(find_file(checkpoint, index, where))


def check_weight_map(file: Path | None) -> None:
    """Check the index of the weights' files, where there is one.

    Raises:
        OSError: if it is damaged, or names files elsewhere or of another format than safetensors.
    """
    if file is None:
        return
    index = _json(file)
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict):
        raise OSError(f"{file} is damaged: it has no weight_map; copy it again")
    for name in weight_map.values():
        if not isinstance(name, str) or name != PurePosixPath(name).name or "\\" in name or name in ("", ".."):
            raise OSError(f"{file} names {name!r:.80}; weights must be files beside it. Do not trust this checkpoint")
        if not name.endswith(".safetensors"):
            raise OSError(f"{file} names {name!r:.80}; weights must be in safetensors. Do not trust this checkpoint")


def check_no_adapter(checkpoint: str | os.PathLike | None, where: dict[str, Any]) -> None:
    """Raise an OSError if a checkpoint holds an adapter, even beside a model's weights.

    Where PEFT is installed, Transformers adds it to them, or, of a name on the Hub, takes the base that it names.
    """
    if find_file(checkpoint, ADAPTER, where) is not None:
        raise OSError(_has_adapter(checkpoint))


def check_adapter_alone(adapter: dict[str, Any], where: dict[str, Any]) -> None:
    """Raise an OSError if the adapter whose base an Auto class loads lies beside a model.

    Args:
        adapter: `adapter_kwargs` of from_pretrained; its name is that of what was asked for.
        where: its other arguments that say where files are.
    """
    name = adapter.get("_adapter_model_path")
    where = where | {option: adapter[option] for option in WHERE if option in adapter}
    if find_file(name, CONFIG, where) is not None:
        # It may be in the top folder, where Auto classes look, though not in the model's.
        raise OSError(_has_adapter(name))


def _has_adapter(checkpoint: object) -> str:
    """Return what to say of a checkpoint that holds an adapter."""
    return (
        f"{checkpoint} holds an adapter, {ADAPTER}, with which other weights are loaded than lie beside it; take it "
        "away, or merge it into its model and name that"
    )


def base_of_adapter(name: str | os.PathLike | None, where: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the checkpoint whose weights Transformers loads, and where: of an adapter alone, that of its base.

    Raises:
        OSError: if the adapter does not name it.
    """
    adapter = find_file(name, ADAPTER, where)
    if adapter is None or find_file(name, CONFIG, where) is not None:
        return name, where
    fields = _json(adapter)
    base = fields.get("base_model_name_or_path") if isinstance(fields, dict) else None
    if not isinstance(base, str):
        raise OSError(
            f"{adapter} is damaged: base_model_name_or_path is {base!r:.80}, which must name the adapter's model; copy "
            "it again, or write the name there"
        )
    # Of the base Transformers takes the main revision, and its top folder.
    return base, {option: value for option, value in where.items() if option not in ("revision", "subfolder")}


def find_file(name: str | os.PathLike | None, file: str, where: dict[str, Any]) -> Path | None:
    """Return a file of a checkpoint, or None if it has none of this name."""
    if name is None:
        return None
    if os.path.isdir(name):
        path = Path(name, where.get("subfolder") or "", file)
        return path if path.is_file() else None
    options = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    found = cached_file(name, file, _raise_exceptions_for_gated_repo=False, **options, **where)
    return None if found is None else Path(found)


def _json(file: Path) -> Any:
    """Return what a file of JSON holds; None if it is damaged."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return None
