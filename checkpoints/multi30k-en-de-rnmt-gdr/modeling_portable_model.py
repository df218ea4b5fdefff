# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/portable_model.py.
"""Models that are loaded whole, from safetensors alone, with the decoding settings that were saved with them, and are
saved with hashes of their weights.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from .modeling_checkpoint_files import (
    GENERATION_CONFIG,
    WHERE,
    base_of_adapter,
    check_adapter_alone,
    check_generation_config,
    check_settings_of,
    check_weight_files,
    damaged_weights,
    find_file,
)
from .modeling_weight_hashes import write_hashes


def drawn_anew(report: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of tensors that a checkpoint lacked or had in another shape, by the report of its loading."""
    return frozenset([*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])])


class PortableModel:
    """For a [`PreTrainedModel`]: no other format is loaded unless asked for, since a pickle runs what it holds, and the
    SHA-256 of the weights is saved beside them.

    A model that was loaded from others than its own weights says so, and [`TranslationPipeline`] refuses it. The class
    names in `_no_split_modules` what any of its configurations may have; a model keeps those that it has.
    """

    unfit_tensors: frozenset[str] = frozenset()
    """Names of tensors that the checkpoint lacked, had too many of or in another shape; none once the model trains."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        self._check_kind(config)
        # Fields may have been set since the configuration was made.
        config.check_fields()
        super().__init__(config, *args, **kwargs)

    @classmethod
    def _check_kind(cls, config: Any) -> None:
        """Raise a TypeError unless this is a configuration of the family."""
        # Of one that was loaded with a checkpoint's source there may be two classes of that name.
        is_ours = getattr(config, "model_type", None) == cls.config_class.model_type
        if not is_ours and not isinstance(config, cls.config_class):
            raise TypeError(
                f"config is a {type(config).__name__}; {cls.__name__} is made from a "
                f"{cls.config_class.__name__}, and loaded from a checkpoint by {cls.__name__}.from_pretrained"
            )

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
            check_settings_of(base, model)
        return (model, report) if output_loading_info else model

    def save_pretrained(self, save_directory: str | os.PathLike, *args: Any, **kwargs: Any) -> None:
        """Save a model as [`PreTrainedModel.save_pretrained`] does, with its arguments, and hashes of its weights."""
        super().save_pretrained(save_directory, *args, **kwargs)
        # Transformers 5.24 lets each process call this, and one of them write.
        writes = getattr(self, "should_save_on_this_rank", bool)
        if writes(args[0] if args else kwargs.get("is_main_process", True)):
            write_hashes(Path(save_directory))

    def _upload_modified_files(self, working_dir: str | os.PathLike, *args: Any, **kwargs: Any) -> Any:
        """Let the hashes go to the Hub too, where `save_pretrained` sends what it saved."""
        write_hashes(Path(working_dir))
        return super()._upload_modified_files(working_dir, *args, **kwargs)

    def post_init(self) -> None:
        """Finish the initialisation, and keep those of the names whose modules are there."""
        super().post_init()
        present = {type(module).__name__ for module in self.modules()}
        # FSDP's wrapping refuses a class that the model lacks. The class's names, for Marian's models call this twice.
        self._no_split_modules = present.intersection(type(self)._no_split_modules)
