"""Sequence-level distillation: the translations of a teacher, as targets for a student to learn from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import batch_by_tokens, source_limit, tokenize_lines
from hf_capsule_mt.translation.translation_report import sequence_scores
from hf_capsule_mt.translation.translator import decode_words, generate_batches


@dataclass(frozen=True)
class Distilled:
    """The translation of one sentence by a teacher."""

    translation: str
    failure: str | None = None
    """The reason to leave the sentence out, or None."""
    score: float | None = None
    """The mean log-probability of its tokens, if it was asked for."""


def distill(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    max_tokens_per_batch: int,
    scores: bool = False,
    first: int = 1,
    **options: Any,
) -> list[Distilled]:
    """Translate every source. A source that is too long, and a translation that is empty or has no end, is a failure.

    Args:
        model: the teacher.
        tokenizer: the teacher's.
        sources: sentences.
        max_tokens_per_batch: the most source tokens in a batch, padding included.
        scores: whether to find the scores of [`~hf_capsule_mt.translation.translation_report.sequence_scores`] too.
        first: number of the first source, for messages.
        **options: those of [`~hf_capsule_mt.translation.translator.generate_batches`].
    """
    limit = source_limit(model.config, tokenizer)
    encoded = tokenize_lines(tokenizer, sources, limit)
    results = [Distilled("", f"more than {limit} source tokens") if len(ids) > limit else None for ids in encoded]
    lengths = [0 if result is not None else len(ids) for ids, result in zip(encoded, results)]
    batches = batch_by_tokens(lengths, max_tokens_per_batch, range(first, first + len(sources)))
    for batch, _, written in generate_batches(model, encoded, batches, **options):
        texts, likely = decode_words(tokenizer, written), [None] * len(batch)
        if scores:
            likely = sequence_scores(model, [encoded[index] for index in batch], [each.ids for each in written])
        for index, text, each, score in zip(batch, texts, written, likely, strict=True):
            failure = "no end within the limit" if each.end is None else None if text.strip() else "empty translation"
            results[index] = Distilled(text, failure, score)
    return [result or Distilled("", "empty source") for result in results]
