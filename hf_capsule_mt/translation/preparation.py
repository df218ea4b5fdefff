"""Texts of any kind: the sentences that a model reads of them, and the translations that these become.

[`TextReader`] cuts a text into sentences. [`PreparedText`] joins the translations of its sentences again.
"""

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

from .alignment.links import WordLink, copied_words, joined_links
from .portable_pipeline import checked, copied
from .tags.markup import Run, read_markup
from .tags.segments import marked_segments
from .terms.glossary import Glossary, Term
from .text.segments import Segment, cut_text, plain_segments, segments_with_codes


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


@dataclass(frozen=True)
class Translation:
    """A translation of a text or of a sentence, with its tags and kept parts.

    The score is the log-probability of its tokens, divided by their number to the power of `length_penalty`, by default
    1. So it is 0 at most, and higher is better. The number has the end of the translation. The score of a text is the
    mean of those of its sentences, by the number of tokens of their sources.
    """

    text: str
    score: float | None = None  # None if nobody asked for it, or nothing was decoded.
    links: tuple[WordLink, ...] | None = None  # One for each aligned word of the translation. None if not asked for.
    alternatives: tuple["Translation", ...] = ()  # Other translations, the best first.

    def number(self, index: int) -> "Translation":
        """Return this translation for 0, and an alternative for others. There may be fewer: then it is the last."""
        ranked = [self, *self.alternatives]
        return ranked[min(index, len(ranked) - 1)]

    def fields(self, has_score: bool) -> dict[str, Any]:
        """Return what a pipeline returns: `translation_text`, and what was asked for."""
        record: dict[str, Any] = {"translation_text": self.text}
        if has_score:
            record["score"] = self.score
        if self.links is not None:
            record["word_alignment"] = [(link.source, link.target) for link in self.links]
            record["character_alignment"] = [(link.source_span, link.target_span) for link in self.links]
        return record


@dataclass(frozen=True)
class Sentence:
    """A segment of a text, and what the model reads of it."""

    segment: Segment
    token_ids: list[int]  # Empty if nothing is decoded.
    copy: str | None = None  # The translation of a segment without letters.
    is_cut: bool = False  # It was longer than the model reads.
    direction: Direction = ONE_PAIR  # Whose first token its translation begins with.
    terms: tuple[Any, ...] = ()  # What a glossary says that its translation must have, one `Term` each.

    def unread(self, *, has_links: bool = False) -> Translation:
        """Return the translation of a sentence without token ids, with its tags and kept parts.

        Without letters it is copied. The tokenizer makes nothing of some words.
        """
        copied = self.copy or ""
        links = None
        if has_links:
            links = copied_words(self.segment.text, copied)
        return Translation(self.segment.put_back(copied), None, links)


@dataclass(frozen=True)
class PreparedText:
    """The sentences of a text, at least one."""

    sentences: Sequence[Sentence]
    text: str = ""  # The source.

    def joined(self, translations: Sequence[Translation], *, has_links: bool = False) -> Translation:
        """Return the translation of the text. Its alternative k has alternative k of each sentence.

        Args:
            translations: those of its sentences.
            has_links: whether they have links. Then the text has them too.
        """
        count = 1 + max(len(translation.alternatives) for translation in translations)
        lengths = [len(sentence.token_ids) for sentence in self.sentences]
        ranked = []
        for number in range(count):
            chosen = [translation.number(number) for translation in translations]
            parts = []
            for sentence, translation in zip(self.sentences, chosen, strict=True):
                parts.append(sentence.segment.around(translation.text))
            text = "".join(parts)
            links = None
            if has_links:
                links = self._links(chosen, text)
            score = score_of_text([translation.score for translation in chosen], lengths)
            ranked.append(Translation(text, score, links))
        return with_alternatives(ranked)

    def _links(self, translations: Sequence[Translation], target: str) -> tuple[WordLink, ...]:
        """Return which words of the text and of its translation belong together."""
        parts: list[tuple[str, str, Sequence[WordLink]]] = []
        for sentence, translation in zip(self.sentences, translations, strict=True):
            before = sentence.segment.before
            after = sentence.segment.after
            # What has no letters, such as a number between two sentences, stands there too.
            parts.append((before, before, copied_words(before, before)))
            parts.append((sentence.segment.text, translation.text, translation.links or ()))
            parts.append((after, after, copied_words(after, after)))
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


def with_alternatives(ranked: Sequence[Translation]) -> Translation:
    """Return the first translation with the others as its alternatives."""
    return replace(ranked[0], alternatives=tuple(ranked[1:]))


def score_of_text(scores: Sequence[float | None], lengths: Sequence[int]) -> float | None:
    """Return the mean of the scores of sentences, by the number of tokens of their sources. None if none has any."""
    total = 0.0
    weight = 0
    for score, length in zip(scores, lengths, strict=True):
        if score is not None:
            total += score * length
            weight += length
    if not weight:
        return None
    return total / weight
