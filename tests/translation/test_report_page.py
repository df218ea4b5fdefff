"""The page of a report: the worst first, everything in one file, and texts that are only shown."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_marian import save_tiny_marian

from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.quickstart import read_corpus
from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.generation.model_options import DecodingOptions
from hf_capsule_mt.translation.quality import report_page
from hf_capsule_mt.translation.quality.judge import Judgement
from hf_capsule_mt.translation.quality.report_page import write_report_page
from hf_capsule_mt.translation.quality.signals import Signals
from hf_capsule_mt.translation.text_translator import TextTranslator

CHECKPOINT = Path(__file__).parents[2] / "checkpoints" / "tatoeba-en-de-transformer"
HARMFUL = '</script><script>alert(1)</script><!-- <img src=x onerror="alert(1)"> &amp; \u2028 😀'


def record_of(number, source="a b", translation="x y", signals=None, **fields):
    """Return a line of a report."""
    judgement = Judgement(score=-0.5, source_length=2, length_ratio=1.0, signals=Signals(lowest=-1.0, coverage=0.8))
    place = {"line": number, "sentence": 1, "source": source, "translation": translation}
    return {**place, **judgement.fields(), **(signals or {}), **fields}


def page_of(tmp_path, records, title="de.po"):
    """Return the page of a report, and its data."""
    report = tmp_path / "report.jsonl"
    report.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    write_report_page([report], tmp_path / "report.html", title)
    return read(tmp_path / "report.html")


def read(path):
    page = path.read_text()
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return page, json.loads(data)


def plain(parts):
    return "".join(part if isinstance(part, str) else part[1] for part in parts)


class Plants(TextTranslator):
    """Reads another text instead of one sentence, and translates that."""

    instead = ("", "")

    def _decoded(self, decoder, sentences, *arguments):
        planted, other = self.instead
        read = []
        for sentence in sentences:
            if sentence.segment.text == planted:
                sentence = replace(sentence, token_ids=self.tokenizer(other)["input_ids"])
            read.append(sentence)
        return super()._decoded(decoder, read, *arguments)


@pytest.mark.parametrize("kind", ["another sentence", "a part is missing"])
def test_a_wrong_translation_among_three_hundred_is_first(tmp_path, kind):
    sources = [source for source, _ in read_corpus(300)]
    planted = max(sources[100:200], key=len)
    other = sources[250]
    if kind == "a part is missing":
        words = planted.split()
        other = " ".join(words[: len(words) // 2]) + "."
    entries = "".join(f'msgid "{source}"\nmsgstr ""\n\n' for source in sources)
    (tmp_path / "de.po").write_text(f'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n{entries}')
    translator = Plants(*DecodingOptions(str(CHECKPOINT)).load(torch.device("cpu")))
    translator.instead = planted, other
    report = tmp_path / "report.jsonl"
    translate_file(translator, tmp_path / "de.po", tmp_path / "out.po", "en", report_file=report, num_beams=1)
    write_report_page([report], tmp_path / "report.html", "de.po")
    _, data = read(tmp_path / "report.html")
    assert len(data["rows"]) == 300
    # Faults come first, rightly found or not.
    without_fault = [row for row in data["rows"] if set(data["faults"]).isdisjoint(row["kinds"])]
    assert len(without_fault) > 290
    first_places = [data["rows"][0], without_fault[0]]
    assert planted in [plain(row["source"]) for row in first_places]


def test_texts_are_harmless(tmp_path):
    """Whatever a file, a key or a translation has, the page has its own scripts only."""
    record = record_of(1, HARMFUL, HARMFUL, unit=HARMFUL, context=HARMFUL, file=HARMFUL)
    page, data = page_of(tmp_path, [{**record, "source": f"x {HARMFUL}"}], HARMFUL)
    assert page.count("<script") == page.count("</script>") == 2
    assert "<img" not in page
    assert "<!--" not in page
    [row] = data["rows"]
    assert (plain(row["source"]), plain(row["translation"])) == (f"x {HARMFUL}", HARMFUL)
    assert (row["unit"], row["context"], data["files"]) == (HARMFUL, HARMFUL, [HARMFUL])
    script = (Path(report_page.__file__).parent / "report_page.js").read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", script)


def test_nothing_is_loaded_and_no_other_script_runs(tmp_path):
    page, _ = page_of(tmp_path, [record_of(1)])
    assert not re.search(r"\b(?:src|href)=|url\(|@import|https?:", page)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'; ")
    for name, start in (("script", "<script>"), ("style", "<style>")):
        contents = page.partition(start)[2].partition(f"</{name}>")[0]
        digest = base64.b64encode(hashlib.sha256(contents.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy


def test_marks(tmp_path):
    """Places count characters, also behind one that JavaScript counts as two."""
    signals = {
        "uncovered": [{"word": "old", "start": 10, "end": 13}],
        "new_numbers": ["7"],
        "missing_numbers": ["3"],
        "lowest_word": "Haus",
    }
    record = record_of(
        1,
        "😀 %s, the old 3 dogs",
        "😀 %s, Haus 7 Hunde",
        signals,
        placeholders=[{"text": "%s", "start": 2, "end": 4, "state": "placed"}],
        terms=[
            {"source": "Dogs", "target": "Hund", "form": "Hunde", "state": "forced"},
            {"source": "the", "target": "die", "form": None, "state": "missing"},
        ],
    )
    _, data = page_of(tmp_path, [record])
    [row] = data["rows"]
    assert row["source"] == [
        *("😀 ", ["placeholder", "%s"], ", ", ["missing", "the"], " "),
        *(["uncovered", "old"], " ", ["number", "3"], " ", ["term", "dogs"]),
    ]
    assert row["translation"] == [
        *("😀 ", ["placed", "%s"], ", ", ["lowest", "Haus"], " ", ["number", "7"], " ", ["term", "Hunde"]),
    ]
    assert row["kinds"] == ["missing_term", "placed", "uncovered", "lacks_numbers"]
    assert row["missing"] == ["the → die"]


def test_order_of_faults(tmp_path):
    """What is certainly wrong comes before what may be right, such as a name that was copied."""
    records = [
        record_of(1),
        record_of(2, copies=True),
        record_of(3, left=True),
        record_of(4, terms=[{"source": "a", "target": "b", "form": None, "state": "missing"}], copies=True),
        record_of(5),
        # Neither is judged.
        record_of(6, "", ""),
        {**record_of(7), **Judgement().fields()},
    ]
    page, data = page_of(tmp_path, records)
    assert [row["line"] for row in data["rows"]] == [4, 3, 2, 1, 5, 7]
    assert "6 translations, 3 with a fault" in page
    counts = {kind["name"]: kind["count"] for kind in data["kinds"]}
    assert counts == {"left": 1, "copies": 2, "missing_term": 1}


def test_an_earlier_report_with_an_expected_quality(tmp_path):
    """Its other fields are shown."""
    earlier = {"quality": 62.0, "interval": [40.0, 80.0], "p_bad": 0.1, "low_coverage": True}
    page, data = page_of(tmp_path, [record_of(1, **earlier), record_of(2, copies=True)])
    assert [row["line"] for row in data["rows"]] == [2, 1]
    assert data["rows"][1]["score"] == -0.5
    assert earlier.keys().isdisjoint(data["rows"][1])
    assert "2 translations, 1 with a fault" in page


@pytest.mark.parametrize(
    "sign", [{"score": -3.0}, {"lowest": -9.0}, {"coverage": 0.1}, {"length_ratio": 0.2}, {"length_ratio": 5.0}]
)
def test_what_is_unlike_the_others_is_first(tmp_path, sign):
    records = [record_of(number, signals={"score": -0.5 - number / 100}) for number in range(1, 20)]
    records[10] |= sign
    _, data = page_of(tmp_path, records)
    assert data["rows"][0]["line"] == 11


def test_facts_come_before_scores(tmp_path):
    """However unlike the others a translation is, nobody knows that it is wrong."""
    records = [record_of(number, score=-0.5 - number / 100) for number in range(1, 20)]
    records[10] |= {"score": -99.0, "lowest": -99.0}
    records[4] |= {"copies": True}
    _, data = page_of(tmp_path, records)
    assert [row["line"] for row in data["rows"]][:2] == [5, 11]


def test_a_large_report_shows_its_worst(tmp_path, monkeypatch):
    monkeypatch.setattr(report_page, "MOST_ROWS", 2)
    records = [record_of(number, file="b.po" if number > 3 else "a.po") for number in range(1, 7)]
    records[4]["empty"] = records[1]["repeats"] = True
    page, data = page_of(tmp_path, records)
    assert [row["line"] for row in data["rows"]] == [5, 2]
    assert "6 translations, 2 with a fault. The page has the 2 worst." in page
    assert [data["files"][row["file"]] for row in data["rows"]] == ["b.po", "a.po"]


def test_an_empty_report(tmp_path):
    page, data = page_of(tmp_path, [])
    assert data["rows"] == []
    assert "0 translations, 0 with a fault" in page


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_tiny_marian(tmp_path_factory.mktemp("model")))


@pytest.mark.parametrize("options", [[], ["--documents", "en"]])
def test_the_command_writes_a_page_of_lines_and_documents(checkpoint, tmp_path, options):
    """The lines are next to it, unless they have a name."""
    (tmp_path / "in.txt").write_text("a b\n\nc d e\n")
    files = ["--input_file", str(tmp_path / "in.txt"), "--output_file", str(tmp_path / "out")]
    page = str(tmp_path / "report.html")
    main(["--model", checkpoint, *files, *options, "--report_page", page])
    _, data = read(tmp_path / "report.html")
    assert sorted(row["line"] for row in data["rows"]) == [1, 3]
    assert data["files"] == [str(tmp_path / "in.txt")]
    lines = (tmp_path / "report.jsonl").read_text()
    main(["--model", checkpoint, *files, *options, "--report_page", page, "--report_file", str(tmp_path / "named")])
    assert (tmp_path / "named").read_text() == lines


def test_the_command_writes_a_page_of_many_files(checkpoint, tmp_path):
    (tmp_path / "a.md").write_text("# a b\n")
    (tmp_path / "en.json").write_text('{"key": "c d"}')
    inputs = ["--input_file", str(tmp_path / "a.md"), str(tmp_path / "en.json")]
    folder = ["--output_dir", str(tmp_path / "out"), "--report_page", str(tmp_path / "report.html")]
    main(["--model", checkpoint, "--documents", "en", *inputs, *folder])
    _, data = read(tmp_path / "report.html")
    assert sorted(Path(name).name for name in data["files"]) == ["a.md", "en.json"]
    assert {row.get("unit") for row in data["rows"]} == {None, "key"}


def test_a_page_that_is_another_file_is_refused(checkpoint, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("a\n")
    files = ["--input_file", str(tmp_path / "in.txt"), "--output_file", str(tmp_path / "out")]
    for options in (["--report_page", str(tmp_path / "out")], ["--report_page", str(tmp_path / "a.jsonl")]):
        with pytest.raises(SystemExit, match="2"):
            main(["--model", checkpoint, *files, *options])
        assert "another file of this command" in capsys.readouterr().err
