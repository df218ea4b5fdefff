"""Texts of any kind, translated with a model. A text goes down once and up once.

text_reader.py cuts it into sentences, [`TextTranslator`] decodes sentences, of one text or of many, and text_reader.py
joins their translations.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.lines import unbroken
from hf_capsule_mt.errors import UserError

from .attention import aligner, cross_attention
from .generate_settings import settings_of, with_tokenizer
from .judging import TranslationJudge
from .marked_segments import Align
from .term_writer import PlacedTerm, TermSentence, TermWriter
from .text_reader import Sentence, TextReader
from .token_rows import Written, pad_rows
from .translation_report import Judgement
from .translations import (
    NOT_ALIGNABLE,
    Translation,
    linked_words,
    with_alternatives,
)
from .translator import generate_batches
from .trust import ForcedTarget, rows_in_memory, sequence_scores


@dataclass(frozen=True)
class _Wanted:
    """What is asked for besides the text of a translation."""

    judgements: bool
    judged_scores: bool  # Whether judgements have scores.
    scores: bool
    alignments: bool


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
        self._judge = TranslationJudge(model, self.reader)

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
        options = with_tokenizer(self.model, self.tokenizer, with_language(sentences, options))
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
            counts_of_batch = [counts[index] for index in batch]
            # Some sentences need fewer translations than the batch has of each.
            kept = _first_of_each(counts_of_batch, most)
            written = [written[row] for row in kept]
            translations = self._translations(rows, counts_of_batch, generated[kept], written, placed, wanted)
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
        completed = list(written)
        rows = [row for row, of_row in enumerate(written) if of_row.score is None]
        if rows:
            sources = [sentences[row // count].token_ids for row in rows]
            targets = [written[row].ids for row in rows]
            scores = sequence_scores(self.model, sources, targets, settings)
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
        attentions: list[Tensor | None] = [None] * len(sentences)
        rows = [row for row, sentence in enumerate(sentences) if everywhere or sentence.segment.needs_alignment]
        longest_source = max((len(sentences[row].token_ids) for row in rows), default=0)
        together = rows_in_memory(self.model.config, longest_source, sequences.shape[1], has_scores=False)
        for start in range(0, len(rows), together):
            part = rows[start : start + together]
            sources = [sentences[row].token_ids for row in part]
            input_ids, mask = pad_rows(sources, self.model.config.pad_token_id, device)
            weights = cross_attention(self.model, sequences[part], input_ids=input_ids, attention_mask=mask.long())
            for row, attention in zip(part, weights, strict=True):
                attentions[row] = attention
        return attentions

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
            source_ids, of_source = self.reader.unmarked(sentence, attention)
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
        wanted: _Wanted,
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
        rows_of_sentences = _rows_of_each(counts)
        judgements: list[Judgement] | list[None] = [None] * len(sentences)
        if wanted.judgements:
            best_written = [written[rows.start] for rows in rows_of_sentences]
            best_texts = [texts[rows.start] for rows in rows_of_sentences]
            forced_targets: list[ForcedTarget] | list[None] = [None] * len(sentences)
            if wanted.judged_scores:
                forced_targets = self._judge.forced_targets(sentences, best_written)
            judgements = self._judge.judgements(sentences, best_written, best_texts, forced_targets)
            placed = self._judge.with_alignments(placed, sentences, best_written, best_texts, forced_targets)
        repeated = []
        for sentence, count in zip(sentences, counts, strict=True):
            repeated += [sentence] * count
        attention = self.attention(repeated, generated, self.model.device, everywhere=wanted.alignments)
        texts = unbroken(texts, "translations of a batch")
        results = []
        for number, rows in enumerate(rows_of_sentences):
            ranked = []
            for row in rows:
                ranked.append(self._translation(sentences[number], written[row], texts[row], attention[row], wanted))
            best = replace(ranked[0], judgement=judgements[number], terms=placed[number])
            results.append(with_alternatives([best, *ranked[1:]]))
        return results

    def _translation(
        self, sentence: Sentence, written: Written, text: str, attention: Tensor | None, wanted: _Wanted
    ) -> Translation:
        """Return one of the translations of a sentence, with its links of words and its score if they are wanted."""
        align = None
        if attention is not None:
            align = self.align(attention, sentence, written.words)
        links = linked_words(sentence.segment.text, text, align) if wanted.alignments else None
        score = written.score if wanted.scores else None
        return Translation(text, score, links, align=align)


def check_alignable(sentences: Iterable[Sentence]) -> None:
    """Raise a UserError if a sentence has tags or kept parts, whose words are not those of the source."""
    if any(sentence.segment.has_parts for sentence in sentences):
        raise UserError(NOT_ALIGNABLE)


def check_glossary_count(count: int) -> None:
    """Raise a UserError if there must be several translations with the terms of a glossary."""
    if count > 1:
        raise UserError("A glossary gives one translation. Leave out glossary, or give num_return_sequences=1.")


def with_language(sentences: Sequence[Sentence], options: dict[str, Any]) -> dict[str, Any]:
    """Return options of `generate()` with the first token of the target language, if the model needs one."""
    first_tokens = {sentence.direction.first_token for sentence in sentences} - {None}
    if not first_tokens:
        return options
    [first_token] = first_tokens
    return {"forced_bos_token_id": first_token, **options}


def _rows_of_each(counts: Sequence[int]) -> list[range]:
    """Return the rows of the translations of each sentence, which stand one after the other."""
    rows = []
    start = 0
    for count in counts:
        rows.append(range(start, start + count))
        start += count
    return rows


def _first_of_each(counts: Sequence[int], most: int) -> list[int]:
    """Return the rows of so many translations of each sentence, each of which has `most` rows."""
    kept = []
    for number, count in enumerate(counts):
        kept += range(number * most, number * most + count)
    return kept
