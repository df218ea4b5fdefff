"""The sentences that routing is measured on: sources, and what the model is made to write."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.encoding import encode_lines, source_limit
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.generation.decoder import Decoder


@dataclass(frozen=True)
class EncodedCorpus:
    """Line i has the token ids `sources[i]`, and the model is made to write `targets[i]`. A blank line has none.

    Raises:
        UserError: if no line has both sides.
    """

    sources: list[list[int]]
    targets: list[list[int]]

    def __post_init__(self) -> None:
        if not self.lines:
            raise UserError("No line has both a source and a translation.")

    @property
    def lines(self) -> list[int]:
        """The indices of lines that have both sides."""
        pairs = zip(self.sources, self.targets, strict=True)
        return [index for index, (source, target) in enumerate(pairs) if source and target]

    def batches(self, max_tokens: int) -> list[list[int]]:
        """Indices in batches of similar length: of at most `max_tokens` of the longer side, or of one line."""
        lengths = [0] * len(self.sources)
        for index in self.lines:
            lengths[index] = max(len(self.sources[index]), len(self.targets[index]))
        return batch_by_tokens(lengths, max(max_tokens, *lengths))


def encode_references(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sources: Sequence[str], references: Sequence[str]
) -> EncodedCorpus:
    """Return a corpus of sentences and their translations.

    Args:
        model: its number of positions is the limit. Longer lines are cut, with a warning.
        tokenizer: the model's.
        sources: sentences.
        references: as many translations.

    Raises:
        UserError: if no line has both sides.
    """
    limit = source_limit(model.config, tokenizer)
    source_ids = encode_lines(tokenizer, sources, limit)
    target_ids = encode_lines(tokenizer, references, limit, side="text_target")
    return EncodedCorpus(source_ids, target_ids)


def translate_corpus(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    *,
    max_tokens_per_batch: int = 4096,
    **generate_options: Any,
) -> EncodedCorpus:
    """Return a corpus of sentences and the model's own translations.

    Args:
        model: translates.
        tokenizer: the model's.
        sources: sentences. Those that are longer than the model's positions are cut, with a warning.
        max_tokens_per_batch: most source tokens of a batch, padding included.
        **generate_options: those of [`Decoder`], and so of `generate()`.

    Raises:
        UserError: if no line has both sides.
    """
    source_ids = encode_lines(tokenizer, sources, source_limit(model.config, tokenizer))
    lengths = [len(ids) for ids in source_ids]
    batches = tqdm(batch_by_tokens(lengths, max_tokens_per_batch), unit=" batches", desc="translating")
    target_ids = [[] for _ in source_ids]
    decoder = Decoder(model, tokenizer, **generate_options)
    for batch in batches:
        decoded = decoder.decode([source_ids[index] for index in batch])
        for index, [translation] in zip(batch, decoded, strict=True):
            target_ids[index] = translation.ids
    return EncodedCorpus(source_ids, target_ids)
