"""Registration with Transformers: our models in its Auto classes, and the translation pipeline."""

from typing import Any

import transformers
from transformers import AutoConfig, AutoModelForSeq2SeqLM, pipelines
from transformers.pipelines import PIPELINE_REGISTRY

from .configuration import CONFIGURATIONS
from .hub.source import complete_checkpoint
from .modeling import AUTO_MODELS
from .modeling.portable_model import PortableModel
from .translation.loading import unfit_weights
from .translation.pipeline import LANGUAGE_PAIR, TranslationPipeline


def register_models() -> None:
    """Let the Auto classes make and load our models, and let these write their source beside their weights."""
    for config_class in CONFIGURATIONS:
        AutoConfig.register(config_class.model_type, config_class)
    for auto_class, model_classes in AUTO_MODELS.items():
        for model_class in model_classes:
            getattr(transformers, auto_class).register(model_class.config_class, model_class)
    PortableModel.complete_checkpoint = complete_checkpoint


class _TaskAliases(dict):
    """Transformers' other names of tasks, and `translation_xx_to_yy` for any two languages."""

    def __contains__(self, task: object) -> bool:
        return super().__contains__(task) or (isinstance(task, str) and LANGUAGE_PAIR.fullmatch(task) is not None)

    def __missing__(self, task: str) -> str:
        if task in self:
            return "translation"
        raise KeyError(task)


class _ReportingSeq2SeqLM(AutoModelForSeq2SeqLM):
    """Tells the pipeline which tensors the checkpoint lacked, and whether the precision is the checkpoint's."""

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        model, report = super().from_pretrained(*args, output_loading_info=True, **kwargs)
        model.has_dtype_of_checkpoint = kwargs.get("dtype", "auto") == "auto"
        model.unfit_weights = unfit_weights(model, report)
        return model


def register_translation() -> None:
    """Give `pipeline()` the task "translation" again, which Transformers 5 took away; leave one that is there alone."""
    if "translation" in PIPELINE_REGISTRY.supported_tasks:
        return
    # Newer versions refuse the name before they ask the registry.
    getattr(pipelines, "REMOVED_TASKS", {}).pop("translation", None)
    PIPELINE_REGISTRY.register_pipeline("translation", TranslationPipeline, pt_model=_ReportingSeq2SeqLM, type="text")
    # Else the pipeline's `save_pretrained` names, for models that are not ours, the class above, which nobody has.
    del TranslationPipeline._registered_impl
    PIPELINE_REGISTRY.task_aliases = _TaskAliases(PIPELINE_REGISTRY.task_aliases)
