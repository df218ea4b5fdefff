"""Reads long texts with whole readers, and prints which took much longer than a small multiple of their length.

It runs as a program of its own, as `linear_reading.py` does for single expressions. Most readers take some microseconds
for a character, so their texts are shorter than a megabyte: a quadratic loop of Python needs minutes for them.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import regex
from cpu_limit import LIMIT, seconds
from texts_without_end import UNITS, filled

from hf_capsule_mt.data.languages import LanguageCodes
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.formats.base import cut_in_proportion
from hf_capsule_mt.translation.formats.messages import Message
from hf_capsule_mt.translation.formats.recognition import FORMATS, recognise_contents
from hf_capsule_mt.translation.tags.markup import read_markup
from hf_capsule_mt.translation.tags.segments import marked_segments
from hf_capsule_mt.translation.terms.glossary import Entry, Glossary, places_of_terms
from hf_capsule_mt.translation.text.segments import Segment, cut_text, segments_with_codes
from hf_capsule_mt.translation.text.words import with_addresses

SHORT = 15
"""By how many times the texts are shorter that show which kinds a reader may be slow with."""
_SLOWEST = 2
"""Texts of each reader that are read at full length."""
READS_AT_MOST = 100
"""Characters that a model of these tests reads."""
_CUES = "1\n00:00:01,000 --> 00:00:02,000\n{}\n\n2\n00:00:03,000 --> 00:00:04,000\nA dog.\n"
_AROUND = {
    "markdown": "A {} dog.",
    "html": "<p>A {} dog.</p>",
    "srt": _CUES,
    "vtt": f"WEBVTT\n\n{_CUES}",
    "po": 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "A {} dog."\nmsgstr ""\n',
    "xliff": "<xliff><file><body><trans-unit><source>A {} dog.</source></trans-unit></body></file></xliff>",
    "i18next": '{{"a": "A {} dog."}}',
    "android": "<resources><string name='a'>A {} dog.</string></resources>",
    "properties": "a=A {} dog.",
}
"""Files with a text in a place that is translated, by the names of their formats."""


class Reader(NamedTuple):
    """What reads users' texts, and the characters of the texts that take it longest."""

    name: str
    length: int
    read: Callable[[str], object]


def fits(text: str) -> bool:
    return len(text) <= READS_AT_MOST


def cut(text: str) -> list[str]:
    return cut_text(text, "en", fits)


def read_file(name: str, content: str) -> bytes:
    """Read a file and write it with its own texts for translations."""
    document = FORMATS[name].read(content.encode(), "de")
    return document.written([text.text for text in document.texts])


def read_around(name: str, text: str) -> bytes:
    """The same for a file of a format that has a text in it."""
    return read_file(name, _AROUND[name].format(text))


def read_segments(tags: bool, text: str) -> None:
    """Cut a text as documents and corpora do, and put its segments back as they are."""
    markup = read_markup(text) if tags else None
    for segment in marked_segments(text, markup, with_addresses(), cut):
        segment.around(segment.put_back(segment.text))


def read_with_glossary(glossary: Glossary, text: str) -> None:
    places_of_terms(text, glossary.terms(text))


def read_glossary(suffix: str, content: str) -> Glossary:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"terms{suffix}")
        file.write_text(content)
        return Glossary.read(file, "en", "de")


class Vocabulary:
    """A tokenizer with codes of languages."""

    def get_vocab(self) -> dict[str, int]:
        return {">>pt<<": 0, ">>de<<": 1}


