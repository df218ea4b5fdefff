"""Rows of token ids: padded for a model to read, and cut where a translation that it wrote ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, PreTrainedModel


@dataclass(frozen=True)
class Decoded:
    """A translation of one sentence as the model wrote it, without the tags and kept parts of its source."""

    token_ids: list[int]
    """Without the start token and the end."""
    end: int | None = None
    """The token that ended it, or None at the limit of its length."""
    score: float | None = None
    """As `sequences_scores` of `generate()`. The engine's beam search knows it, others only if they were asked for."""
    text: str = ""
    """The same as text, in one line."""
    terms: tuple[Any, ...] = ()
    """What became of the terms of a glossary, one [`PlacedTerm`] each."""
    forced: Any = None
    """What a forced pass of the model says of it, a [`ForcedTarget`], if somebody needs it."""

    @property
    def ids(self) -> list[int]:
        """The token ids with their end, if they have one."""
        return self.token_ids if self.end is None else [*self.token_ids, self.end]


def pad_rows(rows: Sequence[Sequence[int]], padding: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return token ids padded on the right, `[batch, length]`, and their mask, False for padding."""
    lengths = torch.tensor([len(row) for row in rows])
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    padded = pad_sequence(tensors, batch_first=True, padding_value=padding or 0)
    mask = torch.arange(padded.shape[1]) < lengths[:, None]
    return padded.to(device), mask.to(device)


def start_token(model: PreTrainedModel) -> int:
    """Return the token with which `generate()` begins translations."""
    # A model without its head has no generation config.
    settings = getattr(model, "generation_config", None)
    starts = [
        getattr(settings, "decoder_start_token_id", None),
        model.config.decoder_start_token_id,
        # generate() begins with it where there is no start.
        getattr(settings, "bos_token_id", None),
    ]
    # 0 is a token too.
    return next(token_id for token_id in starts if token_id is not None)


def behind_start(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """Return token ids `[batch, target]` after the start token of `generate()`, `[batch, 1 + target]`."""
    return torch.cat([ids.new_full((len(ids), 1), start_token(model)), ids], dim=1)


def before_end(row: Sequence[int], settings: GenerationConfig, limit: int, score: float | None = None) -> Decoded:
    """Return what was written in a row of `generate()`: the tokens before the end, the limit, or the padding.

    Args:
        row: token ids with the start token.
        settings: those of the search.
        limit: the most new tokens of the translation.
        score: that of the search, if it has any.
    """
    ends = settings.eos_token_id
    if not isinstance(ends, list):
        ends = [ends]
    # The first token is the start. After its limit a row is filled with ends or padding.
    token_ids = [*row[1 : limit + 1]]
    for length, token_id in enumerate(token_ids):
        if token_id in ends:
            return Decoded(token_ids[:length], token_id, score)
    length = len(token_ids)
    # Transformers fills up with -1 where it knows no end.
    while length and token_ids[length - 1] in (settings.pad_token_id, -1):
        length -= 1
    return Decoded(token_ids[:length], None, score)
