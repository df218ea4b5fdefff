"""The interface of a file format: texts that are translated, between everything else, which stays."""

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate
from types import MappingProxyType
from typing import Any, AnyStr, NamedTuple

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.tags.markup import Run, read_markup, unescaped

logger = logging.getLogger(__name__)

# Chinese, Japanese and Thai have no spaces.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")
_REFERENCE = re.compile("&(?:amp|lt|gt);")
_TAG_KEEP = r"</?[a-zA-Z][^<>]*>"
# A word, or a tag with the words next to it.
_WORD = re.compile(r"(?:<[^<>]*>|\S)++")

_MOST_LINES = 20
"""The most lines that a warning names."""


class TextPlace(NamedTuple):
    """Where a text stands in its file, as whoever translates the file looks for it."""

    line: int = 1  # On which its unit begins, from 1.
    unit: str | None = None  # The name of its unit, such as the key of a message. None where only lines tell.
    context: str | None = None  # What else names the unit, such as the context of a message of gettext.


class Text(NamedTuple):
    """A text of a file. It may have several sentences."""

    text: str
    markup: list[Run] | None = None  # What `read_markup` makes of it, if it has tags.
    keep: str | None = None  # A regular expression for parts that are not translated.
    place: TextPlace = TextPlace()


class Reason(StrEnum):
    """Why words of a file stay in its language. Code, addresses and numbers are not counted: they are no words."""

    APPROVED = "approved without a translation"
    FUZZY = "fuzzy"  # Translations that wait for a review, without --fuzzy.
    LOST_MARKS = "lost marks"  # The translation lacks a mark or a placeholder, or has another one.
    ATTRIBUTES = "attributes"  # Of tags and blocks, such as title="A dog".
    COMMENTS = "comments"
    COMPONENTS = "components"  # Words in the tags of MDX, and in what a page exports.
    DIAGRAMS = "diagrams"
    DIRECTIVES = "directives"  # Of Sphinx, written as blocks of code.
    EDITS = "edits"  # Comments and replacements in CriticMarkup.
    FRONT_MATTER = "front matter"
    IMAGE_TEXTS = "image texts"  # Those with marks.
    LINK_TITLES = "link titles"
    PLACES = "unclear places"  # Text that stands elsewhere than its parser says.
    QUOTES = "quotes inside"  # Of a string of Android, around only a part of it.
    RAW_HTML = "raw HTML"  # Tags that cannot be read.
    TO_STAY = "marked to stay"  # With translate="no", the class notranslate, translatable="false" and so on.


class Kept(NamedTuple):
    """Words that a format does not translate."""

    reason: Reason
    line: int  # Where they begin, from 1.
    text: str


class Document(ABC):
    """A file that was read."""

    texts: list[Text]
    """What is translated, in the order of the file."""
    left: Sequence[int] = ()
    """The numbers of texts that stay as they are, because a translation lacks something. `written` finds them."""
    kept: Sequence[Kept] = ()
    """What else stays in the language of the file, in its order."""
    details: Mapping[int, Mapping[str, Any]] = MappingProxyType({})
    """What else a report says of texts, by their numbers: names of fields and values of JSON. `written` finds it."""

    @abstractmethod
    def written(self, translations: Sequence[str]) -> bytes:
        """Return the file with a translation instead of each text."""


def unit_starts(texts: Sequence[Text]) -> list[bool]:
    """Return whether each text begins a unit. Texts of one message, such as its plural forms, are one unit."""
    starts = []
    before = None
    for text in texts:
        is_same = text.place.unit is not None and text.place == before
        starts.append(not is_same)
        before = text.place
    return starts


def lines_left(document: Document) -> list[int]:
    """Return the lines, from 1, of the units of a written file that stay as they are."""
    starts = unit_starts(document.texts)
    return [document.texts[number].place.line for number in document.left if starts[number]]


def lines_kept(document: Document) -> dict[str, list[int]]:
    """Return the lines, from 1, of the words that a format does not translate, by the reasons."""
    lines: dict[str, list[int]] = {}
    for kept in document.kept:
        lines.setdefault(kept.reason.value, []).append(kept.line)
    return lines


def warn_of_left(name: str, document: Document) -> None:
    """Warn of what stays as it is in a file that was written."""
    lines = lines_left(document)
    if lines:
        logger.warning(
            "%s: units that stay as they are, because a mark or a placeholder would get lost or be another one: %d. "
            "Their lines: %s",
            name,
            len(lines),
            _listed(lines),
        )

    for reason, lines in lines_kept(document).items():
        logger.warning("%s: not translated: %s: %d. Their lines: %s", name, reason, len(lines), _listed(lines))


