"""Alignment of target tokens with source tokens, by the cross-attention of a model that writes the target."""

from collections.abc import Callable, Container, Sequence

from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.configuration.configuration_caps_nmt import CapsNMTConfig
from hf_capsule_mt.data.encoding import batch_by_tokens, encode_lines, special_ids, tokenize_targets
from hf_capsule_mt.translation.source_limits import source_limit
from hf_capsule_mt.translation.teacher_forcing import (
    TeacherForcedPass,
    attended_positions,
    attending,
    cross_attentions_of,
    evaluating,
    teacher_force,
)

from .alignment import Alignment


def align_by_attention(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    streams: Sequence[Sequence[str]],
    *,
    max_tokens_per_batch: int = 4096,
    on_batch: Callable[[int], None] | None = None,
) -> list[list[Alignment]]:
    """Let a model write several streams of translations, and link every token with the source token it attends to most.

    Attention is that of the step that writes the token, of the layer of [`attended_positions`]. A token that attends
    most to a special token, such as the end of the source, has no link. Words are the tokens of the model.

    Args:
        model: an encoder-decoder with cross-attention, on any device.
        tokenizer: the model's.
        sources: one segment each; longer ones are cut to the model's limit, with a warning.
        streams: for each system, or reference, the translation of every segment; cut likewise.
        max_tokens_per_batch: source and target together, padding included.
        on_batch: called after each batch with its number of sentences.

    Returns:
        For each stream the alignment of every sentence; where one side is blank, it has no links.

    Raises:
        ValueError: if the model has no cross-attention, or a sentence exceeds `max_tokens_per_batch`.
    """
    check_config(model.config)
    limit = source_limit(model.config, tokenizer)
    left = encode_lines(tokenizer, sources, limit)
    right = [tokenize_targets(tokenizer, stream, limit) for stream in streams]
    pairs = [pair for targets in right for pair in zip(left, targets, strict=True)]
    special = special_ids(tokenizer)
    aligned = [_alignment(source, target, (), special) for source, target in pairs]
    lengths = [len(source) + len(target) if source and target else 0 for source, target in pairs]
    numbers = [*range(1, len(left) + 1)] * len(right)
    with evaluating(model):
        reader = attending(model)
        for batch in batch_by_tokens(lengths, max_tokens_per_batch, numbers):
            forced = teacher_force(reader, *zip(*(pairs[index] for index in batch)), output_attentions=True)
            attended = attended_positions(_cross_attentions(model, forced), forced.source_mask)
            for index, positions in zip(batch, attended.tolist()):
                aligned[index] = _alignment(*pairs[index], positions, special)
            if on_batch is not None:
                on_batch(len(batch))
    return [aligned[start : start + len(left)] for start in range(0, len(pairs), len(left))]


def check_config(config: PreTrainedConfig) -> None:
    """Raise a ValueError for a family of models without cross-attention, before one is loaded."""
    if config.model_type == CapsNMTConfig.model_type:
        raise ValueError(_no_attention(config))


def _no_attention(config: PreTrainedConfig) -> str:
    return (
        f"a {config.model_type} model has no cross-attention to align words by; use eflomal (--aligner eflomal), or "
        "name another model of the same languages"
    )


def _cross_attentions(model: PreTrainedModel, forced: TeacherForcedPass) -> list[Tensor]:
    """Return of each layer the attention of the steps that write targets; raise a ValueError if no layer has any."""
    found = cross_attentions_of(forced.output)
    if not found:
        raise ValueError(_no_attention(model.config))
    return found


def _alignment(
    source: Sequence[int], target: Sequence[int], attended: Sequence[int], special: Container[int]
) -> Alignment:
    """The alignment of tokens that are not special; `attended` is a source position for each target position."""
    words = [position for position, token in enumerate(source) if token not in special]
    places = {position: index for index, position in enumerate(words)}
    kept = [position for position, token in enumerate(target) if token not in special]
    links = ((places.get(attended[position]), index) for index, position in enumerate(kept) if attended)
    return Alignment(
        source_words=len(words),
        target=tuple(target[position] for position in kept),
        links=tuple(link for link in links if link[0] is not None),
    )
