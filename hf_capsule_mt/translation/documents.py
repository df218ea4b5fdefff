"""Documents of any length: cut into segments that a model can read, and joined again with the spacing of the source."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

Fits = Callable[[str], bool]

# White space beyond ASCII, on which sentencex fails in front of a full stop.
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
_PARAGRAPHS = re.compile(r"(?<=\n)(?=[^\S\n]*\n)")
# Where a sentence that is too long is cut, the best first: after clause marks, between words.
_CUTS = (re.compile(r"(?<=[,;:–—,、;:،؛])\s*"), re.compile(r"(?<=\s)(?=\S)"))

# ISO 639-1, and "sh", which was in it. For other codes sentencex silently applies the rules of English.
_CODES = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss "
    "st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
_LANGUAGES = frozenset(_CODES.split())


@dataclass(frozen=True)
class Segment:
    """A part of a text that is translated by itself.

    Attributes:
        before: white space in front of it.
        text: the words, with single spaces; may be empty.
        after: white space behind it.
        line: the line of the document, from 0, on which the words begin.
        code: the code of the language to write, for models that need it. The text may begin with it.
    """

    before: str
    text: str
    after: str
    line: int = field(default=0, compare=False)
    code: str = field(default="", compare=False)

    @property
    def source(self) -> str:
        """The text with its code, as the model reads it."""
        is_told = not self.text or self.text.startswith(self.code)
        return self.text if is_told else f"{self.code} {self.text}"

    @property
    def has_parts(self) -> bool:
        """Whether the text has tags or kept parts."""
        return False

    def around(self, translation: str) -> str:
        """Return a translation with the white space of the source."""
        return f"{self.before}{translation}{self.after}"

    def on_line(self, line: int) -> "Segment":
        """Return the same segment, `line` lines further down."""
        return replace(self, line=self.line + line)


def check_language(language: str) -> None:
    """Raise a ValueError if there is no such language code, or sentencex is not installed."""
    if language not in _LANGUAGES:
        raise ValueError(f"documents is {language!r}. Give the two letters of a language, such as en or cs.")
    _segmenter()


def cut_document(document: str, language: str, fits: Fits) -> list[Segment]:
    """Return the segments of a document, at least one; see [`cut_text`]. Line breaks in a segment become spaces."""
    segments, line = [], 0
    for part in cut_text(document, language, fits):
        segments.append(whole_segment(part, line))
        line += part.count("\n")
    return segments


def cut_text(text: str, language: str, fits: Fits) -> list[str]:
    """Return the parts of a text that are translated one by one, at least one. Joined, they are the text.

    Blank lines end a paragraph, and the library sentencex finds sentences. A sentence that is too long is cut after
    clause marks, then between words, then within a word.

    Args:
        text: any text.
        language: its code of two letters, such as "en".
        fits: whether the model can read a text.

    Raises:
        ValueError: if nothing fits, and as [`check_language`] does.
    """
    check_language(language)
    parts: list[str] = []
    for sentence in _sentences(text, language):
        # White space belongs to the sentence before it.
        if parts and not sentence.strip():
            parts[-1] += sentence
        else:
            parts += _shortened(sentence, fits)
    return parts or [""]


def whole_segment(part: str, line: int = 0) -> Segment:
    """Return a text as one segment."""
    text = part.strip()
    start = part.find(text) if text else len(part)
    line += part.count("\n", 0, start)
    return Segment(part[:start], " ".join(text.split()), part[start + len(text) :], line)


def language_code(code: str | None) -> str:
    """Return the two letters of a language in a code such as "en_XX" or "en-GB"; raise a ValueError if it has none."""
    letters = re.match(r"[a-z]{2}(?![a-zA-Z])", code or "")
    if letters is None:
        raise ValueError(f"The source language is {code!r}. Give documents the two letters of a language, such as en.")
    return letters[0]


def _sentences(document: str, language: str) -> Iterator[str]:
    for paragraph in _PARAGRAPHS.split(document):
        start = 0
        for sentence in _segmenter()(language, _WIDE_SPACE.sub(" ", paragraph)) if paragraph.strip() else [paragraph]:
            yield paragraph[start : (start := start + len(sentence))]


def _segmenter() -> Callable[[str, str], Iterator[str]]:
    try:
        from sentencex import segment
    except ImportError as error:
        raise ValueError('documents need sentencex; pip install -e ".[documents]"') from error
    return segment


def _shortened(text: str, fits: Fits, cuts: Sequence[re.Pattern] = _CUTS) -> list[str]:
    """Return the parts of a text, each as long as fits."""
    if fits(text.strip()):
        return [text]
    if not cuts:
        return _halves(text, fits)
    clauses = [clause for clause in _split(cuts[0], text) if clause]
    parts: list[str] = []
    for clause in clauses:
        if parts and fits((parts[-1] + clause).strip()):
            parts[-1] += clause
        else:
            parts += _shortened(clause, fits, cuts[1:])
    return parts


def _split(cut: re.Pattern, text: str) -> list[str]:
    ends = [match.end() for match in cut.finditer(text)]
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)])]


def _halves(word: str, fits: Fits) -> list[str]:
    if len(word) < 2:
        raise ValueError(f"the model cannot read {word!r}")
    middle = len(word) // 2
    return [part for half in (word[:middle], word[middle:]) for part in ([half] if fits(half) else _halves(half, fits))]