def readers() -> Iterator[Reader]:
    """Yield what reads texts of any kind."""
    codes = LanguageCodes(Vocabulary())
    glossary = Glossary(
        [Entry(("dog", "a b", "a a a 1"), ("Hund", "a b"), "here"), Entry(("<a", "!"), ("!",), "there")]
    )
    yield Reader("cut_text", 200_000, cut)
    yield Reader("read_markup", 200_000, read_markup)
    yield Reader("texts without tags", 50_000, partial(read_segments, False))
    yield Reader("texts with tags", 50_000, partial(read_segments, True))
    yield Reader("cut_in_proportion", 1_000_000, lambda text: cut_in_proportion(text, range(1, len(text) // 20)))
    yield Reader("language codes", 1_000_000, lambda text: segments_with_codes(codes, [Segment("", text, "")] * 2))
    yield Reader("terms of a glossary", 50_000, partial(read_with_glossary, glossary))
    yield Reader(".tsv", 200_000, lambda text: read_glossary(".tsv", f"{text}\tdog"))
    yield Reader(".csv", 200_000, lambda text: read_glossary(".csv", f"{text},dog"))
    yield Reader(".tbx", 200_000, lambda text: read_glossary(".tbx", text))
    yield Reader("recognition", 200_000, lambda text: recognise_contents(Path("text"), text.encode()))
    for name in FORMATS:
        # Each paragraph of Markdown is parsed up to eight times.
        length = 10_000 if name == "markdown" else 30_000
        yield Reader(name, length, partial(read_file, name))
        yield Reader(f"{name} around a text", length, partial(read_around, name))


def many_parts() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield calls that read many parts of one kind. A search from the start for each part would be quadratic."""
    message = f"{'a dog runs ' * 5}\n" * 20_000
    yield "lines of a message", lambda: Message(message)
    units = "<trans-unit><source>A dog.</source>" * 10_000 + "</trans-unit>" * 10_000
    yield "units in units", lambda: read_file("xliff", f"<xliff>{units}</xliff>")
    strings = "<string name='a'>A dog. " * 10_000 + "</string>" * 10_000
    yield "strings in strings", lambda: read_file("android", f"<resources>{strings}</resources>")
    images = "".join(f"<img alt='dog {number}'>" for number in range(30_000))
    yield "values of attributes", lambda: read_file("html", images)
    blank_lines = ",\n" + "\n" * 100
    messages = blank_lines.join('"A %s dog."' for _ in range(10_000))
    yield "messages without their placeholders", lambda: lose_placeholders(f"[{messages}]")
    # Without a cut, as the pipeline reads one sentence. A model reads no more kept parts than these.
    for name, text in (
        ("equal kept parts", "A {a} dog. " * 2_000),
        ("different kept parts", "".join(f"A {{a{number}}} dog. " for number in range(2_000))),
        ("kept parts in front", "{} " * 50_000 + "A dog."),
    ):
        yield name, partial(put_back_segments, text, False)
    tags = "<img/>" * 20_000
    yield "empty tags", partial(put_back_segments, f"A {tags.replace('>', '> ')} dog.", True)
    yield "empty tags in front of spaces", partial(put_back_segments, f"A {tags}{' ' * 200_000} dog.", True)


def lose_placeholders(content: str) -> bytes:
    document = FORMATS["i18next"].read(content.encode())
    return document.written(["Ein Hund."] * len(document.texts))


def put_back_segments(text: str, tags: bool) -> None:
    keep = regex.compile(r"\{\w*\} ?")
    markup = read_markup(text) if tags else None
    for segment in marked_segments(text, markup, keep, None):
        segment.put_back(segment.text)


def _read(reader: Reader, text: str) -> None:
    # It may be refused.
    with suppress(UserError):
        reader.read(text)


def check_readers() -> None:
    """Print the readers that take too long for a text."""
    for reader in readers():
        times = {}
        for unit in UNITS:
            taken = seconds(partial(_read, reader, filled("", unit, reader.length // SHORT)))
            times[unit] = LIMIT if taken is None else taken
        slowest = sorted(times, key=times.__getitem__, reverse=True)
        for unit in slowest[:_SLOWEST]:
            if seconds(partial(_read, reader, filled("", unit, reader.length))) is None:
                print(f"{reader.name}: {unit!r} * n", flush=True)


def check_many_parts() -> None:
    """Print the calls that take too long for many parts."""
    for name, call in many_parts():
        if seconds(call) is None:
            print(name, flush=True)


if __name__ == "__main__":
    check_readers()
    check_many_parts()
