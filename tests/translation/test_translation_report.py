"""What repeats is told from what does not, and flags are counted."""

import json

import pytest

from hf_capsule_mt.translation.quality.judge import Judgement, judged, repeated_tokens
from hf_capsule_mt.translation.quality.report import faults
from hf_capsule_mt.translation.quality.signals import Signs


@pytest.mark.parametrize(
    ("ids", "copies"),
    [
        *(("", 0), ("abcabc", 0), ("abcabcabc", 6), ("xaaaay", 3), ("aa", 0), ("ababab", 4), ("abcabcabcab", 8)),
        # The longest phrase has 16 tokens.
        *(("abcdefghijklmnop" * 3, 32), ("abcdefghijklmnopq" * 3, 0)),
    ],
)
def test_repetitions(ids, copies):
    assert repeated_tokens(list(map(ord, ids))) == copies


def test_judgements():
    plain = {"ended": True, "text": "x", "score": -1.23456}
    assert judged([5, 6, 2], [7], **plain) == Judgement(-1.2346, 2, 0.5)
    assert judged([5, 2], [7, 8] * 4, **plain) == Judgement(-1.2346, 1, 8.0, repeats=True)
    # Four copies are many, and three are not.
    assert judged([5, 2], [6, 7, 7, 7, 7, 7], **plain).repeats
    assert not judged([5, 2], [6, 7, 7, 7, 7], **plain).repeats
    assert judged([5, 6, 7, 2], [7], **plain).length_ratio == 0.3333
    # A source that is only its end.
    assert judged([2], [7], **plain) == Judgement(-1.2346, 1, 1.0)
    # As its source does.
    assert judged([*[5, 6] * 4, 2], [7, 8] * 4, **plain) == Judgement(-1.2346, 8, 1.0)
    assert judged([5, 2], [7], **{**plain, "ended": False}).limit_reached
    assert judged([5, 2], [], **{**plain, "text": " "}).empty
    assert judged([5] * 20 + [2], [7] * 2, **plain).too_short
    # Ten tokens are long, and three are less than 0.4 of them.
    assert judged([*range(10), 2], [7, 8, 9], **plain).too_short
    assert not judged([*range(10), 2], [7, 8, 9, 7], **plain).too_short
    assert not judged([*range(9), 2], [7, 8, 9], **plain).too_short
    assert not judged([5] * 5 + [2], [7], **plain).too_short


def test_signs_become_flags():
    def flags(text, **signs):
        judgement = judged([5, 2], [7], ended=True, text=text, score=-1.0, signs=Signs(**signs))
        return [name for name in ("copies", "adds_numbers", "other_script") if getattr(judgement, name)]

    assert flags("a b c d", copied=0.5) == ["copies"]
    assert flags("a b c d", copied=0.4) == []
    assert flags("a", new_numbers=["3"], missing_numbers=["4"]) == ["adds_numbers"]
    assert flags("a", missing_numbers=["4"]) == []
    assert flags("a", script="Cyrillic") == ["other_script"]


def test_reports_of_other_versions_are_read():
    """An earlier report has fewer fields, and a later one may have more."""
    old = {"line": 1, "score": -1.0, "limit_reached": False, "empty": True, "too_short": False, "repeats": False}
    assert faults([json.dumps(old)]) == "1 of 1 translations are marked: 1 empty. The first is of line 1."
    assert "1 of 2" in faults([json.dumps({**old, "empty": False, "strange": True}), json.dumps({**old, "line": 2})])
    new = {**Judgement(copies=True, adds_numbers=True).fields(), "line": 4}
    assert faults([json.dumps(new)]) == (
        "1 of 1 translations are marked: 1 copying their source, 1 with a number that their source lacks. "
        "The first is of line 4."
    )
    assert faults([json.dumps({**old, "empty": False})]) is None
    both = [json.dumps({**new, "line": line}) for line in (4, 7)]
    assert faults(both).endswith("2 with a number that their source lacks. The first is of line 4.")


def test_missing_terms_are_counted():
    terms = [{"state": state} for state in ("missing", "model", "missing", "forced")]
    lines = [json.dumps({"line": 1, "terms": terms}), json.dumps({"line": 2, "terms": terms[:1]})]
    assert faults(lines) == "3 terms of the glossary are missing."
    marked = faults([*lines, json.dumps({"line": 3, "empty": True})])
    assert (
        marked
        == "1 of 3 translations are marked: 1 empty. The first is of line 3. 3 terms of the glossary are missing."
    )
