"""The scores as a metric of the `evaluate` library, for its translation evaluator too.

Importing this module imports that library, and lets `evaluate.evaluator("translation")` take a pipeline.
"""

from inspect import signature
from typing import Any

import datasets
import evaluate
from evaluate.evaluator import SUPPORTED_EVALUATOR_TASKS, TranslationEvaluator
from transformers import Pipeline

from .scores import METRICS, score_translations

_DESCRIPTION = "sacreBLEU's BLEU, chrF, chrF++ and TER of a corpus of translations, with their signatures."
_INPUTS = f"""
Args:
    predictions (`list[str]`): the translations.
    references (`list[str]` or `list[list[str]]`): the reference of every translation, or its several references.
    tokenize (`str`, *optional*, defaults to `"13a"`): BLEU's tokenizer.
    lowercase (`bool`, *optional*, defaults to `False`): BLEU and chrF of lower-cased text.
    metrics (`list[str]`, *optional*, defaults to `["bleu", "chrf", "ter"]`): among {", ".join(METRICS)}.

Returns:
    For every metric a dictionary of its `score` and its `signature`.
"""
_CITATION = """
@inproceedings{post-2018-call,
    title = "A Call for Clarity in Reporting {BLEU} Scores",
    author = "Post, Matt",
    booktitle = "Proceedings of the Third Conference on Machine Translation: Research Papers",
    year = "2018",
    url = "https://aclanthology.org/W18-6319",
}
"""


class TranslationScores(evaluate.Metric):
    """`score_translations` as an `evaluate.Metric` that needs no network.

    ```python
    >>> scores = TranslationScores().compute(predictions=["Ein Hund ."], references=[["Ein Hund .", "Der Hund ."]])
    >>> scores["ter"]["score"]
    0.0
    ```

    Raises:
        ValueError: from `compute`, as from `score_translations`, and if not every translation has the same
            number of references.
    """

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=[
                datasets.Features({"predictions": text, "references": datasets.Sequence(text)}),
                datasets.Features({"predictions": text, "references": text}),
            ],
            reference_urls=["https://github.com/mjpost/sacrebleu"],
        )

    def _compute(self, predictions: list[str], references: list, **options: Any) -> dict[str, dict[str, float | str]]:
        if references and isinstance(references[0], str):
            references = [[reference] for reference in references]
        counts = {len(group) for group in references}
        if len(counts) > 1:
            raise ValueError(
                f"translations have {min(counts)} to {max(counts)} references; all must have the same number"
            )
        return score_translations(predictions, list(zip(*references)), **options)


class PipelineEvaluator(TranslationEvaluator):
    """The evaluator of the task "translation", which takes a pipeline under Transformers 5 as well.

    That of evaluate 0.4.6 asks whether a pipeline is a TensorFlow model, of a class that Transformers 5 does not have.
    """

    def compute(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the scores and the time taken.

        Raises:
            ValueError: before anything is translated, if `strategy` is "bootstrap", which takes metrics of numbers,
                and the `metric` is one of several fields.
        """
        given = signature(super().compute).bind(*args, **kwargs).arguments
        if given.get("strategy") == "bootstrap" and isinstance(given.get("metric"), TranslationScores):
            raise ValueError(
                "strategy is 'bootstrap', which TranslationScores has no single number for; leave it out, or compare "
                "written translations with hf-capsule-mt evaluate --compare"
            )
        return super().compute(*args, **kwargs)

    def prepare_pipeline(self, model_or_pipeline: Any, *args: Any, **kwargs: Any) -> Pipeline:
        """Return the pipeline that was given, or one of the model or name that was."""
        if isinstance(model_or_pipeline, Pipeline) and model_or_pipeline.task.startswith(self.task):
            return model_or_pipeline
        return super().prepare_pipeline(model_or_pipeline, *args, **kwargs)


SUPPORTED_EVALUATOR_TASKS["translation"]["implementation"] = PipelineEvaluator
