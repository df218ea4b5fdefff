"""Calibrations: probabilities are right, intervals cover, and another model is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tiny_marian import save_tiny_marian

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.calibration_fit import expected_calibration_error, fit_calibration, sentence_chrf
from hf_capsule_mt.translation.generation.model_options import DecodingOptions
from hf_capsule_mt.translation.quality.calibration import Calibration, Curve, Quality, calibration_settings

SETTINGS = {"model": None, "model files": {"a": "1"}, "num_beams": 4}


def sample(number, seed=0):
    """Translations whose quality falls with the log-probability, and has more noise where sources are short."""
    generator = np.random.default_rng(seed)
    scores = -generator.gamma(2.0, 0.3, number)
    lengths = generator.integers(3, 30, number)
    noise = generator.normal(0, 1, number) * np.where(lengths < 12, 20, 5)
    return scores, lengths, np.clip(80 + 40 * scores + 0.3 * lengths + noise, 0, 100)


@pytest.mark.parametrize(("number", "method"), [(999, "logistic"), (1000, "isotonic")])
def test_held_out_numbers_hold_for_new_sentences(number, method):
    calibration = fit_calibration(*sample(number), settings=SETTINGS)
    assert (calibration.method, calibration.num_sentences, calibration.metric) == (method, number, "chrf")
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
    metric="chrf",
    bad=40.0,
    num_sentences=3,
    method="isotonic",
    quality=Curve((1.0, 2.0, 3.0), ((-1.0, 10.0), (1.0, 50.0), (9.0, 90.0))),
    probability=Curve((0.5, -1.0, 0.0)),
    bounds=(12.0, 88.0),
    length_edges=(5.0, 10.0),
    half_widths=(20.0, 10.0, 5.0),
    score_range=(-2.0, -0.5),
    least_coverage=0.25,
    held_out={},
    settings=SETTINGS,
)


@pytest.mark.parametrize(
    ("score", "length", "expected"),
    [
        # The place on the curve is 1 + 2 * score + 3 * log(1 + length), the logit of a bad one 0.5 - score.
        (-1.5, 0, Quality(12.0, (12.0, 32.0), 0.8808)),
        (-3.5, 5, Quality(17.5056, (12.0, 37.5056), 0.982)),
        # A length at an edge belongs to the shorter ones.
        (-3.0, 5, Quality(37.5056, (17.5056, 57.5056), 0.9707)),
        (-3.0, 6, Quality(46.7546, (36.7546, 56.7546), 0.9707)),
        (-1.0, 10, Quality(75.9684, (65.9684, 85.9684), 0.8176)),
        (-1.0, 11, Quality(77.2736, (72.2736, 82.2736), 0.8176)),
        (0.0, 99, Quality(88.0, (83.0, 88.0), 0.6225)),
    ],
)
def test_what_is_expected_is_as_by_hand(score, length, expected):
    assert BY_HAND.expect([score], [length]) == [expected]


def test_lines_of_a_report_get_what_is_expected():
    row = {"score": -1.0, "source_length": 10, "coverage": 0.3, "low_coverage": False}
    rows = [dict(row), {**row, "coverage": 0.2}, {**row, "coverage": None}, {**row, "score": None}]
    BY_HAND.add_to(rows)
    assert [record["quality"] for record in rows] == [75.9684] * 3 + [None]
    assert [record["p_bad"] for record in rows] == [0.8176] * 3 + [None]
    assert rows[0]["interval"] == (65.9684, 85.9684)
    assert rows[3]["interval"] is None
    assert [record["low_coverage"] for record in rows] == [False, True, False, False]
    without = replace(BY_HAND, least_coverage=None)
    without.add_to(rows := [{**row, "coverage": 0.2}])
    assert not rows[0]["low_coverage"]


def test_a_less_likely_translation_is_never_expected_to_be_better():
    calibration = fit_calibration(*sample(1200), settings=SETTINGS)
    expected = calibration.expect(np.linspace(-4, 0, 50), [10] * 50)
    assert sorted(expected, key=lambda row: row.quality) == expected
    assert sorted(expected, key=lambda row: -row.p_bad) == expected
    for row in expected:
        assert 0 <= row.interval[0] <= row.quality <= row.interval[1] <= 100


def test_only_isotonic_fits_follow_a_step():
    """A line through a step is about half of it away from its ends."""
    scores = np.linspace(-2, 0, 1000)
    qualities = np.where(scores < -1, 20.0, 80.0)
    isotonic = fit_calibration(scores, [10] * 1000, qualities, settings=SETTINGS)
    line = fit_calibration(scores[::2], [10] * 500, qualities[::2], settings=SETTINGS)
    assert [row.quality for row in isotonic.expect([-1.1, -0.9], [10, 10])] == pytest.approx([20, 80], abs=0.1)
    assert line.expect([-1.1], [10])[0].quality == pytest.approx(50, abs=10)


def test_held_out_sentences_are_not_fitted():
    """With as many steps as sentences, a fit of noise would look better on its own sentences."""
    generator = np.random.default_rng(0)
    scores = -generator.random(1000)
    calibration = fit_calibration(scores, [10] * 1000, generator.random(1000) * 80, settings=SETTINGS)
    # Half are bad, and nothing tells which.
    assert calibration.held_out["brier"] > 0.25


def test_all_translations_may_be_good():
    scores, lengths, _ = sample(200)
    calibration = fit_calibration(scores, lengths, [90.0] * 200, settings=SETTINGS)
    [row] = calibration.expect([-0.5], [5])
    assert row.p_bad < 0.1
    assert row.quality == pytest.approx(90, abs=0.1)


def test_equal_lengths_are_one_group():
    scores, _, qualities = sample(200)
    calibration = fit_calibration(scores, [7] * 200, qualities, settings=SETTINGS)
    low, high = calibration.expect([-0.5], [7])[0].interval
    assert low < high


def test_a_file_holds_all_of_it(tmp_path):
    calibration = fit_calibration(*sample(1100), settings=SETTINGS, coverages=np.linspace(0, 1, 1100), bad=50.0)
    calibration.write(tmp_path / "c.json")
    again = Calibration.read(tmp_path / "c.json")
    assert again.expect([-0.3, -2.0], [4, 20]) == calibration.expect([-0.3, -2.0], [4, 20])
    assert again.least_coverage == pytest.approx(0.005, abs=1e-3)
    record = json.loads((tmp_path / "c.json").read_text())
    assert record["held_out"].keys() == {"ece", "brier", "coverage", "share_bad"}
    assert record["bad"] == 50
    (tmp_path / "c.json").write_text(json.dumps({**record, "kind": "evaluation"}))
    with pytest.raises(UserError, match=r"is no calibration\. Make one with: hf-capsule-mt calibrate\."):
        Calibration.read(tmp_path / "c.json")
    del record["bounds"]
    (tmp_path / "c.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=r"is damaged: .* Make it again with: hf-capsule-mt calibrate\."):
        Calibration.read(tmp_path / "c.json")


def test_too_few_sentences():
    with pytest.raises(UserError, match=r"needs 50 translations at least, better 1,000\. There are 49"):
        fit_calibration(*sample(49), settings=SETTINGS)


def test_another_model_is_refused(tmp_path):
    model = save_tiny_marian(tmp_path / "model")
    same = DecodingOptions(str(model), num_beams=4)
    calibration = fit_calibration(*sample(100), settings=calibration_settings(same))
    calibration.check(calibration_settings(same))
    # A folder may be moved.
    model.rename(tmp_path / "moved")
    moved = replace(same, model=str(tmp_path / "moved"))
    calibration.check(calibration_settings(moved))
    with pytest.raises(UserError, match="other settings: num_beams is 1, not 4"):
        calibration.check(calibration_settings(replace(moved, num_beams=1)))
    with pytest.raises(UserError, match="target_lang is pt, not None"):
        calibration.check(calibration_settings(moved, target_lang="pt"))
    other = DecodingOptions(str(save_tiny_marian(tmp_path / "other", seed=1)), num_beams=4)
    with pytest.raises(UserError, match="of another model"):
        calibration.check(calibration_settings(other))


def test_a_text_of_another_kind():
    calibration = fit_calibration(*sample(1000), settings=SETTINGS)
    assert calibration.warning(float(np.mean(sample(1000)[0]))) is None
    assert "another kind" in calibration.warning(-5.0)
    # Both ends belong to the range.
    warnings = [BY_HAND.warning(score) is not None for score in (-2.1, -2.0, -1.0, -0.5, -0.4)]
    assert warnings == [True, False, False, False, True]


def test_errors_of_calibration():
    """Two bins: 0.1 too low on half, and right on the other half."""
    probabilities = np.array([0.2] * 10 + [0.9] * 10)
    is_true = np.array([True] * 3 + [False] * 7 + [True] * 9 + [False])
    assert expected_calibration_error(probabilities, is_true) == pytest.approx(0.05)


def test_chrf_of_sentences():
    assert sentence_chrf(["ein Hund", "x"], ["ein Hund", "Katze"]) == [100, 0]
