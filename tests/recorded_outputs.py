"""Record what the package gives, and compare it after a change of the code that must change no output.

    python tests/recorded_outputs.py record before.json
    python tests/recorded_outputs.py compare before.json

`compare` records again, prints each output that differs, old above new, and ends with status 1 if there is one. Only
`--only NAME` is recorded or compared if it is given: the parts whose name contains it, such as `command` or
`tatoeba-en-de-transformer/pipeline`. Both take under three minutes of one core, and need no network.

The four checkpoints translate texts that stand here, through public doors only:

* pipeline: with 1 and 4 beams, scores, n-best translations, alignments, token ids, tags, kept parts, documents, a
  glossary, int8, Transformers' own search, texts that are too long.
* command: `translate` on lines, sentences, documents, tags, every file format, rows of JSONL and Parquet, with reports,
  n-best translations, alignments, a glossary, int8.
* folder: `translate` on many files into a folder, with a report, a second time, and with changed files. Then on inputs
  of every kind, again after its process was killed.
* server: `serve` with texts, HTML, alternatives and files by LibreTranslate's protocol, and with texts, tags, documents
  and glossaries by DeepL's.

The file has a hash and the beginning of each output, and a refusal counts as an output. Decimals are rounded to four
places. Other machines and versions of PyTorch round in another way, so compare on one machine.
"""

import argparse
import contextlib
import hashlib
import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

# Before PyTorch is imported: with more threads sums are rounded in another way.
os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"
TRANSFORMER = "tatoeba-en-de-transformer"
FRENCH = "tatoeba-en-fr-transformer"
MODELS = (TRANSFORMER, FRENCH, "tatoeba-en-de-em-routing", "tatoeba-en-de-rnmt-gdr")
PREVIEW = 2000
"""Characters of an output that are kept for people."""
SHOWN = 200
"""Characters of them that are shown around the first difference."""
DECIMALS = 4
CHANGING = (
    *("glossary_id", "creation_time", "document_id", "document_key", "seconds_remaining", "seconds"),
    *("translatedFileUrl", "version"),
)
"""Fields of answers that are new at each call."""
SECONDS = re.compile(r"\d+\.\d seconds")

