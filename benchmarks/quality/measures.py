"""Measures of translations, and of what tells good ones from bad ones."""

from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics import CHRF
from scipy.stats import rankdata

NUM_BINS = 10


def sentence_chrf(translations: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return the chrF of each translation, 0 to 100."""
    metric = CHRF()
    pairs = zip(translations, references, strict=True)
    return [metric.sentence_score(translation, [reference]).score for translation, reference in pairs]


def auroc(is_bad: np.ndarray, signals: np.ndarray) -> float | None:
    """Return the probability that a bad translation has a larger sign than a good one, equal signals counting half.

    Args:
        is_bad: `[n]` bool.
        signals: `[n]`, larger for worse translations.

    Returns:
        0 to 1, or None if there are only good ones or only bad ones.
    """
    num_bad = int(is_bad.sum())
    num_good = len(is_bad) - num_bad
    if not num_bad or not num_good:
        return None
    ranks = rankdata(signals)
    return float((ranks[is_bad].sum() - num_bad * (num_bad + 1) / 2) / (num_bad * num_good))


def expected_calibration_error(probabilities: np.ndarray, is_true: np.ndarray) -> float:
    """Return how far probabilities are from shares: the mean over ten bins of equal width, weighed by their sizes."""
    bins = np.minimum((probabilities * NUM_BINS).astype(int), NUM_BINS - 1)
    error = 0.0
    for number in range(NUM_BINS):
        is_in_bin = bins == number
        if is_in_bin.any():
            error += is_in_bin.mean() * abs(probabilities[is_in_bin].mean() - is_true[is_in_bin].mean())
    return float(error)
