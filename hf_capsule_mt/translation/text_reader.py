"""Texts of any kind: cut into sentences that a model reads, and put together again from their translations.

[`TextReader`] cuts a text into sentences, and makes their token ids. [`PreparedText`] joins their translations with the
spacing, the tags and the kept parts of the source. Between the two, [`TextTranslator`] in texts.py decodes sentences.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from regex import Pattern
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import TOKENIZING, cut_lines, positions, shortened, source_limit, tokenize_lines
from hf_capsule_mt.data.language_codes import LanguageCodes
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.long_work import next_step

from .direction import ONE_PAIR, Direction, KnownLanguages
from .documents import Segment, cut_text, segments_with_codes
from .glossary import Glossary, Term
from .marked_segments import marked_segments
from .pipeline_translation import checked, copied
from .term_marks import TermMarks
from .translations import (
    LinkedPart,
    Translation,
    WordLink,
    copied_words,
    joined_links,
    score_of_text,
    with_alternatives,
)


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
    """

    language: str | None = None
    tags: bool = False
    keep: Pattern | None = None
    glossary: Glossary | None = None
    ignored_tags: frozenset[str] = frozenset()

    @property
    def has_segments(self) -> bool:
        """Whether a text may become several sentences, or has parts that are not translated."""
        return bool(self.language) or self.tags or self.keep is not None


@dataclass(frozen=True)
class Sentence:
    """A segment of a text, and what the model reads of it."""

    segment: Segment
    token_ids: list[int]  # Empty if nothing is decoded.
    copy: str | None = None  # The translation of a segment without letters.
    is_cut: bool = False  # It was longer than the model reads.
    direction: Direction = ONE_PAIR  # Whose first token its translation begins with.
    terms: tuple[Term, ...] = ()  # Entries of a glossary that its translation must have.

    def put_back(self, translation: Translation | None) -> str:
        """Return a translation with the tags and kept parts of the sentence. None is given if nothing was decoded."""
        if self.copy is not None:
            return self.segment.put_back(self.copy)
        if translation is None:
            # The tokenizer makes nothing of the words, but there may be tags.
            return self.segment.put_back("")
        return self.segment.put_back(translation.text, translation.align)

    def links(self, translation: Translation | None) -> tuple[WordLink, ...]:
        """Return which words of the sentence and of its translation, which has links, belong together."""
        if self.copy is not None:
            return copied_words(self.segment.text, self.copy)
        return () if translation is None else translation.links


