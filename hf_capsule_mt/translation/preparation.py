"""Texts of any kind, cut into the sentences that a model reads."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property, partial
from itertools import islice
from typing import Any

from regex import Pattern
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import positions, shortened, source_limit, tokenize_lines
from hf_capsule_mt.data.languages import ONE_PAIR, TOKENIZING, Direction, KnownLanguages, LanguageCodes
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.long_work import next_step

from .portable_pipeline import checked, copied
from .tags.markup import Run, read_markup
from .tags.segments import marked_segments
from .terms.glossary import Glossary
from .text.segments import Segment, cut_text, plain_segments, segments_with_codes
from .translation import PreparedText, Sentence


@dataclass(frozen=True)
class TextOptions:
    """How texts are cut into sentences, and what of them is not translated.

    Args:
        language: two letters of the language whose sentences are found, so that they are translated one by one. None
            takes a text as one sentence.
        tags: whether texts have tags of XML or HTML.
        keep: finds parts that are not translated.
        glossary: terms that translations must have.
        ignored_tags: names of elements that are not translated, in lower case.
        split: where texts are also cut: "paragraphs" at empty lines, "lines" at line ends. "never" takes a text as one
            sentence, and the language holds only for one that is too long, see [`TooLong`].
    """

    language: str | None = None
    tags: bool = False
    keep: Pattern | None = None
    glossary: Glossary | None = None
    ignored_tags: frozenset[str] = frozenset()
    split: str = "paragraphs"

    @property
    def has_segments(self) -> bool:
        """Whether a text may become several sentences, or has parts that are not translated."""
        return bool(self.language) or self.tags or self.keep is not None


class TooLong(Enum):
    """What becomes of a sentence with more tokens than the model reads."""

    REFUSE = auto()
    """A [`TooLongError`] is raised."""
    CUT = auto()
    """Its beginning is translated, and the sentence says that it is cut. The caller warns."""
    SPLIT = auto()
    """A text that is not split otherwise is cut into sentences. Others are refused."""


class TooLongError(UserError):
    """A sentence has more tokens than the model reads."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"A sentence has over {limit} tokens, and the model reads {limit}.")
        self.limit = limit


@dataclass(frozen=True)
class RawText:
    """A text that is translated, and how it is cut."""

    text: str
    options: TextOptions = field(default_factory=TextOptions)
    markup: Sequence[Run] | None = None  # The text as `read_markup` has read it, if somebody has.
    name: str = ""  # What an error calls it, such as "line 3".


