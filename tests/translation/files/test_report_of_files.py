"""The report of a file with a format: a line for each sentence, with the name of its unit in the file."""

import json
from pathlib import Path

import pytest
from stand_in_translator import UpperCase, Writes
from tiny_marian import save_tiny_marian

from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.translation.files import sources, translate_file
from hf_capsule_mt.translation.files.journal import Journal
from hf_capsule_mt.translation.text_translator import TextTranslator

CATALOGUE = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgctxt "menu"
msgid "a dog. b dog."
msgstr ""

msgid "hello %s"
msgstr ""
"""
FILES = {
    "de.po": (
        CATALOGUE,
        [
            (4, "a dog. b dog.", "menu", 1, "a dog.", "A DOG."),
            (4, "a dog. b dog.", "menu", 2, "b dog.", "B DOG."),
            (8, "hello %s", None, 1, "hello %s", "HELLO %s"),
        ],
    ),
    "a.xlf": (
        '<xliff version="1.2"><file original="a.c"><body>\n<trans-unit id="t1"><source>a <g id="1">dog</g> b</source>'
        "</trans-unit></body></file></xliff>",
        [(2, "t1", "a.c", 1, "a dog b", "A DOG B")],
    ),
    "strings.xml": (
        '<resources>\n<string-array name="dogs"><item>a &amp; b</item></string-array></resources>',
        [(2, "dogs[0]", None, 1, "a & b", "A & B")],
    ),
    "en.json": ('{"menu":\n{"dog": "a dog"}}', [(2, "menu.dog", None, 1, "a dog", "A DOG")]),
    "messages.properties": ("# note\ndog.name=a dog\n", [(2, "dog.name", None, 1, "a dog", "A DOG")]),
    "a.srt": (
        "3\n00:00:01,000 --> 00:00:02,000\na dog\n\n4\n00:00:02,000 --> 00:00:03,000\nb c.\n",
        [(3, "3 to 4", "00:00:01,000", 1, "a dog b c.", "A DOG B C.")],
    ),
    "a.md": (
        "# a\n\nb `x` dog. big dog. ![f g](f.png)\n",
        [
            (1, None, None, 1, "a", "A"),
            (3, None, None, 1, "b x dog.", "B x DOG."),
            (3, None, None, 2, "big dog.", "BIG DOG."),
            (3, None, None, 3, "f g", "F G"),
        ],
    ),
    "a.html": (
        '<!doctype html>\n<p>a <b>dog</b>. b.</p>\n<p><img alt="c d"></p>\n<p>e.</p>\n',
        [
            (2, None, None, 1, "a dog.", "A DOG."),
            (2, None, None, 2, "b.", "B."),
            (3, "alt", None, 1, "c d", "C D"),
            (4, None, None, 1, "e.", "E."),
        ],
    ),
}


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", FILES)
def test_units(tmp_path, name):
    content, expected = FILES[name]
    (tmp_path / name).write_text(content)
    translate_file(UpperCase(), tmp_path / name, tmp_path / "out", "en", report_file=tmp_path / "report")
    found = records(tmp_path / "report")
    assert {record["file"] for record in found} == {str(tmp_path / name)}
    names = ("line", "unit", "context", "sentence", "source", "translation")
    assert [tuple(record[name] for name in names) for record in found] == expected
    assert not any(record["left"] for record in found)


def test_lines_of_sentences_in_markdown(tmp_path):
    page = (
        "---\ntitle: a\n---\n# A dog\n\nA cat. It\nruns. B\nis here.  \nLate ![an image](x).\nC.\n\n"
        "> [!NOTE]\n> D is\n> here. E.\n"
    )
    (tmp_path / "a.md").write_text(page)
    translate_file(UpperCase(), tmp_path / "a.md", tmp_path / "b.md", "en", report_file=tmp_path / "report")
    found = [(record["line"], record["source"]) for record in records(tmp_path / "report")]
    assert found == [
        (2, "a"),
        (4, "A dog"),
        (6, "A cat."),
        (6, "It runs."),
        (7, "B is here."),
        (9, "Late ."),
        (9, "an image"),
        (10, "C."),
        (13, "D is here."),
        (14, "E."),
    ]


def test_placeholders(tmp_path):
    """A model copies some, and others are put next to the words that belong to theirs."""
    (tmp_path / "de.po").write_text(CATALOGUE)
    files = tmp_path / "de.po", tmp_path / "out", "en"
    for translator, state in ((UpperCase(), "model"), (Writes("x y"), "placed")):
        translate_file(translator, *files, report_file=tmp_path / "report")
        *others, record = records(tmp_path / "report")
        assert record["placeholders"] == [{"text": "%s", "start": 6, "end": 8, "state": state}]
        assert "%s" in record["translation"]
        assert not any("placeholders" in other for other in others)


def test_subtitles_that_are_too_fast(tmp_path):
    cues = "1\n00:00:00,000 --> 00:00:02,000\na dog.\n\n2\n00:00:02,000 --> 00:00:02,500\nb c\n\n"
    (tmp_path / "a.srt").write_text(f"{cues}3\n00:00:02,500 --> 00:00:12,500\nlate. e f.\n")
    translate_file(UpperCase(), tmp_path / "a.srt", tmp_path / "b.srt", "en", report_file=tmp_path / "r")
    found = [(record["translation"], record["characters_per_second"]) for record in records(tmp_path / "r")]
    assert found == [
        ("A DOG.", 3.0),
        # Both sentences share two cues, of which the first one is shown for half a second.
        ("B C LATE.", 6.0),
        ("E F.", 6.0),
    ]


def test_what_is_left_is_marked(tmp_path):
    """The first message would get a placeholder. In the second one the model's is replaced."""
    (tmp_path / "de.po").write_text(CATALOGUE)
    translate_file(Writes("x %d"), tmp_path / "de.po", tmp_path / "out", "en", report_file=tmp_path / "report")
    assert [record["left"] for record in records(tmp_path / "report")] == [True, True, False]


