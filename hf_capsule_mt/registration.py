"""Registers the models with Transformers' Auto classes, and `pipeline("translation")`. Importing it does so, once."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _NotOfTorchao(logging.Filter):
    """Drops what torchao, which Transformers imports if it is there, logs of kernels for GPUs and of its own code."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_of_kernels = text.startswith(("Failed to load", "Skipping import of cpp extensions"))
        return not (is_of_kernels or "Calling register_constant() on Enum" in text)


@contextmanager
def _without_news_of_torchao() -> Iterator[None]:
    """Keep lines away about which a user can do nothing, while Transformers is imported, and only then."""
    news = _NotOfTorchao()
    loggers = [logging.getLogger(name) for name in ("torchao", "torch.utils._pytree")]
    for logger in loggers:
        logger.addFilter(news)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(news)


with _without_news_of_torchao():
    import transformers
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, pipelines
    from transformers.pipelines import PIPELINE_REGISTRY

    from .configuration import CONFIGURATIONS
    from .decoding.precision import dtype_to_load
    from .errors import UserError
    from .hub import source
    from .loading import LoadReport, unfit_weights
    from .modeling import AUTO_MODELS
    from .translation.pipeline import TranslationPipeline, load_reports
    from .translation.portable_pipeline import LANGUAGE_PAIR

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
    """Reports what the pipeline checks: missing weights, and the precision that the user chose.

    Transformers hides the errors of a class that loads models, and tries another.
    """

    @classmethod
    def from_pretrained(cls, *args: Any, dtype: Any = "auto", **kwargs: Any) -> Any:
        model, report = super().from_pretrained(*args, dtype=dtype_to_load(dtype), output_loading_info=True, **kwargs)
        where = {name: kwargs[name] for name in _WHERE if name in kwargs}
        load_reports[model] = LoadReport(dtype, unfit_weights(model, report), where)
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