SENTENCES = [
    "I like music.",
    "The house is old.",
    "Where did you buy that coat?",
    "Tom doesn't know what Mary wants to eat for dinner.",
    "He has been waiting for the train at the station for two hours.",
    "My brother sold his car, and bought a bicycle.",
    "Three men were playing in a concert.",
    "The teacher gave the children a book about animals.",
    "What time is it?",
    "It is half past eight.",
    "Don't forget your umbrella!",
    "She speaks English, French and a little German.",
    "If it rains tomorrow, we will stay at home.",
    "The old dog sleeps under the table because the cat took his place.",
    "I have never seen such a beautiful garden.",
    "Please close the window.",
    "How many languages do you speak?",
    "The printer in the kitchen doesn't work.",
    "We have to leave now, or we'll miss the bus.",
    "This book is more interesting than that one.",
    "Yes.",
    "No!",
    "Thank you very much.",
    "The children are playing in the park.",
    "You should see a doctor.",
    "My father works in a hospital in Berlin.",
    "I would have helped you if you had asked me.",
    "The meeting begins at 9:30 on 12 May 2021.",
    "It costs $5.99, not 6 euros.",
    "100% of 1,000 people said “yes”.",
    "Mr. Smith isn't here. He left an hour ago.",
    "Who wrote this letter? I can't read it.",
    "Rock & roll is < jazz, he said.",
    "See https://example.org/a_b?c=1 or write to tom@example.org.",
    "The files are in C:\\Users\\tom and /home/tom.",
    "HELLO WORLD",
    "hello world",
    "the sun is shining",
    "Tom and Mary, who have been married for ten years, live in a small house near the river with their two children.",
    "When I was a child, I used to go fishing in the river with my grandfather, who told me stories about the war.",
    "Although he was very tired after the long journey, he helped his sister with her homework until late at night.",
    "The more he learned, the less he believed that he knew anything at all about the world and its people.",
    "word word word word word word word word word word",
    "Pneumonoultramicroscopicsilicovolcanoconiosis is a long word.",
    "naïve café Übung señor",
    "Привет, мир!",
    "日本語の文です。",
    "🐕 likes 🍎.",
    "",
    " ",
    "1984",
    "3.14159",
    "...",
    "?!",
    "a",
    "  The dog   runs.\t",
    "The first sentence. The second one! And the third?",
    "- a point of a list",
    "(He smiled.)",
    "\u201cCome here,\u201d she said, \u201cand sit down.\u201d",
]
LONG = "The old dog sleeps under the table and the cat sleeps on the sofa near the window. " * 60
TAGGED = [
    "The <b>old</b> house is <i>green</i>.",
    "<p>Where did you buy <a href='x.html'>that coat</a>?</p><p>I like music.</p>",
    "He sold his car<sup>1</sup> and bought a <code>bicycle()</code>.",
    "Rock &amp; roll is &lt; jazz, he said.",
    "<ul><li>One dog</li><li>Two <b>cats</b></li></ul>",
    "It is <b>half past <i>eight</i></b>.<br/>Thank you.",
    "Press <img src='a.png' alt='a button'/> to <span class='notranslate'>Start</span> the car.",
    "Don&#39;t forget your&nbsp;<b>umbrella</b>!",
    "<b>Hello</b>",
    "<!-- comment -->The dog <b></b>runs.",
    "The <x id='1'/>dog <g id='2'>sleeps</g><x id='3'/>.",
    "Tom &copy; 2021 <b>3.14</b>",
    "Not <b>closed",
    "No tags at all.",
]
KEPT = [
    "Hello {name}, you have {count} new messages.",
    "The file {file} was not found.",
    "{a}",
    "{a} {b} and {c}",
    "Copy {source}to{target}.",
]
KEEP = r"\{\w+\}"
DOCUMENTS = [
    "The house is old. It stands near the river.\nNobody lives there now.\n\n"
    "Mr. Smith bought it in 1984. He paid $5,000 for it!\n\n\n  * one dog\n  * two cats\n",
    f"{LONG}\n\n{LONG[:1000]}",
    "",
    "\n\n",
    "One sentence",
]
PAGE = (
    "<!DOCTYPE html>\n<html lang='en'><head><title>The old house</title><style>b { color: red }</style></head>\n"
    "<body><h1>My <b>dog</b></h1><p>The dog <a href='x.html' title='a green tree'>sleeps under</a> the table. "
    "It is old &amp; tired.</p>\n<p translate='no'>stays</p><table><tr><td>one cat</td><td>3.14</td></tr></table>\n"
    "<img alt='a black cat'><script>var a = '<p>stays</p>';</script></body></html>\n"
)
FILES = {
    "page.html": PAGE,
    "page.md": "---\ntitle: stays\n---\n# My *dog*\n\nThe **old** dog [sleeps](x.html) under the `table`.\n\n"
    "* one cat\n* two ~~cats~~ dogs\n\n> He said yes.\n\n| animal | place |\n|---|---|\n| the cat | *the sofa* |\n\n"
    "```python\nstays = 1\n```\n\nTitle of a part\n---------------\n\nSee ![a green tree](a.png) here.\n",
    "film.srt": "1\n00:00:01,000 --> 00:00:02,500\nWhere did you buy\nthat coat?\n\n"
    "2\n00:00:03,000 --> 00:00:04,000\n<i>I like music.</i>\n\n3\n00:00:05,000 --> 00:00:06,000\nIt is\n\n"
    "4\n00:00:06,000 --> 00:00:07,000\nhalf past eight.\n",
    "film.vtt": "WEBVTT\n\nNOTE stays\n\n00:01.000 --> 00:02.500 align:start\n<v Tom>Where did you buy that coat?\n\n"
    "two\n00:03.000 --> 00:04.000\nI like &amp; buy music.\n",
    "messages.po": 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    '"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n#: a.c:1\n#, c-format\nmsgid "The file %s was not found.\\n"\n'
    'msgstr ""\n\nmsgid "The dog sleeps."\nmsgstr "fertig"\n\nmsgid "one cat"\nmsgid_plural "%d cats"\nmsgstr[0] ""\n'
    'msgstr[1] ""\n',
    "units.xlf": '<?xml version="1.0" encoding="UTF-8"?>\n<xliff version="1.2" '
    'xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" source-language="en" target-language="de" '
    'datatype="plaintext"><body>\n<trans-unit id="1"><source>The <g id="1">old</g> dog<x id="2"/> sleeps.</source>'
    '</trans-unit>\n<trans-unit id="2"><source>done</source><target>fertig</target></trans-unit>\n'
    "</body></file></xliff>\n",
    "en.json": '{\n  "title": "My dog",\n  "menu": {"open": "Open {{file}}", "n": 5},\n  "late": "It is late."\n}\n',
    "strings.xml": '<?xml version="1.0" encoding="utf-8"?>\n<resources>\n'
    '    <string name="a">It\\\'s an old dog.</string>\n'
    '    <string name="b">Hello <b>%1$s</b>!</string>\n    <string name="c" translatable="false">stays</string>\n'
    '    <plurals name="d"><item quantity="one">%d cat</item><item quantity="other">%d cats</item></plurals>\n'
    "</resources>\n",
    "app_en.properties": "# stays\ntitle = My dog\nfound = The file {0} wasn''t found.\n"
    "long = The old dog \\\n  sleeps.\n",
}
FORMATS = {"en.json": "i18next", "app_en.properties": "properties"}
"""The formats of files whose names do not tell it."""
TERMS = {
    "de": {"dog": "Hund|Hunde|Tier", "coat": "Jacke", "house": "Gebäude", "music": "Tonkunst", "cat": "Kater"},
    "fr": {"dog": "chien|chiens|clébard", "coat": "veste", "house": "bâtisse", "music": "musiques", "cat": "matou"},
}
WITH_TERMS = [
    "Where did you buy that coat?",
    "The old dog sleeps under the table because the cat took his place.",
    "I like music.",
    "The house is old.",
    "A dog and a dog.",
    "No term stands in this sentence.",
]


