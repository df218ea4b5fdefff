"""Texts of any kind, translated with a model. A text goes down once and up once.

    prepared = translator.reader.prepare(text, options)         # preparation.py: its sentences
    decoded = translator.decode(prepared.sentences, num_beams=4)  # generation/decoder.py: what the model writes
    translation = translator.join(prepared, decoded)            # tags, terms and white space back in their places

Pipeline, server, files, corpora and the evaluation of terms do these three steps, and nobody cuts, encodes or joins
texts in another way. Files share batches among processes, so they `finish` each sentence where it was decoded.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.lines import unbroken
from hf_capsule_mt.decoding import ShortlistLogitsProcessor
from hf_capsule_mt.decoding.products.int8 import Int8Choice
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.long_work import next_step

from .alignment.forced import forced_pass, no_attention
from .alignment.links import NOT_ALIGNABLE, Align, linked_words
from .alignment.words import aligner
from .generation.decoder import Decoded, Decoder, evaluating
from .preparation import TextReader
from .quality.report import report_record
from .terms.forcing import TermWriter
from .translation import PreparedText, Sentence, Translation, with_alternatives

Ranked = tuple[Decoded, ...]
"""The translations of one sentence as the model wrote them, best first."""
_PLAIN = (str, int, float, bool, Int8Choice, ShortlistLogitsProcessor, type(None))


class TextTranslator:
    """Translates texts with a model. Threads may share one, if its model is in evaluation mode.

    Args:
        model: any encoder-decoder that has `generate()`.
        tokenizer: its tokenizer.
        prefix: is read in front of each sentence, as T5 wants it.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prefix: str = "") -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.reader = TextReader(model.config, tokenizer, prefix)
        self._terms = TermWriter(tokenizer)
        self._known: tuple[Decoder, dict[str, Any]] | None = None
        """The decoder that was made last, and its options. Both are set at once, because threads may share them."""

    def decoder(self, **options: Any) -> Decoder:
        """Return what decodes with these options of [`Decoder`]: the one made before, if all of them are equal."""
        current = {**options, "settings of the model": vars(self.model.generation_config)}
        if self._known is not None:
            decoder, its_options = self._known
            if decoder.model is self.model and current == its_options:
                return decoder
        decoder = Decoder(self.model, self.tokenizer, **options)
        # What the caller can change without making another object is not compared.
        if all(map(_is_plain, options.values())):
            self._known = decoder, {name: _snapshot(value) for name, value in current.items()}
        return decoder

    def decode(
        self, sentences: Sequence[Sentence], batches: Iterable[Sequence[int]] | None = None, **options: Any
    ) -> list[Ranked]:
        """Decode sentences. Those without token ids have no translations.

        Args:
            sentences: with one target language.
            batches: indices of sentences with token ids. By default all are in one batch.
            **options: of [`decode_batches`].
        """
        if batches is None:
            with_ids = [index for index, sentence in enumerate(sentences) if sentence.token_ids]
            batches = []
            if with_ids:
                batches = [with_ids]
        ranked: list[Ranked] = [()] * len(sentences)
        for decoded in self.decode_batches(sentences, batches, **options):
            for index, of_sentence in decoded.items():
                ranked[index] = of_sentence
        return ranked

    def decode_batches(
        self,
        sentences: Sequence[Sentence],
        batches: Iterable[Sequence[int]],
        *,
        num_return_sequences: int | Sequence[int] = 1,
        return_scores: bool = False,
        return_alignments: bool = False,
        rereads: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        **options: Any,
    ) -> Iterator[dict[int, Ranked]]:
        """Decode sentences in batches. Yield the translations of each batch by the index of their sentence.

        Args:
            sentences: with one target language.
            batches: indices of sentences with token ids.
            num_return_sequences: how many translations a sentence has, at most as many as there are beams, or a number
                for each sentence. A glossary gives one.
            return_scores: whether translations have a score. The engine's beam search has it at hand. Others cost
                another pass of the model.
            return_alignments: whether all words can be aligned. It costs another pass of the model.
            rereads: whether the model reads the best translations again, so that they can be judged.
            clean_up_tokenization_spaces: as in a tokenizer's `decode()`.
            **options: of [`Decoder`], and so of `generate()`, such as `num_beams=4`.

        Raises:
            UserError: as in [`Decoder`], or if several translations must have the terms of a glossary, or words cannot
                be aligned.
        """
        decoder = self.decoder(**options)
        for batch in batches:
            of_batch = [sentences[index] for index in batch]
            counts = num_return_sequences
            if not isinstance(counts, int):
                counts = max(counts[index] for index in batch)
            decoded = self._decoded(decoder, of_batch, counts, clean_up_tokenization_spaces)
            decoded = self._reread(decoder, of_batch, decoded, return_scores, return_alignments, rereads)
            ranked = {}
            for index, of_sentence in zip(batch, decoded, strict=True):
                count = counts
                if not isinstance(num_return_sequences, int):
                    count = num_return_sequences[index]
                ranked[index] = tuple(of_sentence[:count])
            yield ranked

    def _decoded(
        self, decoder: Decoder, sentences: Sequence[Sentence], count: int, clean_up: bool | None
    ) -> list[list[Decoded]]:
        """Return the translations of a batch with their texts, and with the terms of a glossary."""
        sources = [sentence.token_ids for sentence in sentences]
        decoded = decoder.decode(sources, count, first_token=_first_token(sentences))
        if any(sentence.terms for sentence in sentences):
            check_glossary_count(count)
            best = [ranked[0] for ranked in decoded]
            decoded = [[one] for one in self._terms.complete(decoder, sentences, best)]
        rows = [one.token_ids for ranked in decoded for one in ranked]
        texts = self.tokenizer.batch_decode(rows, skip_special_tokens=True, clean_up_tokenization_spaces=clean_up)
        remaining = iter(unbroken(texts, "translations of a batch"))
        with_texts = []
        for ranked in decoded:
            with_texts.append([replace(one, text=next(remaining)) for one in ranked])
        return with_texts

    def _reread(
        self,
        decoder: Decoder,
        sentences: Sequence[Sentence],
        decoded: list[list[Decoded]],
        scores: bool,
        alignments: bool,
        rereads: bool,
    ) -> list[list[Decoded]]:
        """Return the translations of a batch with what another pass of the model says of those that need it.

        Args:
            decoder: has decoded them.
            sentences: of the batch.
            decoded: their translations.
            scores: whether all need a score.
            alignments: whether all need the attention.
            rereads: whether the best of each sentence needs both.
        """
        if alignments:
            check_alignable(sentences)
        places = []
        needs_scores = rereads
        for number, (sentence, ranked) in enumerate(zip(sentences, decoded, strict=True)):
            for rank, one in enumerate(ranked):
                lacks_score = scores and one.score is None
                needs_attention = alignments or sentence.segment.needs_alignment
                if lacks_score or needs_attention or (rereads and not rank):
                    places.append((number, rank))
                needs_scores = needs_scores or lacks_score
        if not places:
            return decoded
        needs_attention = alignments or rereads or any(sentence.segment.needs_alignment for sentence in sentences)
        with evaluating(self.model):
            forced = forced_pass(
                self.model,
                [sentences[number].token_ids for number, _ in places],
                [decoded[number][rank].ids for number, rank in places],
                scores=needs_scores,
                attention=needs_attention,
                first_token=_first_token(sentences),
            )
        for (number, rank), of_target in zip(places, forced, strict=True):
            one = replace(decoded[number][rank], forced=of_target)
            if scores and one.score is None:
                score = of_target.sequence_score(len(one.ids), decoder.settings.length_penalty)
                one = replace(one, score=score)
            decoded[number][rank] = one
        return decoded

    def join(
        self, prepared: PreparedText, decoded: Sequence[Ranked], *, has_links: bool = False, **options: Any
    ) -> Translation:
        """Return the translation of a text.

        Args:
            prepared: the text.
            decoded: what the model wrote for each of its sentences, nothing for those without token ids.
            has_links: whether the words of the text are aligned. Then all words of the sentences can be aligned.
            **options: of [`finish`].
        """
        sentences = []
        for sentence, ranked in zip(prepared.sentences, decoded, strict=True):
            next_step()
            sentences.append(self.finish(sentence, ranked, has_links=has_links, **options))
        return prepared.join(sentences, has_links=has_links)

    def finish(
        self,
        sentence: Sentence,
        ranked: Ranked,
        *,
        has_links: bool = False,
        has_record: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> Translation:
        """Return the translation of a sentence with its tags and kept parts. The others are its alternatives.

        Processes that share the sentences of a text do it where they were decoded, and one joins them.

        Args:
            sentence: the sentence.
            ranked: what the model wrote, nothing for a sentence without token ids.
            has_links: whether its words are aligned.
            has_record: whether it is judged.
            clean_up_tokenization_spaces: as when the sentence was decoded.
        """
        segment = sentence.segment
        if not ranked:
            return finish_unread(self.reader, sentence, has_links=has_links, has_record=has_record)

        translations = []
        for one in ranked:
            align = None
            if has_links or segment.needs_alignment:
                align = self.align(sentence, one, clean_up_tokenization_spaces)
            text, places = segment.restored(one.text, align, sentence.terms)
            links = None
            if has_links:
                links = linked_words(segment.text, text, align)
            record = None
            if has_record and one is ranked[0]:
                record = report_record(self.reader, sentence, one, text, places)
            translations.append(Translation(text, one.score, links, record=record))
        return with_alternatives(translations)

    def align(self, sentence: Sentence, decoded: Decoded, clean_up: bool | None) -> Align:
        """Return a function that aligns the words of a sentence with those of its translation. It costs when called."""

        def weigh_words(source_words: Sequence[tuple[int, int]], target_words: Sequence[tuple[int, int]]) -> Any:
            if decoded.forced is None or decoded.forced.attention is None:
                raise no_attention(self.model)
            source = sentence.segment.text, sentence.token_ids
            weigh = aligner(decoded.forced.attention, self.tokenizer, *source, decoded.token_ids, clean_up)
            return weigh(source_words, target_words)

        return weigh_words


def first_equal_sentences(sentences: Sequence[Sentence]) -> list[int]:
    """Return for each sentence the index of the first one with an equal translation, often its own.

    Sentences with tags or kept parts have equal ones too, but these stand at other places.
    """
    first_of: dict[tuple, int] = {}
    indices = []
    for index, sentence in enumerate(sentences):
        first = index
        if not sentence.segment.has_parts:
            key = (sentence.segment.source, sentence.terms)
            first = first_of.setdefault(key, index)
        indices.append(first)
    return indices


def finish_unread(
    reader: TextReader, sentence: Sentence, *, has_links: bool = False, has_record: bool = False
) -> Translation:
    """Return the translation of a sentence without token ids. Arguments: [`TextTranslator.finish`]."""
    translation = sentence.unread(has_links=has_links)
    if not has_record:
        return translation
    return replace(translation, record=report_record(reader, sentence, None, translation.text))


def check_alignable(sentences: Iterable[Sentence]) -> None:
    """Raise a UserError if a sentence has tags or kept parts, whose words are not those of the source."""
    if any(sentence.segment.has_parts for sentence in sentences):
        raise UserError(NOT_ALIGNABLE)


def check_glossary_count(count: int) -> None:
    """Raise a UserError if there must be several translations with the terms of a glossary."""
    if count > 1:
        raise UserError("A glossary gives one translation. Leave out glossary, or give num_return_sequences=1.")


def _first_token(sentences: Sequence[Sentence]) -> int | None:
    """Return the token of the language with which the translations of sentences begin, if the model needs one."""
    [first_token] = {sentence.direction.first_token for sentence in sentences}
    return first_token


def _is_plain(value: Any) -> bool:
    """Whether an option of `generate()` is a value that can be compared, or a list of such values."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def _snapshot(value: Any) -> Any:
    """Return a value that stays as it is when the caller changes a list or a mapping."""
    if isinstance(value, Mapping):
        return {name: copy.copy(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return list(value)
    return value
