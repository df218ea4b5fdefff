"""The sentences that routing is measured on, the routing of one of them, and the names of what is routed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers.decoders import ByteLevel
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import batch_by_tokens, encode_lines, source_limit
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.modeling.aggregation import COMBINATIONS
from hf_capsule_mt.translation.attention import teacher_force
from hf_capsule_mt.translation.translator import evaluating, generate_batches

WORD_START = "▁"
"""Mark before a piece that begins a word, whatever the tokenizer: SentencePiece's own."""


def source_subwords(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> tuple[str, ...]:
    """Return the pieces of a source, special tokens included. [`WORD_START`] begins a word.

    A piece of bytes that are no whole character is shown with U+FFFD in their place.
    """
    if getattr(tokenizer, "separate_vocabs", False):
        # A MarianTokenizer of two vocabularies turns ids into tokens only by the target's.
        vocabulary = {index: piece for piece, index in tokenizer.encoder.items()}
        return tuple(vocabulary.get(index, tokenizer.unk_token) for index in ids)
    return target_subwords(tokenizer, ids)


def target_subwords(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> tuple[str, ...]:
    """Return the pieces of a target, as [`source_subwords`] does of a source."""
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    backend = getattr(tokenizer, "backend_tokenizer", None)
    # By name, for a decoder may be a sequence of several.
    if backend is None or "ByteLevel" not in repr(backend.decoder):
        return tuple(pieces)
    special = set(tokenizer.all_special_tokens)
    texts = (piece if piece in special else ByteLevel().decode([piece]) for piece in pieces)
    return tuple(WORD_START + text[1:] if text.startswith(" ") else text for text in texts)


def has_routing(config: PreTrainedConfig) -> bool:
    """Return whether a model of this configuration routes anything."""
    unrouted = {"layer_aggregation": COMBINATIONS, "sentence_aggregation": ["pooling"]}
    kinds = ("layer_aggregation", "head_aggregation", "guided_routing", "sentence_aggregation")
    return any(getattr(config, kind, None) not in (None, *unrouted.get(kind, ())) for kind in kinds)


def guided_groups(config: PreTrainedConfig) -> tuple[int, int]:
    """Return the number of PAST columns of `guided_routing`, and of FUTURE columns, or (0, 0)."""
    kind = getattr(config, "guided_routing", None)
    if kind is None:
        return 0, 0
    # The baselines of guided dynamic routing assign words to PAST and FUTURE as a whole.
    return (config.num_past_capsules, config.num_future_capsules) if kind == "gdr" else (1, 1)


def guided_names(num_past: int, num_future: int, capsules: int) -> list[str]:
    """Return the names of the columns of `guided_routing`. `capsules` is their number."""
    groups = {"PAST": num_past, "FUTURE": num_future, "redundant": capsules - num_past - num_future}
    return [name if size == 1 else f"{name} {number + 1}" for name, size in groups.items() for number in range(size)]


@dataclass(frozen=True)
class SentenceRouting:
    """One sentence, its translation, and how they were routed. Tensors are float32 on the CPU.

    S source pieces, T target pieces, L layers, H heads, N output capsules, I iterations. Target position t is of the
    step that wrote `target_words[t]`. What a model does not have is None, or empty.

    Attributes:
        source_words: the S pieces that the model read, with `</s>`. "▁" begins a word.
        target_words: the T pieces that it wrote.
        translation: as text.
        encoder_layers: assignment of encoder layers to output capsules, `[S, I, L, N]`.
        decoder_layers: of decoder layers, `[T, I, L, N]`.
        heads: of attention heads, by place as "cross.1" (site and layer): `[S or T, I, H, N]`, S at "encoder_self".
        guided: of source pieces to PAST, then FUTURE, then redundant capsules, `[T, I, S, J]`.
        sentence: of source pieces to sentence capsules, `[I, S, M]`.
        num_past: how many of the J are PAST. The baselines of guided routing have one, which stands for all.
        num_future: how many of the J, after these, are FUTURE.
    """

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    translation: str
    encoder_layers: Tensor | None = None
    decoder_layers: Tensor | None = None
    heads: dict[str, Tensor] = field(default_factory=dict)
    guided: Tensor | None = None
    sentence: Tensor | None = None
    num_past: int = 0
    num_future: int = 0


def read_sentence(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str, **generate_options: Any
) -> SentenceRouting:
    """Translate a sentence with any encoder-decoder, and read the routing by teacher forcing.

    Without routing there are only the words and the translation. A long sentence is cut to the model's positions, with
    a warning. The options are those of `generate_batches`.

    Raises:
        UserError: if the source is blank, or nothing to the tokenizer.
    """
    source_ids = encode_lines(tokenizer, [source], source_limit(model.config, tokenizer))[0]
    if not source_ids:
        raise UserError("The source has no tokens. Give a sentence.")
    _, _, [written] = next(iter(generate_batches(model, [source_ids], [[0]], **generate_options)))
    return read_encoded(model, tokenizer, source_ids, written.ids)


def read_encoded(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source_ids: list[int], target_ids: list[int]
) -> SentenceRouting:
    """Read the routing of token ids, ends of sentences included."""
    translation = tokenizer.decode(target_ids, skip_special_tokens=True)
    texts = source_subwords(tokenizer, source_ids), target_subwords(tokenizer, target_ids), translation
    if not has_routing(model.config) or not target_ids:
        return SentenceRouting(*texts)
    with evaluating(model):
        output = teacher_force(model, [source_ids], [target_ids], output_routing="all").output
    num_past, num_future = guided_groups(model.config)
    return SentenceRouting(
        *texts,
        encoder_layers=_first(output.encoder_layer_routing),
        decoder_layers=_first(output.decoder_layer_routing),
        heads={place: _first(assignment) for place, assignment in (output.head_routing or {}).items()},
        guided=_first(output.guided_routing),
        sentence=_first(output.sentence_routing),
        num_past=num_past,
        num_future=num_future,
    )


def _first(assignment: Tensor | None) -> Tensor | None:
    return None if assignment is None else assignment[0].float().cpu()


@dataclass(frozen=True)
class Corpus:
    """Line i has the token ids `sources[i]`, and the model is made to write `targets[i]`. A blank line has none."""

    sources: list[list[int]]
    targets: list[list[int]]

    def __post_init__(self) -> None:
        if not self.lines:
            raise UserError("No line has both a source and a translation.")

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
