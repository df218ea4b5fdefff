"""Significance tests of the difference between a system and a baseline, as in the papers' tables.

Li et al. 2019 use paired bootstrap resampling (Koehn 2004), Dou et al. 2019 the sign test of Collins et al. 2005.
Bootstrap and paired approximate randomization (Riezler and Maxwell 2005) are sacreBLEU's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from accelerate.utils import patch_environment
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from .bleu_statistics import bleu, sentence_statistics
from .scores import check_aligned, make_metrics
from .tables import table_in_markdown

_NAMES = {
    "bootstrap": "paired bootstrap resampling (Koehn 2004), one-sided, {samples} samples, seed {seed}",
    "randomization": "paired approximate randomization, two-sided, {samples} shuffles, seed {seed}, and those two that "
    "exchange all or nothing",
    "sign": "sign test (Collins et al. 2005), two-sided. + and − count the sentences that are better and worse",
}
TESTS = tuple(_NAMES)
DEFAULT_SAMPLES = {"bootstrap": 1000, "randomization": 10000}
_SACREBLEU_NAMES = {"bootstrap": "bs", "randomization": "ar"}


def compare_systems(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    test: str = "bootstrap",
    metrics: Sequence[str] = ("bleu",),
    tokenize: str = "13a",
    lowercase: bool = False,
    num_samples: int | None = None,
    seed: int = 12345,
) -> dict[str, dict[str, Any]]:
    """Test a system against a baseline. Arguments that are not named here are as in [`score_translations`].

    Args:
        test: one of `TESTS`. "bootstrap" is `sacrebleu --paired-bs`, "randomization" `sacrebleu --paired-ar`. "sign"
            counts the sentences whose translation raises or lowers the BLEU of the baseline's corpus, and has only
            "bleu".
        num_samples: number of resamplings or shuffles. Default: `DEFAULT_SAMPLES`.
        seed: at least 1. The default is sacreBLEU's.

    Returns:
        By metric: the scores `baseline` and `score`, sacreBLEU's `signature`, and `p_value`: how likely a difference as
        large is if the two are equally good. It is two-sided, except for bootstrap: sacreBLEU's is one-sided, as
        Koehn's, and about half as large. For randomization, the two shuffles that exchange all or nothing are added,
        which matters if few sentences differ. The sign test adds the numbers of sentences in which the system is
        `better` and `worse`.
    """
    for translations in (baseline, system):
        check_aligned(translations, references)
    chosen_metrics = make_metrics(metrics, tokenize, lowercase)
    if test == "sign":
        return {"bleu": _sign_test(chosen_metrics["bleu"], baseline, system, references)}
    systems = [("baseline", baseline), ("system", system)]
    samples = num_samples or DEFAULT_SAMPLES[test]
    # sacreBLEU reads its seed only from the environment.
    with patch_environment(SACREBLEU_SEED=seed):
        paired_test = PairedTest(
            systems, chosen_metrics, references, test_type=_SACREBLEU_NAMES[test], n_samples=samples
        )
        signatures, results = paired_test()
    smallest = _smallest_p_value(baseline, system) if test == "randomization" else 0.0
    compared = {}
    for name, key in zip(chosen_metrics, signatures, strict=True):
        baseline_result, system_result = results[key]
        baseline_score = float(baseline_result.score)
        score = float(system_result.score)
        p_value = min(1.0, float(system_result.p_value) + smallest)
        if score == baseline_score:
            # sacreBLEU would call no difference at all as significant as can be.
            p_value = 1.0
        compared[name] = {
            "baseline": baseline_score,
            "score": score,
            "p_value": p_value,
            "signature": str(signatures[key]),
        }
    return compared


def _smallest_p_value(baseline: Sequence[str], system: Sequence[str]) -> float:
    """Return the smallest p that n differing sentences allow: 2 of the 2^n exchanges are as extreme."""
    different = sum(one != other for one, other in zip(baseline, system, strict=True))
    return 2.0 ** (1 - different)


def _sign_test(
    metric: BLEU, baseline: Sequence[str], system: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, Any]:
    from scipy.stats import binomtest  # It takes half a second.

    old = np.array(sentence_statistics(metric, baseline, references))
    new = np.array(sentence_statistics(metric, system, references))
    totals = old.sum(0)
    with_one_replaced = totals - old + new
    # In one array, where what is equal has equal scores, to the last bit.
    scores = bleu(np.vstack([totals, new.sum(0), with_one_replaced])).tolist()
    baseline_score, system_score, *replaced_scores = scores
    better = sum(score > baseline_score for score in replaced_scores)
    worse = sum(score < baseline_score for score in replaced_scores)
    p_value = 1.0
    if better or worse:
        p_value = binomtest(better, better + worse).pvalue
    return {
        "baseline": baseline_score,
        "score": system_score,
        "p_value": p_value,
        "signature": metric.get_signature().format(),
        "better": better,
        "worse": worse,
    }


def comparison_report(record: Mapping[str, Any]) -> str:
    """Return the table in Markdown of a record's `comparison`, and under it how it was made."""
    systems = record["systems"]
    settings = record["settings"]
    test = settings["test"]
    columns = ["Δ", "p"]
    if test == "sign":
        columns += ["+", "−"]
    header = ["system"]
    baseline_row = [record["baseline"]]
    signatures = []
    # The scores of the baseline are the same next to every system.
    first_system = next(iter(systems.values()))
    for metric, comparison in first_system.items():
        header += [metric, *columns]
        baseline_score = comparison["baseline"]
        baseline_row.append(f"{baseline_score:.2f}")
        baseline_row += [""] * len(columns)
        signature = comparison["signature"]
        signatures.append(f"{metric}: {signature}")
    rows = [header, baseline_row]
    for name, comparisons in systems.items():
        row = [name]
        for comparison in comparisons.values():
            row += _cells(comparison, test)
        rows.append(row)
    method = _NAMES[test].format(samples=settings["num_samples"], seed=settings["seed"])
    marked = "2p" if test == "bootstrap" else "p"
    marks = f"† means that {marked} is below 0.05, and ‡ below 0.01."
    caption = f"p is by {method}. The baseline is {record['baseline']}. {marks}"
    return "\n".join([table_in_markdown(rows), "", caption, *signatures])


def _cells(comparison: Mapping[str, Any], test: str) -> list[str]:
    """Return the cells of a system for one metric: score, difference, p, and the counts of the sign test."""
    score = comparison["score"]
    p_value = comparison["p_value"]
    mark = _mark(p_value, test)
    difference = score - comparison["baseline"]
    p_cell = f"{p_value:.4f}" if p_value >= 1e-4 else "< 0.0001"
    cells = [f"{score:.2f}{mark}", f"{difference:+.2f}", p_cell]
    if test == "sign":
        cells += [str(comparison["better"]), str(comparison["worse"])]
    return cells


def _mark(p_value: float, test: str) -> str:
    # Better and worse systems are marked, but bootstrap's p is only that of one direction.
    two_sided = 2 * p_value if test == "bootstrap" else p_value
    if two_sided < 0.01:
        return "‡"
    if two_sided < 0.05:
        return "†"
    return ""
