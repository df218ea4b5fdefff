"""What repeats is told from what does not, and flags are counted."""

import json

import pytest

from hf_capsule_mt.translation.quality import counts as counts_module
from hf_capsule_mt.translation.quality import faults as faults_module
from hf_capsule_mt.translation.quality import judge as judge_module
from hf_capsule_mt.translation.quality import report_page
from hf_capsule_mt.translation.quality.faults import FAULTS, Evidence, Fault, named_with_numbers, repeated_tokens
from hf_capsule_mt.translation.quality.judge import Judgement, judged
from hf_capsule_mt.translation.quality.report import summary
from hf_capsule_mt.translation.quality.report_page import write_report_page
from hf_capsule_mt.translation.quality.signals import Signals


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
    def judgement(source, target, text="x", **more):
        return judged(Evidence(source, target, text, **more), -1.23456)

    def faults(*evidence, **more):
        return judgement(*evidence, **more).faults

    assert judgement([5, 6, 2], [7]) == Judgement(-1.2346, 2, 0.5)
    assert judgement([5, 2], [7, 8] * 4) == Judgement(-1.2346, 1, 8.0, ("repeats",))
    # Four copies are many, and three are not.
    assert faults([5, 2], [6, 7, 7, 7, 7, 7]) == ("repeats",)
    assert faults([5, 2], [6, 7, 7, 7, 7]) == ()
    assert judgement([5, 6, 7, 2], [7]).length_ratio == 0.3333
    # A source that is only its end.
    assert judgement([2], [7]) == Judgement(-1.2346, 1, 1.0)
    # As its source does.
    assert judgement([*[5, 6] * 4, 2], [7, 8] * 4) == Judgement(-1.2346, 8, 1.0)
    assert faults([5, 2], [7], has_end=False) == ("limit_reached",)
    assert faults([5, 2], [], " ") == ("empty",)
    assert faults([5] * 20 + [2], [7] * 2) == ("too_short",)
    # Ten tokens are long, and three are less than 0.4 of them.
    assert faults([*range(10), 2], [7, 8, 9]) == ("too_short",)
    assert faults([*range(10), 2], [7, 8, 9, 7]) == ()
    assert faults([*range(9), 2], [7, 8, 9]) == ()
    assert faults([5] * 5 + [2], [7]) == ()
    assert faults([5, 2], [7], is_source_cut=True) == ("source_cut",)


def test_signals_become_faults():
    def faults(text, **signals):
        return judged(Evidence([5, 2], [7], text, signals=Signals(**signals)), -1.0).faults

    assert faults("a b c d", copied=0.5) == ("copies",)
    assert faults("a b c d", copied=0.4) == ()
    assert faults("a", new_numbers=["3"], missing_numbers=["4"]) == ("adds_numbers",)
    assert faults("a", missing_numbers=["4"]) == ()
    assert faults("a", script="Cyrillic") == ("other_script",)


def test_a_fault_of_the_table_is_everywhere(monkeypatch, tmp_path):
    """In a report, its page, the numbers of rows, and the words of commands."""
    shouts = Fault("shouts", "shouts", "shouting", lambda evidence: evidence.text.isupper())
    more = (*FAULTS, shouts)
    for module in (faults_module, judge_module, report_page):
        monkeypatch.setattr(module, "FAULTS", more)
    monkeypatch.setattr(counts_module, "COUNTED", (*counts_module.COUNTED, "shouts"))

    loud = judged(Evidence([5, 2], [7], "HELLO"), -1.0).fields()
    quiet = judged(Evidence([5, 2], [7], "hello"), -1.0).fields()
    assert (loud["shouts"], quiet["shouts"]) == (True, False)

    texts = {"source": "hallo", "translation": "HELLO", "sentence": 1}
    lines = [json.dumps({**texts, **fields, "line": line}) for line, fields in enumerate((quiet, loud), 1)]
    assert summary(lines) == "1 of 2 translations are marked: 1 shouting. The first is of line 2."

    (tmp_path / "report.jsonl").write_text("\n".join(lines))
    write_report_page([tmp_path / "report.jsonl"], tmp_path / "page.html", "title")
    page = (tmp_path / "page.html").read_text()
    assert '{"name":"shouts","words":"shouts","count":1}' in page
    assert "2 translations, 1 with a fault" in page

    counts = counts_module.RowCounts({"segments": 1, "shouts": 1}) + counts_module.RowCounts({"segments": 1})
    assert (counts["segments"], counts["shouts"]) == (2, 1)
    assert named_with_numbers(counts) == "1 shouting"


def test_reports_of_other_versions_are_read():
    """An earlier report has fewer fields, and a later one may have more."""
    old = {"line": 1, "score": -1.0, "limit_reached": False, "empty": True, "too_short": False, "repeats": False}
    assert summary([json.dumps(old)]) == "1 of 1 translations are marked: 1 empty. The first is of line 1."
    assert "1 of 2" in summary([json.dumps({**old, "empty": False, "strange": True}), json.dumps({**old, "line": 2})])
    new = {**Judgement(faults=("copies", "adds_numbers")).fields(), "line": 4}
    assert summary([json.dumps(new)]) == (
        "1 of 1 translations are marked: 1 copying their source, 1 with a number that their source lacks. "
        "The first is of line 4."
    )
    assert summary([json.dumps({**old, "empty": False})]) is None
    both = [json.dumps({**new, "line": line}) for line in (4, 7)]
    assert summary(both).endswith("2 with a number that their source lacks. The first is of line 4.")


def test_missing_terms_are_counted():
    terms = [{"state": state} for state in ("missing", "model", "missing", "forced")]
    lines = [json.dumps({"line": 1, "terms": terms}), json.dumps({"line": 2, "terms": terms[:1]})]
    assert summary(lines) == "3 terms of the glossary are missing."
    marked = summary([*lines, json.dumps({"line": 3, "empty": True})])
    assert (
        marked
        == "1 of 3 translations are marked: 1 empty. The first is of line 3. 3 terms of the glossary are missing."
    )
