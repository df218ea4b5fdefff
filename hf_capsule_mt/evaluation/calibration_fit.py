"""Fit a calibration: the expected quality of a translation, an interval, and the probability that it is bad.

Only the mean log-probability of a translation and the length of its source are used, because more features can be
misleading on texts of another length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sacrebleu.metrics import CHRF
from scipy.optimize import isotonic_regression, minimize

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.quality.calibration import Calibration, Curve, probabilities_of

LEAST_SENTENCES = 50
"""Fewer sentences tell too little: each of three groups by length has a tenth of its sentences outside an interval."""
ISOTONIC_FROM = 1000
"""As many sentences are enough for a curve of any rising shape. Fewer get a line and a sigmoid."""
COVERED = 0.8
"""The share of scores that an interval should cover."""
NUM_FOLDS = 5
NUM_BINS = 10
_SEED = 1
_RIDGE = 1e-3
"""Keeps weights finite where all translations are bad, or none."""


@dataclass(frozen=True)
class JudgedSamples:
    """Translations whose quality is known. All arrays are `[n]` float64."""

    scores: np.ndarray
    lengths: np.ndarray
    qualities: np.ndarray

    def select(self, rows: np.ndarray) -> "JudgedSamples":
        """Return some of the samples, by their indices or a mask."""
        return JudgedSamples(self.scores[rows], self.lengths[rows], self.qualities[rows])


@dataclass(frozen=True)
class _Fit:
    """The curves of some samples."""

    quality: Curve
    probability: Curve


def sentence_chrf(translations: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return the chrF of each translation, 0 to 100."""
    metric = CHRF()
    pairs = zip(translations, references, strict=True)
    return [metric.sentence_score(translation, [reference]).score for translation, reference in pairs]


def fit_calibration(
    scores: Sequence[float],
    source_lengths: Sequence[int],
    qualities: Sequence[float],
    *,
    settings: Mapping[str, Any],
    coverages: Sequence[float] | None = None,
    metric: str = "chrf",
    bad: float = 40.0,
    bounds: tuple[float, float] = (0.0, 100.0),
) -> Calibration:
    """Fit a calibration, and measure it on sentences that it was not fitted on.

    Args:
        scores: the mean log-probability of each translation, `score` in a report.
        source_lengths: tokens of each source without the end, `source_length` in a report.
        qualities: the score of each translation by the metric. Higher is better.
        settings: of the model and its decoding, by `settings_of`.
        coverages: `coverage` of each translation in a report, if the model has attention.
        metric: name of the metric.
        bad: translations with a lower score are bad.
        bounds: the lowest and the highest score of the metric.

    Raises:
        UserError: if there are fewer than 50 translations.
    """
    samples = JudgedSamples(*(np.asarray(values, dtype=np.float64) for values in (scores, source_lengths, qualities)))
    number = len(samples.scores)
    if number < LEAST_SENTENCES:
        raise UserError(
            f"A calibration needs {LEAST_SENTENCES} translations at least, better 1,000. There are {number}."
        )
    method = "isotonic" if number >= ISOTONIC_FROM else "logistic"
    folds = np.random.default_rng(_SEED).permutation(number) % NUM_FOLDS
    expected, probabilities = _predict_held_out(samples, folds, method, bad)
    residuals = np.abs(samples.qualities - np.clip(expected, *bounds))
    edges = np.quantile(samples.lengths, [1 / 3, 2 / 3])
    groups = np.searchsorted(edges, samples.lengths)
    is_bad = samples.qualities < bad
    held_out = {
        "ece": expected_calibration_error(probabilities, is_bad),
        "brier": float(np.mean((probabilities - is_bad) ** 2)),
        "coverage": _covered_share(residuals, groups, folds),
        "share_bad": float(is_bad.mean()),
    }
    fit = _fit(samples, method, bad)
    return Calibration(
        metric=metric,
        bad=bad,
        num_sentences=number,
        method=method,
        quality=fit.quality,
        probability=fit.probability,
        bounds=bounds,
        length_edges=tuple(edges.tolist()),
        half_widths=tuple(_half_widths(residuals, groups)),
        score_range=tuple(np.quantile(samples.scores, [0.05, 0.95]).tolist()),
        least_coverage=None if coverages is None else float(np.quantile(coverages, 0.005)),
        held_out={name: round(value, 4) for name, value in held_out.items()},
        settings=settings,
    )


