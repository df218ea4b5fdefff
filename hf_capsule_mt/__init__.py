"""Capsule-routing machine translation models for the Hugging Face ecosystem.

Importing the package registers its models with Transformers' Auto classes, and `pipeline("translation")`. The function
`hf_capsule_mt.pipeline` makes the same pipeline without that task.
"""

from collections.abc import Iterator
from typing import Any

import transformers
from transformers import AutoConfig, AutoModelForSeq2SeqLM, pipelines
from transformers.pipelines import PIPELINE_REGISTRY

from hf_capsule_mt.translation.files.rows import CorpusTranslator
from hf_capsule_mt.translation.generation.model_options import is_of_engine
from hf_capsule_mt.translation.portable_pipeline import LANGUAGE_PAIR

from . import decoding
from .configuration import (
    CONFIGURATIONS,
    METHODS,
    SIZES,
    CapsNMTConfig,
    CapsuleAggregatedM2M100Config,
    CapsuleAggregatedMarianConfig,
    RNMTConfig,
    preset_config,
)
from .errors import UserError
from .hub import source
from .loading import unfit_weights
from .modeling import (
    AUTO_MODELS,
    CapsNMTForConditionalGeneration,
    CapsNMTModel,
    CapsuleAggregatedM2M100ForConditionalGeneration,
    CapsuleAggregatedM2M100Model,
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianForSequenceClassification,
    CapsuleAggregatedMarianModel,
    RNMTForConditionalGeneration,
    RNMTModel,
    RoutingOutput,
    dynamic_routing,
    em_routing,
    simple_routing,
)
from .training.lora import LORA_PARAMETERS, LORA_TARGETS
from .translation.pipeline import TranslationPipeline, pipeline
from .translation.translation import Translation
from .version import __version__

source.register()
for _config in CONFIGURATIONS:
    AutoConfig.register(_config.model_type, _config)
for _auto_class, _models in AUTO_MODELS.items():
    for _model in _models:
        getattr(transformers, _auto_class).register(_model.config_class, _model)


class _TaskAliases(dict):
    """Other names of tasks, such as `translation_en_to_de`, for any two languages."""

    def __contains__(self, task: object) -> bool:
        return super().__contains__(task) or (isinstance(task, str) and LANGUAGE_PAIR.fullmatch(task) is not None)

    def __missing__(self, task: str) -> str:
        return "translation"


_WHERE = ("revision", "token", "cache_dir", "subfolder", "local_files_only")


class _ReportingSeq2SeqLM(AutoModelForSeq2SeqLM):
    """Keeps what the pipeline checks: missing weights, and the precision that the user chose."""

    @classmethod
    def from_pretrained(cls, *args: Any, dtype: Any = "auto", **kwargs: Any) -> Any:
        # There are no weights in int8. The pipeline gives the precision to the engine.
        dtype_of_weights = "float32" if is_of_engine(dtype) else dtype
        model, report = super().from_pretrained(*args, dtype=dtype_of_weights, output_loading_info=True, **kwargs)
        model.asked_dtype = dtype
        model.unfit_weights = unfit_weights(model, report)
        model.loaded_from = {name: kwargs[name] for name in _WHERE if name in kwargs}
        return model


class _NoDefaultModel:
    """Stands where Transformers looks for the model of a pipeline for which the user names none."""

    def __iter__(self) -> Iterator[str]:
        raise UserError(
            "No model is named. Give one, as in pipeline('translation', model='Helsinki-NLP/opus-mt-en-de')."
        )


# Transformers 5 removed this task, and refuses its name before it asks the registry.
getattr(pipelines, "REMOVED_TASKS", {}).pop("translation", None)
if "translation" not in PIPELINE_REGISTRY.supported_tasks:
    # `register_pipeline` would also mark the class, and a saved pipeline of another library's model would name it.
    PIPELINE_REGISTRY.supported_tasks["translation"] = {
        "impl": TranslationPipeline,
        "pt": (_ReportingSeq2SeqLM,),
        "default": {"model": _NoDefaultModel()},
        "type": "text",
    }
    PIPELINE_REGISTRY.task_aliases = _TaskAliases(PIPELINE_REGISTRY.task_aliases)

__all__ = [
    "LORA_PARAMETERS",
    "LORA_TARGETS",
    "METHODS",
    "SIZES",
    "CapsNMTConfig",
    "CapsNMTForConditionalGeneration",
    "CapsNMTModel",
    "CapsuleAggregatedM2M100Config",
    "CapsuleAggregatedM2M100ForConditionalGeneration",
    "CapsuleAggregatedM2M100Model",
    "CapsuleAggregatedMarianConfig",
    "CapsuleAggregatedMarianForConditionalGeneration",
    "CapsuleAggregatedMarianForSequenceClassification",
    "CapsuleAggregatedMarianModel",
    "CorpusTranslator",
    "RNMTConfig",
    "RNMTForConditionalGeneration",
    "RNMTModel",
    "RoutingOutput",
    "Translation",
    "TranslationPipeline",
    "__version__",
    "decoding",
    "dynamic_routing",
    "em_routing",
    "pipeline",
    "preset_config",
    "simple_routing",
]
