"""Translate real files of each format by a stand-in that writes wide letters, and compare their structure.

    pip install polib srt webvtt-py javaproperties html5lib pypandoc_binary
    python -m benchmarks.files.formats check FOLDER ...
    python -m benchmarks.files.formats kinds /usr /etc

`check` translates every file of a format below the folders. Another library than ours reads source and translation. Its
structure and, but for the width of letters, its texts must be equal. `kinds` says what becomes of files by their
endings, up to twelve of each. Both write a table of Markdown. Files that the formats refuse are counted.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import re
import shutil
import string
import subprocess
import sys
import tempfile
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lxml import etree

from hf_capsule_mt.data.lines import opened, without_compression
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.loading import load_model, load_tokenizer
from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.formats import LINES, recognise
from hf_capsule_mt.translation.generation.decoder import Decoded
from hf_capsule_mt.translation.text_translator import TextTranslator

_MOST = 12
"""Files of each ending that `kinds` looks at."""


class WideLetters(TextTranslator):
    """Writes the source in letters of full width, but for the parts that are kept.

    No page has such words already, so a translated word is never taken for a kept part.
    """

    def decode_batches(self, sentences: Sequence[Any], batches: Sequence[Sequence[int]], **options: Any) -> Iterator:
        """Yield the translations of each batch."""
        for batch in batches:
            yield {index: (Decoded([], text=_wide(sentences[index].segment)),) for index in batch}

    def align(self, sentence: Any, decoded: Any, clean_up: bool | None) -> Any:
        """Return that word i of both sides belong together."""
        return _in_order


_WIDE = {ord(letter): ord(letter) + 0xFEE0 for letter in string.ascii_letters}


def _wide(segment: Any) -> str:
    characters = list(segment.text.translate(_WIDE))
    for start, end in segment.kept_spans:
        characters[start:end] = segment.text[start:end]
    return "".join(characters)


def _in_order(source: Sequence[Any], target: Sequence[Any]) -> list[list[float]]:
    return [[float(i == j) for j in range(len(source))] for i in range(len(target))]


_TAG = re.compile(r"<[^<>]*>")


def _plain(text: str | None) -> str:
    return " ".join(_narrow(text or "").split())


def _narrow(text: str) -> str:
    """Return a text without letters of full width."""
    return unicodedata.normalize("NFKC", text)


def _markdown(content: str) -> Any:
    import pypandoc

    page = json.loads(pypandoc.convert_text(content, "json", format="gfm-smart+footnotes"))
    return _without_words(page["blocks"]), _plain(" ".join(_words(page["blocks"])))


def _words(node: Any) -> Iterator[str]:
    """Yield the words of pandoc's blocks, and what is around them."""
    if isinstance(node, list):
        for child in node:
            yield from _words(child)
    elif isinstance(node, dict) and node["t"] == "Str":
        yield node["c"]
    elif isinstance(node, dict) and node["t"] not in ("Space", "SoftBreak"):
        yield node["t"]
        yield from _words(node.get("c"))


def _without_words(node: Any) -> Any:
    """Return pandoc's blocks without words, whose spaces and lines may differ."""
    if isinstance(node, list):
        return [child for child in map(_without_words, node) if child is not None]
    if isinstance(node, dict):
        if node["t"] in ("Str", "Space", "SoftBreak"):
            return None
        if node["t"] == "Header":
            # Its second field is an identifier that is made of the words.
            return ["Header", node["c"][0], _without_words(node["c"][2])]
        if node["t"] == "RawBlock":
            kind, content = node["c"]
            return ["RawBlock", kind, _TAG.findall(content)]
        return [node["t"], _without_words(node.get("c"))]
    return node


def _html(content: str) -> Any:
    import html5lib

    tree = html5lib.parse(content, namespaceHTMLElements=False)
    elements = []
    for element in tree.iter():
        attributes = sorted((name, _plain(value)) for name, value in element.attrib.items())
        elements.append((str(element.tag), attributes))
    return elements, _plain("".join(tree.itertext()))


def _srt(content: str) -> Any:
    import srt

    return [(cue.index, cue.start, cue.end, _plain(cue.content)) for cue in srt.parse(content, ignore_errors=True)]


def _vtt(content: str) -> Any:
    import webvtt

    cues = webvtt.from_string(content)
    return [(cue.identifier, cue.start, cue.end, _plain(cue.text)) for cue in cues]


def _po(content: str) -> Any:
    import polib

    entries = [(entry.msgctxt, entry.msgid, entry.msgid_plural) for entry in polib.pofile(content)]
    return entries, _is_right_for_gettext(content), _po_without_targets(content)


def _is_right_for_gettext(content: str) -> bool | None:
    """Return whether msgfmt takes a catalogue: also placeholders of fuzzy messages must be right."""
    if shutil.which("msgfmt") is None:
        return None
    command = ["msgfmt", "--check-format", "--check-header", "--use-fuzzy", "--output-file=/dev/null", "-"]
    return subprocess.run(command, input=content.encode(), capture_output=True, check=False).returncode == 0


_PO_TARGET = re.compile(r'^msgstr.*\n?(?:^".*\n?)*', re.MULTILINE)
_REVISION = re.compile("(?<=PO-Revision-Date:).*")
_FUZZY = re.compile(r"^#, fuzzy\n|, fuzzy\b", re.MULTILINE)