def expected_calibration_error(probabilities: np.ndarray, is_true: np.ndarray) -> float:
    """Return how far probabilities are from shares: the mean over ten bins of equal width, weighed by their sizes."""
    bins = np.minimum((probabilities * NUM_BINS).astype(int), NUM_BINS - 1)
    error = 0.0
    for number in range(NUM_BINS):
        is_in_bin = bins == number
        if is_in_bin.any():
            error += is_in_bin.mean() * abs(probabilities[is_in_bin].mean() - is_true[is_in_bin].mean())
    return float(error)


def _predict_held_out(
    samples: JudgedSamples, folds: np.ndarray, method: str, bad: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the expected quality and the probability of a bad translation, each by a fit on the other folds."""
    expected = np.zeros(len(folds))
    probabilities = np.zeros(len(folds))
    for fold in range(NUM_FOLDS):
        is_held_out = folds == fold
        fit = _fit(samples.select(~is_held_out), method, bad)
        held_out = samples.select(is_held_out)
        expected[is_held_out] = fit.quality.values(held_out.scores, held_out.lengths)
        probabilities[is_held_out] = probabilities_of(fit.probability, held_out.scores, held_out.lengths)
    return expected, probabilities


def _half_widths(residuals: np.ndarray, groups: np.ndarray) -> list[float]:
    """Return for each group the residual that conformal prediction takes: the ceil(0.8 (n + 1))-th smallest of n."""
    widths = []
    for group in range(3):
        of_group = np.sort(residuals[groups == group])
        if not len(of_group):
            # All sources may have the same length.
            of_group = np.sort(residuals)
        rank = int(np.ceil(COVERED * (len(of_group) + 1)))
        widths.append(float(of_group[min(rank, len(of_group)) - 1]))
    return widths


def _covered_share(residuals: np.ndarray, groups: np.ndarray, folds: np.ndarray) -> float:
    """Return the share of qualities in intervals whose widths come from the other folds."""
    is_covered = np.zeros(len(folds), dtype=bool)
    for fold in range(NUM_FOLDS):
        is_held_out = folds == fold
        widths = np.asarray(_half_widths(residuals[~is_held_out], groups[~is_held_out]))
        is_covered[is_held_out] = residuals[is_held_out] <= widths[groups[is_held_out]]
    return float(is_covered.mean())


def _fit(samples: JudgedSamples, method: str, bad: float) -> _Fit:
    """Fit the curves of the quality and of the probability."""
    is_bad = (samples.qualities < bad).astype(np.float64)
    quality = Curve(_line(samples))
    probability = Curve(_logistic(samples, is_bad))
    if method == "isotonic":
        quality = _with_knots(quality, samples, samples.qualities)
        probability = _with_knots(probability, samples, is_bad)
    return _Fit(quality, probability)


def _features(samples: JudgedSamples) -> np.ndarray:
    """Return what curves weigh, `[n, 3]`."""
    return np.stack([np.ones_like(samples.scores), samples.scores, np.log1p(samples.lengths)], axis=1)


def _line(samples: JudgedSamples) -> tuple[float, float, float]:
    """Return the weights of the line with the least squares."""
    weights, *_ = np.linalg.lstsq(_features(samples), samples.qualities, rcond=None)
    return tuple(weights.tolist())


def _logistic(samples: JudgedSamples, is_bad: np.ndarray) -> tuple[float, float, float]:
    """Return the weights of a logistic regression, by L-BFGS."""
    features = _features(samples)

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logits = features @ weights
        value = np.logaddexp(0, logits) - is_bad * logits
        errors = 1 / (1 + np.exp(-np.clip(logits, -30, 30))) - is_bad
        gradient = features.T @ errors / len(is_bad) + _RIDGE * weights
        return value.mean() + _RIDGE / 2 * weights @ weights, gradient

    weights = minimize(loss, np.zeros(3), jac=True, method="L-BFGS-B").x
    return tuple(weights.tolist())


def _with_knots(curve: Curve, samples: JudgedSamples, targets: np.ndarray) -> Curve:
    """Return a curve with the rising steps that are nearest to targets `[n]`, with straight lines between them."""
    index = curve.index(samples.scores, samples.lengths)
    order = np.argsort(index, kind="stable")
    places = index[order]
    heights = isotonic_regression(targets[order]).x
    # A step is described by its two ends.
    is_start = np.concatenate([[True], heights[1:] != heights[:-1]])
    is_end = np.concatenate([is_start[1:], [True]])
    kept = is_start | is_end
    return Curve(curve.weights, tuple(zip(places[kept].tolist(), heights[kept].tolist())))
