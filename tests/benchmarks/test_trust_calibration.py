"""Calibrations: probabilities are right, and intervals cover. The measures are as by hand."""

import numpy as np
import pytest

from benchmarks.quality.calibration import Calibration, Curve, Quality, fit_calibration
from benchmarks.quality.measures import auroc, expected_calibration_error, sentence_chrf


def sample(number, seed=0):
    """Translations whose quality falls with the log-probability, and has more noise where sources are short."""
    generator = np.random.default_rng(seed)
    scores = -generator.gamma(2.0, 0.3, number)
    lengths = generator.integers(3, 30, number)
    noise = generator.normal(0, 1, number) * np.where(lengths < 12, 20, 5)
    return scores, lengths, np.clip(80 + 40 * scores + 0.3 * lengths + noise, 0, 100)


@pytest.mark.parametrize(("number", "is_isotonic"), [(999, False), (1000, True)], ids=["logistic", "isotonic"])
def test_held_out_numbers_hold_for_new_sentences(number, is_isotonic):
    calibration = fit_calibration(*sample(number))
    assert (calibration.quality.knots is not None) == is_isotonic
    scores, lengths, qualities = sample(4000, seed=1)
    expected = calibration.expect(scores, lengths)
    inside = [low <= quality <= high for (low, high), quality in zip((row.interval for row in expected), qualities)]
    assert np.mean(inside) == pytest.approx(0.8, abs=0.04)
    assert calibration.held_out["coverage"] == pytest.approx(0.8, abs=0.04)
    p_bad = np.array([row.p_bad for row in expected])
    assert expected_calibration_error(p_bad, qualities < 40) < 0.05
    assert calibration.held_out["ece"] < 0.06
    assert calibration.held_out["brier"] == pytest.approx(np.mean((p_bad - (qualities < 40)) ** 2), abs=0.03)
    errors = np.abs(np.array([row.quality for row in expected]) - qualities)
    assert errors.mean() < 0.75 * np.abs(qualities - qualities.mean()).mean()
    # Short sources have more noise, so their intervals are wider.
    short, _, long = calibration.half_widths
    assert short > 2 * long


BY_HAND = Calibration(
    quality=Curve((1.0, 2.0, 3.0), ((-1.0, 10.0), (1.0, 50.0), (9.0, 90.0))),
    probability=Curve((0.5, -1.0, 0.0)),
    length_edges=(5.0, 10.0),
    half_widths=(20.0, 10.0, 12.0),
    held_out={},
)


@pytest.mark.parametrize(
    ("score", "length", "expected"),
    [
        # The place on the curve is 1 + 2 * score + 3 * log(1 + length), the logit of a bad one 0.5 - score.
        (-1.5, 0, Quality(10.0, (0.0, 30.0), 0.8808)),
        (-3.5, 5, Quality(17.5056, (0.0, 37.5056), 0.982)),
        # A length at an edge belongs to the shorter ones.
        (-3.0, 5, Quality(37.5056, (17.5056, 57.5056), 0.9707)),
        (-3.0, 6, Quality(46.7546, (36.7546, 56.7546), 0.9707)),
        (-1.0, 10, Quality(75.9684, (65.9684, 85.9684), 0.8176)),
        (-1.0, 11, Quality(77.2736, (65.2736, 89.2736), 0.8176)),
        (0.0, 99, Quality(90.0, (78.0, 100.0), 0.6225)),
    ],
)
def test_what_is_expected_is_as_by_hand(score, length, expected):
    assert BY_HAND.expect([score], [length]) == [expected]


def test_a_less_likely_translation_is_never_expected_to_be_better():
    calibration = fit_calibration(*sample(1200))
    expected = calibration.expect(np.linspace(-4, 0, 50), [10] * 50)
    assert sorted(expected, key=lambda row: row.quality) == expected
    assert sorted(expected, key=lambda row: -row.p_bad) == expected
    for row in expected:
        assert 0 <= row.interval[0] <= row.quality <= row.interval[1] <= 100


def test_only_isotonic_fits_follow_a_step():
    """A line through a step is about half of it away from its ends."""
    scores = np.linspace(-2, 0, 1000)
    qualities = np.where(scores < -1, 20.0, 80.0)
    isotonic = fit_calibration(scores, [10] * 1000, qualities)
    line = fit_calibration(scores[::2], [10] * 500, qualities[::2])
    assert [row.quality for row in isotonic.expect([-1.1, -0.9], [10, 10])] == pytest.approx([20, 80], abs=0.1)
    assert line.expect([-1.1], [10])[0].quality == pytest.approx(50, abs=10)


def test_held_out_sentences_are_not_fitted():
    """With as many steps as sentences, a fit of noise would look better on its own sentences."""
    generator = np.random.default_rng(0)
    scores = -generator.random(1000)
    calibration = fit_calibration(scores, [10] * 1000, generator.random(1000) * 80)
    # Half are bad, and nothing tells which.
    assert calibration.held_out["brier"] > 0.25


def test_all_translations_may_be_good():
    scores, lengths, _ = sample(200)
    calibration = fit_calibration(scores, lengths, [90.0] * 200)
    [row] = calibration.expect([-0.5], [5])
    assert row.p_bad < 0.1
    assert row.quality == pytest.approx(90, abs=0.1)


def test_equal_lengths_are_one_group():
    scores, _, qualities = sample(200)
    calibration = fit_calibration(scores, [7] * 200, qualities)
    low, high = calibration.expect([-0.5], [7])[0].interval
    assert low < high


def test_errors_of_calibration():
    """Two bins: 0.1 too low on half, and right on the other half."""
    probabilities = np.array([0.2] * 10 + [0.9] * 10)
    is_true = np.array([True] * 3 + [False] * 7 + [True] * 9 + [False])
    assert expected_calibration_error(probabilities, is_true) == pytest.approx(0.05)


def test_chrf_of_sentences():
    assert sentence_chrf(["ein Hund", "x"], ["ein Hund", "Katze"]) == [100, 0]


def test_auroc_counts_pairs():
    generator = np.random.default_rng(0)
    is_bad = generator.random(60) < 0.4
    # Many are equal.
    signs = generator.integers(0, 6, 60) + is_bad
    pairs = [(bad, good) for bad in signs[is_bad] for good in signs[~is_bad]]
    expected = np.mean([(bad > good) + 0.5 * (bad == good) for bad, good in pairs])
    assert auroc(is_bad, signs) == pytest.approx(expected)
    assert auroc(np.array([True, True]), np.array([1.0, 2.0])) is None
