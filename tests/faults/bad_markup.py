"""Attacks with markup between words: elements of HTML in Markdown, footnotes, admonitions, and accelerators."""

import random
import re
from pathlib import Path

from bad_texts import MARKDOWN, XLIFF, _plain, _sentence, judged, translated
from outcomes import Finding
from stand_in_translator import UpperCase, Writes


def inline_html(rng: random.Random, folder: Path) -> Finding:
    """Elements of HTML in Markdown. What programs and keyboards read stays, and all else is translated."""
    parts = []
    expected = []
    for _ in range(rng.randint(1, 6)):
        tag = rng.choice(["code", "kbd", "samp", "var", "b", "span", "sub", "mark"])
        before, inner, after = (_sentence(rng) for _ in range(3))
        kept = inner if tag in ("code", "kbd", "samp", "var") else inner.upper()
        parts.append(f"{before} <{tag}>{inner}</{tag}> {after}.")
        expected.append(f"{before.upper()} <{tag}>{kept}</{tag}> {after.upper()}.")
    return judged(lambda: _difference("\n\n".join(parts), "\n\n".join(expected), folder), str(parts))


def footnotes(rng: random.Random, folder: Path) -> Finding:
    """Marks of footnotes, also behind a full stop, and the notes. A mark stays where it is."""
    count = rng.randint(1, 4)
    sentences = []
    for number in range(1, count + 1):
        mark = f"[^{number}]"
        sentences.append(
            _sentence(rng).capitalize() + rng.choice([f".{mark}", f"{mark}.", f"{mark} {_sentence(rng)}."])
        )
    notes = [f"[^{number}]: {_sentence(rng)} are old." for number in range(1, count + 1)]
    page = f"{' '.join(sentences)}\n\n" + "\n".join(notes)
    return judged(lambda: _difference(page, page.upper(), folder), page)


def admonitions(rng: random.Random, folder: Path) -> Finding:
    """Blocks of MkDocs, Docusaurus and HTML. The words in them are translated, and their marks stay."""
    blocks = []
    for _ in range(rng.randint(1, 4)):
        body = _sentence(rng)
        blocks.append(
            rng.choice(
                [
                    ("!!! note", f"!!! note\n\n    {body}.\n", body),
                    ("??? question", f"??? question\n    {body}.\n", body),
                    ("???+ tip", f"???+ tip\n\n    {body}.\n\n    {_sentence(rng)}.\n", body),
                    ("===", f'=== "Tab"\n\n    {body}.\n', body),
                    (":::", f"::: warning\n{body}.\n:::\n", body),
                    (":::", f":::tip\n\n{body}.\n\n:::\n", body),
                    ("</summary>", f"<details>\n<summary>{body}</summary>\n\n{_sentence(rng)}.\n\n</details>\n", body),
                ]
            )
        )
    page = "\n".join(block for _, block, _ in blocks)

    def use() -> str:
        written = translated(MARKDOWN, page, folder, UpperCase())
        lost = [part for mark, _, body in blocks for part in (mark, body.upper()) if part not in _plain(written)]
        return f"{lost} are not in {written}" if lost else ""

    return judged(use, page)


def accelerators_with_signs(rng: random.Random, folder: Path) -> Finding:
    """Labels of XLIFF with an accelerator, whose translation has `&`. The file can be read, and the words stay."""
    label = rng.choice(["&Answers", "Save &All...", "&Quit", "E&xit now"])
    translation = rng.choice(["Q & A", "A & B", "R & D & S", "& dogs", "1 & 2", "Tom & Jerry's", "&", "<a> & b"])
    page = XLIFF.written([label])

    def use() -> str:
        [written] = XLIFF.read(translated(XLIFF, page, folder, Writes(translation)))
        # A sign that is a character itself is written twice. Of the accelerator the sign is taken away, or the letter
        # behind the words with it.
        readings = [re.sub(r" *\(&\w\)", "", written), re.sub(r"(?<!&)&(?=\w)", "", written, count=1)]
        is_right = any(reading.replace("&&", "&") == translation.replace("&&", "&") for reading in readings)
        return "" if is_right or written == label else f"{written!r} is not {translation!r}"

    return judged(use, f"{label} {translation}")


def _difference(page: str, expected: str, folder: Path) -> str:
    """Return what is wrong with a translated page of Markdown, or ""."""
    written = _plain(translated(MARKDOWN, page, folder, UpperCase()))
    if written != _plain(expected):
        return f"{written!r} instead of {_plain(expected)!r}"
    return ""


AREAS = {
    function.__name__.replace("_", " "): function
    for function in (inline_html, footnotes, admonitions, accelerators_with_signs)
}
