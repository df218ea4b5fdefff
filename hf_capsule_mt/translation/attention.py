"""Align the words of a translation with the words of its source, by the cross-attention of the model."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import TOKENIZING
from hf_capsule_mt.decoding.fingerprint import Fingerprint, with_shared_weights
from hf_capsule_mt.errors import UserError

from .token_rows import behind_start, pad_rows

Span = tuple[int, int]
Head = tuple[int, int]
"""A layer of the decoder that attends to the source, and a head of it, both from 0."""
Decode = Callable[[list[list[int]]], list[str]]
"""Returns the texts of several lists of token ids."""

_attending: WeakKeyDictionary[nn.Module, tuple[Fingerprint, nn.Module]] = WeakKeyDictionary()
"""For each model a copy that returns its attention. Making one takes long."""


@dataclass(frozen=True)
class TeacherForcedPass:
    """Output of the model without its language model head. Position t of the target writes `targets[:, t]`."""

    output: Any
    source_mask: Tensor  # `[batch, source]` bool, False for padding.
    target_mask: Tensor  # `[batch, target]` bool, False for padding.
    sources: Tensor  # Padded token ids, `[batch, source]`.
    targets: Tensor  # Padded token ids, `[batch, target]`.


@torch.no_grad()
def teacher_force(
    model: PreTrainedModel, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], **options: Any
) -> TeacherForcedPass:
    """Run the model over given translations in one pass, without its language model head.

    Sources have the end of the sentence, and targets have no start token. `options` are those of the model's forward,
    such as `output_attentions=True`, or `output_routing="all"`.
    """
    padding = model.config.pad_token_id
    source_ids, source_mask = pad_rows(sources, padding, model.device)
    target_ids, target_mask = pad_rows(targets, padding, model.device)
    output = model.base_model(
        input_ids=source_ids,
        attention_mask=source_mask.long(),
        decoder_input_ids=behind_start(model, target_ids)[:, :-1],
        use_cache=False,
        **options,
    )
    return TeacherForcedPass(output, source_mask, target_mask, source_ids, target_ids)


def attending(model: PreTrainedModel) -> PreTrainedModel:
    """Return a model with the same weights that can return its attention."""
    # Transformers has no public way to read which attention a model uses.
    if model.config._attn_implementation == "eager":
        return model
    fingerprint, reader = _attending.get(model, (None, None))
    if fingerprint is None or not fingerprint.is_of(model):
        # The model itself stays as it is: another thread may be in the middle of a pass, with masks of another kind.
        reader = with_shared_weights(model)
        # Encoder and decoder of T5 have configurations of their own, which old versions do not set with the model's.
        for part in reader.modules():
            if isinstance(part, PreTrainedModel):
                part.set_attn_implementation("eager")
        _attending[model] = (Fingerprint(model), reader)
    # The model may have changed from training to evaluation since then.
    for copied_module, module in zip(reader.modules(), model.modules(), strict=True):
        copied_module.training = module.training
    return reader


def cross_attentions_of(model: PreTrainedModel, output: Any) -> list[Tensor]:
    """Return the cross-attention in a model's output, `[batch, heads, target, source]` of each layer that has any.

    Raises:
        UserError: if no layer has any.
    """
    layers = getattr(output, "cross_attentions", None) or ()
    attentions = [layer for layer in layers if layer is not None]
    if not attentions:
        raise UserError(
            f"A {model.config.model_type} model has no attention. Use another family, such as rnmt. If only addresses "
            "need it, give translate_addresses."
        )
    return attentions


def alignment_heads(model: PreTrainedModel) -> list[Head] | None:
    """Return the heads whose attention aligns words, if `evaluate --choose_heads` has stored any with the model.

    They are `alignment_heads` of its generation config, as Whisper has them.
    """
    heads = getattr(getattr(model, "generation_config", None), "alignment_heads", None)
    return heads and [(int(layer), int(head)) for layer, head in heads]


def aligning_attention(cross_attentions: Sequence[Tensor], heads: Sequence[Head] | None) -> Tensor:
    """Return the attention that aligns words, `[batch, target, source]`.

    Args:
        cross_attentions: `[batch, heads, target, source]` of each layer.
        heads: the mean is over these, a layer and a head of it, both from 0. None is all heads of the last two layers,
            which place words best if nothing is known of a model (benchmarks/tags.md).

    Raises:
        UserError: if there is no such head.
    """
    if heads is None:
        last_layers = [layer.mean(1) for layer in cross_attentions[-2:]]
        return torch.stack(last_layers).mean(0)
    chosen = []
    for layer, head in heads:
        if not (0 <= layer < len(cross_attentions) and 0 <= head < cross_attentions[layer].shape[1]):
            raise UserError(f"alignment_heads names head {head} of layer {layer}, which the model does not have.")
        chosen.append(cross_attentions[layer][:, head])
    return torch.stack(chosen).mean(0)


def attended_positions(
    cross_attentions: Sequence[Tensor], source_mask: Tensor, heads: Sequence[Head] | None = None
) -> Tensor:
    """Return the source position that each target position attends to most, `[batch, target]`. It is never padding.

    Attentions are `[batch, heads, target, source]` of each layer. The mask `[batch, source]` is False for padding. The
    weights are those of [`aligning_attention`].
    """
    weights = aligning_attention([layer.double() for layer in cross_attentions], heads)
    return weights.masked_fill(~source_mask[:, None], -1.0).argmax(-1)


@torch.no_grad()
def cross_attention(model: PreTrainedModel, sequences: Tensor, **source: Tensor) -> Tensor:
    """Return how much each step of a translation attends to each source token, `[batch, length - 1, source]`.

    It is that of [`aligning_attention`], at the step that writes a token. The model is in evaluation mode. `sequences`
    are padded translations with their start token, `[batch, length]`, and `source` is what the encoder takes.

    Raises:
        UserError: if the model has no cross-attention.
    """
    # The last token is not read: it may be one more than there are positions. Padding may be -1.
    read = sequences[:, :-1].clamp(min=0)
    output = attending(model).base_model(**source, decoder_input_ids=read, use_cache=False, output_attentions=True)
    layers = [layer.float() for layer in cross_attentions_of(model, output)]
    return aligning_attention(layers, alignment_heads(model)).cpu()


def word_weights(
    attention: Tensor,
    source: Sequence[Span | None],
    target: Sequence[Span | None],
    source_words: Sequence[Span],
    target_words: Sequence[Span],
) -> list[list[float]]:
    """Return how much each word of a translation belongs to each word of its source.

    It is the share of the target word in the attention of all target words to the source word. So an article that looks
    at its noun belongs to the article.

    Args:
        attention: `[target tokens, source tokens]`, at the step that writes the token.
        source: the place of each source token in the source, None for special tokens.
        target: the place of each target token in the translation.
        source_words: the places of the words of the source.
        target_words: the places of the words of the translation.

    Returns:
        Weights `[target words][source words]`, computed in float64.
    """
    return word_shares(attention, source, target, source_words, target_words).tolist()


def word_shares(
    attention: Tensor,
    source: Sequence[Span | None],
    target: Sequence[Span | None],
    source_words: Sequence[Span],
    target_words: Sequence[Span],
) -> Tensor:
    """Return [`word_weights`] of one or several attentions, `[..., target words, source words]`.

    Args:
        attention: `[..., target tokens, source tokens]`, at the step that writes the token.
        source: the place of each source token in the source, None for special tokens.
        target: the place of each target token in the translation.
        source_words: the places of the words of the source.
        target_words: the places of the words of the translation.
    """
    columns = _membership(source, source_words)
    rows = _membership(target, target_words)
    of_tokens = attention[..., : len(target), : len(source)].double()
    sums = rows.T @ of_tokens @ columns
    # The mean over the tokens of a target word. A word without a token has no weight.
    num_tokens = rows.sum(0).clamp(min=1)
    means = sums / num_tokens.unsqueeze(-1)
    totals = means.sum(-2, keepdim=True)
    return means / totals.clamp(min=torch.finfo(means.dtype).tiny)


def aligner(
    attention: Tensor,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    source_ids: Sequence[int],
    target_ids: Sequence[int],
    clean_up_tokenization_spaces: bool | None = None,
) -> Callable[[Sequence[Span], Sequence[Span]], list[list[float]]]:
    """Return [`word_weights`] for a text and its translation, as a function of the words of both.

    Args:
        attention: `[target tokens, source tokens]`, at the step that writes the token.
        tokenizer: the model's.
        text: the source.
        source_ids: the token ids that the model reads.
        target_ids: the token ids of the translation, without the start token.
        clean_up_tokenization_spaces: as the translation was decoded.
    """

    def decode(ids: list[list[int]]) -> list[str]:
        return tokenizer.batch_decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=clean_up_tokenization_spaces
        )

    return partial(word_weights, attention, source_spans(tokenizer, text, source_ids), target_spans(target_ids, decode))


def attended_span(
    attention: Tensor,
    tokenizer: PreTrainedTokenizerBase,
    source: tuple[str, Sequence[int]],
    target_ids: Sequence[int],
    place: Span,
) -> Span | None:
    """Return the place of the source token that the words at a place of a translation attend to most.

    The end of the source and other tokens without text do not count. None if no token stands at that place.

    Args:
        attention: `[target tokens, source tokens]`, at the step that writes the token.
        tokenizer: the model's.
        source: the text, and the token ids that the model reads.
        target_ids: the token ids of the translation, without the start token.
        place: first character of the words, and the character behind them.
    """
    decode = partial(tokenizer.batch_decode, skip_special_tokens=True)
    rows = _membership(target_spans(target_ids, decode), [place])[:, 0]
    if not rows.any():
        return None
    received = rows @ attention[: len(rows)].double()
    spans = source_spans(tokenizer, *source)
    columns = [column for column, span in enumerate(spans) if span is not None]
    if not columns:
        return None
    best = max(columns, key=received.__getitem__)
    return spans[best]


def _membership(tokens: Sequence[Span | None], words: Sequence[Span]) -> Tensor:
    """Return `[tokens, words]`, 1 where a token is in a word. A token may be in several."""
    membership = torch.zeros(len(tokens), len(words), dtype=torch.double)
    starts = [start for start, _ in words]
    ends = [end for _, end in words]
    for number, token in enumerate(tokens):
        if token is not None:
            first = bisect_right(ends, token[0])
            last = bisect_right(starts, token[1] - 1)
            membership[number, first:last] = 1
    return membership


def source_spans(tokenizer: PreTrainedTokenizerBase, text: str, ids: Sequence[int]) -> list[Span | None]:
    """Return the place in a text of each token that a model reads, or None for special tokens and a prefix."""
    text_ids, spans = _tokens_of(tokenizer, text)
    # A code of the language or a prefix may stand in front of the text, and its end may have been cut off. So the text
    # begins where most of its tokens follow, at the last such place.
    start = length = 0
    for place in range(len(ids)):
        shared = _shared_beginning(text_ids, ids[place:])
        if shared >= length:
            start = place
            length = shared
    num_behind = len(ids) - start - length
    return [*[None] * start, *spans[:length], *[None] * num_behind]


def _tokens_of(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[list[int], list[Span | None]]:
    """Return the token ids of a text without special tokens, and their places in it."""
    is_fast = getattr(tokenizer, "is_fast", False)
    # A slow tokenizer refuses this option.
    options = {"return_offsets_mapping": True} if is_fast else {}
    with TOKENIZING:
        encoding = tokenizer(text, add_special_tokens=False, verbose=False, **options)
    if is_fast:
        spans = [_stripped(text, start, end) for start, end in encoding["offset_mapping"]]
    else:
        spans = _walked(text, tokenizer.tokenize(text))
    return list(encoding["input_ids"]), spans


def target_spans(ids: Sequence[int], decode: Decode) -> list[Span | None]:
    """Return the place in a translation of each token, or None for those without a character."""
    if not ids:
        return []
    # The text of the first token, of the first two, and so on.
    ids_of_beginnings = [list(ids[:end]) for end in range(1, len(ids) + 1)]
    beginnings = decode(ids_of_beginnings)
    text = beginnings[-1]
    spans = []
    start = 0
    for beginning in beginnings:
        # Half a character is shown as U+FFFD. A token may also make the text shorter.
        length = len(beginning.rstrip("\ufffd"))
        end = max(start, min(length, len(text)))
        spans.append(_stripped(text, start, end))
        start = end
    return spans


def _shared_beginning(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the beginning that both share."""
    length = 0
    for token, other in zip(first, second):
        if token != other:
            break
        length += 1
    return length


def _stripped(text: str, start: int, end: int) -> Span | None:
    """Return a place without white space at its ends, or None for white space."""
    inner = text[start:end].strip()
    if not inner:
        return None
    start = text.index(inner, start)
    return start, start + len(inner)


def _walked(text: str, pieces: Sequence[str]) -> list[Span | None]:
    """Return the places of the pieces of a slow tokenizer, which has no offsets."""
    spans: list[Span | None] = []
    place = 0
    for piece in pieces:
        form = piece.replace("▁", " ").strip()
        start = text.find(form, place, place + len(form) + 20)
        if start < 0:
            # The tokenizer writes it in another way than the text, so it is taken to start where the last one ends.
            start = min(place, len(text))
        span = _stripped(text, start, min(start + len(form), len(text)))
        if span is not None:
            place = start + len(form)
        spans.append(span)
    return spans
