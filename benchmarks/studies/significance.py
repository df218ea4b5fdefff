"""Whether a difference of BLEU is more than chance: a bootstrap over sentences and seeds, and randomization.

Training draws the seed and the test set draws the sentences, so the interval is a bootstrap over both (Koehn 2004, with
runs drawn as well: in pairs, for runs of one seed may share their beginning or their data). Approximate randomization
(Riezler and Maxwell 2005) exchanges translations of a sentence between the two rows, in the runs of all seeds together,
for what a method does to a sentence recurs from seed to seed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hf_capsule_mt.evaluation.bleu_statistics import bleu

SAMPLES = 10000
# Samples that are summed up together: each has a number for every run and sentence.
_AT_ONCE = 250


def compare_seeds(
    baseline: Sequence[np.ndarray], system: Sequence[np.ndarray], samples: int = SAMPLES
) -> dict[str, Any]:
    """Compare the runs of a system with as many of a baseline, by the statistics `[sentences, 10]` of their BLEU.

    Runs in the same place share a seed. Returns the fields of a [`Comparison`] from `seeds` on.
    """
    old = np.stack(baseline).astype(np.float64)
    new = np.stack(system).astype(np.float64)
    generator = np.random.default_rng(12345)
    differences = _differences(old, new, samples, generator)
    low, high = np.percentile(differences, [2.5, 97.5])
    p_value = _randomization(old, new, samples, generator)
    return {
        "seeds": len(old),
        "baseline": _mean_bleu(old),
        "score": _mean_bleu(new),
        "low": float(low),
        "high": float(high),
        "p_value": p_value,
    }


def _mean_bleu(runs: np.ndarray) -> float:
    """Return the mean over runs of their BLEU, from statistics `[runs, sentences, 10]`."""
    return float(bleu(runs.sum(1)).mean())


def _differences(old: np.ndarray, new: np.ndarray, samples: int, generator: np.random.Generator) -> np.ndarray:
    """Return differences of the means, of pairs of runs and sentences drawn with replacement, `[samples]`."""
    seeds, sentences, _ = old.shape
    # Means of n that are drawn from n spread by (n - 1) / n of the variance that those of n new ones have.
    scale = np.sqrt(seeds / max(1, seeds - 1))
    differences = []
    for start in range(0, samples, _AT_ONCE):
        number = min(_AT_ONCE, samples - start)
        texts = _times_drawn(generator, number, sentences)
        pairs = _times_drawn(generator, number, seeds)
        new_bleu = bleu(_sums(texts, new))
        old_bleu = bleu(_sums(texts, old))
        gains = new_bleu - old_bleu
        mean = gains.mean(-1)
        drawn_gains = gains * pairs
        mean_of_pairs = drawn_gains.sum(-1) / seeds
        differences.append(mean + scale * (mean_of_pairs - mean))
    return np.concatenate(differences)


def _times_drawn(generator: np.random.Generator, samples: int, size: int) -> np.ndarray:
    """Return how often each of `size` is among as many that are drawn with replacement, `[samples, size]`."""
    drawn = generator.integers(size, size=(samples, size))
    # Every sample has numbers of its own, so that all are counted in one call.
    numbered = drawn + size * np.arange(samples)[:, None]
    counts = np.bincount(numbered.ravel(), minlength=samples * size)
    return counts.reshape(samples, size)


def _sums(times: np.ndarray, statistics: np.ndarray) -> np.ndarray:
    """Return sums of `[runs, sentences, 10]`, `[samples, runs, 10]`; a sentence counts `times[sample, sentence]`."""
    # Products of integers would take a loop.
    return np.einsum("bn,snk->bsk", times.astype(np.float64), statistics, optimize=True)


def _randomization(old: np.ndarray, new: np.ndarray, samples: int, generator: np.random.Generator) -> float:
    """Return the share of exchanges that make the means differ as much as they do."""
    change = new - old
    old_total = old.sum(1)
    new_total = new.sum(1)
    observed = abs(bleu(new_total).mean() - bleu(old_total).mean())
    # Sums of the same sentences may differ in the last bit.
    least = observed - 1e-9
    as_large = 0
    for start in range(0, samples, _AT_ONCE):
        number = min(_AT_ONCE, samples - start)
        exchanged = generator.integers(2, size=(number, change.shape[1]), dtype=bool)
        moved = _sums(exchanged, change)
        gains = bleu(new_total - moved) - bleu(old_total + moved)
        differences = np.abs(gains.mean(-1))
        as_large += np.count_nonzero(differences >= least)
    return (as_large + 1) / (samples + 1)
