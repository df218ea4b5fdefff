"""Calibrations: the expected chrF of a translation, an interval, and the probability that the translation is bad.

Only the mean log-probability of a translation and the length of its source are used, because more features can be
misleading on texts of another length.

No option of the package uses a calibration. On new sentences its probabilities find bad translations with an AUROC of
0.73 to 0.78, which is a finding and no promise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression, minimize

from benchmarks.quality.measures import expected_calibration_error

BAD = 40.0
"""chrF below which a translation is bad."""
BOUNDS = (0.0, 100.0)
"""The lowest and the highest chrF."""
ISOTONIC_FROM = 1000
"""As many sentences are enough for a curve of any rising shape. Fewer get a line and a sigmoid."""
COVERED = 0.8
"""The share of scores that an interval should cover."""
NUM_FOLDS = 5
_SEED = 1
_RIDGE = 1e-3
"""Keeps weights finite where all translations are bad, or none."""


@dataclass(frozen=True)
class Curve:
    """A function of the mean log-probability of a translation and the length of its source.

    Both are weighed to one number, and this number is read off a curve between knots.
    """

    weights: tuple[float, float, float]
    """Of 1, the mean log-probability, and the logarithm of 1 plus the source's tokens."""
    knots: tuple[tuple[float, float], ...] | None = None
    """Points of the curve with rising places. None is the number itself, or its sigmoid for a probability."""

    def index(self, scores: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the weighed number of each translation, `[n]`."""
        constant, of_score, of_length = self.weights
        return constant + of_score * scores + of_length * np.log1p(lengths)

    def values(self, scores: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the value of each translation, `[n]`."""
        index = self.index(scores, lengths)
        if self.knots is None:
            return index
        places, heights = zip(*self.knots)
        return np.interp(index, places, heights)

    def probabilities(self, scores: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the probability of each translation, `[n]`. Without knots the values are logits."""
        values = self.values(scores, lengths)
        if self.knots is None:
            # A larger logit would overflow, and makes no difference.
            values = 1 / (1 + np.exp(-np.clip(values, -30, 30)))
        return np.clip(values, 0.0, 1.0)


@dataclass(frozen=True)
class Quality:
    """What is expected of a translation."""

    quality: float  # The expected chrF.
    interval: tuple[float, float]  # 80% of the chrF lie between these.
    p_bad: float  # The probability that the chrF is below `BAD`.


@dataclass(frozen=True)
class Calibration:
    """A fitted calibration.

    Args:
        quality: gives the expected chrF.
        probability: gives the probability of a bad translation.
        length_edges: longest sources, in tokens, of the groups of short and middle sources.
        half_widths: of the intervals, by group.
        held_out: what was measured on sentences that it was not fitted on.
    """

    quality: Curve
    probability: Curve
    length_edges: tuple[float, float]
    half_widths: tuple[float, float, float]
    held_out: Mapping[str, float]

    def expect(self, scores: Sequence[float], source_lengths: Sequence[int]) -> list[Quality]:
        """Return what is expected of translations.

        Args:
            scores: their mean log-probabilities, `score` in a report.
            source_lengths: tokens of their sources without the end, `source_length` in a report.
        """
        scores = np.asarray(scores, dtype=np.float64)
        lengths = np.asarray(source_lengths, dtype=np.float64)
        values = np.clip(self.quality.values(scores, lengths), *BOUNDS)
        widths = np.asarray(self.half_widths)[np.searchsorted(self.length_edges, lengths)]
        lows = np.clip(values - widths, *BOUNDS)
        highs = np.clip(values + widths, *BOUNDS)
        probabilities = self.probability.probabilities(scores, lengths)

        expected = []
        for value, low, high, probability in zip(values, lows, highs, probabilities, strict=True):
            interval = (round(float(low), 4), round(float(high), 4))
            expected.append(Quality(round(float(value), 4), interval, round(float(probability), 4)))
        return expected


@dataclass(frozen=True)
class JudgedSamples:
    """Translations whose chrF is known. All arrays are `[n]` float64."""

    scores: np.ndarray
    lengths: np.ndarray
    qualities: np.ndarray

    def select(self, rows: np.ndarray) -> "JudgedSamples":
        """Return some of the samples, by their indices or a mask."""
        return JudgedSamples(self.scores[rows], self.lengths[rows], self.qualities[rows])


def fit_calibration(scores: Sequence[float], source_lengths: Sequence[int], qualities: Sequence[float]) -> Calibration:
    """Fit a calibration, and measure it on sentences that it was not fitted on.

    Args:
        scores: the mean log-probability of each translation, `score` in a report.
        source_lengths: tokens of each source without the end, `source_length` in a report.
        qualities: the chrF of each translation.
    """
    samples = JudgedSamples(*(np.asarray(values, dtype=np.float64) for values in (scores, source_lengths, qualities)))
    number = len(samples.scores)
    is_isotonic = number >= ISOTONIC_FROM
    folds = np.random.default_rng(_SEED).permutation(number) % NUM_FOLDS
    expected, probabilities = _predict_held_out(samples, folds, is_isotonic)

    residuals = np.abs(samples.qualities - np.clip(expected, *BOUNDS))
    edges = np.quantile(samples.lengths, [1 / 3, 2 / 3])
    groups = np.searchsorted(edges, samples.lengths)
    is_bad = samples.qualities < BAD
    held_out = {
        "ece": expected_calibration_error(probabilities, is_bad),
        "brier": float(np.mean((probabilities - is_bad) ** 2)),
        "coverage": _covered_share(residuals, groups, folds),
        "share_bad": float(is_bad.mean()),
    }

    quality, probability = _fit(samples, is_isotonic)
    return Calibration(
        quality=quality,
        probability=probability,
        length_edges=tuple(edges.tolist()),
        half_widths=tuple(_half_widths(residuals, groups)),
        held_out={name: round(value, 4) for name, value in held_out.items()},
    )


def _predict_held_out(samples: JudgedSamples, folds: np.ndarray, is_isotonic: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the expected chrF and the probability of a bad translation, each by a fit on the other folds."""
    expected = np.zeros(len(folds))
    probabilities = np.zeros(len(folds))
    for fold in range(NUM_FOLDS):
        is_held_out = folds == fold
        quality, probability = _fit(samples.select(~is_held_out), is_isotonic)
        held_out = samples.select(is_held_out)
        expected[is_held_out] = quality.values(held_out.scores, held_out.lengths)
        probabilities[is_held_out] = probability.probabilities(held_out.scores, held_out.lengths)
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
    """Return the share of chrF in intervals whose widths come from the other folds."""
    is_covered = np.zeros(len(folds), dtype=bool)
    for fold in range(NUM_FOLDS):
        is_held_out = folds == fold
        widths = np.asarray(_half_widths(residuals[~is_held_out], groups[~is_held_out]))
        is_covered[is_held_out] = residuals[is_held_out] <= widths[groups[is_held_out]]
    return float(is_covered.mean())


def _fit(samples: JudgedSamples, is_isotonic: bool) -> tuple[Curve, Curve]:
    """Return the curve of the chrF, and that of the probability of a bad translation."""
    is_bad = (samples.qualities < BAD).astype(np.float64)
    quality = Curve(_line(samples))
    probability = Curve(_logistic(samples, is_bad))
    if is_isotonic:
        quality = _with_knots(quality, samples, samples.qualities)
        probability = _with_knots(probability, samples, is_bad)
    return quality, probability


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
