"""Texts of any kind: prepared as sentences that a model reads, decoded in batches, and joined again.

A text goes down once and up once. [`TextReader`] cuts it into sentences and makes their token ids. [`TextTranslator`]
decodes sentences, of one text or of many. [`PreparedText`] joins their translations with the spacing, the tags and the
kept parts of the source.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

import torch
from regex import Pattern
from torch import Tensor
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import TOKENIZING, cut_lines, positions, shortened, source_limit, tokenize_lines
from hf_capsule_mt.data.language_codes import LanguageCodes
from hf_capsule_mt.data.lines import unbroken
from hf_capsule_mt.errors import UserError

from .attention import aligner, attended_span, cross_attention
from .direction import ONE_PAIR, Direction, KnownLanguages
from .documents import Segment, cut_text, segments_with_codes
from .generate_settings import settings_of, with_tokenizer
from .glossary import Glossary, Term, places_of_terms
from .marked_segments import Align, marked_segments
from .pipeline_translation import checked, copied
from .term_marks import TermMarks
from .term_writer import PlacedTerm, TermSentence, TermWriter
from .token_rows import Written, pad_rows
from .translation_report import Judgement, judge
from .translations import (
    NOT_ALIGNABLE,
    LinkedPart,
    Translation,
    WordLink,
    copied_words,
    joined_links,
    linked_words,
    score_of_text,
    with_alternatives,
)
from .translator import generate_batches
from .trust import ForcedTarget, force_targets, read_signs, sequence_scores


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
        count = max(len(one.alternatives) + 1 if one else 1 for one in translations)
        ranked = []
        for number in range(count):
            ranked.append(self._joined([one and one.number(number) for one in translations], has_links))
        return with_alternatives(ranked)

    def _joined(self, translations: Sequence[Translation | None], has_links: bool) -> Translation:
        """Return one translation of the text."""
        text = self.put_back(translations)
        links = self._links(translations, text) if has_links else None
        scores = [one and one.score for one in translations]
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
        if options.has_segments:
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


def check_alignable(sentences: Iterable[Sentence]) -> None:
    """Raise a UserError if a sentence has tags or kept parts, whose words are not those of the source."""
    if any(sentence.segment.has_parts for sentence in sentences):
        raise UserError(NOT_ALIGNABLE)


def check_glossary_count(count: int) -> None:
    """Raise a UserError if there must be several translations with the terms of a glossary."""
    if count > 1:
        raise UserError("A glossary gives one translation. Leave out glossary, or give num_return_sequences=1.")


@dataclass(frozen=True)
class _Wanted:
    """What is asked for besides the text of a translation."""

    judgements: bool
    judged_scores: bool  # Whether judgements have scores.
    scores: bool
    alignments: bool


def _first_of_each(counts: Sequence[int], most: int) -> list[int]:
    """Return the rows of so many translations of each sentence, each of which has `most` rows."""
    kept = []
    for number, count in enumerate(counts):
        kept += range(number * most, number * most + count)
    return kept


def _terms_outside_of_kept_parts(glossary: Glossary, segment: Segment) -> tuple[Term, ...]:
    """Return the terms of a segment. What is kept is not translated, so it needs no term."""
    terms = []
    for term in glossary.terms(segment.text):
        if not any(start < term.end and term.start < end for start, end in segment.kept_spans):
            terms.append(term)
    return tuple(terms)


class TextTranslator:
    """Translates texts with a model: prepares them, decodes their sentences, and joins the translations.

    Threads may share one. Sentences of different texts may be decoded together:

        prepared = [translator.reader.prepare(text) for text in texts]
        sentences = [sentence for text in prepared for sentence in text.sentences if sentence.token_ids]
        translations = translator.decode(sentences, num_beams=4)

    Args:
        model: any encoder-decoder that has `generate()`.
        tokenizer: its tokenizer.
        prefix: is read in front of each sentence, as T5 wants it.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prefix: str = "") -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.reader = TextReader(model.config, tokenizer, prefix)
        self.terms = TermWriter(model, tokenizer)

    def decode(self, sentences: Sequence[Sentence], **options: Any) -> list[Translation]:
        """Decode sentences, all in one batch, and return their translations.

        Args:
            sentences: with token ids, and with one target language.
            **options: of [`decode_batches`].
        """
        translations: dict[int, Translation] = {}
        for batch in self.decode_batches(sentences, [range(len(sentences))], **options):
            translations.update(batch)
        return [translations[index] for index in range(len(sentences))]

    def decode_batches(
        self,
        sentences: Sequence[Sentence],
        batches: Iterable[Sequence[int]],
        *,
        judges: bool = False,
        scores: bool = True,
        return_scores: bool = False,
        return_alignments: bool = False,
        num_return_sequences: int | Sequence[int] = 1,
        **options: Any,
    ) -> Iterator[dict[int, Translation]]:
        """Decode sentences in batches. Yield the translations of each batch by the index of their sentence.

        Args:
            sentences: with one target language.
            batches: indices of sentences with token ids.
            judges: whether translations have a judgement.
            scores: whether a judgement has a score. It costs another pass of the model.
            return_scores: whether translations have a score. The engine's beam search has it at hand. Others cost
                another pass of the model.
            return_alignments: whether translations have links of words. It costs another pass of the model.
            num_return_sequences: how many translations a sentence has, at most as many as there are beams, or a number
                for each sentence. The others are the alternatives of the best one. A glossary gives one.
            **options: of [`generate_batches`], and so of `generate()`, such as `num_beams=4`.

        Raises:
            UserError: as in [`generate_batches`], or if several translations must have the terms of a glossary, or
                words cannot be aligned.
        """
        wanted = _Wanted(judges, judges and scores, return_scores, return_alignments)
        counts = num_return_sequences
        if isinstance(counts, int):
            counts = [counts] * len(sentences)
        most = max(counts, default=1)
        if return_alignments:
            check_alignable(sentences)
        first_tokens = {sentence.direction.first_token for sentence in sentences} - {None}
        if first_tokens:
            [first_token] = first_tokens
            options.setdefault("forced_bos_token_id", first_token)
        options = with_tokenizer(self.model, self.tokenizer, options)
        encoded = [sentence.token_ids for sentence in sentences]
        asked = {"num_return_sequences": most, "return_scores": return_scores}
        for batch, generated, written in generate_batches(self.model, encoded, batches, **asked, **options):
            rows = [sentences[index] for index in batch]
            placed: list[tuple[PlacedTerm, ...]] = [()] * len(rows)
            if any(sentence.terms for sentence in rows):
                check_glossary_count(most)
                generated, written, placed = self.with_terms(rows, generated, written, options)
            if return_scores:
                written = self.scored(rows, written, settings_of(self.model, options))
            of_batch = [counts[index] for index in batch]
            kept = _first_of_each(of_batch, most)
            written = [written[row] for row in kept]
            translations = self._translations(rows, of_batch, generated[kept], written, placed, wanted)
            yield dict(zip(batch, translations, strict=True))

    def scored(
        self, sentences: Sequence[Sentence], written: Sequence[Written], settings: GenerationConfig
    ) -> list[Written]:
        """Return what was written with scores. What has none from the search gets it from another pass of the model.

        Args:
            sentences: the sentences.
            written: as many translations of each sentence, one after the other.
            settings: those of the translations.
        """
        count = len(written) // len(sentences)
        sources = [sentence.token_ids for sentence in sentences for _ in range(count)]
        rows = [row for row, of_row in enumerate(written) if of_row.score is None]
        completed = list(written)
        if rows:
            scores = sequence_scores(
                self.model, [sources[row] for row in rows], [written[row].ids for row in rows], settings
            )
            for row, score in zip(rows, scores, strict=True):
                completed[row] = replace(written[row], score=score)
        return completed

    def with_terms(
        self, sentences: Sequence[Sentence], generated: Tensor, written: Sequence[Written], options: dict[str, Any]
    ) -> tuple[Tensor, list[Written], list[tuple[PlacedTerm, ...]]]:
        """Return translations with the terms of their sentences, and what became of each term.

        Args:
            sentences: the sentences.
            generated: their translations with the start token, `[sentences, length]`.
            written: the same as lists of token ids.
            options: those of the translations.

        Raises:
            UserError: as in [`TermWriter.complete`].
        """
        with_terms = [
            TermSentence(sentence.token_ids, sentence.terms, of_sentence)
            for sentence, of_sentence in zip(sentences, written, strict=True)
        ]
        completed = self.terms.complete(with_terms, options)
        rows = [of_sentence for of_sentence, _ in completed]
        placed = [of_sentence for _, of_sentence in completed]
        token_ids, _ = pad_rows([row.ids for row in rows], self.model.config.pad_token_id, generated.device)
        return torch.cat([generated[:, :1], token_ids], dim=1), rows, placed

    def attention(
        self,
        sentences: Sequence[Sentence],
        sequences: Tensor,
        device: torch.device,
        *,
        everywhere: bool = False,
    ) -> list[Tensor | None]:
        """Return how much each token of a translation attends to each token of its sentence.

        Args:
            sentences: one for each sequence.
            sequences: padded translations with their start token, `[sentences, length]`.
            device: where the model reads.
            everywhere: whether every sentence must be aligned. Otherwise those with tags or kept parts between words.

        Returns:
            For each sentence `[length - 1, source]`, or None if nothing in it must be aligned.

        Raises:
            ValueError: if the model has no cross-attention, and a sentence needs it.
        """
        found: list[Tensor | None] = [None] * len(sentences)
        rows = [row for row, sentence in enumerate(sentences) if everywhere or sentence.segment.needs_alignment]
        if rows:
            sources = [sentences[row].token_ids for row in rows]
            input_ids, mask = pad_rows(sources, self.model.config.pad_token_id, device)
            weights = cross_attention(self.model, sequences[rows], input_ids=input_ids, attention_mask=mask.long())
            for row, attention in zip(rows, weights, strict=True):
                found[row] = attention
        return found

    def align(
        self,
        attention: Tensor,
        sentence: Sentence,
        target_ids: Sequence[int],
        clean_up_tokenization_spaces: bool | None = None,
    ) -> Align:
        """Return a function that aligns the words of a sentence with those of its translation. It costs when called.

        Args:
            attention: of the translation's tokens, `[target, source]`.
            sentence: the sentence.
            target_ids: token ids of its translation, without the start token.
            clean_up_tokenization_spaces: as the translation was decoded.
        """

        def align(source_words: Sequence[tuple[int, int]], target_words: Sequence[tuple[int, int]]) -> Any:
            source_ids, of_source = self._unmarked(sentence, attention)
            source = sentence.segment.text, source_ids
            weigh = aligner(of_source, self.tokenizer, *source, target_ids, clean_up_tokenization_spaces)
            return weigh(source_words, target_words)

        return align

    def _translations(
        self,
        sentences: Sequence[Sentence],
        counts: Sequence[int],
        generated: Tensor,
        written: Sequence[Written],
        placed: Sequence[tuple[PlacedTerm, ...]],
        wanted: "_Wanted",
    ) -> list[Translation]:
        """Return the translations of a batch.

        Args:
            sentences: of the batch.
            counts: how many translations each has.
            generated: their token ids, `[translations, length]`.
            written: the same as lists.
            placed: the terms of each sentence.
            wanted: what else is asked for.
        """
        texts = self.tokenizer.batch_decode([row.words for row in written], skip_special_tokens=True)
        judgements: list[Judgement] | list[None] = [None] * len(sentences)
        placed = list(placed)
        ends = list(accumulate(counts))
        best_rows = [end - count for end, count in zip(ends, counts, strict=True)]
        if wanted.judgements:
            best_written = [written[row] for row in best_rows]
            best_texts = [texts[row] for row in best_rows]
            forced_targets = [None] * len(sentences)
            if wanted.judged_scores:
                forced_targets = self._forced_targets(sentences, best_written)
            judgements = self._judgements(sentences, best_written, best_texts, forced_targets)
            for row, forced in enumerate(forced_targets):
                if placed[row] and forced is not None and forced.attention is not None:
                    attention_of_row = sentences[row], best_written[row].words, forced.attention
                    placed[row] = self._with_alignment(placed[row], best_texts[row], *attention_of_row)
        repeated = []
        for sentence, count in zip(sentences, counts, strict=True):
            repeated += [sentence] * count
        attention = self.attention(repeated, generated, self.model.device, everywhere=wanted.alignments)
        texts = unbroken(texts, "translations of a batch")
        translations = []
        for row, sentence in enumerate(repeated):
            align = None
            if attention[row] is not None:
                align = self.align(attention[row], sentence, written[row].words)
            links = linked_words(sentence.segment.text, texts[row], align) if wanted.alignments else None
            score = written[row].score if wanted.scores else None
            translations.append(Translation(texts[row], score, links, align=align))
        results = []
        for row, (start, end) in enumerate(zip(best_rows, ends, strict=True)):
            ranked = translations[start:end]
            best = replace(ranked[0], judgement=judgements[row], terms=placed[row])
            results.append(with_alternatives([best, *ranked[1:]]))
        return results

    def _forced_targets(self, sentences: Sequence[Sentence], written: Sequence[Written]) -> list[ForcedTarget]:
        """Return what the model makes of its translations in one forced pass."""
        sources = [sentence.token_ids for sentence in sentences]
        first_token = sentences[0].direction.first_token
        return force_targets(self.model, sources, [row.ids for row in written], first_token)

    def _unmarked(self, sentence: Sentence, attention: Tensor) -> tuple[list[int], Tensor]:
        """Return the token ids of a sentence, and the attention to them, `[target, source]`, without marks of terms."""
        if self.reader.marks is None:
            return sentence.token_ids, attention
        return self.reader.marks.without(sentence.token_ids, attention)

    def _with_alignment(
        self,
        placed: Sequence[PlacedTerm],
        text: str,
        sentence: Sentence,
        target_ids: Sequence[int],
        attention: Tensor,
    ) -> tuple[PlacedTerm, ...]:
        """Return what became of terms, with whether the model looked at them when it wrote them.

        Args:
            placed: the terms of the sentence.
            text: its translation.
            sentence: the sentence.
            target_ids: token ids of its translation.
            attention: `[target, source]`.
        """
        source_ids, attention = self._unmarked(sentence, attention)
        source = sentence.segment.text, source_ids
        completed = []
        for of_term, term, place in zip(placed, sentence.terms, places_of_terms(text, sentence.terms), strict=True):
            if place is not None:
                span = attended_span(attention, self.tokenizer, source, target_ids, place[:2])
                is_aligned = span is not None and span[0] < term.end and term.start < span[1]
                of_term = replace(of_term, aligned=is_aligned)
            completed.append(of_term)
        return tuple(completed)

    def _judgements(
        self,
        sentences: Sequence[Sentence],
        written: Sequence[Written],
        texts: Sequence[str],
        forced_targets: Sequence[ForcedTarget | None],
    ) -> list[Judgement]:
        judgements = []
        for row, sentence in enumerate(sentences):
            target_ids = written[row].words
            has_end = written[row].end is not None
            forced = forced_targets[row]
            source_ids = sentence.token_ids
            if forced is not None and forced.attention is not None:
                source_ids, attention = self._unmarked(sentence, forced.attention)
                forced = replace(forced, attention=attention)
            score = None
            signs = None
            if forced is not None:
                score = forced.score
                signs = read_signs(
                    forced,
                    self.tokenizer,
                    (sentence.segment.text, source_ids),
                    (texts[row], target_ids),
                    has_end=has_end,
                    language=self._language_of(sentence),
                )
            judgements.append(judge(source_ids, target_ids, has_end, texts[row], score, signs))
        return judgements

    def _language_of(self, sentence: Sentence) -> str | None:
        """Return the language that a sentence is translated into, if its code or the tokenizer says it."""
        if sentence.segment.code:
            return self.reader.codes.language_of(sentence.segment.code)
        # Marian's tokenizer may know its language.
        return sentence.direction.target or getattr(self.tokenizer, "target_lang", None) or None
