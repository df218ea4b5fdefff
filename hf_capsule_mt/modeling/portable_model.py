"""Models that are loaded whole, from safetensors alone, with the decoding settings that were saved with them."""

import os
from collections.abc import Mapping
from typing import Any

from safetensors import SafetensorError

from .checkpoint_files import (
    GENERATION_CONFIG,
    WHERE,
    base_of_adapter,
    check_adapter_alone,
    check_generation_config,
    check_weight_files,
    damaged_weights,
    find_file,
)
from .saved_source import SavedWithSource


def drawn_anew(report: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of tensors that a checkpoint lacked or had in another shape, by the report of its loading."""
    return frozenset([*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])])


class PortableModel(SavedWithSource):
    """For a [`PreTrainedModel`]: no other format is loaded unless asked for, since a pickle runs what it holds.

    A model that was loaded from others than its own weights says so, and [`TranslationPipeline`] refuses it. The class
    names in `_no_split_modules` what any of its configurations may have; a model keeps those that it has.
    """

    unfit_tensors: frozenset[str] = frozenset()
    """Names of tensors that the checkpoint lacked, had too many of or in another shape; none once the model trains."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        # Fields may have been set since the configuration was made.
        config.validate()
        super().__init__(config, *args, **kwargs)

    def train(self, mode: bool = True) -> Any:
        """Put the model into training or out of it, as [`torch.nn.Module.train`] does."""
        if mode:
            self.unfit_tensors = frozenset()
        return super().train(mode)

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
            OSError: if weights are damaged or elsewhere, an adapter lies beside them, or a translation model lacks its
                decoding settings.
            ValueError: if a value of these is not allowed.
        """
        name = pretrained_model_name_or_path
        where = {option: kwargs[option] for option in WHERE if option in kwargs}
        check_adapter_alone(kwargs.get("adapter_kwargs") or {}, where)
        base, where_base = base_of_adapter(name, where)
        settings = find_file(base, GENERATION_CONFIG, where_base)
        has_own_settings = kwargs.get("generation_config") is not None
        if settings is not None and not has_own_settings:
            check_generation_config(base, settings)
        check_weight_files(base, where_base, kwargs.get("variant"))
        try:
            model, report = super().from_pretrained(
                name, *model_args, use_safetensors=use_safetensors, output_loading_info=True, **kwargs
            )
        except SafetensorError as error:
            raise OSError(damaged_weights(name, error)) from error
        model.unfit_tensors = drawn_anew(report).union(report["unexpected_keys"])
        saved_by = model.config.architectures or ()
        # A checkpoint of the model without its head has none.
        translates = any(architecture.endswith("ForConditionalGeneration") for architecture in saved_by)
        if name is not None and model.can_generate() and translates and not has_own_settings:
            check_generation_config(base, settings)
        return (model, report) if output_loading_info else model

    def post_init(self) -> None:
        """Finish the initialisation, and keep those of the names whose modules are there."""
        super().post_init()
        present = {type(module).__name__ for module in self.modules()}
        # FSDP's wrapping refuses a class that the model lacks. The class's names, for Marian's models call this twice.
        self._no_split_modules = present.intersection(type(self)._no_split_modules)
