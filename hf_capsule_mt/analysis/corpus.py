"""The sentences that routing is measured on, as a model reads and writes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import batch_by_tokens, encode_lines, source_limit
from hf_capsule_mt.translation.translator import generate_batches


@dataclass(frozen=True)
class Corpus:
    """Line i has the token ids `sources[i]`, and the model is made to write `targets[i]`. A blank line has none."""

    sources: list[list[int]]
    targets: list[list[int]]

    def __post_init__(self) -> None:
        if not self.lines:
            raise ValueError("No line has both a source and a translation.")

    @property
    def lines(self) -> list[int]:
        """The indices of lines that have both sides."""
        return [index for index, sides in enumerate(zip(self.sources, self.targets, strict=True)) if all(sides)]

    def batches(self, max_tokens: int) -> list[list[int]]:
        """Indices in batches of similar length: of at most `max_tokens` of the longer side, or of one line."""
        there = set(self.lines)
        pairs = enumerate(zip(self.sources, self.targets))
        lengths = [max(map(len, pair)) if index in there else 0 for index, pair in pairs]
        return batch_by_tokens(lengths, max(max_tokens, *lengths))


def encode_references(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sources: Sequence[str], references: Sequence[str]
) -> Corpus:
    """A corpus of sentences and as many translations. What exceeds the model's positions is cut, with a warning."""
    limit = source_limit(model.config, tokenizer)
    targets = encode_lines(tokenizer, references, limit, side="text_target")
    return Corpus(encode_lines(tokenizer, sources, limit), targets)


def translate_corpus(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    *,
    max_tokens_per_batch: int = 4096,
    **generate_options: Any,
) -> Corpus:
    """A corpus of sentences and the model's own translations, with the options of `generate_batches`."""
    encoded = encode_lines(tokenizer, sources, source_limit(model.config, tokenizer))
    batches = batch_by_tokens([len(ids) for ids in encoded], max_tokens_per_batch)
    targets = [[] for _ in encoded]
    batches = tqdm(batches, unit=" batches", desc="translating")
    for batch, _, written in generate_batches(model, encoded, batches, **generate_options):
        for index, each in zip(batch, written, strict=True):
            targets[index] = each.ids
    return Corpus(encoded, targets)