def _po_without_targets(content: str) -> list[str]:
    """Return the entries of a catalogue as they are written, without what a translation and a review change."""
    entries = []
    for entry in "\n".join(content.splitlines()).split("\n\n"):
        is_header = 'msgid ""\nmsgstr' in entry
        rest = _REVISION.sub("", entry) if is_header else _PO_TARGET.sub("", _FUZZY.sub("", entry))
        entries.append(rest.strip())
    return entries


_TARGET = re.compile(r"\s*<(?:\w+:)?target\b[^>]*?(?:/>|>.*?</(?:\w+:)?target>)", re.DOTALL)
_SEGMENT_STATE = re.compile(r"(<segment\b[^>]*?)\sstate=\"[^\"]*\"")


def _xliff(content: str) -> Any:
    units = []
    for unit in etree.fromstring(content.encode()).iter("{*}trans-unit", "{*}segment"):
        source = unit.find("{*}source")
        units.append((unit.get("id"), None if source is None else etree.tostring(source, method="c14n")))
    # Every other character is the same.
    return units, _SEGMENT_STATE.sub(r"\1", _TARGET.sub("", content))


_ACCELERATOR = re.compile(r"&(?=\w)(?!\w+;)")
"""It may stand in front of another letter."""


def _json(content: str) -> Any:
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return [(key, plain(child)) for key, child in value.items()]
        if isinstance(value, list):
            return [plain(child) for child in value]
        return _narrow(value) if isinstance(value, str) else value

    return plain(json.loads(content))


def _properties(content: str) -> Any:
    import javaproperties

    return [
        (key, _ACCELERATOR.sub("", _narrow(value).replace("''", "'").replace("’", "'")))
        for key, value in javaproperties.load(io.StringIO(content), object_pairs_hook=list)
    ]


def _android(content: str) -> Any:
    from translate.storage.aresource import AndroidResourceFile

    return [
        (unit.getid(), _plain(str(unit.target))) for unit in AndroidResourceFile.parsestring(content.encode()).units
    ]


_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "markdown": ("pandoc", _markdown),
    "html": ("html5lib", _html),
    "srt": ("srt", _srt),
    "vtt": ("webvtt-py", _vtt),
    "po": ("polib, msgfmt", _po),
    "xliff": ("lxml", _xliff),
    "i18next": ("json", _json),
    "android": ("translate-toolkit", _android),
    "properties": ("javaproperties", _properties),
}
"""The library that reads each format again, and a function that returns what must be equal."""


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield files with different contents."""
    seen = set()
    for folder in folders:
        for directory, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                path = Path(directory, name)
                if path.is_symlink() or not path.is_file():
                    continue
                digest = hashlib.sha256(path.read_bytes()).digest()
                if digest not in seen:
                    seen.add(digest)
                    yield path


def _outcome(translator: TextTranslator, path: Path, name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "output")
        try:
            translate_file(translator, path, output, "en", file_format=name)
        except UserError as error:
            print(f"refused {path}: {error}", file=sys.stderr)
            return "refused"
        source = opened_text(path)
        target = _text(output.read_bytes())
    read = _READERS[name][1]
    try:
        before = read(source)
    except Exception as error:  # Libraries raise errors of many kinds.
        print(f"unread {path}: {error}", file=sys.stderr)
        return "unread"
    if before != read(target):
        print(f"differs {path}", file=sys.stderr)
        return "differs"
    return "equal"


def opened_text(path: Path) -> str:
    """Return the text of a file, which may be compressed."""
    with opened(path) as file:
        return _text(file.read())


def _text(data: bytes) -> str:
    """Return the text of a file in UTF-8, or in Latin-1, in which properties of Java may be."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def check(translator: TextTranslator, folders: Sequence[Path]) -> None:
    """Print a row for each format: how many files came out equal, and the paths of the others on standard error."""
    counts: dict[str, Counter] = defaultdict(Counter)
    for path in _files(folders):
        with contextlib.suppress(UserError, OSError, EOFError):
            file_format = recognise(path)
            if file_format is not None:
                counts[file_format.name][_outcome(translator, path, file_format.name)] += 1
    print("| format | files | equal | refused | read again by |\n| --- | --- | --- | --- | --- |")
    for name, (library, _) in _READERS.items():
        count = counts[name]
        print(f"| {name} | {count.total()} | {count['equal']} | {count['refused']} | {library} |")


def kinds(folders: Sequence[Path]) -> None:
    """Print what becomes of files by their endings."""
    files = defaultdict(list)
    for path in _files(folders):
        files[without_compression(path).suffix.lower()].append(path)
    rows = defaultdict(list)
    for ending, paths in sorted(files.items()):
        outcomes = Counter()
        for path in random.Random(0).sample(paths, min(len(paths), _MOST)):
            try:
                file_format = recognise(path)
                outcomes[LINES if file_format is None else file_format.name] += 1
            except (UserError, OSError, EOFError):
                outcomes["refused"] += 1
        for outcome in outcomes:
            rows[outcome].append(ending or "none")
    print("| outcome | endings | which |\n| --- | --- | --- |")
    for outcome, endings in sorted(rows.items(), key=lambda row: -len(row[1])):
        print(f"| {outcome} | {len(endings)} | {' '.join(f'`{ending}`' for ending in endings[:40])} |")


def main(argv: Sequence[str] | None = None) -> None:
    """Check files, or list kinds of files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["check", "kinds"])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--model", default="checkpoints/tatoeba-en-de-transformer")
    args = parser.parse_args(argv)
    if args.command == "kinds":
        kinds(args.folders)
    else:
        check(WideLetters(load_model(args.model), load_tokenizer(args.model)), args.folders)


if __name__ == "__main__":
    main()
