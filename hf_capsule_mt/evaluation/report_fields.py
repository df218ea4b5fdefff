"""How well each field of a translation report tells good translations from bad ones, by references."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata, spearmanr

from hf_capsule_mt.errors import UserError

from .calibration_fit import expected_calibration_error
from .tables import table_in_markdown

_TEXTS = ("line", "sentence", "source", "translation", "source_length", "lowest_word", "interval", "terms")
"""Fields that say nothing about quality."""


def auroc(is_bad: np.ndarray, signs: np.ndarray) -> float | None:
    """Return the probability that a bad translation has a larger sign than a good one, equal signs counting half.

    Args:
        is_bad: `[n]` bool.
        signs: `[n]`, larger for worse translations.

    Returns:
        0 to 1, or None if there are only good ones or only bad ones.
    """
    num_bad = int(is_bad.sum())
    num_good = len(is_bad) - num_bad
    if not num_bad or not num_good:
        return None
    ranks = rankdata(signs)
    return float((ranks[is_bad].sum() - num_bad * (num_bad + 1) / 2) / (num_bad * num_good))


def measure_fields(
    records: Sequence[Mapping[str, Any]], qualities: Sequence[float], bad: float
) -> dict[str, dict[str, float | None]]:
    """Measure every field of a report.

    Args:
        records: lines of a report.
        qualities: the score of each translation. Higher is better.
        bad: translations with a lower score are bad.

    Returns:
        For each field that is not the same everywhere, by its name: `auroc`, 0.5 or more, for finding bad translations
        by it in the better direction, `spearman` with the quality, `ece` if it is a probability, and `sentences`, which
        have this field.

    Raises:
        UserError: if no line has a score.
    """
    qualities = np.asarray(qualities, dtype=np.float64)
    is_scored = np.array([record.get("score") is not None for record in records])
    if not is_scored.any():
        raise UserError("No line of the report has a score.")
    measured = {}
    names = dict.fromkeys(name for record in records for name in record if name not in _TEXTS)
    for name in names:
        numbers = np.array([_number(record.get(name)) for record in records])
        is_known = is_scored & ~np.isnan(numbers)
        known = numbers[is_known]
        if len(known) < 2 or (known == known[0]).all():
            continue
        of_known = qualities[is_known]
        is_bad = of_known < bad
        area = auroc(is_bad, known)
        ece = expected_calibration_error(known, is_bad) if name == "p_bad" else None
        correlation = None
        if (of_known != of_known[0]).any():
            correlation = float(spearmanr(known, of_known).statistic)
        measured[name] = {
            "auroc": None if area is None else max(area, 1 - area),
            "spearman": correlation,
            "ece": ece,
            "sentences": len(known),
        }
    return measured


def _number(value: Any) -> float:
    """Return the number of a field. A list counts its entries, and text that is there is 1."""
    if value is None:
        return float("nan")
    if isinstance(value, list):
        return float(len(value))
    if isinstance(value, str):
        return 1.0
    return float(value)


def fields_report(measured: Mapping[str, Mapping[str, float | None]]) -> str:
    """Return the table of what [`measure_fields`] measured, the best fields first."""
    rows = [["field", "AUROC", "Spearman", "ECE", "sentences"]]
    best_first = sorted(measured, key=lambda name: measured[name]["auroc"] or 0, reverse=True)
    for name in best_first:
        entry = measured[name]
        row = [name]
        for key in ("auroc", "spearman", "ece"):
            value = entry[key]
            row.append("" if value is None else f"{value:.3f}")
        row.append(str(entry["sentences"]))
        rows.append(row)
    return table_in_markdown(rows)
