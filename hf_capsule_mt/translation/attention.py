"""Align the words of a translation with the words of its source, by the cross-attention of the model."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, takewhile
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import TOKENIZING
from hf_capsule_mt.decoding.fingerprint import Fingerprint, with_shared_weights
from hf_capsule_mt.errors import UserError

from .translator import behind_start, pad_rows

Span = tuple[int, int]

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
    # A recurrent model always can.
    if not model._supports_sdpa or model.config._attn_implementation == "eager":
        return model
    fingerprint, found = _attending.get(model, (None, None))
    if fingerprint is None or not fingerprint.is_of(model):
        # The model itself stays as it is: another thread may be in the middle of a pass, with masks of another kind.
        found = with_shared_weights(model)
        found.set_attn_implementation("eager")
        _attending[model] = Fingerprint(model), found
    for own, part in zip(found.modules(), model.modules(), strict=True):
        own.training = part.training
    return found


def cross_attentions_of(model: PreTrainedModel, output: Any) -> list[Tensor]:
    """Return the cross-attention in a model's output, `[batch, heads, target, source]` of each layer that has any.

    Raises:
        UserError: if no layer has any.
    """
    if not (found := [each for each in getattr(output, "cross_attentions", None) or () if each is not None]):
        raise UserError(f"A {model.config.model_type} model has no attention. Use another family, such as rnmt.")
    return found


def attended_positions(cross_attentions: Sequence[Tensor], source_mask: Tensor) -> Tensor:
    """Return the source position that each target position attends to most, `[batch, target]`. It is never padding.

    Attentions are `[batch, heads, target, source]` of each layer. The mask `[batch, source]` is False for padding. The
    weights are the mean over the heads and the last two layers, which place words best (benchmarks/tags.md).
    """
    weights = torch.stack([weights.double().mean(1) for weights in cross_attentions[-2:]]).mean(0)
    return weights.masked_fill(~source_mask[:, None], -1.0).argmax(-1)


@torch.no_grad()
def cross_attention(model: PreTrainedModel, sequences: Tensor, **source: Tensor) -> Tensor:
    """Return how much each step of a translation attends to each source token, `[batch, length - 1, source]`.

    It is the mean over the heads and the last two layers, at the step that writes a token. The model is in evaluation
    mode. `sequences` are padded translations with their start token, `[batch, length]`, and `source` is what the
    encoder takes.

    Raises:
        UserError: if the model has no cross-attention.
    """
    # The last token is not read: it may be one more than there are positions. Padding may be -1.
    read = sequences[:, :-1].clamp(min=0)
    output = attending(model).base_model(**source, decoder_input_ids=read, use_cache=False, output_attentions=True)
    layers = [weights.float().mean(1) for weights in cross_attentions_of(model, output)[-2:]]
    return torch.stack(layers).mean(0).cpu()


def word_weights(
    attention: Tensor,
    source: Sequence[Span | None],
    target: Sequence[Span | None],
    source_words: Sequence[Span],
    target_words: Sequence[Span],
) -> list[list[float]]:
    """Return how much each word of a translation belongs to each word of its source, `[target word][source word]`.

    It is the share of the target word in the attention of all target words to the source word. So an article that looks
    at its noun belongs to the article. `attention` is `[target tokens, source tokens]`. The other arguments are places
    in the texts: `source` and `target` of tokens, None for special ones, and the last two of words.
    """
    columns, rows = _membership(source, source_words), _membership(target, target_words)
    weights = rows.T @ attention[: len(target), : len(source)].double() @ columns
    weights /= rows.sum(0).clamp(min=1).unsqueeze(-1)
    return (weights / weights.sum(0, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)).tolist()


def aligner(
    attention: Tensor,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    source_ids: Sequence[int],
    target_ids: Sequence[int],
    clean_up_tokenization_spaces: bool | None = None,
) -> Callable[[Sequence[Span], Sequence[Span]], list[list[float]]]:
    """Return [`word_weights`] for a text and its translation, as a function of the words of both.

    `attention` is `[target tokens, source tokens]`. The token ids are those that the model reads, without the start
    token of the target. `clean_up_tokenization_spaces` is as the translation was decoded.
    """
    options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": clean_up_tokenization_spaces}
    targets = target_spans(target_ids, partial(tokenizer.batch_decode, **options))
    return partial(word_weights, attention, source_spans(tokenizer, text, source_ids), targets)


def _membership(tokens: Sequence[Span | None], words: Sequence[Span]) -> Tensor:
    """Return `[tokens, words]`, 1 where a token is in a word. A token may be in several."""
    membership = torch.zeros(len(tokens), len(words), dtype=torch.double)
    starts, ends = [start for start, _ in words], [end for _, end in words]
    for number, token in enumerate(tokens):
        if token is not None:
            membership[number, bisect_right(ends, token[0]) : bisect_right(starts, token[1] - 1)] = 1
    return membership


def source_spans(tokenizer: PreTrainedTokenizerBase, text: str, ids: Sequence[int]) -> list[Span | None]:
    """Return the place in a text of each token that a model reads, or None for special tokens and a prefix."""
    is_fast = getattr(tokenizer, "is_fast", False)
    offsets = {"return_offsets_mapping": True} if is_fast else {}
    with TOKENIZING:
        found = tokenizer(text, add_special_tokens=False, **offsets, verbose=False)
    if is_fast:
        spans = [_stripped(text, *span) for span in found["offset_mapping"]]
    else:
        spans = _walked(text, tokenizer.tokenize(text))
    own, ids = list(found["input_ids"]), list(ids)
    # A code of the language or a prefix may stand in front. The end may have been cut off.
    start = max(range(len(ids)), key=lambda start: (_common(own, ids[start:]), start), default=0)
    read = spans[: _common(own, ids[start:])]
    return [None] * start + read + [None] * (len(ids) - start - len(read))


def target_spans(ids: Sequence[int], decode: Callable[[list[list[int]]], list[str]]) -> list[Span | None]:
    """Return the place in a translation of each token, or None for those without a character.

    `decode` returns the texts of several lists of token ids.
    """
    if not ids:
        return []
    texts = decode([list(ids[:end]) for end in range(1, len(ids) + 1)])
    # Half a character is shown as U+FFFD.
    ends = [min(end, len(texts[-1])) for end in accumulate((len(text.rstrip("\ufffd")) for text in texts), max)]
    return [_stripped(texts[-1], start, end) for start, end in zip([0, *ends], ends)]


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the beginning that both share."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second)))


def _stripped(text: str, start: int, end: int) -> Span | None:
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
        # A piece that is written in another way than the text is taken to start where the last one ends.
        near = text.find(form, place, place + len(form) + 20)
        start = near if near >= 0 else min(place, len(text))
        span = _stripped(text, start, min(start + len(form), len(text)))
        place = start + len(form) if span else place
        spans.append(span)
    return spans