class Recorder:
    """Collects outputs by the name of their case."""

    def __init__(self) -> None:
        self.outputs: dict[str, list[dict[str, str]]] = {}

    def add(self, name: str, call: Callable[[], Any]) -> None:
        """Record what a call returns: an output, or a list of them. An error is an output."""
        print(f"{time.process_time():6.1f} s  {name}", file=sys.stderr, flush=True)
        try:
            with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(io.StringIO()):
                outputs = call()
        except SystemExit as error:
            outputs = f"exit {error.code}: {_refusal(errors.getvalue())}"
        except Exception as error:
            outputs = f"{type(error).__name__}: {error}"
        if not isinstance(outputs, list):
            outputs = [outputs]
        self.outputs[name] = [_entry(output) for output in outputs]


def _refusal(errors: str) -> str:
    lines = [line for line in errors.splitlines() if "error" in line.lower()]
    return lines[-1] if lines else ""


def _entry(output: Any) -> dict[str, str]:
    text = json.dumps(_comparable(output), ensure_ascii=False, sort_keys=True)
    return {"hash": hashlib.sha256(text.encode()).hexdigest()[:16], "preview": text[:PREVIEW]}


def _comparable(value: Any) -> Any:
    """Return an output as plain data, with rounded decimals and without what is new at each call."""
    if isinstance(value, dict):
        return {name: _comparable(item) for name, item in value.items() if name not in CHANGING}
    if isinstance(value, (list, tuple)):
        return [_comparable(item) for item in value]
    if hasattr(value, "tolist"):
        return _comparable(value.tolist())
    if isinstance(value, float):
        return round(value, DECIMALS) + 0.0
    if isinstance(value, str):
        # Messages name files in a folder that is new at each call.
        return SECONDS.sub("SECONDS", re.sub(r"\S*recorded_outputs_\w+/", "FOLDER/", value))
    return value


def _target_language(model: str) -> str:
    return "fr" if model == FRENCH else "de"


def _write_glossary(folder: Path, model: str) -> Path:
    file = folder / "terms.tsv"
    terms = TERMS[_target_language(model)]
    file.write_text("".join(f"{source}\t{target}\n" for source, target in terms.items()))
    return file


