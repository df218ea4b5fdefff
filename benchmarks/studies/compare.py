"""Rows of a study beside the rows that they are against: differences, their intervals, and answers to questions.

Training draws the seed and the test set draws the sentences, so the interval is a bootstrap over both (Koehn 2004, with
runs drawn as well: in pairs, for runs of one seed may share their beginning or their data). Approximate randomization
(Riezler and Maxwell 2005) exchanges translations of a sentence between the two rows, in the runs of all seeds together,
for what a method does to a sentence recurs from seed to seed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.studies.results import Result, of_seeds
from benchmarks.studies.study import Question, Study
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.bleu_statistics import bleu, unpack_statistics

SAMPLES = 10000
# Samples that are summed up together: each has a number for every run and sentence.
_AT_ONCE = 250
P_VALUE = 0.05
_FEWEST_SEEDS = 2  # one run does not show how much another seed would change
_FAR = 3.0  # BLEU, a choice: more than another seed is thought to change
_LEAST_BLEU = 5.0  # a choice: below it, a model has learned too little
_NOTHING = "nothing to compare yet"
HOW = (
    f"Intervals come from a bootstrap over sentences and over pairs of runs of the same seed (Koehn 2004, {SAMPLES:,} "
    "samples). With two or three seeds they are too narrow, and more so when seeds differ much. "
    f"p comes from two-sided approximate randomization (Riezler and Maxwell 2005, {SAMPLES:,} samples). "
    "It exchanges a sentence in all seeds of both rows together, and does not know how seeds differ."
)
"""What the tables of comparisons mean."""
CRITERION = f"""\
* **Yes**: all seeds were run, and at least {_FEWEST_SEEDS}. On every test set, the row gains at least the BLEU \
asked for over each row that it is compared with. All intervals are above 0, and p < {P_VALUE:g}.
* **No**: compared with some row on some test set, the interval ends below the BLEU asked for. This takes at least \
{_FEWEST_SEEDS} seeds. One seed is enough if the interval ends {_FAR:g} BLEU lower.
* **Undecided**: all seeds were run, and the answer is neither yes nor no. A row with less than {_LEAST_BLEU:g} BLEU \
has learned too little to answer with yes or no, and so has a row that it is compared with.
* **Open**: runs are missing.

A question about several rows takes the first answer that one of its rows has: yes, open, undecided, no. \
Nothing is corrected for the number of rows."""
"""What counts as an answer."""
_LIKENESS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "training text": lambda run: run.get("data_sha256"),
    "tokenizer": lambda run: run.get("tokenizer_hash"),
    "machine": lambda run: run["environment"]["device"],
    "precision": lambda run: run.get("mixed_precision", "no"),
    "number of processes": lambda run: run["processes"],
}
"""What two runs have in common if only their rows differ."""


@dataclass(frozen=True)
class Comparison:
    """A row beside another one on a test set; `unlike` has what else differs, such as "machine of seed 1"."""

    row: str
    against: str
    test: str
    unlike: Sequence[str]
    seeds: int
    baseline: float
    score: float
    low: float
    high: float
    p_value: float

    @property
    def difference(self) -> float:
        """Return how much more BLEU the row has, the mean over seeds."""
        return self.score - self.baseline

    @property
    def has_learned(self) -> bool:
        """Return whether both rows translate well enough to tell anything."""
        return min(self.baseline, self.score) >= _LEAST_BLEU

    @property
    def named_against(self) -> str:
        """Return the other row's name, with what else is not the same."""
        return self.against + _in_brackets(self.unlike)

    @property
    def interval(self) -> str:
        """Return the 95% interval of the difference as text."""
        return f"{self.low:+.2f} to {self.high:+.2f}"

    @property
    def with_interval(self) -> str:
        """Return the difference and its interval as text."""
        return f"{self.difference:+.2f} ({self.interval})"

    def __str__(self) -> str:
        """Return the difference, its interval and p."""
        p_value = f"p {self.p_value:.3f}" if self.p_value >= 0.001 else "p < 0.001"
        return f"{self.with_interval}, {p_value}"


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
        gains = bleu(_sums(texts, new)) - bleu(_sums(texts, old))
        mean = gains.mean(-1)
        mean_of_pairs = (gains * pairs).sum(-1) / seeds
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
    as_large = 0
    for start in range(0, samples, _AT_ONCE):
        number = min(_AT_ONCE, samples - start)
        exchanged = generator.integers(2, size=(number, change.shape[1]), dtype=bool)
        moved = _sums(exchanged, change)
        differences = (bleu(new_total - moved) - bleu(old_total + moved)).mean(-1)
        # Sums of the same sentences may differ in the last bit.
        as_large += int((np.abs(differences) >= observed - 1e-9).sum())
    return (as_large + 1) / (samples + 1)