class TextReader:
    """Prepares texts for a model. It needs no weights.

    Args:
        config: the model's configuration.
        tokenizer: the model's tokenizer. Threads may share it.
        prefix: is read in front of each sentence, as T5 wants it.
    """

    def __init__(self, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, prefix: str = "") -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.prefix = prefix

    @cached_property
    def languages(self) -> KnownLanguages:
        """The languages of the tokenizer."""
        return KnownLanguages(self.tokenizer)

    @property
    def codes(self) -> LanguageCodes:
        """The codes of target languages in the vocabulary, for multilingual OPUS-MT and MADLAD."""
        return self.languages.codes

    @property
    def _positions(self) -> int | None:
        return positions(self.config)

    @property
    def limit(self) -> int:
        """The most tokens of a sentence that the model reads."""
        return source_limit(self.config, self.tokenizer)

    def prepare(
        self,
        text: str,
        options: TextOptions | None = None,
        *,
        direction: Direction = ONE_PAIR,
        too_long: TooLong = TooLong.REFUSE,
        markup: Sequence[Run] | None = None,
    ) -> PreparedText:
        """Prepare one text.

        Args:
            text: a sentence, a document, or a text with tags, as the options say.
            options: by default the text is one sentence.
            direction: the languages. Models of one pair need none. Its code holds until a segment begins with another.
            too_long: what becomes of a sentence that is too long for the model.
            markup: the text as [`read_markup`] has read it, if somebody has.

        Raises:
            TooLongError: if a sentence is too long, and that is refused.
            UserError: if it is no text, a tag is wrong, or there is no such language.
        """
        source = RawText(checked(text), options or TextOptions(), markup)
        [prepared] = self.prepare_all([source], direction, too_long)
        return prepared

    def prepare_all(
        self, sources: Sequence[RawText], direction: Direction = ONE_PAIR, too_long: TooLong = TooLong.CUT
    ) -> list[PreparedText]:
        """Prepare several texts. Their sentences are tokenised together, which takes less time.

        Args:
            sources: the texts.
            direction: as in [`prepare`], and so are `too_long` and what is raised.
            too_long: what becomes of a sentence that is too long for the model.
        """
        segments = []
        for source in sources:
            with named_in_errors(source.name):
                segments.append(self._segments(source, direction))

        encoded = iter(self._encoded([segment for of_text in segments for segment in of_text], direction))
        prepared = []
        for source, of_text in zip(sources, segments, strict=True):
            next_step()
            glossary = source.options.glossary
            sentences = [_with_terms(sentence, glossary) for sentence in islice(encoded, len(of_text))]
            prepared.append(PreparedText(sentences, source.text))
        if self._positions is None:
            # It reads any length.
            return prepared

        for number, of_text in enumerate(prepared):
            if any(len(sentence.token_ids) > self.limit for sentence in of_text.sentences):
                with named_in_errors(sources[number].name):
                    prepared[number] = self._made_to_fit(of_text, sources[number], direction, too_long)
        return prepared

    def _segments(self, source: RawText, direction: Direction) -> list[Segment]:
        """Cut a text into segments with the code of their language, at least one."""
        options = source.options
        if options.split == "lines":
            return self._segments_of_lines(source.text, options, direction)
        if options.split == "never":
            options = replace(options, language=None)
        return self._segments_of_paragraphs(source.text, options, direction, source.markup)

    def _segments_of_lines(self, text: str, options: TextOptions, direction: Direction) -> list[Segment]:
        """Return the segments of each line of a text. All white space around a line stays."""
        segments: list[Segment] = []
        end_of_last = ""
        for number, line in enumerate(text.split("\n")):
            words = line.strip()
            before = line[: len(line) - len(line.lstrip())]
            after = line[len(before) + len(words) :]
            of_line = self._segments_of_paragraphs(words, options, direction)
            of_line[0] = replace(of_line[0], before=end_of_last + before + of_line[0].before)
            of_line[-1] = replace(of_line[-1], after=of_line[-1].after + after)
            segments += [replace(segment, line=segment.line + number) for segment in of_line]
            end_of_last = "\n"
        return segments

    def _segments_of_paragraphs(
        self, text: str, options: TextOptions, direction: Direction, markup: Sequence[Run] | None = None
    ) -> list[Segment]:
        cut = None
        if options.language:
            cut = partial(cut_text, language=options.language, fits=partial(self._fits, direction=direction))
        has_kept_parts = options.keep is not None and options.keep.search(text) is not None
        if options.tags and markup is None:
            markup = read_markup(text, options.ignored_tags)

        if markup is not None or has_kept_parts:
            segments = marked_segments(text, markup, options.keep, cut)
        elif cut is not None:
            segments = plain_segments(cut(text))
        else:
            # A code is looked for at the beginning.
            segments = [Segment("", text.strip() if self.codes else text, "")]
        return segments_with_codes(self.codes, segments, direction.code)

    def _encoded(self, segments: Sequence[Segment], direction: Direction) -> list[Sentence]:
        """Return segments as sentences with their token ids, those of long ones up to more than the model reads."""
        copies = [copied(segment.text) for segment in segments]
        sources = []
        for segment, copy in zip(segments, copies, strict=True):
            # A model would invent a translation of a text without letters.
            sources.append(self.prefix + segment.source if copy is None else "")
        limit = None if self._positions is None else self.limit
        with direction.spoken_by(self.tokenizer):
            encoded = tokenize_lines(self.tokenizer, sources, limit)

        sentences = []
        for segment, token_ids, copy in zip(segments, encoded, copies, strict=True):
            sentences.append(Sentence(segment, token_ids, copy, direction=direction))
        return sentences

    def _made_to_fit(
        self, prepared: PreparedText, source: RawText, direction: Direction, too_long: TooLong
    ) -> PreparedText:
        """Return a text that has sentences which are too long as the caller wants it.

        Raises:
            TooLongError: if that is refused, or the text cannot be split.
        """
        if too_long is TooLong.SPLIT and source.options.split == "never" and source.options.language:
            options = replace(source.options, split="paragraphs")
            return self.prepare(prepared.text, options, direction=direction, markup=source.markup)
        if too_long is not TooLong.CUT:
            raise TooLongError(self.limit)

        sentences = []
        for sentence in prepared.sentences:
            is_too_long = len(sentence.token_ids) > self.limit
            sentences.append(self._cut(sentence) if is_too_long else sentence)
        return PreparedText(sentences, prepared.text)

    def _fits(self, part: str, direction: Direction) -> bool:
        """Whether the model can read a part of a text at once."""
        # A code takes one token.
        most = self.limit - bool(self.codes)
        with direction.spoken_by(self.tokenizer):
            beginning = shortened(self.tokenizer, self.prefix + part, self.limit)
            return len(self._token_ids(beginning)) <= most

    def _token_ids(self, text: str, **options: Any) -> list[int]:
        # A tokenizer has one way to cut for all threads.
        with TOKENIZING:
            return self.tokenizer(text, verbose=False, **options)["input_ids"]

    def _cut(self, sentence: Sentence) -> Sentence:
        """Return a sentence with as many tokens as the model reads."""
        source = shortened(self.tokenizer, self.prefix + sentence.segment.source, self.limit)
        with sentence.direction.spoken_by(self.tokenizer):
            token_ids = self._token_ids(source, truncation=True, max_length=self.limit)
        return replace(sentence, token_ids=token_ids, is_cut=True)


@contextmanager
def named_in_errors(name: str) -> Iterator[None]:
    """Put the name of a text or file in front of a UserError, if it has one. What is raised does not know it."""
    try:
        yield
    except UserError as error:
        if not name:
            raise
        raise UserError(f"{name}: {error}") from error


def _with_terms(sentence: Sentence, glossary: Glossary | None) -> Sentence:
    """Return a sentence with its terms. What is kept is not translated, so it needs none."""
    if glossary is None or sentence.copy is not None:
        return sentence
    segment = sentence.segment
    terms = []
    for term in glossary.terms(segment.text):
        if not any(start < term.end and term.start < end for start, end in segment.kept_spans):
            terms.append(term)
    return replace(sentence, terms=tuple(terms))
