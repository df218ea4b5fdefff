"""Texts of any kind, cut into the sentences that a model reads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from regex import Pattern
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import cut_lines, positions, shortened, source_limit, tokenize_lines
from hf_capsule_mt.data.languages import ONE_PAIR, TOKENIZING, Direction, KnownLanguages, LanguageCodes
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.long_work import next_step

from .portable_pipeline import checked, copied
from .tags.markup import Run, read_markup
from .tags.segments import marked_segments
from .terms.glossary import Glossary, Term
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
        split: where sentences also end: "paragraphs" at empty lines, "lines" at line ends. With "never" the server cuts
            only what the model could not read.
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
    def limit(self) -> int:
        """The most tokens of a sentence that the model reads."""
        return source_limit(self.config, self.tokenizer)

    def prepare(
        self,
        text: str,
        options: TextOptions | None = None,
        *,
        direction: Direction = ONE_PAIR,
        truncation: bool = False,
        markup: Sequence[Run] | None = None,
    ) -> PreparedText:
        """Prepare one text.

        Args:
            text: a sentence, a document, or a text with tags, as the options say.
            options: by default the text is one sentence.
            direction: the languages. Models of one pair need none.
            truncation: whether a sentence that is too long for the model is cut. By default it is refused.
            markup: the text as [`read_markup`] has read it, if somebody has.

        Raises:
            UserError: if it is no text, a tag is wrong, a sentence is too long, or there is no such language.
        """
        text = checked(text)
        options = options or TextOptions()
        segments = self.segments(text, options, direction, markup)
        sentences = self.encode(segments, direction, glossary=options.glossary)
        for index, sentence in enumerate(sentences):
            if self._is_refused(sentence):
                if not truncation:
                    raise UserError(
                        f"A text has over {self.limit} tokens, and the model reads {self.limit}. Give documents, such "
                        "as documents='en', to translate its sentences one by one, or truncation=True to cut it."
                    )
                sentences[index] = self._cut(sentence)
        return PreparedText(sentences, text)

    def segments(
        self,
        text: str,
        options: TextOptions,
        direction: Direction = ONE_PAIR,
        markup: Sequence[Run] | None = None,
    ) -> list[Segment]:
        """Cut a text into segments with the code of their language, at least one.

        Args:
            text: the text.
            options: how it is cut.
            direction: the languages. Its code holds until a segment begins with another.
            markup: as in [`prepare`].

        Raises:
            UserError: if a tag is wrong, or a segment begins with a code that there is not.
        """
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

    def encode(
        self,
        segments: Sequence[Segment],
        direction: Direction = ONE_PAIR,
        numbers: Sequence[int] | None = None,
        glossary: Glossary | None = None,
    ) -> list[Sentence]:
        """Return segments as sentences with their token ids.

        Args:
            segments: as [`segments`] returns them, of any number of texts.
            direction: the languages of all of them.
            numbers: the lines of the segments. With them, longer segments than the model reads are cut, and a warning
                names the first line. Otherwise they stay as they are.
            glossary: its terms are looked for in the segments, without their tags and kept parts.
        """
        copies = [copied(segment.text) for segment in segments]
        sources = []
        for segment, copy in zip(segments, copies, strict=True):
            # A model would invent a translation of a text without letters.
            sources.append(self.prefix + segment.source if copy is None else "")
        is_limited = numbers is not None or positions(self.config) is not None
        cut: set[int] = set()
        with direction.spoken_by(self.tokenizer):
            encoded = tokenize_lines(self.tokenizer, sources, self.limit if is_limited else None)
            if numbers is not None:
                cut = cut_lines(self.tokenizer, sources, encoded, self.limit, numbers)
        sentences = []
        for index, segment in enumerate(segments):
            next_step()
            sentence = Sentence(segment, encoded[index], copies[index], index in cut, direction)
            if glossary is not None and copies[index] is None:
                sentence = replace(sentence, terms=_terms_outside_of_kept_parts(glossary, segment))
            sentences.append(sentence)
        return sentences

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

    def _is_refused(self, sentence: Sentence) -> bool:
        # A model without positions reads any length.
        return positions(self.config) is not None and len(sentence.token_ids) > self.limit

    def _cut(self, sentence: Sentence) -> Sentence:
        source = self.prefix + sentence.segment.source
        with sentence.direction.spoken_by(self.tokenizer):
            token_ids = self._token_ids(source, truncation=True, max_length=self.limit)
        return replace(sentence, token_ids=token_ids, is_cut=True)


def _terms_outside_of_kept_parts(glossary: Glossary, segment: Segment) -> tuple[Term, ...]:
    """Return the terms of a segment. What is kept is not translated, so it needs no term."""
    terms = []
    for term in glossary.terms(segment.text):
        if not any(start < term.end and term.start < end for start, end in segment.kept_spans):
            terms.append(term)
    return tuple(terms)
