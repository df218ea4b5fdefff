"""Whether a difference of BLEU is more than chance: a bootstrap over sentences and seeds, and randomization.

Training draws the seed and the test set draws the sentences, so the interval is a bootstrap over both, that of
`hf-capsule-mt evaluate --compare`. Here runs are drawn in pairs, for runs of one seed may share their beginning or
their data. Approximate randomization (Riezler and Maxwell 2005) exchanges translations of a sentence between the two
rows, in the runs of all seeds together, for what a method does to a sentence recurs from seed to seed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hf_capsule_mt.evaluation.bleu_statistics import bleu
from hf_capsule_mt.evaluation.significance import SAMPLES_AT_ONCE, bootstrap_differences, interval_of, weighted_sums

SAMPLES = 10000


def compare_seeds(
    baseline: Sequence[np.ndarray], system: Sequence[np.ndarray], samples: int = SAMPLES
) -> dict[str, Any]:
    """Compare the runs of a system with as many of a baseline, by the statistics `[sentences, 10]` of their BLEU.

    Runs in the same place share a seed. Returns the fields of a [`Comparison`] from `seeds` on.
    """
    old = np.stack(baseline).astype(np.float64)
    new = np.stack(system).astype(np.float64)
    generator = np.random.default_rng(12345)
    differences = bootstrap_differences(old, new, samples=samples, generator=generator, paired_runs=True)
    low, high = interval_of(differences)
    p_value = _randomization(old, new, samples, generator)
    return {
        "seeds": len(old),
        "baseline": _mean_bleu(old),
        "score": _mean_bleu(new),
        "low": low,
        "high": high,
        "p_value": p_value,
    }


def _mean_bleu(runs: np.ndarray) -> float:
    """Return the mean over runs of their BLEU, from statistics `[runs, sentences, 10]`."""
    return float(bleu(runs.sum(1)).mean())


def _randomization(old: np.ndarray, new: np.ndarray, samples: int, generator: np.random.Generator) -> float:
    """Return the share of exchanges that make the means differ as much as they do."""
    change = new - old
    old_total = old.sum(1)
    new_total = new.sum(1)
    observed = abs(bleu(new_total).mean() - bleu(old_total).mean())
    # Sums of the same sentences may differ in the last bit.
    least = observed - 1e-9
    as_large = 0
    for start in range(0, samples, SAMPLES_AT_ONCE):
        number = min(SAMPLES_AT_ONCE, samples - start)
        exchanged = generator.integers(2, size=(number, change.shape[1]), dtype=bool)
        moved = weighted_sums(exchanged, change)
        gains = bleu(new_total - moved) - bleu(old_total + moved)
        differences = np.abs(gains.mean(-1))
        as_large += np.count_nonzero(differences >= least)
    return (as_large + 1) / (samples + 1)