@dataclass(frozen=True)
class PreparedText:
    """The sentences of a text, at least one."""

    sentences: list[Sentence]
    text: str = ""  # The source.

    def put_back(self, translations: Iterable[Translation | None]) -> str:
        """Return the translation of the text from those of its sentences, None for those without token ids."""
        parts = []
        for sentence, translation in zip(self.sentences, translations, strict=True):
            next_step()
            parts.append(sentence.segment.around(sentence.put_back(translation)))
        return "".join(parts)

    def translation(self, translations: Sequence[Translation | None], *, has_links: bool = False) -> Translation:
        """Return the translation of the text from those of its sentences.

        Alternative k has alternative k of each sentence. The score is the mean of those of the sentences, by the number
        of tokens of their sources.

        Args:
            translations: of the sentences, None for those without token ids.
            has_links: whether the words of the text are aligned. The translations of the sentences have links then.
        """
        count = 1
        for translation in translations:
            if translation is not None:
                count = max(count, 1 + len(translation.alternatives))
        ranked = []
        for number in range(count):
            chosen = _with_number(translations, number)
            ranked.append(self._joined(chosen, has_links))
        return with_alternatives(ranked)

    def _joined(self, translations: Sequence[Translation | None], has_links: bool) -> Translation:
        """Return one translation of the text."""
        text = self.put_back(translations)
        links = self._links(translations, text) if has_links else None
        scores = []
        for translation in translations:
            scores.append(None if translation is None else translation.score)
        lengths = [len(sentence.token_ids) for sentence in self.sentences]
        return Translation(text, score_of_text(scores, lengths), links)

    def _links(self, translations: Sequence[Translation | None], target: str) -> tuple[WordLink, ...]:
        """Return which words of the text and of its translation belong together."""
        parts: list[LinkedPart] = []
        for sentence, translation in zip(self.sentences, translations, strict=True):
            before = sentence.segment.before
            after = sentence.segment.after
            # What has no letters, such as a number between two sentences, stands there too.
            parts.append(LinkedPart(before, before, copied_words(before, before)))
            parts.append(LinkedPart(sentence.segment.text, sentence.put_back(translation), sentence.links(translation)))
            parts.append(LinkedPart(after, after, copied_words(after, after)))
        return joined_links(parts, self.text, target)


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

    @cached_property
    def marks(self) -> TermMarks | None:
        """The marks of terms that the model has learned to read, or None."""
        return TermMarks.of(self.tokenizer)

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
    ) -> PreparedText:
        """Prepare one text.

        Args:
            text: a sentence, a document, or a text with tags, as the options say.
            options: by default the text is one sentence.
            direction: the languages. Models of one pair need none.
            truncation: whether a sentence that is too long for the model is cut. By default it is refused.

        Raises:
            UserError: if it is no text, a tag is wrong, a sentence is too long, or there is no such language.
        """
        text = checked(text)
        segments = self.segments(text, options or TextOptions(), direction)
        glossary = None if options is None else options.glossary
        sentences = self.encode(segments, direction, glossary=glossary)
        for index, sentence in enumerate(sentences):
            if self._is_refused(sentence):
                if not truncation:
                    raise UserError(
                        f"A text has over {self.limit} tokens, and the model reads {self.limit}. Give documents, such "
                        "as documents='en', to translate its sentences one by one, or truncation=True to cut it."
                    )
                sentences[index] = self._cut(sentence)
        return PreparedText(sentences, text)

    def segments(self, text: str, options: TextOptions, direction: Direction = ONE_PAIR) -> list[Segment]:
        """Cut a text into segments with the code of their language, at least one.

        Args:
            text: the text.
            options: how it is cut.
            direction: the languages. Its code holds until a segment begins with another.

        Raises:
            UserError: if a tag is wrong, or a segment begins with a code that there is not.
        """
        has_kept_parts = options.keep is not None and options.keep.search(text) is not None
        if options.language or options.tags or has_kept_parts:
            fits = partial(self._fits, direction=direction)
            cut = partial(cut_text, language=options.language, fits=fits) if options.language else None
            segments = marked_segments(text, options.tags, options.keep, cut, options.ignored_tags)
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
                sentence = self.with_terms(sentence, _terms_outside_of_kept_parts(glossary, segment))
            sentences.append(sentence)
        return sentences

    def with_terms(self, sentence: Sentence, terms: Sequence[Term]) -> Sentence:
        """Return a sentence with terms, which are marked in its token ids if the model reads marks, and they fit."""
        sentence = replace(sentence, terms=tuple(terms))
        if self.marks is None or not terms:
            return sentence
        forms = {term: term.entry.targets[0] for term in terms}
        marked = self.marks.marked(self.tokenizer, sentence.segment.text, sentence.token_ids, forms)
        return replace(sentence, token_ids=marked) if len(marked) <= self.limit else sentence

    def unmarked(self, sentence: Sentence, attention: Tensor) -> tuple[list[int], Tensor]:
        """Return the token ids of a sentence, and the attention to them, `[target, source]`, without marks of terms."""
        if self.marks is None:
            return sentence.token_ids, attention
        return self.marks.without(sentence.token_ids, attention)

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


def _with_number(translations: Sequence[Translation | None], number: int) -> list[Translation | None]:
    """Return alternative `number` of each translation, where there is a translation."""
    numbered = []
    for translation in translations:
        numbered.append(None if translation is None else translation.number(number))
    return numbered


def _terms_outside_of_kept_parts(glossary: Glossary, segment: Segment) -> tuple[Term, ...]:
    """Return the terms of a segment. What is kept is not translated, so it needs no term."""
    terms = []
    for term in glossary.terms(segment.text):
        if not any(start < term.end and term.start < end for start, end in segment.kept_spans):
            terms.append(term)
    return tuple(terms)