def _listed(lines: Sequence[int]) -> str:
    """Return the first numbers of lines for a message."""
    listed = ", ".join(map(str, lines[:_MOST_LINES]))
    if len(lines) > _MOST_LINES:
        listed += " ..."
    return listed


class FileFormat(ABC):
    """A format of files."""

    name: str
    """As `--format` calls it."""
    title: str
    """As messages call it, such as "Markdown"."""
    suffixes: tuple[str, ...]
    """Endings of the names of its files."""
    has_other_contents = False
    """Whether files with these endings often have something else than messages for readers."""
    has_tags = False
    """Whether its files are texts with tags, which users may call so."""
    package: str | None = None
    """The library that it needs, of the extra `files`."""
    has_fuzzy = False
    """Whether its files have translations that are marked as fuzzy: nobody has looked at them yet."""

    def is_begun_by(self, beginning: str) -> bool:
        """Return whether a text file that begins like this must be of this format."""
        return False

    def with_fuzzy(self) -> "FileFormat":
        """Return the format that also replaces fuzzy translations. It is the same where files have none."""
        return self

    @abstractmethod
    def read(self, data: bytes, target_lang: str | None = None) -> Document:
        """Read a file.

        Args:
            data: all of its bytes.
            target_lang: code of the language of the translation, for files that name their language.

        Raises:
            UserError: if it is damaged, or of another format.
        """


def decoded(data: bytes) -> str:
    """Return the text of a file in UTF-8.

    Raises:
        UserError: if it is in another encoding.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"Line {line} is not UTF-8. Convert the file to UTF-8.") from error


def replaced(content: AnyStr, parts: Iterable[tuple[int, int, AnyStr]]) -> AnyStr:
    """Return contents in which other ones stand from a start to an end. The parts are in their order."""
    written = []
    place = 0
    for start, end, new in parts:
        written.append(content[place:start])
        written.append(new)
        place = end
    written.append(content[place:])
    return content[:0].join(written)


def xml_text(text: str, keep: str | None = None, ignored_tags: Sequence[str] = ()) -> Text | None:
    """Return a text with tags, where `&` and `<` are always references. None if the tags do not enclose each other."""
    try:
        return Text(text, read_markup(text, ignored_tags), keep)
    except UserError:
        return None


def text_with_tags(text: str, keep: str | None = None, ignored_tags: Sequence[str] = ()) -> Text:
    """Return a text that may have tags. Where they do not enclose each other, each is kept by itself."""
    if "<" not in text:
        return Text(text, keep=keep)
    with_tags = xml_text(text, keep, ignored_tags)
    if with_tags is not None:
        return with_tags
    if keep is None:
        return Text(text, keep=_TAG_KEEP)
    return Text(text, keep=f"{_TAG_KEEP}|{keep}")


def without_new_references(source: Text, translation: str) -> str:
    """Return the translation of a text with tags, with a plain & or > where the source has plain ones."""
    if source.markup is None or _REFERENCE.search(source.text):
        return translation
    return unescaped(translation)


def words_of(text: str) -> tuple[list[str], str]:
    """Return the words of a text with the tags next to them, and what stands between two words.

    A text of a language without spaces is cut into characters.
    """
    text = text.strip()
    words = _WORD.findall(text)
    if len(words) == 1 and _UNSPACED.search(text) and "<" not in text:
        return list(text), ""
    return words, " "


def cut_in_proportion(text: str, lengths: Sequence[int]) -> list[str]:
    """Cut a text between words into as many pieces as there are lengths, in about their proportion.

    With fewer words than lengths the last pieces are empty.
    """
    text = text.strip()
    words, joint = words_of(text)
    # Each length has a space after it.
    sums = list(accumulate(length + 1 for length in lengths))
    limits = [limit * (len(text) + 1) / sums[-1] for limit in sums]

    pieces: list[list[str]] = [[] for _ in lengths]
    position = 0.0
    current = 0
    for number, word in enumerate(words):
        # The middle of a word says in which piece it is.
        is_behind = position + len(word) / 2 > limits[current]
        # Each piece gets a word, while there are enough.
        words_left = len(words) - number
        pieces_left = len(lengths) - current - 1
        if pieces[current] and pieces_left and (is_behind or words_left <= pieces_left):
            current += 1
        pieces[current].append(word)
        position += len(word) + len(joint)
    return [joint.join(piece) for piece in pieces]
