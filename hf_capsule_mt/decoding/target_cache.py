"""Keys and values of the target's tokens so far, for all beams.

They are written once, to a slot for each step and beam, and not moved when beams part: beams differ in the slots that
they attend to, their ancestors. Once all slots are taken, those from which no beam descends any more are free again.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

_STEPS = 32
"""Steps that there are slots for at first, and how many more there are when too few are free again."""
_WORTHWHILE = 4
"""Slots are freed once they are one in so many, or all that are still to come."""


class TargetCache:
    """Keys and values that layers attend to.

    Args:
        num_layers: the number of layers.
        like: keys of the source, `[sentences, heads, source, d / heads]`. The cache has their dtype and device.
        num_beams: the number of beams of every sentence.
        keeps_positions: whether `positions` are kept, for layers whose attention depends on them.
    """

    def __init__(self, num_layers: int, like: Tensor, num_beams: int, keeps_positions: bool = False) -> None:
        self.sentences = like.shape[0]
        self.num_beams = num_beams
        self.num_layers = num_layers
        # Keys and values, `[sentences or more, 2, heads, slots, d / heads]`. The first rows are in use.
        self.layers: list[Tensor] = []
        # The slots that the next step writes: a slice, or a tensor that is counted up if several steps are reserved.
        self.new: slice | Tensor = slice(0, 0)
        # The slots that the next step attends to.
        self.read = slice(0, 0)
        self._heads = like.shape[1]
        self._width = like.shape[3]
        # The positions of the tokens in the slots, `[sentences, slots]`. Slots are moved when others are freed.
        self.positions: Tensor | None = None
        if keeps_positions:
            self.positions = torch.zeros((self.sentences, 0), dtype=torch.long, device=like.device)
        # How many slots are written or reserved.
        self._slots = 0
        # `[sentences, beams, slots]`: 0 where a beam attends to a slot, else -inf. None: it attends to all.
        self._hidden: Tensor | None = None
        # The same for the slots of one step, `[beams, beams]`: each beam attends to its own.
        self._hidden_in_step = like.new_full((num_beams, num_beams), -torch.inf).fill_diagonal_(0)

    def reserve(self, steps: int, left: int) -> None:
        """Make room for so many steps, as [`Decoding.reserve`] says."""
        count = steps * self.num_beams
        self._make_room(count, left * self.num_beams)
        if steps == 1:
            self.read = slice(0, self._slots + count)
            self.new = slice(self._slots, self._slots + count)
        else:
            # A CUDA graph is for one number of slots. Those that are not written yet are hidden.
            self._hide_what_is_not_written()
            self.read = slice(0, self._room)
            device = self._hidden_in_step.device
            new = torch.arange(self._slots, self._slots + self.num_beams, device=device)
            # A graph reads the tensor that it was recorded with.
            self.new = self.new.copy_(new) if isinstance(self.new, Tensor) else new
        self._slots += count

    def begin_step(self, position: int | Tensor) -> Tensor | None:
        """Return what attention adds to the scores of the slots `read`, `[sentences, 1, beams, slots]`, or None.

        `position` is the number of tokens before those of this step, or a tensor of it, `[1]`.
        """
        if self.positions is not None:
            self.positions[:, self.new] = position
        if self._hidden is None:
            return None
        self._hidden[:, :, self.new] = self._hidden_in_step
        return self._hidden[:, None, :, self.read]

    def end_step(self) -> None:
        """Go on to the slots of the next step that is reserved."""
        if isinstance(self.new, Tensor):
            self.new.add_(self.num_beams)

    def reorder(self, parents: Tensor) -> None:
        """Let beams continue others, as [`Decoding.reorder`] says."""
        hidden = self._hidden[:, :, self.read]
        slots = hidden.shape[2]
        indices = parents.unsqueeze(-1).expand(-1, -1, slots)
        hidden.copy_(hidden.gather(1, indices))

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Keep only some sentences, as [`Decoding.select`] says."""
        self.sentences = len(rows)
        for layer in self.layers:
            moved_rows(layer[:, :, :, : self._slots], rows, moved)
        if self._hidden is not None:
            self._hidden = self._hidden[rows]
        if self.positions is not None:
            self.positions = self.positions[rows]

    @property
    def _room(self) -> int:
        """The number of slots, with those that are not taken yet."""
        return self.layers[0].shape[3]

    def _hide_what_is_not_written(self) -> None:
        if self._hidden is None:
            shape = (self.sentences, self.num_beams, self._room)
            self._hidden = self._hidden_in_step.new_full(shape, -torch.inf)
            self._hidden[:, :, : self._slots] = 0

    def _make_room(self, count: int, left: int) -> None:
        """Let `count` slots follow those that are taken, of `left` that are still to come."""
        more = max(count, min(left, _STEPS * self.num_beams))
        if not self.layers:
            shape = (self.sentences, 2, self._heads, more, self._width)
            self.layers = [self._hidden_in_step.new_zeros(shape) for _ in range(self.num_layers)]
            self._add_positions(more)
            if self.num_beams > 1:
                self._hide_what_is_not_written()
            return
        is_full = self._slots + count > self._room
        if is_full and not self._free(count, left):
            self._grow(more)

    def _grow(self, more: int) -> None:
        """Add so many slots."""
        for index, layer in enumerate(self.layers):
            # One after the other, so that only one is there twice.
            self.layers[index] = F.pad(layer, (0, 0, 0, more))
        if self._hidden is not None:
            self._hidden = F.pad(self._hidden, (0, more), value=-torch.inf)
        self._add_positions(more)

    def _add_positions(self, more: int) -> None:
        if self.positions is not None:
            self.positions = F.pad(self.positions, (0, more))

    def _free(self, count: int, left: int) -> bool:
        """Move the slots that beams attend to to the front. Return False if that would free too few."""
        if self._hidden is None:
            return False
        is_attended = self._hidden[:, :, : self._slots].amax(1) == 0
        taken = int(is_attended.sum(1).max())
        least = max(count, min(left, self._slots // _WORTHWHILE))
        if self._slots - taken < least:
            return False
        # `[sentences, taken]`. The sort is stable, so the order of the slots stays.
        slots = is_attended.int().argsort(dim=1, descending=True, stable=True)
        slots = slots[:, :taken]
        for layer in self.layers:
            in_use = layer[: self.sentences]
            indices = slots[:, None, None, :, None]
            indices = indices.expand(-1, 2, self._heads, -1, self._width)
            in_use[:, :, :, :taken] = in_use.gather(3, indices)
        if self.positions is not None:
            self.positions[:, :taken] = self.positions.gather(1, slots)
        indices = slots.unsqueeze(1).expand(-1, self.num_beams, -1)
        self._hidden[:, :, :taken] = self._hidden.gather(2, indices)
        self._hidden[:, :, taken:] = -torch.inf
        self._slots = taken
        return True


def moved_rows(tensor: Tensor, rows: Tensor, moved: Tensor) -> Tensor:
    """Copy the rows `rows[moved]` to the places `moved`, and return the tensor, `[sentences, ...]`."""
    if len(moved):
        tensor[moved] = tensor[rows[moved]]
    return tensor
