"""Which translations of a report to look at first: those with faults, then those least like the others of the report.

No threshold fits all models and texts. So each number is compared with its median in the same report.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .faults import faults_in

_WEIGHT_OF_CERTAIN = 2.0
_WEIGHT_OF_FAULT = 1.0
"""What a fault counts among faults. A name that was copied rightly has one too, so most count less."""
_TO_DEVIATION = 1.4826
"""From the median deviation of numbers with a normal distribution to their standard deviation."""
_LEAST_DEVIATION = 1e-3
"""A smaller deviation counts as this one. Numbers that are all equal have none."""
_LEAST_SHARE = 1e-3
"""A smaller coverage or ratio counts as this one, so that its logarithm is finite."""


def signals_of(record: Mapping[str, Any]) -> tuple[float, float, float, float]:
    """Return numbers that are higher for worse translations, and the logarithm of the length's ratio.

    Args:
        record: a line of a report.

    Returns:
        The negative mean and lowest log-probability, the negative logarithm of the coverage, and that of the ratio of
        lengths. NaN is what is not known.
    """
    score = record.get("score")
    lowest = record.get("lowest")
    return (
        math.nan if score is None else -score,
        math.nan if lowest is None else -lowest,
        -_logarithm(record.get("coverage")),
        _logarithm(record.get("length_ratio")),
    )


def _logarithm(number: float | None) -> float:
    if number is None:
        return math.nan
    return math.log(max(number, _LEAST_SHARE))


def weight_of_faults(record: Mapping[str, Any]) -> float:
    """Return how bad the faults in a line of a report, and its missing terms, are. It is 0 without any."""
    total = 0.0
    for fault in faults_in(record):
        total += _WEIGHT_OF_CERTAIN if fault.is_certain else _WEIGHT_OF_FAULT
    num_missing = sum(term["state"] == "missing" for term in record.get("terms", ()))
    return total + _WEIGHT_OF_CERTAIN * num_missing


def suspicion(signals: np.ndarray) -> np.ndarray:
    """Return how far translations are from the usual ones of their report, in the direction of bad ones.

    Args:
        signals: of each translation, by [`signals_of`], `[n, 4]`.

    Returns:
        The sum of their deviations in usual deviations, `[n]`. A ratio of lengths counts in both directions.
    """
    deviations = np.zeros_like(signals)
    for column in range(signals.shape[1]):
        values = signals[:, column]
        known = values[~np.isnan(values)]
        if len(known):
            middle = np.median(known)
            usual = _TO_DEVIATION * np.median(np.abs(known - middle)) or known.std()
            deviations[:, column] = (values - middle) / max(usual, _LEAST_DEVIATION)

    deviations = np.nan_to_num(deviations, nan=0.0)
    length = np.abs(deviations[:, -1])
    return np.clip(deviations[:, :-1], 0.0, None).sum(axis=1) + length
