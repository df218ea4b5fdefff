"""Rows of token ids: padded for a model to read, and cut where a translation that it wrote ends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, PreTrainedModel


@dataclass(frozen=True)
class Written:
    """Token ids that a model wrote, and the token that ended them, or None."""

    words: list[int]
    end: int | None
    score: float | None = None  # As `sequences_scores` of `generate()`. Only the engine's beam search gives it.

    @property
    def ids(self) -> list[int]:
        """The token ids with their end, if they have one."""
        return self.words if self.end is None else [*self.words, self.end]


def pad_rows(rows: Sequence[Sequence[int]], padding: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return token ids padded on the right, `[batch, length]`, and their mask, False for padding."""
    lengths = torch.tensor([len(row) for row in rows])
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    padded = pad_sequence(tensors, batch_first=True, padding_value=padding or 0)
    mask = torch.arange(padded.shape[1]) < lengths[:, None]
    return padded.to(device), mask.to(device)


def behind_start(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """Return token ids `[batch, target]` after the start token of `generate()`, `[batch, 1 + target]`."""
    # A model without its head has no generation config.
    settings = getattr(model, "generation_config", None)
    starts = [
        getattr(settings, "decoder_start_token_id", None),
        model.config.decoder_start_token_id,
        # generate() begins with it where there is no start.
        getattr(settings, "bos_token_id", None),
    ]
    # 0 is a token too.
    start = next(token_id for token_id in starts if token_id is not None)
    return torch.cat([ids.new_full((len(ids), 1), start), ids], dim=1)


def words_before_end(generated: Tensor, settings: GenerationConfig, limits: Sequence[int]) -> list[Written]:
    """Return what was written in token ids `[batch, length]`: the tokens before the end, the limit, or the padding."""
    ends = settings.eos_token_id
    if not isinstance(ends, list):
        ends = [ends]
    # Transformers fills up with -1 where it knows no end.
    padding = (settings.pad_token_id, -1)
    rows = []
    for row, limit in zip(generated.tolist(), limits, strict=True):
        # The first token is the start. After its limit a row is filled with ends or padding.
        rows.append(_before_end(row[1 : limit + 1], ends, padding))
    return rows


def _before_end(token_ids: list[int], ends: Sequence[int | None], padding: Sequence[int | None]) -> Written:
    for length, token_id in enumerate(token_ids):
        if token_id in ends:
            return Written(token_ids[:length], token_id)
    length = len(token_ids)
    while length and token_ids[length - 1] in padding:
        length -= 1
    return Written(token_ids[:length], None)


def with_scores(written: Sequence[Written], scores: Tensor | None) -> list[Written]:
    """Return what was written with the scores of the search, `[rows]`, if it has any."""
    if scores is None:
        return list(written)
    return [replace(row, score=score) for row, score in zip(written, scores.tolist(), strict=True)]
