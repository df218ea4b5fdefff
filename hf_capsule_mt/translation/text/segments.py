"""Documents of any length: cut into segments that a model can read, and joined again with the spacing of the source."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from hf_capsule_mt.data.languages import LanguageCodes
from hf_capsule_mt.environment import check_installed
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.language_tags import language_of
from hf_capsule_mt.long_work import next_step

from .words import has_letters

Fits = Callable[[str], bool]
Place = tuple[int, int, int]
"""Characters of what a model wrote, from the first to the one behind the last, and the place in the translation,
without tags, where they stand."""

# White space beyond ASCII, on which sentencex fails in front of a full stop.
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
_PARAGRAPHS = re.compile(r"(?<=\n)(?=[^\S\n]*\n)")
# The pieces of a sentence that is too long, the best first: clauses, then words.
_PIECES = (re.compile(r"(?s).*?[,;:–—,、;:،؛]\s*|.+"), re.compile(r"\S+\s*|\s+"))

# Right behind a full stop: the number of a note, such as [^1] and ¹, or a bracket that the sentence closes.
_NOTE = re.compile(r"""(?:\[\^?[\w.:-]{1,40}\](?!\()|[)\]}”’»›"'*†‡¹²³⁰⁴-⁹⁽⁾])+""")

_WINDOW = 10_000
"""Characters in which sentences are looked for at once, since the time of sentencex grows with the square."""


class Restored(NamedTuple):
    """What a model wrote, with the tags and kept parts of its source."""

    text: str
    places: tuple[Place, ...] | None = None
    """Where the words of the model stand. The others were replaced by kept parts. None: all words are the model's."""


@dataclass(frozen=True)
class Segment:
    """A part of a text that is translated by itself."""

    before: str  # White space in front of it.
    text: str  # The words, with single spaces. It may be empty.
    after: str  # White space after it.
    line: int = field(default=0, compare=False)  # The line of the document, from 0, on which the words begin.
    # The code of the language to write, for models that need it. The text may begin with it.
    code: str = field(default="", compare=False)
    # Where kept parts stand in the text.
    kept_spans = ()
    has_parts = False
    """Whether there are tags or kept parts."""
    needs_alignment = False
    """Whether tags or kept parts stand between words, so that the words must be aligned."""

    @property
    def source(self) -> str:
        """The text with its code, as the model reads it."""
        is_told = not self.text or self.text.startswith(self.code)
        if is_told:
            return self.text
        return f"{self.code} {self.text}"

    def put_back(self, translation: str, align: Any = None) -> str:
        """Return a translation with the tags and kept parts. It takes `align` if `needs_alignment`."""
        return self.restored(translation, align).text

    def restored(self, translation: str, align: Any = None, terms: Sequence[Any] = ()) -> Restored:
        """Return a translation with the tags and kept parts, and where its own words stand.

        Args:
            translation: what the model wrote.
            align: aligns words, if `needs_alignment`.
            terms: of a glossary, one `Term` each. No kept part takes the place of one.
        """
        return Restored(translation)

    def without_tags(self, translation: str) -> str:
        """Return a translation that `put_back` has returned without its tags."""
        return translation

    def around(self, translation: str) -> str:
        """Return a translation with the white space of the source."""
        return f"{self.before}{translation}{self.after}"


def check_language(language: str) -> None:
    """Raise a UserError if there is no such language code, or sentencex is not installed."""
    language_code(language)
    _finder_of_sentences()


def cut_text(text: str, language: str, fits: Fits) -> list[str]:
    """Return the parts of a text that are translated one by one, at least one. Joined, they are the text.

    Blank lines end a paragraph, and the library sentencex finds sentences, by a code such as "en" or "eng_Latn". A
    sentence that does not fit the model is cut after clause marks, then between words, then within a word.

    Raises:
        UserError: if nothing fits, and as [`check_language`] does.
    """
    language = language_code(language)
    parts: list[str] = []
    for sentence in _sentences(text, language):
        # White space belongs to the sentence before it.
        if parts and not sentence.strip():
            parts[-1] += sentence
        else:
            parts += _shortened(sentence, fits)
    return parts or [""]


def plain_segments(parts: Iterable[str]) -> list[Segment]:
    """Return the segments of a text without tags and kept parts, at least one, from parts as [`cut_text`] returns them.

    A part without letters is white space of the next segment, or of the last one.
    """
    segments: list[Segment] = []
    waiting = ""
    line = 0
    for part in parts:
        text = part.strip()
        if has_letters(text):
            begin = part.index(text)
            before = part[:begin]
            line_of_text = line + before.count("\n")
            after = part[begin + len(text) :]
            segments.append(Segment(waiting + before, " ".join(text.split()), after, line_of_text))
            waiting = ""
        else:
            waiting += part
        line += part.count("\n")

    if not segments:
        return [Segment(waiting, "", "")]
    segments[-1] = replace(segments[-1], after=segments[-1].after + waiting)
    return segments


