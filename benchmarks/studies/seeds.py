"""The difference of two systems that were each trained with several seeds: its interval, and how likely it is chance.

Training draws the seed and the test set draws the sentences, so the interval is a bootstrap over both (Koehn 2004, with
runs drawn as well: in pairs, for those of one seed may have their beginning or their data in common). Approximate
randomization (Riezler and Maxwell 2005) exchanges translations of a sentence between the two systems, in the runs of
all seeds together, for what a method does to a sentence recurs from seed to seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hf_capsule_mt.evaluation.bleu_statistics import bleu

SAMPLES = {"bootstrap": 10000, "randomization": 10000}
# Samples that are summed up together: each has a number for every run and sentence.
_AT_ONCE = 250


@dataclass(frozen=True)
class SeedComparison:
    """A system beside a baseline, in BLEU, 0 to 100.

    Attributes:
        baseline: mean over the baseline's runs.
        score: mean over the system's.
        low: lower end of the 95% interval of the difference, by bootstrap over runs and sentences.
        high: its upper end.
        p_value: how likely a difference of the means as large, of either sign, is if the two are equally good, the runs
            being as they are.
        seeds: runs of each.
    """

    baseline: float
    score: float
    low: float
    high: float
    p_value: float
    seeds: int


def compare_seeds(
    baseline: Sequence[np.ndarray],
    system: Sequence[np.ndarray],
    *,
    samples: dict[str, int] = SAMPLES,
) -> SeedComparison:
    """Compare the runs of a system with those of a baseline by BLEU.

    Args:
        baseline: the statistics of each of its runs, `[sentences, 10]`: see [`sentence_statistics`].
        system: those of the runs of the system, as many; runs in the same place share a seed.
        samples: of "bootstrap" and of "randomization".

    Raises:
        ValueError: if numbers of runs or of sentences differ, or there is no run.
    """
    if len(baseline) != len(system) or not baseline:
        raise ValueError(f"{len(baseline)} runs of the baseline and {len(system)} of the system; give as many of each")
    if len(sizes := {len(run) for run in (*baseline, *system)}) > 1:
        raise ValueError(f"runs have {' or '.join(map(str, sorted(sizes)))} sentences; compare those of one test set")
    old, new = (np.stack(runs).astype(np.float64) for runs in (baseline, system))
    generator = np.random.default_rng(12345)
    before, after = (float(bleu(each.sum(1)).mean()) for each in (old, new))
    low, high = np.percentile(_differences(old, new, samples["bootstrap"], generator), [2.5, 97.5])
    p_value = _randomization(old, new, samples["randomization"], generator)
    return SeedComparison(before, after, float(low), float(high), p_value, len(old))


def _differences(old: np.ndarray, new: np.ndarray, samples: int, generator: np.random.Generator) -> np.ndarray:
    """Return differences of the means, of pairs of runs and sentences drawn with replacement, `[samples]`."""
    seeds, sentences, _ = old.shape
    # Means of n that are drawn from n spread by (n - 1) / n of the variance that those of n new ones have.
    scale = np.sqrt(seeds / max(1, seeds - 1))
    found = []
    for start in range(0, samples, _AT_ONCE):
        number = min(_AT_ONCE, samples - start)
        texts, pairs = (_times_drawn(generator, number, each) for each in (sentences, seeds))
        before, after = (bleu(_sums(texts, each)) for each in (old, new))
        gains = after - before
        mean = gains.mean(-1)
        found.append(mean + scale * ((gains * pairs).sum(-1) / seeds - mean))
    return np.concatenate(found)


def _times_drawn(generator: np.random.Generator, samples: int, size: int) -> np.ndarray:
    """Return how often each of `size` is among as many that are drawn with replacement, `[samples, size]`."""
    drawn = generator.integers(size, size=(samples, size)) + size * np.arange(samples)[:, None]
    return np.bincount(drawn.ravel(), minlength=samples * size).reshape(samples, size)


def _sums(times: np.ndarray, statistics: np.ndarray) -> np.ndarray:
    """Return sums of `[runs, sentences, 10]`, `[samples, runs, 10]`; a sentence counts `times[sample, sentence]`."""
    # Products of integers would take a loop.
    return np.einsum("bn,snk->bsk", times.astype(np.float64), statistics, optimize=True)


def _randomization(old: np.ndarray, new: np.ndarray, samples: int, generator: np.random.Generator) -> float:
    """Return the share of exchanges that make the means differ as much as they do."""
    change, totals = new - old, (old.sum(1), new.sum(1))
    observed = abs(bleu(totals[1]).mean() - bleu(totals[0]).mean())
    as_large = 0
    for start in range(0, samples, _AT_ONCE):
        number = min(_AT_ONCE, samples - start)
        moved = _sums(generator.integers(2, size=(number, change.shape[1]), dtype=bool), change)
        differences = (bleu(totals[1] - moved) - bleu(totals[0] + moved)).mean(-1)
        # Sums of the same sentences may differ in the last bit.
        as_large += int((np.abs(differences) >= observed - 1e-9).sum())
    return (as_large + 1) / (samples + 1)
