"""What counts as yes, as no, and what leaves a question open."""

import dataclasses

import pytest

from benchmarks.studies import study
from benchmarks.studies.comparisons import RowComparison
from benchmarks.studies.questions import Verdict, judge, judge_row, question_table
from benchmarks.studies.seeds import SeedComparison

ROWS = tuple(
    study.Row(name=name, method="em-routing", size="tiny", config={}, seeds=(1, 2, 3), train={}, against=against)
    for name, against in (("plain", ()), ("em", ("plain", "wide")), ("gdr", ("plain",)), ("wide", ()))
)
STUDY = study.Study("s", "S", "", {}, (study.Test("one"), study.Test("other")), {}, ROWS, baseline="plain")


ASKED = study.Question("q", "Does it?", 0.5, ("em", "gdr"))


def compared(row, against, test, difference, width=0.2, p_value=0.01, seeds=3):
    found = SeedComparison(40.0, 40.0 + difference, difference - width, difference + width, p_value, seeds)
    return RowComparison(row, against, test, found)


def four(difference, **changes):
    """Comparisons of em with both rows on both test sets; the last one may be different."""
    pairs = [(against, test) for against in ("plain", "wide") for test in ("one", "other")]
    return [compared("em", *pair, 1.0) for pair in pairs[:-1]] + [compared("em", *pairs[-1], difference, **changes)]


def mixed():
    """Of one comparison with all seeds the interval is low, of others with one seed it is lower."""
    one_seed = [compared("em", against, "one", -2.0, seeds=1) for against in ("plain", "wide")]
    return [*one_seed, *four(0.3, width=0.1)[1::2]]


BY_ONE = "+1.00 (+0.80 to +1.20) and +1.00 (+0.80 to +1.20)"
BY_LESS = "+1.00 (+0.80 to +1.20) and +0.60 (+0.40 to +0.80)"
AHEAD = "+1.00 and +1.00 against `plain` with 3 of 3 seeds"


@pytest.mark.parametrize(
    ("comparisons", "answer", "why"),
    [
        (
            four(0.6),
            "yes",
            f"{BY_ONE} against `plain`, {BY_LESS} against `wide`",
        ),
        (four(0.6, p_value=0.06), "undecided", f"{BY_LESS} against `wide`"),
        (four(0.6, width=0.7), "undecided", "+1.00 (+0.80 to +1.20) and +0.60 (-0.10 to +1.30) against `wide`"),
        (four(0.45), "undecided", "+1.00 (+0.80 to +1.20) and +0.45 (+0.25 to +0.65) against `wide`"),
        (four(0.2), "no", "+1.00 (+0.80 to +1.20) and +0.20 (+0.00 to +0.40) against `wide`"),
        (four(-2.0), "no", "+1.00 (+0.80 to +1.20) and -2.00 (-2.20 to -1.80) against `wide`"),
        (four(-2.0, seeds=2), "no", "+1.00 (+0.80 to +1.20) and -2.00 (-2.20 to -1.80) against `wide`"),
        (
            four(-2.0, seeds=1),
            "open",
            f"{AHEAD}, +1.00 and -2.00 against `wide` with 1 of 3 seeds",
        ),
        (four(-2.8, seeds=1), "no", "+1.00 (+0.80 to +1.20) and -2.80 (-3.00 to -2.60) against `wide`"),
        (
            four(0.6, seeds=2),
            "open",
            f"{AHEAD}, +1.00 and +0.60 against `wide` with 2 of 3 seeds",
        ),
        (four(0.6)[:2], "open", f"{AHEAD}, nothing yet against `wide`"),
        (mixed(), "no", "-2.00 (-2.20 to -1.80) and +0.30 (+0.20 to +0.40) against `wide`"),
        ([], "open", "nothing to compare yet"),
    ],
)
def test_a_row(comparisons, answer, why):
    verdict = judge_row(STUDY, ASKED, "em", comparisons)
    assert (verdict.answer, verdict.why) == (answer, why)


@pytest.mark.parametrize(("difference", "answer", "told"), [(0.6, "yes", 2), (0.45, "undecided", 1), (-2.0, "no", 1)])
def test_an_answer_tells_what_else_is_not_the_same(difference, answer, told):
    unlike = ("training text", "precision of seed 1")
    comparisons = [dataclasses.replace(one, unlike=unlike) for one in four(difference)]
    verdict = judge_row(STUDY, ASKED, "em", comparisons)
    assert verdict.answer == answer
    assert verdict.why.count("(other training text, other precision of seed 1)") == told


def test_one_seed_that_is_all():
    one_seed = [
        compared("em", against, test, 2.0, seeds=1) for against in ("plain", "wide") for test in ("one", "other")
    ]
    rows = tuple(dataclasses.replace(row, seeds=(1,)) for row in STUDY.rows)
    verdict = judge_row(dataclasses.replace(STUDY, rows=rows), ASKED, "em", one_seed)
    assert (verdict.answer, verdict.why) == (
        "undecided",
        "+2.00 (+1.80 to +2.20) and +2.00 (+1.80 to +2.20) against `plain`",
    )


def test_a_question():
    question = ASKED
    win, loss = (
        [compared("gdr", "plain", test, difference) for test in ("one", "other")] for difference in (0.7, -1.0)
    )
    assert judge(STUDY, question, [*four(-2.0), *win]).answer == "yes"
    em = "`em`: no, +1.00 (+0.80 to +1.20) and -2.00 (-2.20 to -1.80) against `wide`"
    gdr = "`gdr`: +0.70 (+0.50 to +0.90) and +0.70 (+0.50 to +0.90) against `plain`"
    assert judge(STUDY, question, [*four(-2.0), *win]).why == f"{gdr}; {em}"
    assert judge(STUDY, question, four(-2.0)).answer == "open"
    assert judge(STUDY, question, four(-2.0)).why == f"{em}; not run: `gdr`"
    assert judge(STUDY, question, []) == Verdict("open", "nothing to compare yet")
    unknown = "no statistics of sentences to compare (score them again)"
    assert judge(STUDY, question, four(-2.0), ["gdr"]).why == f"{em}; {unknown}: `gdr`"
    assert judge(STUDY, question, [], ["plain"]) == Verdict("open", f"{unknown}: `em`, `gdr`")
    assert judge(STUDY, question, [], ["wide"]).why == f"{unknown}: `em`; not run: `gdr`"
    assert judge(STUDY, question, [*four(-2.0), *loss]).answer == "no"
    assert judge(STUDY, question, [*four(0.45), *loss]).answer == "undecided"


def test_a_question_with_rows_of_its_own_to_be_against():
    """What the row is against elsewhere does not count there."""
    question = study.Question("q", "Is it?", 0.5, ("em",), against=("wide",))
    asked = dataclasses.replace(STUDY, questions=(ASKED, question))
    em, gdr = STUDY.row("em"), STUDY.row("gdr")
    assert asked.compared_with(em) == asked.compared_with(em, ASKED) == ("plain", "wide")
    assert asked.compared_with(em, question) == ("wide",)
    assert dataclasses.replace(STUDY, questions=(dataclasses.replace(question, rows=("gdr",)),)).compared_with(gdr) == (
        "plain",
        "wide",
    )
    behind = [compared("em", "plain", test, -2.0) for test in ("one", "other")]
    ahead = [compared("em", "wide", test, 1.0) for test in ("one", "other")]
    assert judge(asked, question, [*behind, *ahead]).answer == "yes"
    assert judge(asked, ASKED, [*behind, *ahead]).answer == "open"
    assert [line[1] for line in question_table(asked, question, [*behind, *ahead])] == ["against", "wide"]