def test_the_command_judges_and_warns(tmp_path, caplog):
    """The model reads the translations again, as for lines."""
    (tmp_path / "en.json").write_text('{"first": "a b", "second": "{x} c d", "third": "e f g h i j k l m n"}')
    model = str(save_tiny_marian(tmp_path / "model"))
    files = ["--input_file", str(tmp_path / "en.json"), "--output_file", str(tmp_path / "out.json")]
    main(["--model", model, "--documents", "en", *files, "--report_file", str(tmp_path / "report")])
    found = records(tmp_path / "report")
    assert [record["unit"] for record in found] == ["first", "second", "third"]
    assert all(record["score"] < 0 and 0 < record["coverage"] <= 1 for record in found)
    marked = [record for record in found if record["limit_reached"]]
    assert marked
    assert f"The first is of line 1 of {tmp_path / 'en.json'}." in caplog.text
    written = json.loads((tmp_path / "out.json").read_text())
    for record in found:
        assert written[record["unit"]] == record["translation"]


def test_a_report_is_resumed_with_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_GROUP", 1)
    (tmp_path / "a.md").write_text("# a b\n\nc d. e f.\n\ng h\n\ni `x` j\n")
    model = str(save_tiny_marian(tmp_path / "model"))

    def translate(name):
        outputs = ["--output_file", str(tmp_path / f"{name}.md"), "--report_file", str(tmp_path / f"{name}.jsonl")]
        main(["--model", model, "--documents", "en", "--input_file", str(tmp_path / "a.md"), *outputs])
        return Path(outputs[1]).read_text(), Path(outputs[3]).read_text()

    whole = translate("whole")
    decode = TextTranslator.decode_batches
    decoded = []

    def interrupt(self, sentences, *arguments, **options):
        if len(decoded) == 2:
            raise KeyboardInterrupt
        decoded.append(len(sentences))
        return decode(self, sentences, *arguments, **options)

    monkeypatch.setattr(TextTranslator, "decode_batches", interrupt)
    with pytest.raises(KeyboardInterrupt):
        translate("out")
    assert not (tmp_path / "out.jsonl").exists()
    decoded.clear()
    # Two of four texts are left.
    assert translate("out") == whole
    assert decoded == [1, 1]
    assert not (tmp_path / "out.md.unfinished").exists()


def test_another_report_than_that_of_the_interrupted_run_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.md").write_text("a b\n")
    model = str(save_tiny_marian(tmp_path / "model"))
    common = ["--model", model, "--documents", "en", "--input_file", str(tmp_path / "a.md")]
    common += ["--output_file", str(tmp_path / "b.md")]
    write = Journal.append
    monkeypatch.setattr(Journal, "append", lambda *arguments: write(*arguments) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(common)
    monkeypatch.undo()
    with pytest.raises(SystemExit, match="2"):
        main([*common, "--report_file", str(tmp_path / "report")])
    assert "is of an interrupted run with another report_file" in capsys.readouterr().err
