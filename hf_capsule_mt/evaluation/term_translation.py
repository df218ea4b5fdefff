"""Translate a test set with terms that differ from sentence to sentence."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.languages import ONE_PAIR, Direction
from hf_capsule_mt.translation.preparation import TextOptions
from hf_capsule_mt.translation.terms.forcing import check_terms
from hf_capsule_mt.translation.terms.glossary import Term
from hf_capsule_mt.translation.text_translator import TextTranslator


def translate_with_terms(
    translator: TextTranslator,
    sources: Sequence[str],
    terms: Sequence[Sequence[Term]],
    *,
    direction: Direction = ONE_PAIR,
    max_tokens_per_batch: int = 4096,
    **options: Any,
) -> list[str]:
    """Translate each source with its own terms, as `translate --glossary` does with those of a file.

    Args:
        translator: the model and its tokenizer.
        sources: one sentence each.
        terms: those of every source.
        direction: the languages. Models of one pair need none.
        max_tokens_per_batch: the most source tokens of a batch, padding included.
        **options: of `generate()`, such as `num_beams=4`.

    Raises:
        UserError: if the tokenizer cannot write a form of a term, or the engine cannot decode.
    """
    reader = translator.reader
    all_terms = [term for of_source in terms for term in of_source]
    check_terms(all_terms, translator.tokenizer, translator.model.generation_config)
    segments = []
    for source in sources:
        segments += reader.segments(source, TextOptions(), direction)
    numbers = range(1, len(segments) + 1)
    sentences = []
    for sentence, of_source in zip(reader.encode(segments, direction, numbers), terms, strict=True):
        # The model does not read a sentence without letters.
        needed = tuple(of_source) if sentence.token_ids else ()
        sentences.append(replace(sentence, terms=needed))
    batches = batch_by_tokens([len(sentence.token_ids) for sentence in sentences], max_tokens_per_batch)
    ranked = translator.decode(sentences, batches, **options)
    return [translator.restored(*pair).text for pair in zip(sentences, ranked, strict=True)]
