"""Significance tests of the difference between a system and a baseline, as in the papers' tables.

Li et al. 2019 use paired bootstrap resampling (Koehn 2004), Dou et al. 2019 the sign test of Collins et al. 2005.
Bootstrap and paired approximate randomization (Riezler and Maxwell 2005) are sacreBLEU's. These tests only know how
sentences differ. The bootstrap over runs and sentences also knows how training runs of one model differ.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from accelerate.utils import patch_environment
from sacrebleu.metrics import BLEU
from sacrebleu.metrics.base import Metric
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
_NAME_FOR_RUNS = "a bootstrap over runs and sentences (Sellam et al. 2022), two-sided, {samples} samples, seed {seed}"
TESTS = tuple(_NAMES)
DEFAULT_SAMPLES = {"bootstrap": 1000, "randomization": 10000}
_SACREBLEU_NAMES = {"bootstrap": "bs", "randomization": "ar"}
SAMPLES_AT_ONCE = 250
"""Samples that are summed up together. Each has a number for every run and sentence."""
_FEW_RUNS = 3


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
        By metric: the fields of [`compare_runs`], of one run each, but with another `p_value`: how likely a difference
        as large is if the two are equally good. It is two-sided, except for bootstrap: sacreBLEU's is one-sided, as
        Koehn's, and about half as large. For randomization, the two shuffles that exchange all or nothing are added,
        which matters if few sentences differ. `signature` is sacreBLEU's for the test. The sign test adds the numbers
        of sentences in which the system is `better` and `worse`.
    """
    samples = num_samples or DEFAULT_SAMPLES.get(test, DEFAULT_SAMPLES["bootstrap"])
    settings = {"metrics": metrics, "tokenize": tokenize, "lowercase": lowercase}
    compared = compare_runs([baseline], [system], references, **settings, num_samples=samples, seed=seed)
    chosen_metrics = make_metrics(metrics, tokenize, lowercase)

    if test == "sign":
        compared["bleu"].update(_sign_test(chosen_metrics["bleu"], baseline, system, references))
        return {"bleu": compared["bleu"]}

    systems = [("baseline", baseline), ("system", system)]
    # sacreBLEU reads its seed only from the environment.
    with patch_environment(SACREBLEU_SEED=seed):
        paired_test = PairedTest(
            systems, chosen_metrics, references, test_type=_SACREBLEU_NAMES[test], n_samples=samples
        )
        signatures, results = paired_test()

    smallest = _smallest_p_value(baseline, system) if test == "randomization" else 0.0
    for name, key in zip(chosen_metrics, signatures, strict=True):
        baseline_result, system_result = results[key]
        p_value = min(1.0, float(system_result.p_value) + smallest)
        if system_result.score == baseline_result.score:
            # sacreBLEU would call no difference at all as significant as can be.
            p_value = 1.0
        compared[name]["p_value"] = p_value
        compared[name]["signature"] = str(signatures[key])
    return compared


