"""What a model says of its own translations: judgements, and whether terms stand where it looked at them."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor
from transformers import PreTrainedModel

from .attention import attended_span
from .glossary import places_of_terms
from .term_writer import PlacedTerm
from .text_reader import Sentence, TextReader
from .token_rows import Written
from .translation_report import Judgement, judge
from .trust import ForcedTarget, force_targets, read_signs


class TranslationJudge:
    """Judges translations by the words themselves, and by a pass in which the model is forced to write them.

    Args:
        model: the model, in evaluation mode while it judges.
        reader: what has made the sentences.
    """

    def __init__(self, model: PreTrainedModel, reader: TextReader) -> None:
        self._model = model
        self._reader = reader
        self._tokenizer = reader.tokenizer

    def forced_targets(self, sentences: Sequence[Sentence], written: Sequence[Written]) -> list[ForcedTarget]:
        """Return what the model makes of its translations in one forced pass."""
        sources = [sentence.token_ids for sentence in sentences]
        first_token = sentences[0].direction.first_token
        return force_targets(self._model, sources, [row.ids for row in written], first_token)

    def judgements(
        self,
        sentences: Sequence[Sentence],
        written: Sequence[Written],
        texts: Sequence[str],
        forced_targets: Sequence[ForcedTarget | None],
    ) -> list[Judgement]:
        """Return the judgement on the best translation of each sentence.

        Args:
            sentences: the sentences.
            written: the best translation of each.
            texts: the same as texts.
            forced_targets: what the model makes of these. None gives a judgement without a score.
        """
        judgements = []
        for sentence, of_sentence, text, forced in zip(sentences, written, texts, forced_targets, strict=True):
            judgements.append(self._judgement(sentence, of_sentence, text, forced))
        return judgements

    def _judgement(self, sentence: Sentence, written: Written, text: str, forced: ForcedTarget | None) -> Judgement:
        """Return the judgement on a translation."""
        has_end = written.end is not None
        if forced is None:
            return judge(sentence.token_ids, written.words, has_end, text, None)
        source_ids = sentence.token_ids
        if forced.attention is not None:
            source_ids, attention = self._reader.unmarked(sentence, forced.attention)
            forced = replace(forced, attention=attention)
        signs = read_signs(
            forced,
            self._tokenizer,
            (sentence.segment.text, source_ids),
            (text, written.words),
            has_end=has_end,
            language=self._language_of(sentence),
        )
        return judge(source_ids, written.words, has_end, text, forced.score, signs)

    def _language_of(self, sentence: Sentence) -> str | None:
        """Return the language that a sentence is translated into, if its code or the tokenizer says it."""
        if sentence.segment.code:
            return self._reader.codes.language_of(sentence.segment.code)
        # Marian's tokenizer may know its language.
        return sentence.direction.target or getattr(self._tokenizer, "target_lang", None) or None

    def with_alignments(
        self,
        placed: Sequence[tuple[PlacedTerm, ...]],
        sentences: Sequence[Sentence],
        written: Sequence[Written],
        texts: Sequence[str],
        forced_targets: Sequence[ForcedTarget | None],
    ) -> list[tuple[PlacedTerm, ...]]:
        """Return what became of the terms of each sentence, with their alignment where the attention is known.

        Args:
            placed: the terms of each sentence.
            sentences: the sentences.
            written: the best translation of each.
            texts: the same as texts.
            forced_targets: what the model makes of these, or None.
        """
        completed = []
        for row, terms in enumerate(placed):
            forced = forced_targets[row]
            if terms and forced is not None and forced.attention is not None:
                terms = self._with_alignment(terms, texts[row], sentences[row], written[row].words, forced.attention)
            completed.append(terms)
        return completed

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
        source_ids, attention = self._reader.unmarked(sentence, attention)
        source = sentence.segment.text, source_ids
        completed = []
        for of_term, term, place in zip(placed, sentence.terms, places_of_terms(text, sentence.terms), strict=True):
            if place is not None:
                span = attended_span(attention, self._tokenizer, source, target_ids, place[:2])
                is_aligned = span is not None and span[0] < term.end and term.start < span[1]
                of_term = replace(of_term, aligned=is_aligned)
            completed.append(of_term)
        return tuple(completed)
