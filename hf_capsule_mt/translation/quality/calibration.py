"""How good a translation probably is, by a calibration: from its mean log-probability and the length of its source.

The command `calibrate` makes calibrations (see [`hf_capsule_mt.evaluation.calibration_fit`]), `translate` reads them.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import read_json, write_json

from ..generation.model_options import DecodingOptions, changed_settings

KIND = "calibration"
VERSION = 1


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


@dataclass(frozen=True)
class Quality:
    """What is expected of a translation."""

    quality: float  # The expected score by the metric of the calibration.
    interval: tuple[float, float]  # 80% of the scores lie between these.
    p_bad: float  # The probability that the score is below the limit of the calibration.


@dataclass(frozen=True)
class Calibration:
    """A fitted calibration. [`Calibration.read`] reads one.

    Args:
        metric: name of the metric, such as "chrf".
        bad: translations with a lower score are bad.
        num_sentences: how many sentences it was fitted on.
        method: "isotonic" or "logistic".
        quality: gives the expected score.
        probability: gives the probability of a bad translation, as a logit if it has no knots.
        bounds: the lowest and the highest score.
        length_edges: longest sources, in tokens, of the groups of short and middle sources.
        half_widths: of the intervals, by group.
        score_range: the mean log-probabilities of 90% of the sentences lie between these.
        least_coverage: only 0.5% of the translations have less coverage. None for models without attention.
        held_out: what was measured on sentences that it was not fitted on.
        settings: the model and how it decodes, by [`calibration_settings`].
    """

    metric: str
    bad: float
    num_sentences: int
    method: str
    quality: Curve
    probability: Curve
    bounds: tuple[float, float]
    length_edges: tuple[float, float]
    half_widths: tuple[float, float, float]
    score_range: tuple[float, float]
    least_coverage: float | None
    held_out: Mapping[str, float]
    settings: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "Calibration":
        """Read a calibration.

        Raises:
            UserError: if the file is none, or damaged.
        """
        record = read_json(path)
        if record.pop("kind", None) != KIND or record.pop("version", None) != VERSION:
            raise UserError(f"{path} is no calibration. Make one with: hf-capsule-mt calibrate.")
        try:
            for name in ("quality", "probability"):
                record[name] = _curve_of(record[name])
            return cls(**record)
        except (TypeError, KeyError) as error:
            raise UserError(f"{path} is damaged: {error}. Make it again with: hf-capsule-mt calibrate.") from error

    def write(self, path: Path) -> None:
        """Write the calibration as JSON."""
        write_json(path, {"kind": KIND, "version": VERSION, **asdict(self)})

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise a UserError unless the calibration is of a model and its settings, by [`calibration_settings`]."""
        changed = changed_settings(self.settings, settings)
        if not changed:
            return
        if not {"model files", "model", "revision"}.isdisjoint(changed):
            raise UserError("The calibration is of another model. Calibrate this one: hf-capsule-mt calibrate.")
        changes = []
        for name in changed:
            changes.append(f"{name} is {settings.get(name)}, not {self.settings.get(name)}")
        shown = ", ".join(changes)
        raise UserError(f"The calibration is of other settings: {shown}. Use the same, or calibrate again.")

    def expect(self, scores: Sequence[float], source_lengths: Sequence[int]) -> list[Quality]:
        """Return what is expected of translations.

        Args:
            scores: their mean log-probabilities, `score` in a report.
            source_lengths: tokens of their sources without the end, `source_length` in a report.
        """
        scores = np.asarray(scores, dtype=np.float64)
        lengths = np.asarray(source_lengths, dtype=np.float64)
        lowest, highest = self.bounds
        values = np.clip(self.quality.values(scores, lengths), lowest, highest)
        probabilities = probabilities_of(self.probability, scores, lengths)
        widths = np.asarray(self.half_widths)[np.searchsorted(self.length_edges, lengths)]
        expected = []
        for value, width, probability in zip(values.tolist(), widths.tolist(), probabilities.tolist(), strict=True):
            start = max(value - width, lowest)
            end = min(value + width, highest)
            interval = (round(start, 4), round(end, 4))
            expected.append(Quality(round(value, 4), interval, round(probability, 4)))
        return expected

    def digest(self) -> str:
        """Return a hash of the calibration."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def add_to(self, records: Sequence[dict[str, Any]]) -> None:
        """Add `quality`, `interval` and `p_bad` to lines of a report, null without a score, and set `low_coverage`."""
        scored = [record for record in records if record["score"] is not None]
        for record in records:
            record.update(quality=None, interval=None, p_bad=None)
        scores = [record["score"] for record in scored]
        lengths = [record["source_length"] for record in scored]
        expected = self.expect(scores, lengths)
        for record, quality in zip(scored, expected, strict=True):
            record.update(asdict(quality))
            if self.least_coverage is not None and record["coverage"] is not None:
                record["low_coverage"] = record["coverage"] < self.least_coverage

    def warning(self, mean_score: float) -> str | None:
        """Return a warning if the mean log-probability of a file is far from those of the calibration."""
        lowest, highest = self.score_range
        if lowest <= mean_score <= highest:
            return None
        return (
            f"The mean log-probability is {mean_score:.2f}, and in the calibration it was between {lowest:.2f} and "
            f"{highest:.2f}. This text is of another kind, so do not trust quality, interval and p_bad."
        )


def _curve_of(record: Mapping[str, Any]) -> Curve:
    """Return a curve that was written as JSON."""
    weights = tuple(record["weights"])
    if record["knots"] is None:
        return Curve(weights)
    knots = [tuple(point) for point in record["knots"]]
    return Curve(weights, tuple(knots))


def probabilities_of(curve: Curve, scores: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the probabilities of a curve, whose values are logits if it has no knots."""
    values = curve.values(scores, lengths)
    if curve.knots is None:
        # A larger logit would overflow, and makes no difference.
        values = 1 / (1 + np.exp(-np.clip(values, -30, 30)))
    return np.clip(values, 0.0, 1.0)


def calibration_settings(
    decoding: DecodingOptions, source_lang: str | None = None, target_lang: str | None = None
) -> dict[str, Any]:
    """Return everything that scores depend on: the files of the model by their hashes, and how it decodes.

    A folder may be moved, for its files say which model it is.
    """
    settings = decoding.settings()
    if settings["model files"]:
        settings["model"] = None
    if source_lang is not None:
        settings["source_lang"] = source_lang
    settings["target_lang"] = target_lang
    return settings