def compare_rows(study: Study, results: Sequence[Result]) -> list[Comparison]:
    """Compare every row with those that it is against, on every test set, by the seeds that both have.

    Raises:
        UserError: if rows were scored on a test set with other references or another BLEU.
    """
    comparisons = []
    runs = {(result.row.name, one.seed): one.run for result in results for one in result.seeds}
    for test in study.tests:
        scores = _scores_with_statistics(results, test.name)
        _check_scored_alike(test.name, scores.values())
        statistics = {run: unpack_statistics(score["bleu_statistics"]) for run, score in scores.items()}
        for result in results:
            for other in study.against(result.row):
                seeds = _shared_seeds(result, other, statistics)
                if seeds:
                    comparisons.append(_compare_pair(result.row.name, other, test.name, seeds, statistics, runs))
    return comparisons


def _scores_with_statistics(results: Sequence[Result], test: str) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Return what the evaluations on a test set wrote, by row and seed."""
    scores = {}
    for result in results:
        for one in result.seeds:
            if one.scores[test].get("bleu_statistics"):
                scores[result.row.name, one.seed] = one.scores[test]
    return scores


def _check_scored_alike(test: str, scores: Iterable[Mapping[str, Any]]) -> None:
    kinds = set()
    for score in scores:
        references = [file["sha256"] for file in score["references"]]
        kinds.add((score["scores"]["bleu"]["signature"], *references))
    if len(kinds) > 1:
        raise UserError(f"{test} was scored with several references or kinds of BLEU. Score the rows alike.")


def _shared_seeds(result: Result, other: str, statistics: Mapping[tuple[str, int], np.ndarray]) -> list[int]:
    name = result.row.name
    seeds = [one.seed for one in result.seeds]
    return [seed for seed in seeds if (name, seed) in statistics and (other, seed) in statistics]


def _compare_pair(
    name: str,
    other: str,
    test: str,
    seeds: Sequence[int],
    statistics: Mapping[tuple[str, int], np.ndarray],
    runs: Mapping[tuple[str, int], Mapping[str, Any]],
) -> Comparison:
    baseline = [statistics[other, seed] for seed in seeds]
    system = [statistics[name, seed] for seed in seeds]
    unlike = _unlike({seed: (runs[name, seed], runs[other, seed]) for seed in seeds})
    return Comparison(name, other, test, unlike, **compare_seeds(baseline, system))


def _unlike(pairs: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return in what the two runs of each seed differ, next to their rows."""
    unlike = []
    for name, value_of in _LIKENESS.items():
        seeds = []
        for seed, (run, other_run) in pairs.items():
            value = value_of(run)
            other_value = value_of(other_run)
            # Old records do not have all values.
            if value and other_value and value != other_value:
                seeds.append(seed)
        if seeds:
            unlike.append(name + of_seeds(seeds, pairs))
    return unlike


def _in_brackets(unlike: Iterable[str]) -> str:
    text = ", ".join(f"other {what}" for what in dict.fromkeys(unlike))
    return f" ({text})" if text else ""


