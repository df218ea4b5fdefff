"""The area under the curve by counting pairs."""

import numpy as np
import pytest

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.report_fields import auroc, measure_fields


def test_auroc_counts_pairs():
    generator = np.random.default_rng(0)
    is_bad = generator.random(60) < 0.4
    # Many are equal.
    signs = generator.integers(0, 6, 60) + is_bad
    pairs = [(bad, good) for bad in signs[is_bad] for good in signs[~is_bad]]
    expected = np.mean([(bad > good) + 0.5 * (bad == good) for bad, good in pairs])
    assert auroc(is_bad, signs) == pytest.approx(expected)
    assert auroc(np.array([True, True]), np.array([1.0, 2.0])) is None


def test_fields_that_tell_nothing_are_left_out():
    records = [{"score": -1.0, "flag": False, "coverage": None}, {"score": -2.0, "flag": False, "coverage": 0.5}]
    measured = measure_fields([*records, {"score": None, "flag": True}], [90, 10, 0], bad=40)
    assert measured == {"score": {"auroc": 1.0, "spearman": pytest.approx(1.0), "ece": None, "sentences": 2}}
    with pytest.raises(UserError, match="No line of the report has a score"):
        measure_fields([{"score": None}], [1], bad=40)