def language_code(code: str | None) -> str:
    """Return the two letters of a language, of a code such as "en_XX", "en-GB" or "eng_Latn".

    Raises:
        UserError: if the language has no two letters. sentencex would silently apply the rules of English.
    """
    if code is None:
        raise UserError("The source language is missing. Give documents its two letters, such as en or cs.")
    language = language_of(code)
    if language is None or len(language) != 2:
        raise UserError(f"{code!r} is no language of ISO 639-1. Give documents its two letters, such as en or cs.")
    return language


def segments_with_codes(codes: LanguageCodes, segments: Iterable[Segment], code: str = "") -> list[Segment]:
    """Return the segments of a text with their code: `code`, until a segment begins with another.

    A segment that is only a code is left out. The space around it stays.

    Raises:
        UserError: if a segment begins with a code that the tokenizer lacks.
    """
    if not codes:
        return list(segments)

    coded: list[Segment] = []
    space = ""
    for segment in segments:
        code = codes.at_head(segment.text) or code
        if segment.text and segment.text == code and not segment.has_parts:
            space += segment.before + segment.after.lstrip(" ")
        else:
            coded.append(replace(segment, before=space + segment.before, code=code))
            space = ""

    if not coded or space:
        coded.append(Segment(space, "", "", code=code))
    return coded


def texts_with_codes(codes: LanguageCodes, texts: Sequence[str], code: str) -> list[str]:
    """Return texts with this code, unless they begin with another."""
    if not codes:
        return list(texts)
    coded = []
    for text in texts:
        segment = Segment("", text.strip(), "")
        [with_code] = segments_with_codes(codes, [segment], code)
        coded.append(with_code.source)
    return coded


def _sentences(document: str, language: str) -> Iterator[str]:
    """Yield the sentences of a document, each with the white space after it. Joined, they are the document."""
    segment = _finder_of_sentences()
    for paragraph in _PARAGRAPHS.split(document):
        if not paragraph.strip():
            yield paragraph
            continue

        start = 0
        while start < len(paragraph):
            window = _WIDE_SPACE.sub(" ", paragraph[start : start + _WINDOW])
            sentences = list(segment(language, window))
            # The last one may go on behind the window, unless it is the only one, and longer than any model reads.
            if start + _WINDOW < len(paragraph) and len(sentences) > 1:
                sentences.pop()

            # The sentences themselves have other white space, so only their lengths are used.
            for end in list(accumulate(map(len, sentences), initial=start))[1:]:
                next_step()
                end = _behind_note(paragraph, end)
                if start < end:
                    yield paragraph[start:end]
                    start = end


def _behind_note(paragraph: str, end: int) -> int:
    """Return the end of a sentence with the mark of a note right behind it, which sentencex gives to the next one."""
    note = _NOTE.match(paragraph, end)
    if note is None or paragraph[end - 1].isspace():
        return end
    behind = paragraph[note.end() : note.end() + 1]
    # Chinese and Japanese have no space behind a mark.
    if behind and not behind.isspace() and not note[0].endswith("]"):
        return end
    return note.end()


@cache
def _finder_of_sentences() -> Callable[[str, str], list[str]]:
    """Return the function of sentencex. It is asked once, not at each text, whether that is installed."""
    check_installed("sentencex", "documents")
    from sentencex import segment

    return segment


def _shortened(text: str, fits: Fits, pieces: Sequence[re.Pattern] = _PIECES) -> list[str]:
    """Return the parts of a text, each as long as fits.

    Args:
        text: a sentence, or a piece of one.
        fits: whether the model can read a text.
        pieces: expressions that find the pieces of a text, the best first. After the last one a text is halved.

    Raises:
        UserError: if not even one character fits.
    """
    if fits(text.strip()):
        return [text]

    if pieces:
        candidates = pieces[0].findall(text)
    elif len(text) > 1:
        middle = len(text) // 2
        candidates = [text[:middle], text[middle:]]
    else:
        raise UserError(f"The model cannot read {text!r}.")

    parts: list[str] = []
    for candidate in candidates:
        next_step()
        if parts and fits((parts[-1] + candidate).strip()):
            parts[-1] += candidate
        else:
            parts += _shortened(candidate, fits, pieces[1:])
    return parts