def judge(
    study: Study, question: Question, comparisons: Sequence[Comparison], unknown: Collection[str] = ()
) -> tuple[str, str]:
    """Answer a question by `CRITERION`.

    Args:
        study: has the question.
        question: what is asked.
        comparisons: of the study's rows.
        unknown: rows whose scores have no statistics that they could be compared by.

    Returns:
        "yes", "no", "open" or "undecided", and why.
    """
    verdicts = {name: judge_row(study, question, name, comparisons) for name in question.rows}
    answers = {answer for answer, _ in verdicts.values()}
    answer = next(first for first in ("yes", "open", "undecided", "no") if first in answers)
    compared = [name for name in question.rows if _of_row(study, question, name, comparisons)]
    reasons = []
    # What decides comes first.
    for name in sorted(compared, key=lambda name: verdicts[name][0] != answer):
        row_answer, why = verdicts[name]
        if row_answer != answer:
            why = f"{row_answer}, {why}"
        reasons.append(f"`{name}`: {why}")
    missing = [name for name in question.rows if name not in compared]
    unscored = [name for name in missing if {name, *study.against(study.row(name), question)} & {*unknown}]
    not_run = [name for name in missing if name not in unscored]
    if unscored:
        reasons.append(f"no statistics of sentences to compare (score them again): {_quoted(unscored)}")
    if not_run:
        reasons.append(f"not run: {_quoted(not_run)}")
    if compared or unscored:
        return answer, "; ".join(reasons)
    return answer, _NOTHING


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _of_row(study: Study, question: Question, name: str, comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons of a row that a question is about."""
    others = study.against(study.row(name), question)
    return [one for one in comparisons if one.row == name and one.against in others]


def judge_row(study: Study, question: Question, name: str, comparisons: Sequence[Comparison]) -> tuple[str, str]:
    """Answer a question for one of its rows.

    Args:
        study: has the question.
        question: what is asked.
        name: of the row.
        comparisons: of the study's rows.

    Returns:
        "yes", "no", "open" or "undecided", and why.
    """
    row = study.row(name)
    of_row = _of_row(study, question, name, comparisons)
    if not of_row:
        return "open", _NOTHING
    effect = question.effect
    learned = [one for one in of_row if one.has_learned]
    enough = [one for one in learned if one.seeds >= _FEWEST_SEEDS or one.high <= effect - _FAR]
    lowest = min(enough, key=lambda one: one.high, default=None)
    if lowest is not None and lowest.high < effect:
        return "no", _measured(lowest.against, of_row)
    others = study.against(row, question)
    seeds = min(one.seeds for one in of_row)
    if len(of_row) < len(others) * len(study.tests) or seeds < len(row.seeds):
        return "open", ", ".join(_so_far(other, of_row, len(row.seeds)) for other in others)
    for one in of_row:
        if not one.has_learned:
            bleu_of_both = f"{one.score:.1f} BLEU, and {one.baseline:.1f} of `{one.against}`"
            return "undecided", f"{bleu_of_both}, are too little to tell"
    is_ahead = all(one.difference >= effect and one.low > 0 and one.p_value < P_VALUE for one in of_row)
    if is_ahead and seeds >= _FEWEST_SEEDS:
        return "yes", ", ".join(_measured(other, of_row) for other in others)
    least = min(of_row, key=lambda one: one.difference)
    return "undecided", _measured(least.against, of_row)


def _measured(other: str, comparisons: Sequence[Comparison]) -> str:
    """Return the differences from another row on all test sets as text."""
    with_other = [one for one in comparisons if one.against == other]
    differences = " and ".join(one.with_interval for one in with_other)
    unlike = _in_brackets(what for one in with_other for what in one.unlike)
    return f"{differences} against `{other}`{unlike}"


def _so_far(other: str, comparisons: Sequence[Comparison], seeds: int) -> str:
    """Return as text what is known of another row, which is to be compared by so many seeds."""
    with_other = [one for one in comparisons if one.against == other]
    if not with_other:
        return f"nothing yet against `{other}`"
    differences = " and ".join(f"{one.difference:+.2f}" for one in with_other)
    fewest = min(one.seeds for one in with_other)
    return f"{differences} against `{other}` with {fewest} of {seeds} seeds"


def question_table(study: Study, question: Question, comparisons: Sequence[Comparison]) -> list[list[str]]:
    """Return the differences of the question's rows, a line for each row and each row it is against."""
    tests = [test.name for test in study.tests]
    table = [["row", "against", "seeds", *(f"Δ {test}" for test in tests), "answer"]]
    for name in question.rows:
        of_row = _of_row(study, question, name, comparisons)
        answer, _ = judge_row(study, question, name, comparisons)
        for other in dict.fromkeys(one.against for one in of_row):
            by_test = {one.test: one for one in of_row if one.against == other}
            differences = [str(by_test[test]) if test in by_test else "" for test in tests]
            first = next(iter(by_test.values()))
            seeds = min(one.seeds for one in by_test.values())
            table.append([name, first.named_against, str(seeds), *differences, answer])
    return table
