"""Choose which heads of a model's attention align words, on parallel text without alignments.

A head that aligns words links the same words again and again. So its links in one half of the text predict the words of
the other half. A head that looks elsewhere, such as at the end, predicts nothing.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import AutoConfig, GenerationConfig

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.encoding import encode_lines
from hf_capsule_mt.data.languages import ONE_PAIR, Direction
from hf_capsule_mt.files import read_json, write_json
from hf_capsule_mt.translation.alignment.forced import (
    Head,
    aligning_attention,
    attending,
    cross_attentions_of,
    teacher_force,
)
from hf_capsule_mt.translation.alignment.words import source_spans, target_spans, word_shares
from hf_capsule_mt.translation.generation.decoder import evaluating
from hf_capsule_mt.translation.preparation import TooLong
from hf_capsule_mt.translation.text.words import word_spans
from hf_capsule_mt.translation.text_translator import TextTranslator

_GENERATION_CONFIG = "generation_config.json"
Heads = tuple[Head, ...]


@dataclass(frozen=True)
class RatedHeads:
    """Some heads, and how well their links predict words that they have not seen.

    The rating is the mean over the words of translations, in nats: how much more likely a word becomes when one knows
    the word of the source that it is linked with. 0 is nothing, and higher is better.
    """

    name: str
    heads: Heads
    rating: float


@dataclass
class _Links:
    """Links of words in both halves of a text, in lower case, and which words were not linked."""

    pairs: tuple[Counter, Counter] = field(default_factory=lambda: (Counter(), Counter()))

    def rating(self) -> float:
        """Return the mean information of each half about the other."""
        first, second = self.pairs
        informations = [*_informations(first, second), *_informations(second, first)]
        return sum(informations) / max(len(informations), 1)


def _informations(seen: Counter, unseen: Counter) -> Iterator[float]:
    """Yield the logarithm of how much more likely each word of the unseen links is than without its source word.

    Counts of one word in the seen links are smoothed by one occurrence of any word, as often as words are.
    """
    sources: Counter = Counter()
    targets: Counter = Counter()
    for (source, target), count in seen.items():
        sources[source] += count
        targets[target] += count
    total = sum(targets.values())

    for (source, target), count in unseen.items():
        together = 0.0
        if seen[source, target]:
            together = seen[source, target] * total / targets[target]
        # A word that is not linked says nothing.
        information = 0.0 if source is None else math.log((together + 1) / (sources[source] + 1))
        yield from [information] * count


@dataclass(frozen=True)
class LinkedSentence:
    """A sentence and its translation, with the links by each candidate."""

    index: int  # Its line, from 0.
    source: list[str]  # Words.
    target: list[str]
    links: dict[tuple[str, Heads], list[int | None]]
    """For each candidate the number of the source word of each target word."""


def rate_heads(
    translator: TextTranslator,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    direction: Direction = ONE_PAIR,
    max_tokens_per_batch: int = 4096,
) -> list[RatedHeads]:
    """Rate each head, each layer, the last two layers and all of them, the best first.

    Args:
        translator: with a model that has attention.
        sources: parallel text. A few hundred sentences are enough. One that is too long for the model is cut.
        targets: their translations.
        direction: the languages, for models of several.
        max_tokens_per_batch: source and target tokens of a batch together, with padding.

    Raises:
        UserError: if the model has no attention, or a sentence has more tokens than a batch may.
    """
    links: dict[tuple[str, Heads], _Links] = {}
    options = {"direction": direction, "max_tokens_per_batch": max_tokens_per_batch}
    for sentence in link_sentences(translator, sources, targets, **options):
        for candidate, numbers in sentence.links.items():
            half = links.setdefault(candidate, _Links()).pairs[sentence.index % 2]
            for word, number in zip(sentence.target, numbers, strict=True):
                source_word = None if number is None else sentence.source[number].casefold()
                half[source_word, word.casefold()] += 1
    rated = [RatedHeads(name, heads, of_heads.rating()) for (name, heads), of_heads in links.items()]
    return sorted(rated, key=lambda heads: -heads.rating)


def link_sentences(
    translator: TextTranslator,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    direction: Direction = ONE_PAIR,
    max_tokens_per_batch: int = 4096,
) -> Iterator[LinkedSentence]:
    """Link the words of translations with those of their sources, by each candidate.

    The model is made to write the translations.

    Args:
        translator: with a model that has attention.
        sources: parallel text. One that is too long for the model is cut.
        targets: their translations.
        direction: the languages, for models of several.
        max_tokens_per_batch: source and target tokens of a batch together, with padding.

    Raises:
        UserError: as [`rate_heads`] does.
    """
    rows = _rows(translator, sources, targets, direction)
    lengths = [len(row.source_ids) + len(row.target_ids) for row in rows]

    with evaluating(translator.model):
        model = attending(translator.model)
        for batch in tqdm(batch_by_tokens(lengths, max_tokens_per_batch), unit=" batches", desc="aligning"):
            of_batch = [rows[index] for index in batch]
            source_ids = [row.source_ids for row in of_batch]
            target_ids = [row.target_ids for row in of_batch]
            forced = teacher_force(model, source_ids, target_ids, output_attentions=True)
            layers = [layer.float().cpu() for layer in cross_attentions_of(model, forced.output)]
            candidates = _candidates(layers)
            attention = torch.stack([aligning_attention(layers, heads) for _, heads in candidates], dim=1)
            for row, of_row in zip(of_batch, attention, strict=True):
                yield _linked(translator, row, candidates, of_row)


class _RatedSentence(NamedTuple):
    index: int
    source: str
    source_ids: list[int]
    target_ids: list[int]


def _rows(
    translator: TextTranslator, sources: Sequence[str], targets: Sequence[str], direction: Direction
) -> list[_RatedSentence]:
    """Return the sentences in which there is something to align."""
    reader = translator.reader
    with direction.spoken_by(translator.tokenizer):
        encoded_targets = encode_lines(translator.tokenizer, targets, reader.limit, side="text_target")
    rows = []
    for index, (source, target_ids) in enumerate(zip(sources, encoded_targets, strict=True)):
        [sentence] = reader.prepare(source, direction=direction, too_long=TooLong.CUT).sentences
        if sentence.token_ids and target_ids:
            rows.append(_RatedSentence(index, sentence.segment.text, sentence.token_ids, target_ids))
    return rows


def _candidates(layers: Sequence[Tensor]) -> list[tuple[str, Heads]]:
    """Return what may be chosen, by names that count from 1. The last two layers, the default, come first."""
    of_layers: list[Heads] = []
    for layer_index, layer in enumerate(layers):
        of_layers.append(tuple((layer_index, head) for head in range(layer.shape[1])))

    candidates = [("last two layers (default)", _joined(of_layers[-2:]))]
    if len(of_layers) > 2:
        candidates.append(("all layers", _joined(of_layers)))

    for number, of_layer in enumerate(of_layers, start=1):
        if len(of_layers) > 1:
            candidates.append((f"layer {number}", of_layer))
        if len(of_layer) > 1:
            for head in of_layer:
                candidates.append((f"layer {number}, head {head[1] + 1}", (head,)))
    return candidates


def _joined(of_layers: Sequence[Heads]) -> Heads:
    """Return the heads of some layers in one tuple."""
    return tuple(chain.from_iterable(of_layers))


def _linked(
    translator: TextTranslator, row: _RatedSentence, candidates: Sequence[tuple[str, Heads]], attention: Tensor
) -> LinkedSentence:
    """Return the links of a sentence, given its attention `[candidates, target, source]`."""

    def decode(ids: list[list[int]]) -> list[str]:
        return translator.tokenizer.batch_decode(ids, skip_special_tokens=True)

    [target] = decode([row.target_ids])
    source_words = word_spans(row.source)
    target_words = word_spans(target)
    places = source_spans(translator.tokenizer, row.source, row.source_ids), target_spans(row.target_ids, decode)
    best = word_shares(attention, *places, source_words, target_words).max(-1)

    links = {}
    for candidate, weights, numbers in zip(candidates, best.values, best.indices, strict=True):
        links[candidate] = _attended(weights.tolist(), numbers.tolist())

    return LinkedSentence(
        row.index,
        [row.source[slice(*span)] for span in source_words],
        [target[slice(*span)] for span in target_words],
        links,
    )


def _attended(weights: Sequence[float], numbers: Sequence[int]) -> list[int | None]:
    """Return the number of each source word with some weight, and None for the others."""
    attended: list[int | None] = []
    for weight, number in zip(weights, numbers, strict=True):
        attended.append(number if weight > 0 else None)
    return attended


def store_heads(folder: Path, heads: Heads) -> None:
    """Write `alignment_heads` into the generation config of a checkpoint. All else in it stays."""
    file = folder / _GENERATION_CONFIG
    if not file.is_file():
        # Without the file, Transformers takes the settings from the configuration. With it, only from the file.
        GenerationConfig.from_model_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder)
    record = {**read_json(file), "alignment_heads": [list(head) for head in heads]}
    # With this mark, Transformers leaves out names that it does not know.
    record.pop("_from_model_config", None)
    write_json(file, record)


def heads_report(rated: Sequence[RatedHeads], most: int = 5) -> str:
    """Return a table of the best ratings, with the default."""
    lines = ["heads                        nats a word"]
    for number, row in enumerate(rated):
        if number < most or "default" in row.name:
            lines.append(f"{row.name:<28} {row.rating:>11.3f}")
    return "\n".join(lines)
