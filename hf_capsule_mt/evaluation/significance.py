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
    made = make_metrics(metrics, tokenize, lowercase)
    if test == "sign":
        return {"bleu": _sign_test(made["bleu"], baseline, system, references)}
    # sacreBLEU reads its seed only from the environment.
    with patch_environment(SACREBLEU_SEED=seed):
        systems = [("baseline", baseline), ("system", system)]
        options = {"test_type": _SACREBLEU_NAMES[test], "n_samples": num_samples or DEFAULT_SAMPLES[test]}
        signatures, results = PairedTest(systems, made, references, **options)()
    unlike = sum(one != other for one, other in zip(baseline, system, strict=True))
    # The smallest possible p: 2 of the 2^n exchanges are as extreme.
    as_much = 2.0 ** (1 - unlike) if test == "randomization" else 0.0
    compared = {}
    for name, key in zip(made, signatures, strict=True):
        before, after = (float(result.score) for result in results[key])
        # sacreBLEU would call no difference at all as significant as can be.
        p_value = 1.0 if before == after else min(1.0, float(results[key][1].p_value) + as_much)
        compared[name] = {"baseline": before, "score": after, "p_value": p_value, "signature": str(signatures[key])}
    return compared


def _sign_test(
    metric: BLEU, baseline: Sequence[str], system: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, Any]:
    from scipy.stats import binomtest  # It takes half a second.

    old, new = (np.array(sentence_statistics(metric, side, references)) for side in (baseline, system))
    totals = old.sum(0)
    # In one array, where what is equal has equal scores, to the last bit.
    score, other, *replaced = bleu(np.vstack([totals, new.sum(0), totals - old + new])).tolist()
    better, worse = sum(one > score for one in replaced), sum(one < score for one in replaced)
    return {
        "baseline": score,
        "score": other,
        "p_value": binomtest(better, better + worse).pvalue if better + worse else 1.0,
        "signature": metric.get_signature().format(),
        "better": better,
        "worse": worse,
    }


def comparison_report(record: Mapping[str, Any]) -> str:
    """Return the table in Markdown of a record's `comparison`, and under it how it was made."""
    systems, settings = record["systems"], record["settings"]
    first = next(iter(systems.values()))
    columns = ["Δ", "p", "+", "−"] if settings["test"] == "sign" else ["Δ", "p"]
    rows = [["system"], [record["baseline"]]]
    for metric, comparison in first.items():
        rows[0] += [metric, *columns]
        rows[1] += [f"{comparison['baseline']:.2f}", *("" for _ in columns)]
    for name, comparisons in systems.items():
        rows.append([name, *(cell for one in comparisons.values() for cell in _cells(one, settings["test"]))])
    test = _NAMES[settings["test"]].format(samples=settings["num_samples"], seed=settings["seed"])
    compared = "2p" if settings["test"] == "bootstrap" else "p"
    marks = f"† means that {compared} is below 0.05, and ‡ below 0.01."
    caption = f"p is by {test}. The baseline is {record['baseline']}. {marks}"
    signatures = (f"{metric}: {comparison['signature']}" for metric, comparison in first.items())
    return "\n".join([table_in_markdown(rows), "", caption, *signatures])


def _cells(one: Mapping[str, Any], test: str) -> list[str]:
    p_value = f"{one['p_value']:.4f}" if one["p_value"] >= 1e-4 else "< 0.0001"
    # Differences of both signs are marked, and bootstrap's p is of one.
    both = one["p_value"] * (2 if test == "bootstrap" else 1)
    mark = "‡" if both < 0.01 else "†" if both < 0.05 else ""
    cells = [f"{one['score']:.2f}{mark}", f"{one['score'] - one['baseline']:+.2f}", p_value]
    return cells + [str(one[name]) for name in ("better", "worse") if test == "sign"]
