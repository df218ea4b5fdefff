"""Models that are loaded whole, from safetensors alone, and with the decoding settings that were saved with them."""

import os
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
