"""Differences over several seeds: both tests against what is known of made-up systems."""

import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from benchmarks.studies.seeds import compare_seeds
from hf_capsule_mt.evaluation.bleu_statistics import bleu, sentence_statistics

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "house"]
FEW = {"bootstrap": 400, "randomization": 999}


def runs(rates, size=150, seed=0):
    """References, and for each rate the translations of a run that gets that share of the words wrong."""
    generator = random.Random(seed)
    texts = [generator.choices(WORDS, k=generator.randint(5, 15)) for _ in range(size)]

    def corrupt(words, rate):
        return " ".join(generator.choice(WORDS) if generator.random() < rate else word for word in words)

    return [[" ".join(words) for words in texts]], [[corrupt(words, rate) for words in texts] for rate in rates]


def compare(baseline, system, references, tokenize="13a"):
    metric = BLEU(tokenize=tokenize)
    base, new = (
        [np.array(sentence_statistics(metric, run, references)) for run in each] for each in (baseline, system)
    )
    return compare_seeds(base, new, samples=FEW)


def test_scores_are_means_of_runs():
    references, (first, second, third, fourth) = runs([0.2, 0.25, 0.1, 0.15])
    found = compare([first, second], [third, fourth], references, tokenize="none")
    scores = [BLEU(tokenize="none").corpus_score(run, references).score for run in (first, second, third, fourth)]
    assert (found.baseline, found.score) == pytest.approx((sum(scores[:2]) / 2, sum(scores[2:]) / 2), rel=1e-12)
    assert found.low < found.score - found.baseline < found.high
    assert found.seeds == 2


def test_a_better_system_is_told_from_an_equal_one():
    references, systems = runs([0.2] * 6 + [0.12] * 3)
    base, equal, better = systems[:3], systems[3:6], systems[6:]
    same = compare(base, equal, references)
    assert same.low < 0 < same.high
    assert same.p_value > 0.05
    other = compare(base, better, references)
    assert other.low > 0
    assert other.p_value == 1 / (FEW["randomization"] + 1)
    turned = compare(better, base, references)
    assert (turned.low, turned.high) == pytest.approx((-other.high, -other.low), abs=1)
    assert compare(base, base, references).p_value == 1


def test_of_one_seed_it_is_sacrebleus_randomization():
    """Of either sign, with other draws."""
    references, (base, system) = runs([0.2, 0.18])
    found = compare([base], [system], references)
    systems = [("baseline", base), ("system", system)]
    _, scores = PairedTest(systems, {"BLEU": BLEU()}, references, test_type="ar", n_samples=10000)()
    assert found.p_value == pytest.approx(scores["BLEU"][1].p_value, abs=0.03)
    assert 0.05 < found.p_value < 0.95


def test_seeds_that_disagree_widen_the_interval():
    references, (bad, good, one, other) = runs([0.3, 0.1, 0.2, 0.2])
    steady = compare([one, one], [other, other], references)
    unsteady = compare([one, other], [bad, good], references)
    assert unsteady.high - unsteady.low > 2 * (steady.high - steady.low)


def test_few_seeds_spread_as_much_as_new_ones_would():
    """Of sentences that are all alike, the interval of two pairs is that of their mean by the sample's variance."""
    base = [np.tile([9.0, 9, 9, 9, 10, 9, 8, 7, 10, 10], (50, 1))] * 2
    worse, better = (np.tile([each, each, each, each, 10, 9, 8, 7, 10, 10.0], (50, 1)) for each in (5, 7))
    found = compare_seeds(base, [worse, better], samples=FEW)
    scores = [float(bleu(each.sum(0))) for each in (worse, better)]
    middle, half = found.score - found.baseline, (scores[1] - scores[0]) / 2 * 2**0.5
    assert (found.low, found.high) == pytest.approx((middle - half, middle + half))


def test_seeds_that_differ_alike_do_not():
    """A good seed is good for both systems, and a bad one bad."""
    references, (bad, good) = runs([0.3, 0.1])
    alike = compare([bad, good], [bad, good], references)
    assert alike.low == alike.high == 0


def test_as_many_runs_of_each():
    one = np.ones((5, 10))
    with pytest.raises(ValueError, match="1 runs of the baseline and 2 of the system; give as many of each"):
        compare_seeds([one], [one, one])
    with pytest.raises(ValueError, match="0 runs"):
        compare_seeds([], [])
    with pytest.raises(ValueError, match="runs have 3 or 5 sentences"):
        compare_seeds([one[:3]], [one])
