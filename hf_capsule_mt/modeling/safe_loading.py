"""Models that are loaded whole, from safetensors alone, with the decoding settings saved with them, and saved with hashes."""

import hashlib
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from .checkpoint_files import (
    GENERATION_CONFIG,
    WEIGHTS_INDEX,
    check_generation_config,
    check_settings_of,
    check_weight_map,
    damaged_weights,
    find_file,
    other_tensors,
)

# Arguments of from_pretrained that say where files are.
_WHERE = ("revision", "cache_dir", "token", "local_files_only", "subfolder")
WEIGHTS_HASHES = "weights.sha256"
"""Name of the file of hashes beside the weights, as `sha256sum --check` reads it."""


class IncompleteCheckpointError(LookupError):
    """Tensors that a checkpoint lacks, or has too many of.

    Not a ValueError, which `pipeline()` would drown in tracebacks of all that it tries instead.
    """


class SafetensorsOnly:
    """For a [`PreTrainedModel`]: no other format is loaded unless asked for, since a pickle runs what it holds.

    A pipeline gets no model whose weights are in part random.
    """

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike | None,
        *model_args: Any,
        use_safetensors: bool | None = True,
        output_loading_info: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Load a model as [`PreTrainedModel.from_pretrained`] does, with its arguments.

        Raises:
            OSError: if weights are damaged or elsewhere, or a translation model lacks its decoding settings.
            ValueError: if a value of these is not allowed.
            IncompleteCheckpointError: if `pipeline()` asks for it, and the tensors are not those of the model.
        """
        name = pretrained_model_name_or_path
        where = {option: kwargs[option] for option in _WHERE if option in kwargs}
        for_pipeline = kwargs.get("_from_pipeline") is not None
        check_weight_map(find_file(name, WEIGHTS_INDEX, where))
        try:
            model, report = super().from_pretrained(
                name, *model_args, use_safetensors=use_safetensors, output_loading_info=True, **kwargs
            )
        except SafetensorError as error:
            raise OSError(damaged_weights(name, error)) from error
        strange = {*report["missing_keys"], *report["unexpected_keys"]}
        if for_pipeline and strange:
            raise IncompleteCheckpointError(other_tensors(name, strange))
        # Of a model that has yet to learn, or that the caller gave settings, nothing is expected.
        if name is not None and not strange and model.can_generate() and kwargs.get("generation_config") is None:
            check_generation_config(name, find_file(name, GENERATION_CONFIG, where))
            check_settings_of(name, model)
        return (model, report) if output_loading_info else model

    def save_pretrained(self, save_directory: str | os.PathLike, *args: Any, **kwargs: Any) -> None:
        """Save a model as [`PreTrainedModel.save_pretrained`] does, with its arguments, and hashes of its weights."""
        super().save_pretrained(save_directory, *args, **kwargs)
        if args[0] if args else kwargs.get("is_main_process", True):
            write_hashes(Path(save_directory))

    def _upload_modified_files(self, working_dir: str | os.PathLike, *args: Any, **kwargs: Any) -> Any:
        """Let the hashes go to the Hub too, where `save_pretrained` sends what it saved."""
        write_hashes(Path(working_dir))
        return super()._upload_modified_files(working_dir, *args, **kwargs)


def write_hashes(folder: Path) -> None:
    """Write the SHA-256 of every file of weights in a folder to `weights.sha256` beside them."""
    lines = [f"{_sha256(file)}  {file.name}\n" for file in sorted(folder.glob("*.safetensors"))]
    (folder / WEIGHTS_HASHES).write_text("".join(lines), encoding="utf-8")


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as opened:
        while chunk := opened.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