# The pipeline.


def record_pipeline(recorder: Recorder, model: str, folder: Path) -> None:
    """Record what a pipeline returns."""
    import hf_capsule_mt

    glossary = str(_write_glossary(folder, model))
    translator = hf_capsule_mt.pipeline(CHECKPOINTS / model, device="cpu")

    def add(name: str, texts: list[str], **options: Any) -> None:
        options = {"batch_size": 8, **options}
        recorder.add(f"{model}/pipeline/{name}", lambda: translator(texts, **options))

    add("plain", SENTENCES, return_scores=True)
    add("one text at a time", SENTENCES[:8], batch_size=1)
    add("one beam", SENTENCES, num_beams=1)
    add("three of six beams", SENTENCES[:12], num_beams=6, num_return_sequences=3, return_scores=True)
    add("alignments", SENTENCES[:20], return_alignments=True)
    add("token ids", SENTENCES[:8], return_tensors=True)
    add("length penalty and limit", SENTENCES[:8], length_penalty=0.2, max_new_tokens=12)
    add("transformers", SENTENCES[:6], engine="transformers", return_scores=True)
    add("too long", [LONG])
    add("cut", [LONG], truncation=True, num_beams=1)
    add("kept parts", KEPT, keep=KEEP)
    add("documents", DOCUMENTS, documents="en", num_beams=1)
    for number, text in enumerate(TAGGED):
        add(f"tags {number:02}", [text], tags=True)
    add("tags and kept parts", [f"<p>{text}</p>" for text in KEPT], tags=True, keep=KEEP)
    add("page", [PAGE], tags=True, documents="en")
    for num_beams in (1, 4, 8):
        add(f"glossary, {num_beams} beams", WITH_TERMS, glossary=glossary, num_beams=num_beams)
    add("glossary and tags", ["The <b>dog</b> sleeps in the <i>house</i>."], glossary=glossary, tags=True)
    add("glossary and scores", WITH_TERMS[:3], glossary=glossary, return_scores=True)
    in_int8 = hf_capsule_mt.pipeline(CHECKPOINTS / model, device="cpu", dtype="int8")
    recorder.add(f"{model}/pipeline/int8", lambda: in_int8(SENTENCES[:20], batch_size=8, return_scores=True))


# The command.


def record_command(recorder: Recorder, model: str, folder: Path) -> None:
    """Record what the command `translate` writes."""
    from hf_capsule_mt.cli import translate

    glossary = str(_write_glossary(folder, model))
    numbers = itertools.count()

    def run(contents: str | bytes, name: str, options: tuple[str, ...], outputs: tuple[str, ...]) -> list[Any]:
        place = folder / f"{model}{next(numbers)}"
        place.mkdir()
        source = place / name
        source.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        of_files = [str(place / option[1:]) if option.startswith("@") else option for option in options]
        fixed = ["--model", str(CHECKPOINTS / model), "--device", "cpu", "--input_file", str(source)]
        translate.main([*fixed, *of_files])
        read: list[Any] = []
        for output in outputs:
            read += _outputs(place / output)
        return read

    def add(name: str, contents: str | bytes, *options: str, file: str = "in.en", more: tuple[str, ...] = ()) -> None:
        output = f"out{''.join(Path(file).suffixes)}"
        asked = ("--output_file", f"@{output}", *options)
        recorder.add(f"{model}/command/{name}", lambda: run(contents, file, asked, (output, *more)))

    def add_rows(name: str, contents: str | bytes, *options: str, file: str) -> None:
        asked = ("--output_dir", "@out", *options)
        recorder.add(f"{model}/command/{name}", lambda: run(contents, file, asked, (f"out/{file}",)))

    lines = "".join(f"{sentence}\n" for sentence in SENTENCES)
    few = "".join(f"{sentence}\n" for sentence in SENTENCES[:12])
    report = ("--report_file", "@report.jsonl")
    add("lines with a report", lines, *report, "--chunk_size", "25", more=("report.jsonl",))
    add("int8", few, "--dtype", "int8")
    add("tags with a report", _lines(TAGGED[:11]), "--tags", *report, more=("report.jsonl",))
    add("page.html", PAGE, "--documents", "en", file="page.html")
    rows = _rows_of_json()
    add_rows("rows of JSONL", rows, "--sentences", "en", "--report_column", "report", file="rows.jsonl")
    if model not in (TRANSFORMER, FRENCH):
        return
    for file, contents in FILES.items():
        if file != "page.html":
            named = ("--format", FORMATS[file]) if file in FORMATS else ()
            add(file, contents, "--documents", "en", *named, file=file)
    add("file with a glossary", FILES["page.md"], "--documents", "en", "--glossary", glossary, file="page.md")
    terms = ("--glossary", glossary, *report)
    add("glossary with a report", _lines(WITH_TERMS), *terms, more=("report.jsonl",))
    add("document", DOCUMENTS[0], "--documents", "en", *report, more=("report.jsonl",))
    add("sentences", few + "One dog. Two cats.\n", "--sentences", "en")
    add("kept parts", _lines(KEPT), "--keep", KEEP)
    add("tags in a document", PAGE, "--documents", "en", "--tags", "--format", "lines", file="page.html")
    add("n-best", few, "--n_best", "3")
    add("alignments", few, "--alignments", "@links.jsonl", more=("links.jsonl",))
    add("alignments of Pharaoh", few, "--alignments", "@links.txt", "--num_beams", "1", more=("links.txt",))
    add("transformers", few, "--engine", "transformers", "--max_new_tokens", "12", "--length_penalty", "0.5")
    add("tags that are not closed", _lines(TAGGED), "--tags")
    add("bytes that are no text", b"The dog runs.\n\xff\n")
    add_rows("rows of Parquet", _rows_of_parquet(), "--num_beams", "1", file="rows.parquet")
    add_rows("files of text", few, "--num_beams", "1", file="a.txt")