def compare_runs(
    baseline: Sequence[Sequence[str]],
    system: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    metrics: Sequence[str] = ("bleu",),
    tokenize: str = "13a",
    lowercase: bool = False,
    num_samples: int = DEFAULT_SAMPLES["bootstrap"],
    seed: int = 12345,
) -> dict[str, dict[str, Any]]:
    """Compare the training runs of a system with those of a baseline, by a bootstrap over runs and sentences.

    [`bootstrap_differences`] says what a sample is. Arguments that are not named here are as in
    [`score_translations`].

    Args:
        baseline: the translations by each run of the baseline.
        system: the translations by each run of the system. There may be more or fewer.
        num_samples: number of samples.
        seed: of the samples.

    Returns:
        By metric: the mean scores `baseline` and `score`, the scores `baseline_runs` and `runs` of each run, their
        standard deviations `baseline_deviation` and `deviation` (None for one run), and sacreBLEU's `signature`.
        `low` and `high` are the 95% interval of the difference, the percentiles 2.5 and 97.5 of the samples.
        `p_value` is two-sided: the share of samples whose difference is as far from the measured one as the measured
        one is from 0.
    """
    for translations in (*baseline, *system):
        check_aligned(translations, references)
    chosen_metrics = make_metrics(metrics, tokenize, lowercase)

    compared = {}
    for name, metric in chosen_metrics.items():
        old = _statistics_of_runs(metric, baseline, references)
        new = _statistics_of_runs(metric, system, references)

        score = _score_by(metric)
        generator = np.random.default_rng(seed)
        differences = bootstrap_differences(old, new, samples=num_samples, generator=generator, score=score)
        low, high = interval_of(differences)

        old_scores = score(old.sum(1))
        new_scores = score(new.sum(1))
        baseline_score = float(old_scores.mean())
        system_score = float(new_scores.mean())

        compared[name] = {
            "baseline": baseline_score,
            "score": system_score,
            "baseline_runs": old_scores.tolist(),
            "runs": new_scores.tolist(),
            "baseline_deviation": _deviation(old_scores),
            "deviation": _deviation(new_scores),
            "low": low,
            "high": high,
            "p_value": _two_sided_p_value(differences, system_score - baseline_score),
            # It only knows the number of references once texts are counted.
            "signature": metric.get_signature().format(),
        }
    return compared


