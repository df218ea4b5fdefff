"""Rows of a study beside the rows that they are against: differences, their intervals, and answers to questions.

significance.py computes intervals and p.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common.records import Record
from benchmarks.studies.results import Result
from benchmarks.studies.score_tables import Table, of_seeds
from benchmarks.studies.significance import SAMPLES, compare_seeds
from benchmarks.studies.study import Question, Study
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.bleu_statistics import unpack_statistics

P_VALUE = 0.05
_FEWEST_SEEDS = 2  # one run does not show how much another seed would change
_FAR = 3.0  # BLEU, a choice: more than another seed is thought to change
_LEAST_BLEU = 5.0  # a choice: below it, a model has learned too little
_NOTHING = "nothing to compare yet"
HOW = (
    "Intervals come from a bootstrap over sentences and over pairs of runs of the same seed: that of Sellam et al. "
    f"2022, with the factor of Rao and Wu 1988 ({SAMPLES:,} samples). With two or three seeds they are too narrow, and "
    "more so when seeds differ much. p comes from two-sided approximate randomization (Riezler and Maxwell 2005, "
    f"{SAMPLES:,} samples). It exchanges a sentence in all seeds of both rows together, and does not know how seeds "
    "differ."
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
_LIKENESS: dict[str, Callable[[Record], Any]] = {
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

    def is_gain_of(self, effect: float) -> bool:
        """Return whether the row gains so much BLEU, and chance does not explain it."""
        return self.difference >= effect and self.low > 0 and self.p_value < P_VALUE

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


def compare_rows(study: Study, results: Sequence[Result]) -> list[Comparison]:
    """Compare every row with those that it is against, on every test set, by the seeds that both have.

    Raises:
        UserError: if rows were scored on a test set with other references or another BLEU.
    """
    comparisons = []
    for test in study.tests:
        runs = _runs_with_statistics(results, test.name)
        _check_scored_alike(test.name, [run.evaluation for run in runs.values()])
        for result in results:
            for other in study.against(result.row):
                pairs = _pairs_of_runs(result, other, runs)
                if pairs:
                    comparisons.append(_compare_pairs(result.row.name, other, test.name, pairs))
    return comparisons


class _Run(NamedTuple):
    """A run that was scored on a test set."""

    record: Record
    """Of its training."""
    evaluation: Record
    """What `evaluate` wrote."""
    statistics: np.ndarray
    """Of BLEU, `[sentences, 10]`."""


def _runs_with_statistics(results: Sequence[Result], test: str) -> dict[tuple[str, int], _Run]:
    """Return the runs whose evaluation on a test set wrote the statistics of its sentences, by row and seed."""
    runs = {}
    for result in results:
        for one in result.seeds:
            evaluation = one.scores[test]
            packed = evaluation.get("bleu_statistics")
            if packed:
                runs[result.row.name, one.seed] = _Run(one.run, evaluation, unpack_statistics(packed))
    return runs


def _check_scored_alike(test: str, scores: Iterable[Record]) -> None:
    kinds = set()
    for score in scores:
        references = [file["sha256"] for file in score["references"]]
        signature = score["scores"]["bleu"]["signature"]
        kinds.add((signature, *references))
    if len(kinds) > 1:
        raise UserError(f"{test} was scored with several references or kinds of BLEU. Score the rows alike.")


def _pairs_of_runs(result: Result, other: str, runs: Mapping[tuple[str, int], _Run]) -> dict[int, tuple[_Run, _Run]]:
    """Return the runs of a row and of another one by the seeds that both have."""
    pairs = {}
    for one in result.seeds:
        run = runs.get((result.row.name, one.seed))
        other_run = runs.get((other, one.seed))
        if run is not None and other_run is not None:
            pairs[one.seed] = (run, other_run)
    return pairs


def _compare_pairs(row: str, against: str, test: str, pairs: Mapping[int, tuple[_Run, _Run]]) -> Comparison:
    """Compare a row with another one on a test set.

    Args:
        row: the name of the row.
        against: the name of the other one.
        test: the name of the test set.
        pairs: the runs of both, by seed.
    """
    system = [run.statistics for run, _ in pairs.values()]
    baseline = [other_run.statistics for _, other_run in pairs.values()]
    return Comparison(row, against, test, _unlike(pairs), **compare_seeds(baseline, system))


def _unlike(pairs: Mapping[int, tuple[_Run, _Run]]) -> list[str]:
    """Return in what the two runs of each seed differ, next to their rows."""
    unlike = []
    for name, value_of in _LIKENESS.items():
        seeds = []
        for seed, (run, other_run) in pairs.items():
            value = value_of(run.record)
            other_value = value_of(other_run.record)
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
    deciding = []
    others = []
    for name in compared:
        row_answer, why = verdicts[name]
        if row_answer == answer:
            deciding.append(f"`{name}`: {why}")
        else:
            others.append(f"`{name}`: {row_answer}, {why}")
    reasons = deciding + others
    unscored = []
    not_run = []
    for name in question.rows:
        needed = {name, *study.against(study.row(name), question)}
        if name in compared:
            continue
        if needed.isdisjoint(unknown):
            not_run.append(name)
        else:
            unscored.append(name)
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
        known = [_so_far(other, of_row, len(row.seeds)) for other in others]
        return "open", ", ".join(known)
    for one in of_row:
        if not one.has_learned:
            bleu_of_both = f"{one.score:.1f} BLEU, and {one.baseline:.1f} of `{one.against}`"
            return "undecided", f"{bleu_of_both}, are too little to tell"
    is_ahead = all(one.is_gain_of(effect) for one in of_row)
    if is_ahead and seeds >= _FEWEST_SEEDS:
        measured = [_measured(other, of_row) for other in others]
        return "yes", ", ".join(measured)
    least = min(of_row, key=lambda one: one.difference)
    return "undecided", _measured(least.against, of_row)


def _measured(other: str, comparisons: Sequence[Comparison]) -> str:
    """Return the differences from another row on all test sets as text."""
    with_other = [one for one in comparisons if one.against == other]
    differences = [one.with_interval for one in with_other]
    unlike: list[str] = []
    for one in with_other:
        unlike += one.unlike
    return f"{' and '.join(differences)} against `{other}`{_in_brackets(unlike)}"


def _so_far(other: str, comparisons: Sequence[Comparison], seeds: int) -> str:
    """Return as text what is known of another row, which is to be compared by so many seeds."""
    with_other = [one for one in comparisons if one.against == other]
    if not with_other:
        return f"nothing yet against `{other}`"
    differences = [f"{one.difference:+.2f}" for one in with_other]
    fewest = min(one.seeds for one in with_other)
    return f"{' and '.join(differences)} against `{other}` with {fewest} of {seeds} seeds"


def question_table(study: Study, question: Question, comparisons: Sequence[Comparison]) -> Table:
    """Return the differences of the question's rows, a line for each row and each row it is against."""
    tests = [test.name for test in study.tests]
    deltas = [f"Δ {test}" for test in tests]
    table = [["row", "against", "seeds", *deltas, "answer"]]
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