def _lines(texts: Iterable[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def _table() -> dict[str, list[Any]]:
    texts = [*SENTENCES[:6], "", "The house is old. It stands near the river.\n\nI like music.", SENTENCES[33]]
    return {"id": list(range(len(texts))), "text": texts}


def _rows_of_json() -> str:
    table = _table()
    return _lines(json.dumps({"id": number, "text": text}) for number, text in zip(table["id"], table["text"]))


def _rows_of_parquet() -> bytes:
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(_table()), file)
    return file.getvalue()


def _outputs(file: Path) -> list[Any]:
    """Return the lines or rows of a file, so that each is compared by itself."""
    if file.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(file).to_pylist()
    lines = file.read_bytes().decode().split("\n")
    return [json.loads(line) if line and file.suffix == ".jsonl" else line for line in lines]


# The command with a folder, and after its end by kill -9.

KILLED = """
import os, signal, sys
from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.translation.text_translator import TextTranslator

def decode_batches(self, *arguments, **options):
    for batch in original(self, *arguments, **options):
        if not remaining:
            os.kill(os.getpid(), signal.SIGKILL)
        remaining.pop()
        yield batch

original = TextTranslator.decode_batches
remaining = [None] * int(sys.argv[1])
TextTranslator.decode_batches = decode_batches
main(sys.argv[2:])
"""
"""A program that runs the command until so many batches are decoded, and is killed then."""


def record_folders(recorder: Recorder, model: str, folder: Path) -> None:
    """Record what the command `translate` makes of many files, and what it makes of them after it was killed."""
    from hf_capsule_mt.cli import translate

    if model != TRANSFORMER:
        return
    fixed = ["--model", str(CHECKPOINTS / model), "--device", "cpu"]

    def run(*options: Any) -> list[str]:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            try:
                translate.main([*fixed, *map(str, options)])
            except SystemExit as error:
                said.write(f"exit {error.code}\n")
        return said.getvalue().splitlines()

    def kill(num_batches: int, *options: Any) -> None:
        command = [sys.executable, "-c", KILLED, str(num_batches), *fixed, *map(str, options)]
        process = subprocess.run(command, capture_output=True, check=False)
        assert process.returncode == -signal.SIGKILL, process.stderr.decode()

    def add(name: str, call: Callable[[Path], list[Any]]) -> None:
        place = folder / name.replace(" ", "_")
        place.mkdir()
        recorder.add(f"{model}/folder/{name}", lambda: call(place))

    def formats(place: Path) -> tuple[Any, ...]:
        """Write files of formats, and return the options that translate them."""
        files = place / "in"
        for file, contents in {**FILES, "part/text.txt": DOCUMENTS[0]}.items():
            (files / file).parent.mkdir(parents=True, exist_ok=True)
            (files / file).write_text(contents)
        report = ("--report_file", place / "report.jsonl")
        return ("--documents", "en", "--input_file", files / "**/*", "--output_dir", place / "out", *report)

    def of_formats(place: Path) -> list[Any]:
        said = run(*formats(place))
        return [*said, *_tree(place / "out"), *_outputs(place / "report.jsonl")]

    def again(place: Path) -> list[Any]:
        options = formats(place)
        run(*options)
        (place / "in/page.md").write_text(f"{FILES['page.md']}\nThe dog runs.\n")
        (place / "in/broken.po").write_bytes(b"\xff\xfe")
        said = run(*options)
        return [*said, *_tree(place / "out"), *run(*options)]

    def changed_by_hand(place: Path) -> list[Any]:
        options = formats(place)
        run(*options)
        page = place / "out/page.md"
        page.write_text(page.read_text().replace("Hund", "Dackel"))
        (place / "in/page.md").write_text(f"{FILES['page.md']}\nThe dog runs.\n")
        return [*run(*options), *_tree(place / "out")]

    def killed_formats(place: Path) -> list[Any]:
        options = formats(place)
        kill(4, *options)
        return [*run(*options), *_tree(place / "out"), *_outputs(place / "report.jsonl")]

    def killed_lines(place: Path) -> list[Any]:
        (place / "in.en").write_text(_lines(SENTENCES))
        output = ("--output_file", place / "out.de", "--report_file", place / "report.jsonl")
        options = ("--input_file", place / "in.en", *output, "--chunk_size", "7", "--max_tokens_per_batch", "64")
        kill(5, *options)
        run(*options)
        return [*_outputs(place / "out.de"), *_outputs(place / "report.jsonl")]

    def killed_document(place: Path) -> list[Any]:
        (place / "in.en").write_text(DOCUMENTS[0] * 5)
        options = ("--documents", "en", "--input_file", place / "in.en", "--output_file", place / "out.de")
        options = (*options, "--chunk_size", "5")
        kill(2, *options)
        run(*options)
        return _outputs(place / "out.de")

    def killed_page(place: Path) -> list[Any]:
        # Equal sentences would be decoded once.
        more = "".join(f"<p>The dog runs {number} times.</p>" for number in range(200))
        (place / "in.html").write_text(PAGE.replace("</body>", f"{more}</body>"))
        options = ("--documents", "en", "--input_file", place / "in.html", "--output_file", place / "out.html")
        options = (*options, "--max_tokens_per_batch", "256")
        kill(3, *options)
        run(*options)
        return _outputs(place / "out.html")

    def killed_rows(place: Path) -> list[Any]:
        (place / "rows.jsonl").write_text(_rows_of_json() * 60)
        columns = ("--report_column", "report", "--sentences", "en", "--num_beams", "1", "--max_tokens_per_batch", "64")
        options = ("--input_file", place / "rows.jsonl", "--output_dir", place / "out", *columns)
        kill(3, *options)
        said = run(*options)
        return [*said, *_outputs(place / "out/rows.jsonl")]

    def text_and_rows(place: Path) -> list[Any]:
        (place / "a.txt").write_text(_lines(SENTENCES[:5]))
        (place / "b.jsonl").write_text(_rows_of_json())
        return run("--input_file", place / "a.txt", place / "b.jsonl", "--output_dir", place / "out")

    def report_of_rows(place: Path) -> list[Any]:
        (place / "b.jsonl").write_text(_rows_of_json())
        report = ("--report_column", "report", "--report_file", place / "report.jsonl", "--sentences", "en")
        said = run("--input_file", place / "b.jsonl", "--output_dir", place / "out", *report)
        return [*said, *_outputs(place / "report.jsonl")]

    for call in (of_formats, again, changed_by_hand, text_and_rows, report_of_rows):
        add(call.__name__.replace("_", " "), call)
    for call in (killed_formats, killed_lines, killed_document, killed_page, killed_rows):
        add(call.__name__.replace("_", " "), call)


def _tree(folder: Path) -> list[Any]:
    """Return the names and lines of the files of a folder, without hidden ones and the records."""
    found: list[Any] = []
    for file in sorted(folder.rglob("*")):
        parts = file.relative_to(folder).parts
        if file.is_file() and not any(part.startswith((".", "_")) for part in parts):
            found += ["/".join(parts), *_outputs(file)]
    return found


# The server.


@contextlib.contextmanager
def served(*models: str) -> Iterator[Any]:
    """Yield a client of a server in a process of its own."""
    import httpx

    pairs = [f"en-{_target_language(model)}={CHECKPOINTS / model}" for model in models]
    command = "from hf_capsule_mt.cli.serve import main; main()"
    options = ["--models", *pairs, "--port", "0", "--device", "cpu", "--max_wait", "600", "--timeout", "600"]
    process = subprocess.Popen(
        [sys.executable, "-c", command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        place = re.search(r"http://\S+", process.stdout.readline())
        if place is None:
            raise SystemExit("The server did not start.")
        with httpx.Client(base_url=place[0], timeout=600) as client:
            yield client
    finally:
        process.terminate()
        process.wait()


def record_server(recorder: Recorder, model: str, folder: Path) -> None:
    """Record what a server answers by both protocols. The requests come one by one."""
    target = _target_language(model)
    with served(model) as client:

        def ask(name: str, method: str, path: str, **body: Any) -> None:
            def answer() -> list[Any]:
                found = client.request(method, path, **body)
                return [found.status_code, *_parts(found.json() if found.content else "")]

            recorder.add(f"{model}/server/{name}", answer)

        pair = {"source": "en", "target": target}
        ask("languages", "GET", "/languages")
        for number, sentence in enumerate(SENTENCES[:20]):
            ask(f"text {number:02}", "POST", "/translate", json={"q": sentence, **pair})
        ask("texts", "POST", "/translate", json={"q": SENTENCES[20:], **pair})
        ask("pages", "POST", "/translate", json={"q": [*TAGGED[:11], PAGE], "format": "html", **pair})
        ask("alternatives", "POST", "/translate", json={"q": SENTENCES[:6], "alternatives": 3, **pair})
        ask("form", "POST", "/translate", data={"q": DOCUMENTS[0], **pair})
        ask("unknown language", "POST", "/translate", json={"q": "a", "source": "en", "target": "xx"})
        ask("tag that is not closed", "POST", "/translate", json={"q": TAGGED[12], "format": "html", **pair})
        deepl = {"source_lang": "EN", "target_lang": target.upper()}
        ask("DeepL: languages", "GET", "/v2/languages?type=target")
        ask("DeepL: texts", "POST", "/v2/translate", json={"text": SENTENCES[:12], **deepl})
        tags = {"tag_handling": "html", "show_billed_characters": True}
        ask("DeepL: tags", "POST", "/v2/translate", json={"text": TAGGED[:11], **tags, **deepl})
        whole = {"text": [DOCUMENTS[0]], "split_sentences": "0"}
        ask("DeepL: not split", "POST", "/v2/translate", json={**whole, **deepl})
        xml = {"text": ["<a>The <x>old</x> dog.</a>"], "tag_handling": "xml", "ignore_tags": ["x"]}
        ask("DeepL: ignored tags", "POST", "/v2/translate", json={**xml, **deepl})
        recorder.add(f"{model}/server/DeepL: glossary", lambda: _with_glossary(client, deepl, TERMS[target]))
        if model in (TRANSFORMER, FRENCH):
            for file, contents in FILES.items():
                if file not in FORMATS:
                    sent = (file, contents.encode())
                    recorder.add(f"{model}/server/{file}", lambda sent=sent: _file(client, sent, pair))
                    recorder.add(f"{model}/server/DeepL: {file}", lambda sent=sent: _document(client, sent, deepl))


def _parts(answer: Any) -> list[Any]:
    """Return the translations in an answer, so that each is compared by itself."""
    if not isinstance(answer, dict):
        return [answer]
    translations = answer.get("translations") or answer.get("translatedText")
    if not isinstance(translations, list):
        return [answer]
    return [*translations, answer]


def _with_glossary(client: Any, deepl: dict[str, str], terms: dict[str, str]) -> list[Any]:
    entries = "\n".join(f"{source}\t{target.split('|')[0]}" for source, target in terms.items())
    body = {"name": "terms", "entries": entries, "entries_format": "tsv"}
    made = client.post("/v2/glossaries", json={**body, **deepl}).json()
    answer = client.post(
        "/v2/translate", json={"text": WITH_TERMS, "glossary_id": made.get("glossary_id"), **deepl}
    ).json()
    return [made, *_parts(answer)]


def _file(client: Any, sent: tuple[str, bytes], pair: dict[str, str]) -> list[str]:
    answer = client.post("/translate_file", files={"file": sent}, data=pair)
    if "translatedFileUrl" not in answer.json():
        return [answer.json()]
    return client.get(answer.json()["translatedFileUrl"]).text.split("\n")


def _document(client: Any, sent: tuple[str, bytes], deepl: dict[str, str]) -> list[Any]:
    made = client.post("/v2/document", files={"file": sent}, data=deepl).json()
    if "document_id" not in made:
        return [made]
    place = f"/v2/document/{made['document_id']}"
    key = {"document_key": made["document_key"]}
    status = client.post(place, json=key).json()
    while status["status"] in ("queued", "translating"):
        time.sleep(0.05)
        status = client.post(place, json=key).json()
    return [status, *client.post(f"{place}/result", json=key).text.split("\n")]


# The script.

PARTS = {
    "pipeline": record_pipeline,
    "command": record_command,
    "folder": record_folders,
    "server": record_server,
}


def recorded(only: str = "") -> dict[str, list[dict[str, str]]]:
    """Return all outputs of the parts whose name contains `only`."""
    recorder = Recorder()
    for model in MODELS:
        for name, record in PARTS.items():
            if only in f"{model}/{name}":
                with tempfile.TemporaryDirectory(prefix="recorded_outputs_") as folder:
                    record(recorder, model, Path(folder))
    return recorder.outputs


def differences(before: dict[str, list[dict[str, str]]], after: dict[str, list[dict[str, str]]]) -> list[str]:
    """Return what differs between two records, with the old output above the new one."""
    found = []
    for name in sorted({*before, *after}):
        pairs = itertools.zip_longest(before.get(name, []), after.get(name, []))
        for number, (old, new) in enumerate(pairs):
            if old is None or new is None or old["hash"] != new["hash"]:
                found.append(f"{name} [{number}]\n{_around_difference(old, new)}")
    return found


def _around_difference(old: dict[str, str] | None, new: dict[str, str] | None) -> str:
    """Return two outputs in two lines, from a little before the first character that differs."""
    previews = [entry["preview"] if entry else "is not there" for entry in (old, new)]
    equal = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*previews))
    start = max(0, sum(1 for _ in equal) - SHOWN // 4)
    before = "..." if start else ""
    return "\n".join(f"    {before}{preview[start : start + SHOWN]}" for preview in previews)


def main() -> int:
    """Record or compare, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["record", "compare"])
    parser.add_argument("file", type=Path, help="the file of recorded outputs")
    parser.add_argument("--only", default="", metavar="NAME", help="only parts whose name contains NAME")
    args = parser.parse_args()
    after = recorded(args.only)
    if args.task == "record":
        args.file.write_text(json.dumps(after, ensure_ascii=False, indent=1) + "\n")
        print(f"{sum(map(len, after.values()))} outputs of {len(after)} cases are in {args.file}.")
        return 0
    before = json.loads(args.file.read_text())
    # "model/part" of a case.
    before = {name: entries for name, entries in before.items() if args.only in "/".join(name.split("/")[:2])}
    found = differences(before, after)
    print(*found, sep="\n")
    print(f"{len(found)} of {sum(map(len, after.values()))} outputs differ.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
