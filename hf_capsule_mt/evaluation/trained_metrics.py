"""Trained metrics by name: COMET, CometKiwi, XCOMET and MetricX.

Without a name of a model, only models with a licence that allows commercial use are taken. CometKiwi and XCOMET have
none, so the user names the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hf_capsule_mt.errors import UserError

from .comet import CometScorer
from .metric_models import DEFAULT_MODELS
from .metricx import TOKENIZER, MetricXScorer

_EXAMPLES = {"cometkiwi": "Unbabel/wmt22-cometkiwi-da", "xcomet": "Unbabel/XCOMET-XL"}
"""Models of the metrics without a default, CC BY-NC-SA 4.0."""


@dataclass(frozen=True)
class TrainedScores:
    """Scores by a trained metric."""

    scores: list[float]
    """One for each translation."""
    model: str
    """The name of the model that gave them."""

    @property
    def mean(self) -> float:
        """The score of the corpus."""
        return sum(self.scores) / len(self.scores)


def model_of(metric: str, name: str | None) -> str:
    """Return the name of the model of a metric: the given one, or the default.

    Raises:
        UserError: if there is no default.
    """
    chosen = name or DEFAULT_MODELS[metric]
    if chosen is None:
        raise UserError(
            f"{metric} has no default model, because its models forbid commercial use. If you may use one, name it: "
            f"--{metric}_model {_EXAMPLES[metric]}"
        )
    return chosen


def score_with(
    metric: str,
    sources: Sequence[str],
    translations: Sequence[str],
    references: Sequence[str] | None = None,
    *,
    model: str | None = None,
    tokenizer: str | None = None,
    device: str | torch.device = "cpu",
    progress: bool = False,
) -> TrainedScores:
    """Score translations with a trained metric.

    Args:
        metric: a name in [`DEFAULT_MODELS`].
        sources: the source of each translation.
        translations: the translations.
        references: a reference for each, or None.
        model: repository or folder of the model. By default that of [`DEFAULT_MODELS`].
        tokenizer: repository or folder of MetricX's tokenizer. The others have their own.
        device: where it computes.
        progress: whether a bar is shown.

    Raises:
        UserError: if there is no default model, the model needs references, or it cannot be read.
    """
    name = model_of(metric, model)
    if metric == "metricx":
        scorer = MetricXScorer.from_pretrained(name, tokenizer=tokenizer or TOKENIZER, device=device)
        return TrainedScores(scorer.score(sources, translations, references, progress=progress), name)
    if metric == "cometkiwi":
        # It is made to need none.
        references = None
    scores = CometScorer.from_pretrained(name, device).score(sources, translations, references, progress=progress)
    return TrainedScores(scores.scores, name)
