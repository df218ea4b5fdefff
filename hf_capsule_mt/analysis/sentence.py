"""The routing of one sentence."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import encode_lines, source_limit
from hf_capsule_mt.data.languages import ONE_PAIR, Direction
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.alignment.forced import teacher_force
from hf_capsule_mt.translation.generation.decoder import Decoder, evaluating

from .layer_shares import LayerShares
from .routed_parts import guided_groups, has_routing, mixes_layers
from .subwords import source_subwords, target_subwords


@dataclass(frozen=True)
class SentenceRouting:
    """One sentence, its translation, and how they were routed. Tensors are float32 on the CPU.

    S source pieces, T target pieces, L layers, H heads, N output capsules, I iterations. Target position t is of the
    step that wrote `target_words[t]`. What a model does not have is None, or empty.

    Attributes:
        source_words: the S pieces that the model read, with "(end)". "-" is before a piece that continues a word.
        target_words: the T pieces that it wrote.
        translation: as text.
        encoder_layers: assignment of encoder layers to output capsules, `[S, I, L, N]`.
        decoder_layers: of decoder layers, `[T, I, L, N]`.
        heads: of attention heads, by place as "cross.1" (site and layer): `[S or T, I, H, N]`, S at "encoder_self".
        guided: of source pieces to PAST, then FUTURE, then redundant capsules, `[T, I, S, J]`.
        sentence: of source pieces to sentence capsules, `[I, S, M]`.
        layers_read: shares of layers in what other layers read, means over the words: those of [`LayerShares.means`].
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
    layers_read: dict[str, list[Tensor]] = field(default_factory=dict)
    num_past: int = 0
    num_future: int = 0


def read_sentence(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: str,
    direction: Direction = ONE_PAIR,
    **generate_options: Any,
) -> SentenceRouting:
    """Translate a sentence with any encoder-decoder, and read the routing by teacher forcing.

    Without routing and aggregates for each layer there are only the words and the translation.

    Args:
        model: translates.
        tokenizer: the model's.
        source: one that is longer than the model's positions is cut, with a warning.
        direction: the languages, for a tokenizer that is set to them.
        **generate_options: those of [`Decoder`], and so of `generate()`.

    Raises:
        UserError: if the source is blank, or nothing to the tokenizer.
    """
    with direction.spoken_by(tokenizer):
        [source_ids] = encode_lines(tokenizer, [source], source_limit(model.config, tokenizer))
    if not source_ids:
        raise UserError("The source has no tokens. Give a sentence.")
    decoder = Decoder(model, tokenizer, **generate_options)
    [[translation]] = decoder.decode([source_ids], first_token=direction.first_token)
    return read_encoded(model, tokenizer, source_ids, translation.ids)


def read_encoded(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source_ids: Sequence[int], target_ids: Sequence[int]
) -> SentenceRouting:
    """Read the routing of a sentence and a translation.

    Args:
        model: is made to write the translation.
        tokenizer: the model's.
        source_ids: token ids of the sentence, with its end.
        target_ids: token ids of the translation, with its end.
    """
    source_words = source_subwords(tokenizer, source_ids)
    target_words = target_subwords(tokenizer, target_ids)
    translation = tokenizer.decode(target_ids, skip_special_tokens=True)

    is_drawn = has_routing(model.config) or mixes_layers(model.config)
    if not is_drawn or not target_ids:
        return SentenceRouting(source_words, target_words, translation)

    shares = LayerShares(model)
    with evaluating(model), shares.reading():
        forced = teacher_force(model, [source_ids], [target_ids], output_routing="all")
    shares.add(forced)

    output = forced.output
    heads = output.head_routing or {}
    num_past, num_future = guided_groups(model.config)
    return SentenceRouting(
        source_words,
        target_words,
        translation,
        encoder_layers=_of_sentence(output.encoder_layer_routing),
        decoder_layers=_of_sentence(output.decoder_layer_routing),
        heads={place: _of_sentence(assignment) for place, assignment in heads.items()},
        guided=_of_sentence(output.guided_routing),
        sentence=_of_sentence(output.sentence_routing),
        layers_read=shares.means,
        num_past=num_past,
        num_future=num_future,
    )


def _of_sentence(assignment: Tensor | None) -> Tensor | None:
    """Return the only sentence of a batch, `[1, ...]`."""
    if assignment is None:
        return None
    return assignment[0].float().cpu()