def _statistics_of_runs(
    metric: Metric, runs: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> np.ndarray:
    """Return the counts whose sums over a corpus give its score, `[runs, sentences, counts]`."""
    statistics = []
    for translations in runs:
        if isinstance(metric, BLEU):
            counts = sentence_statistics(metric, translations, references)
        else:
            # chrF has its counts under no public name.
            counts = metric._extract_corpus_statistics(translations, references)
        statistics.append(counts)
    return np.array(statistics, dtype=np.float64)


def _score_by(metric: Metric) -> Callable[[np.ndarray], np.ndarray]:
    """Return what computes scores `[...]` from sums of statistics `[..., counts]`."""
    if isinstance(metric, BLEU):
        return bleu

    def score(sums: np.ndarray) -> np.ndarray:
        corpora = sums.reshape(-1, sums.shape[-1])
        scores = []
        for counts in corpora.tolist():
            # The public methods want the texts.
            result = metric._compute_score_from_stats(counts)
            scores.append(result.score)
        return np.array(scores).reshape(sums.shape[:-1])

    return score


def _two_sided_p_value(differences: np.ndarray, measured: float) -> float:
    """Return the share of samples that are as far from the measured difference as that is from 0."""
    distances = np.abs(differences - measured)
    # Sums of the same sentences may differ in the last bit.
    least = abs(measured) - 1e-9
    as_far = np.count_nonzero(distances >= least)
    return float(as_far + 1) / (len(differences) + 1)


def _deviation(scores: np.ndarray) -> float | None:
    """Return the standard deviation of runs."""
    if len(scores) < 2:
        return None
    return float(scores.std(ddof=1))


def bootstrap_differences(
    baseline: np.ndarray,
    system: np.ndarray,
    *,
    samples: int,
    generator: np.random.Generator,
    paired_runs: bool = False,
    score: Callable[[np.ndarray], np.ndarray] = bleu,
) -> np.ndarray:
    """Return differences of mean scores, of runs and sentences that are drawn with replacement.

    This is the Multi-Bootstrap of Sellam et al. 2022 ("The MultiBERTs", ICLR). It is a paired bootstrap over sentences
    (Koehn 2004) that draws training runs as well:

    1. Draw as many sentences as there are. All runs of both groups get the same sentences.
    2. Draw as many runs of the baseline as it has, and as many of the system as it has.
    3. Take the mean score of the drawn runs of the system, less that of the drawn runs of the baseline.

    Means of n runs that are drawn from n spread by (n - 1) / n of the variance of n new ones. So the distance between
    the mean of the drawn runs and the mean of all runs is multiplied by the root of n / (n - 1) (Rao and Wu 1988,
    "Resampling inference with complex survey data").

    Args:
        baseline: statistics of the sentences of each run, `[runs, sentences, counts]`, float64.
        system: the same of the system. It may have another number of runs.
        samples: number of samples.
        generator: draws sentences and runs.
        paired_runs: runs in the same place are drawn together. Use it for runs that share a random seed, and so their
            beginning or their data. Both must have as many runs.
        score: computes scores `[...]` from sums of statistics `[..., counts]`.

    Returns:
        The difference of each sample, `[samples]`.
    """
    sentences = baseline.shape[1]
    differences = []
    for start in range(0, samples, SAMPLES_AT_ONCE):
        number = min(SAMPLES_AT_ONCE, samples - start)
        texts = _times_drawn(generator, number, sentences)
        baseline_runs = _times_drawn(generator, number, len(baseline))
        system_runs = baseline_runs
        if not paired_runs:
            system_runs = _times_drawn(generator, number, len(system))
        baseline_means = _means_of_drawn(score(weighted_sums(texts, baseline)), baseline_runs)
        system_means = _means_of_drawn(score(weighted_sums(texts, system)), system_runs)
        differences.append(system_means - baseline_means)
    return np.concatenate(differences)


def interval_of(differences: np.ndarray) -> tuple[float, float]:
    """Return the ends of the 95% interval of bootstrapped differences."""
    low, high = np.percentile(differences, [2.5, 97.5])
    return float(low), float(high)


def _times_drawn(generator: np.random.Generator, samples: int, size: int) -> np.ndarray:
    """Return how often each of `size` is among as many that are drawn with replacement, `[samples, size]`."""
    drawn = generator.integers(size, size=(samples, size))
    # Every sample has numbers of its own, so that all are counted in one call.
    numbered = drawn + size * np.arange(samples)[:, None]
    counts = np.bincount(numbered.ravel(), minlength=samples * size)
    return counts.reshape(samples, size)


def weighted_sums(times: np.ndarray, statistics: np.ndarray) -> np.ndarray:
    """Return sums of statistics in which a sentence counts several times, or not at all.

    Args:
        times: how often each sentence counts in each sample, `[samples, sentences]`.
        statistics: of the sentences of each run, `[runs, sentences, counts]`.

    Returns:
        The sums, `[samples, runs, counts]`.
    """
    # Products of integers would take a loop.
    return np.einsum("bn,snk->bsk", times.astype(np.float64), statistics, optimize=True)


def _means_of_drawn(scores: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the mean score of the drawn runs of each sample, as far from that of all runs as new runs would be.

    Args:
        scores: of all runs in each sample, `[samples, runs]`.
        times: how often each run was drawn, `[samples, runs]`.
    """
    runs = scores.shape[-1]
    mean = scores.mean(-1)
    drawn_scores = scores * times
    mean_of_drawn = drawn_scores.sum(-1) / runs
    scale = np.sqrt(runs / max(1, runs - 1))
    return mean + scale * (mean_of_drawn - mean)


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
    baseline_score, *replaced_scores = bleu(np.vstack([totals, with_one_replaced])).tolist()

    better = sum(score > baseline_score for score in replaced_scores)
    worse = sum(score < baseline_score for score in replaced_scores)
    p_value = 1.0
    if better or worse:
        p_value = binomtest(better, better + worse).pvalue
    return {"p_value": p_value, "better": better, "worse": worse}


def comparison_report(record: Mapping[str, Any]) -> str:
    """Return the table in Markdown of a record's `comparison`, and under it how it was made."""
    systems = record["systems"]
    settings = record["settings"]
    test = settings["test"]
    # The scores of the baseline are the same next to every system.
    first_system = next(iter(systems.values()))
    numbers_of_runs = _numbers_of_runs(record)
    has_groups = max(numbers_of_runs.values()) > 1

    header = ["system"]
    baseline_row = [record["baseline"]]
    if has_groups:
        header.append("runs")
        baseline_row.append(str(numbers_of_runs[record["baseline"]]))
    columns = ["Δ", "95% interval", "p"]
    if test == "sign":
        columns += ["+", "−"]

    signatures = []
    for metric, comparison in first_system.items():
        header.append(metric)
        baseline_score = comparison["baseline"]
        baseline_row.append(f"{baseline_score:.2f}")
        if has_groups:
            header.append("deviation")
            baseline_row.append(_deviation_cell(comparison["baseline_deviation"]))
        header += columns
        baseline_row += [""] * len(columns)
        signature = comparison["signature"]
        signatures.append(f"{metric}: {signature}")

    rows = [header, baseline_row]
    for name, comparisons in systems.items():
        row = [name]
        if has_groups:
            row.append(str(numbers_of_runs[name]))
        for comparison in comparisons.values():
            row += _cells(comparison, settings, has_groups)
        rows.append(row)

    method = _NAME_FOR_RUNS if has_groups else _NAMES[test]
    method = method.format(samples=settings["num_samples"], seed=settings["seed"])
    marked = "p" if settings["two_sided"] else "2p"
    marks = f"† means that {marked} is below 0.05, and ‡ below 0.01."
    caption = f"p is by {method}. The baseline is {record['baseline']}. {marks}"
    return "\n".join([table_in_markdown(rows), "", caption, *_limits(numbers_of_runs), *signatures])


def _numbers_of_runs(record: Mapping[str, Any]) -> dict[str, int]:
    """Return how many runs the baseline and each system have, by name."""
    numbers = {}
    for name, comparisons in record["systems"].items():
        comparison = next(iter(comparisons.values()))
        numbers[record["baseline"]] = len(comparison["baseline_runs"])
        numbers[name] = len(comparison["runs"])
    return numbers


def _limits(numbers_of_runs: Mapping[str, int]) -> list[str]:
    """Return what p and the interval do not know, a sentence each."""
    single = [name for name, number in numbers_of_runs.items() if number == 1]
    if len(single) == len(numbers_of_runs):
        return ["p and the interval only know the sentences. Another training run of the same model differs too."]
    limits = []
    if single:
        names = ", ".join(single)
        limits.append(f"p and the interval do not know how much another training run differs from {names}.")
    if any(1 < number <= _FEW_RUNS for number in numbers_of_runs.values()):
        limits.append("With two or three runs the interval is too narrow and p too small, most if runs differ much.")
    return limits


def _deviation_cell(deviation: float | None) -> str:
    return "" if deviation is None else f"{deviation:.2f}"


def _cells(comparison: Mapping[str, Any], settings: Mapping[str, Any], has_groups: bool) -> list[str]:
    """Return the cells of a system for one metric: score, difference, interval, p, and the counts of the sign test."""
    score = comparison["score"]
    p_value = comparison["p_value"]
    # Better and worse systems are marked, but some p are only those of one direction.
    mark = _mark(p_value if settings["two_sided"] else 2 * p_value)
    cells = [f"{score:.2f}{mark}"]
    if has_groups:
        cells.append(_deviation_cell(comparison["deviation"]))

    difference = score - comparison["baseline"]
    low = comparison["low"]
    high = comparison["high"]
    cells.append(f"{difference:+.2f}")
    cells.append(f"{low:+.2f} to {high:+.2f}")
    cells.append(f"{p_value:.4f}" if p_value >= 1e-4 else "< 0.0001")

    if settings["test"] == "sign":
        cells += [str(comparison["better"]), str(comparison["worse"])]
    return cells


def _mark(p_value: float) -> str:
    if p_value < 0.01:
        return "‡"
    if p_value < 0.05:
        return "†"
    return ""
