"""Teacher forcing: one pass of a model over given translations, padding told apart."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from ..decoding.decoder_weights import Fingerprint, with_shared_weights

_MODES = Lock()
_users: dict[nn.Module, tuple[int, list[nn.Module]]] = {}
"""For each model that is being evaluated: how many users it has, and which modules were in training mode."""
_attending: WeakKeyDictionary[nn.Module, tuple[Fingerprint, nn.Module]] = WeakKeyDictionary()
"""For each model the copy that can tell its attention, which takes long to make."""


@dataclass(frozen=True)
class TeacherForcedPass:
    """Output of one pass over a batch of sources and translations.

    Attributes:
        output: of the model without its language model head. What it has at target position t is of the step that
            writes `targets[:, t]`.
        source_mask: `[batch, source]` bool, True where there is a word.
        target_mask: `[batch, target]` bool, likewise.
        sources: ids of the words that were read, `[batch, source]`; anything where there is none.
        targets: ids of the words that were written, `[batch, target]`, likewise.
    """

    output: Any
    source_mask: Tensor
    target_mask: Tensor
    sources: Tensor
    targets: Tensor


@torch.no_grad()
def teacher_force(
    model: PreTrainedModel, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], **options: Any
) -> TeacherForcedPass:
    """Run the model over `targets`, without its language model head, in one pass.

    The `force_decode` method of models of this package returns logits as well, of what `generate()` wrote.

    Args:
        model: any encoder-decoder.
        sources: ids of each source, the end of the sentence included.
        targets: ids of each translation, without what decoding starts from; at least one.
        **options: of the model's forward, such as `output_attentions=True`, or `output_routing="all"`.
    """
    config = model.config
    input_ids, source_mask = pad_rows(sources, config.pad_token_id, model.device)
    words, target_mask = pad_rows(targets, config.pad_token_id, model.device)
    # The head, whose product with the vocabulary is the largest part of a small model's work, says nothing of routing.
    output = model.base_model(
        input_ids=input_ids,
        attention_mask=source_mask.long(),
        decoder_input_ids=behind_start(model, words)[:, :-1],
        use_cache=False,
        **options,
    )
    return TeacherForcedPass(output, source_mask, target_mask, input_ids, words)


def behind_start(model: PreTrainedModel, words: Tensor) -> Tensor:
    """Return words `[batch, target]` behind the one that `generate()` starts from, `[batch, 1 + target]`.

    That is the one of the generation config, or of the model's if it has none.
    """
    # A model without its head has none.
    start = getattr(getattr(model, "generation_config", None), "decoder_start_token_id", None)
    # 0 is a word.
    start = model.config.decoder_start_token_id if start is None else start
    return torch.cat([words.new_full((len(words), 1), start), words], dim=1)


def pad_rows(rows: Sequence[Sequence[int]], padding: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return `[batch, length]` ids, padded on the right, and their mask, True where there is a word."""
    lengths = torch.tensor([len(row) for row in rows])
    padded = pad_sequence(
        [torch.tensor(row, dtype=torch.long) for row in rows], batch_first=True, padding_value=padding or 0
    )
    return padded.to(device), (torch.arange(padded.shape[1]) < lengths[:, None]).to(device)


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Switch dropout off until the end of the block. Several threads may do so at the same time.

    The last one to leave puts back into training mode the modules that were in it.
    """
    with _MODES:
        count, trained = _users.get(model, (0, []))
        _users[model] = count + 1, trained + [module for module in model.modules() if module.training]
        model.eval()
    try:
        yield
    finally:
        with _MODES:
            count, trained = _users.pop(model)
            if count > 1:
                _users[model] = count - 1, trained
            else:
                for module in trained:
                    module.training = True


def attending(model: PreTrainedModel) -> PreTrainedModel:
    """Return a model of the same weights whose attention can tell its weights."""
    # A recurrent model has no choice.
    if not model._supports_sdpa or model.config._attn_implementation == "eager":
        return model
    fingerprint, found = _attending.get(model, (None, None))
    if fingerprint is None or not fingerprint.is_of(model):
        # Not the model itself: another thread may be in the middle of a pass, behind masks of another kind.
        found = with_shared_weights(model)
        found.set_attn_implementation("eager")
        _attending[model] = Fingerprint(model), found
    for own, part in zip(found.modules(), model.modules(), strict=True):
        own.training = part.training
    return found


def cross_attentions_of(output: Any) -> list[Tensor]:
    """Return the cross-attention in a model's output, `[batch, heads, target, source]` of each layer that has any."""
    return [weights for weights in getattr(output, "cross_attentions", None) or () if weights is not None]


def attended_positions(cross_attentions: Sequence[Tensor], source_mask: Tensor, layer: int | None = None) -> Tensor:
    """The source position that each target position attends to most, `[batch, target]`; never padding.

    The weights are the mean over the heads and the last two layers, which place words best (benchmarks/tags.md).

    Args:
        cross_attentions: of each decoder layer, `[batch, heads, target, source]`.
        source_mask: `[batch, source]` bool, True where there is a word.
        layer: another, from 0, the lowest.

    Raises:
        ValueError: if there is no such layer.
    """
    layers = len(cross_attentions)
    if layer is not None and not 0 <= layer < layers:
        raise ValueError(f"the layer to align by is {layer}; the decoder has layers 0 to {layers - 1}")
    chosen = cross_attentions[-2:] if layer is None else [cross_attentions[layer]]
    weights = torch.stack([weights.double().mean(1) for weights in chosen]).mean(0)
    return weights.masked_fill(~source_mask[:, None], -1.0).argmax(-1)
