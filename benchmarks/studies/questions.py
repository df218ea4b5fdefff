"""The questions of a study and what its records answer: what counts as yes is in the study, before its rows are run."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from benchmarks.studies.comparisons import RowComparison, in_brackets, interval
from benchmarks.studies.study import Question, Study

P_VALUE = 0.05
_FEWEST_SEEDS = 2  # of one run, nobody can say how much another seed would change
_NOTHING = "nothing to compare yet"
_FAR = 3.0  # BLEU, a choice: more than another seed is thought to change


@dataclass(frozen=True)
class Verdict:
    """What is known of a question, or of one of its rows."""

    answer: str
    """"yes"; "no"; "open", if not all was run; "undecided", if it was."""
    why: str


CRITERION = (
    f"Yes: with all seeds, {_FEWEST_SEEDS} or more, a row has at least that much more BLEU than each row it is "
    f"against, with intervals above 0 and p < {P_VALUE:g}, on every test set. "
    "No: every row has, against some row that it is against and on some test set, an interval that ends below what is "
    "asked for, with "
    f"{_FEWEST_SEEDS} seeds or more, or with one by {_FAR:g} BLEU or more. Open: runs are missing. Undecided: all was "
    "run, and neither holds. "
    "Nothing is corrected for the number of rows."
)
"""What counts as an answer."""


def judge(
    study: Study, question: Question, comparisons: Sequence[RowComparison], unknown: Collection[str] = ()
) -> Verdict:
    """Answer a question: yes by one row that does what counts as yes, no if none of its rows does.

    Of the rows `unknown` there are scores, but no statistics that they could be compared by.
    """
    verdicts = {name: judge_row(study, question, name, comparisons) for name in question.rows}
    answers = {verdict.answer for verdict in verdicts.values()}
    answer = next(each for each in ("yes", "open", "undecided", "no") if each in answers)
    found = {name: verdict for name, verdict in verdicts.items() if _of_row(study, question, name, comparisons)}
    # What decides comes first.
    ordered = sorted(found.items(), key=lambda item: item[1].answer != answer)
    whys = [f"`{name}`: {'' if one.answer == answer else f'{one.answer}, '}{one.why}" for name, one in ordered]
    missing = [name for name in question.rows if name not in found]
    unscored = [name for name in missing if {name, *study.compared_with(study.row(name), question)} & {*unknown}]
    not_run = [name for name in missing if name not in unscored]
    if unscored:
        whys.append(f"no statistics of sentences to compare (score them again): {_quoted(unscored)}")
    if not_run:
        whys.append(f"not run: {_quoted(not_run)}")
    return Verdict(answer, "; ".join(whys) if found or unscored else _NOTHING)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _of_row(study: Study, question: Question, name: str, comparisons: Sequence[RowComparison]) -> list[RowComparison]:
    """Return the comparisons that a question asks of a row."""
    others = study.compared_with(study.row(name), question)
    return [one for one in comparisons if one.row == name and one.against in others]


def judge_row(study: Study, question: Question, name: str, comparisons: Sequence[RowComparison]) -> Verdict:
    """Say whether a row has as much more BLEU than the rows it is against as is asked for, as `CRITERION` has it."""
    row, effect = study.row(name), question.effect
    own = _of_row(study, question, name, comparisons)
    if not own:
        return Verdict("open", _NOTHING)
    enough = [one for one in own if one.found.seeds >= _FEWEST_SEEDS or one.found.high <= effect - _FAR]
    lowest = min(enough, key=lambda one: one.found.high, default=None)
    if lowest is not None and lowest.found.high < effect:
        return Verdict("no", _measured(lowest.against, own))
    others = study.compared_with(row, question)
    seeds = min(one.found.seeds for one in own)
    if len(own) < len(others) * len(study.tests) or seeds < len(row.seeds):
        return Verdict("open", ", ".join(_so_far(other, own, len(row.seeds)) for other in others))
    least = min(own, key=lambda one: one.difference)
    is_ahead = all(one.difference >= effect and one.found.low > 0 and one.found.p_value < P_VALUE for one in own)
    if is_ahead and seeds >= _FEWEST_SEEDS:
        return Verdict("yes", ", ".join(_measured(other, own) for other in others))
    return Verdict("undecided", _measured(least.against, own))


def _measured(other: str, comparisons: Sequence[RowComparison]) -> str:
    """Tell the differences from a row on every test set, with their intervals."""
    found = [one for one in comparisons if one.against == other]
    differences = " and ".join(_with_interval(one) for one in found)
    return f"{differences} against `{other}`{in_brackets(what for one in found for what in one.unlike)}"


def _so_far(other: str, comparisons: Sequence[RowComparison], seeds: int) -> str:
    """Tell the differences from a row that are known, of so many `seeds` in the end."""
    found = [one for one in comparisons if one.against == other]
    if not found:
        return f"nothing yet against `{other}`"
    differences = " and ".join(f"{one.difference:+.2f}" for one in found)
    return f"{differences} against `{other}` with {min(one.found.seeds for one in found)} of {seeds} seeds"


def question_table(study: Study, question: Question, comparisons: Sequence[RowComparison]) -> list[list[str]]:
    """Return the differences of the question's rows, a line for each row and each row it is against."""
    tests = [test.name for test in study.tests]
    table = [["row", "against", "seeds", *(f"Δ {test}" for test in tests), "answer"]]
    for name in question.rows:
        own = _of_row(study, question, name, comparisons)
        for other in dict.fromkeys(one.against for one in own):
            by_test = {one.test: one for one in own if one.against == other}
            cells = [difference_cell(by_test[test]) if test in by_test else "" for test in tests]
            seeds = str(min(one.found.seeds for one in by_test.values()))
            named = next(iter(by_test.values())).named_against
            table.append([name, named, seeds, *cells, judge_row(study, question, name, comparisons).answer])
    return table


def difference_cell(comparison: RowComparison) -> str:
    """Return a difference, its interval and p as text."""
    p_value = comparison.found.p_value
    shown = f"p {p_value:.3f}" if p_value >= 0.001 else "p < 0.001"
    return f"{_with_interval(comparison)}, {shown}"


def _with_interval(comparison: RowComparison) -> str:
    return f"{comparison.difference:+.2f} ({interval(comparison)})"
