"""Attacks with valid files whose parts are hard to find: sections, keys on two lines, and folders in parts."""

import json
import random
import re
from pathlib import Path

import lxml.etree
from bad_texts import ANDROID, PROPERTIES, _plain, _sentence, first_difference, judged, translated
from outcomes import Finding
from stand_in_translator import UpperCase

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files.job import Job
from hf_capsule_mt.translation.files.output_folders import RECORDS, output_paths
from hf_capsule_mt.translation.files.run import translate_files


def sections_of_characters(rng: random.Random, folder: Path) -> Finding:
    """Sections of CDATA in strings of Android, several of them, and next to text and tags."""
    strings = []
    for number in range(rng.randint(1, 5)):
        pieces = []
        for _ in range(rng.randint(1, 5)):
            words = _sentence(rng)
            pieces.append(
                rng.choice(
                    [
                        f"<![CDATA[{words}]]>",
                        f"<![CDATA[ {words} & <b>{_sentence(rng)}</b> ]]>",
                        f"<![CDATA[{words} ]]]]><![CDATA[> {_sentence(rng)}]]>",
                        f" {words} ",
                        f" {words} &amp; &lt;i&gt;{_sentence(rng)}&lt;/i&gt; ",
                        f"<b>{words}</b>",
                        rng.choice([" ", "\n    "]),
                    ]
                )
            )
        strings.append(f'<string name="s{number}">{"".join(pieces)}</string>\n')
    page = f"<resources>\n{''.join(strings)}</resources>\n"

    def use() -> str:
        written = translated(ANDROID, page, folder, UpperCase())
        expected = ["".join(part if part.startswith("<") else part.upper() for part in _parts(page))]
        return first_difference(expected, ["".join(_parts(written))])

    return judged(use, page)


def _parts(page: str) -> list[str]:
    """Return the tags in the strings of a page, and the texts between them, with single spaces."""
    root = lxml.etree.fromstring(page.encode())
    texts = [_plain("".join(element.itertext())) for element in root.iter("string")]
    return re.split("(<[^<>]*>)", " | ".join(texts))


def keys_on_two_lines(rng: random.Random, folder: Path) -> Finding:
    """Properties whose lines are continued at any place, with each kind of line end."""
    end = rng.choice(["\n", "\r\n", "\r"])
    lines = []
    for number in range(rng.randint(1, 8)):
        if rng.random() < 0.3:
            lines.append(rng.choice(["", "  ", "# a comment \\", "! key = a comment"]))
        sign = rng.choice(["=", " = ", ":", " : ", " "])
        line = f"key.{number}{rng.choice(['', 'Name', '.of.it'])}{sign}{_sentence(rng)}"
        for _ in range(rng.choice([0, 0, 1, 2, 4])):
            place = rng.randint(1, len(line) - 1)
            # Behind these another backslash would be a character, or divide a line end.
            if line[place - 1] in "\\\r":
                continue
            line = f"{line[:place]}\\{end}{rng.choice(['', ' ', '    '])}{line[place:]}"
        lines.append(rng.choice(["", " "]) + line)
    page = end.join(lines) + rng.choice(["", end])

    def use() -> str:
        expected = [f"{key}={value.upper()}" for key, value in _entries(page)]
        written = _entries(translated(PROPERTIES, page, folder, UpperCase()))
        return first_difference(expected, [f"{key}={value}" for key, value in written])

    return judged(use, repr(page))


def _entries(page: str) -> list[tuple[str, str]]:
    """Return the keys and values of properties, as the documentation of Java says."""
    logical_lines = []
    continued = False
    for natural_line in re.split(r"\r\n|\r|\n", page):
        line = natural_line.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        before = logical_lines.pop() if continued else ""
        backslashes = len(line) - len(line.rstrip("\\"))
        continued = backslashes % 2 == 1
        logical_lines.append(before + (line[:-1] if continued else line))
    entries = []
    for line in logical_lines:
        key, value = re.fullmatch(r"((?:\\.|[^\\ \t\f:=])*)[ \t\f]*[:=]?[ \t\f]*(.*)", line).groups()
        entries.append((key, re.sub(r"\\(.)", r"\1", value)))
    return entries


def folders_in_parts(rng: random.Random, folder: Path) -> Finding:
    """Two runs over parts of a folder. With a file at its top, they write the bytes of one run over all."""
    source = folder / "source"
    names = {"top.md"}
    for _ in range(rng.randint(2, 7)):
        folders = [rng.choice("ab") for _ in range(rng.randint(0, 3))]
        names.add("/".join([*folders, rng.choice(["index.md", "x.md", "x.txt"])]))
    for name in sorted(names):
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{_sentence(rng)} {name.replace('/', ' ').replace('.', ' ')}\n")
    others = sorted(names - {"top.md"})
    first = rng.sample(others, rng.randint(1, len(others)))
    second = rng.sample(others, rng.randint(1, len(others)))
    has_top = rng.random() < 0.6
    if has_top:
        first.append("top.md")

    def run(names: list[str], output: Path) -> None:
        outputs = output_paths([source / name for name in names], output)
        translate_files(Job(documents="en"), outputs, output, load=UpperCase)

    def use() -> str:
        run(first, folder / "out")
        written = _files(folder / "out")
        try:
            run(second, folder / "out")
        except UserError:
            if has_top or written != _files(folder / "out"):
                return "the second run is refused"
        if has_top:
            run([*first, *second], folder / "whole")
            return first_difference(_files(folder / "whole"), _files(folder / "out"))
        for record_file in (folder / "out" / RECORDS).rglob("*.json"):
            name = record_file.relative_to(folder / "out" / RECORDS).with_suffix("")
            expected = (folder / "out" / json.loads(record_file.read_text())["input"]).resolve().read_text().upper()
            if (folder / "out" / name).read_text() != expected:
                return f"{name} is not {expected!r}"
        lost = [name for name in written if name not in _files(folder / "out")]
        return f"{lost} were replaced" if lost else ""

    return judged(use, f"{first} {second}")


def _files(output: Path) -> list[str]:
    """Return the names and the contents of outputs."""
    paths = [path for path in sorted(output.rglob("*")) if path.is_file() and RECORDS not in path.parts]
    return [f"{path.relative_to(output)}: {path.read_text()}" for path in paths]


AREAS = {
    function.__name__.replace("_", " "): function
    for function in (sections_of_characters, keys_on_two_lines, folders_in_parts)
}
