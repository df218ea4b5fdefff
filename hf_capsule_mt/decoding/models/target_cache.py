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
        # Keys and values, `[2, sentences or more, heads, slots, d / heads]`. The first sentences are in use.
        self.layers: list[Tensor] = []
        # The slots that the next step writes: a slice, or a tensor that is counted up if several steps are reserved.
        self.new_slots: slice | Tensor = slice(0, 0)
        # The slots that the next step attends to.
        self.read_slots = slice(0, 0)
        self._heads = like.shape[1]
        self._width = like.shape[3]
        # The positions of the tokens in the slots, `[sentences, slots]`. Slots are moved when others are freed.
        self.positions: Tensor | None = None
        if keeps_positions:
            self.positions = torch.zeros((self.sentences, 0), dtype=torch.long, device=like.device)
        # How many slots are written or reserved.
        self._slots = 0
        # `[sentences, beams, slots]`: 0 where a beam attends to a slot, else -inf. None: it attends to all.
        self._mask: Tensor | None = None
        # The same for the slots of one step, `[beams, beams]`: each beam attends to its own.
        self._step_mask = like.new_full((num_beams, num_beams), -torch.inf).fill_diagonal_(0)

    def reserve(self, steps: int, left: int) -> None:
        """Make room for so many steps, as [`Decoding.reserve`] says."""
        count = steps * self.num_beams
        self._make_room(count, left * self.num_beams)
        if steps == 1:
            self.read_slots = slice(0, self._slots + count)
            self.new_slots = slice(self._slots, self._slots + count)
        else:
            # A CUDA graph is for one number of slots. Those that are not written yet are hidden.
            self._hide_what_is_not_written()
            self.read_slots = slice(0, self._room)
            device = self._step_mask.device
            new_slots = torch.arange(self._slots, self._slots + self.num_beams, device=device)
            if isinstance(self.new_slots, Tensor):
                # A graph reads the tensor that it was recorded with.
                self.new_slots.copy_(new_slots)
            else:
                self.new_slots = new_slots
        self._slots += count

    def begin_step(self, position: int | Tensor) -> Tensor | None:
        """Return what attention adds to the scores of the slots `read_slots`, `[sentences, 1, beams, slots]`, or None.

        `position` is the number of tokens before those of this step, or a tensor of it, `[1]`.
        """
        if self.positions is not None:
            self.positions[:, self.new_slots] = position
        if self._mask is None:
            return None
        self._mask[:, :, self.new_slots] = self._step_mask
        return self._mask[:, None, :, self.read_slots]

    def end_step(self) -> None:
        """Continue with the slots of the next step that is reserved. Where only one is, [`reserve`] names the next."""
        if isinstance(self.new_slots, Tensor):
            self.new_slots.add_(self.num_beams)

    def reorder(self, parents: Tensor) -> None:
        """Let beams continue others, as [`Decoding.reorder`] says."""
        # A beam attends to the slots of the one that it continues.
        mask = self._mask[:, :, self.read_slots]
        slots = mask.shape[2]
        indices = parents.unsqueeze(-1).expand(-1, -1, slots)
        mask.copy_(mask.gather(1, indices))

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Keep only some sentences, as [`Decoding.select`] says."""
        self.sentences = len(rows)
        for layer in self.layers:
            for keys_or_values in layer[:, :, :, : self._slots]:
                moved_rows(keys_or_values, rows, moved)
        if self._mask is not None:
            self._mask = self._mask[rows]
        if self.positions is not None:
            self.positions = self.positions[rows]

    @property
    def _room(self) -> int:
        """The number of slots, with those that are not taken yet."""
        return self.layers[0].shape[3]

    def _hide_what_is_not_written(self) -> None:
        """Begin to mask slots, if that has not begun. All beams attend to what is written so far."""
        if self._mask is None:
            shape = (self.sentences, self.num_beams, self._room)
            self._mask = self._step_mask.new_full(shape, -torch.inf)
            self._mask[:, :, : self._slots] = 0

    def _make_room(self, count: int, left: int) -> None:
        """Let `count` slots follow those that are taken, of `left` that are still to come."""
        more = max(count, min(left, _STEPS * self.num_beams))
        if not self.layers:
            self._make_layers(more)
            return
        is_full = self._slots + count > self._room
        if is_full and not self._free(count, left):
            self._grow(more)

    def _make_layers(self, slots: int) -> None:
        """Make so many empty slots."""
        shape = (2, self.sentences, self._heads, slots, self._width)
        self.layers = [self._step_mask.new_zeros(shape) for _ in range(self.num_layers)]
        self._add_positions(slots)
        if self.num_beams > 1:
            self._hide_what_is_not_written()

    def _grow(self, more: int) -> None:
        """Add so many slots."""
        for index, layer in enumerate(self.layers):
            # One after the other, so that only one is there twice.
            self.layers[index] = F.pad(layer, (0, 0, 0, more))
        if self._mask is not None:
            self._mask = F.pad(self._mask, (0, more), value=-torch.inf)
        self._add_positions(more)

    def _add_positions(self, more: int) -> None:
        if self.positions is not None:
            self.positions = F.pad(self.positions, (0, more))

    def _free(self, count: int, left: int) -> bool:
        """Free the slots that no beam attends to. Return False if they are too few, of `count` that are needed now."""
        if self._mask is None:
            return False
        is_attended = self._mask[:, :, : self._slots].amax(1) == 0
        # A sentence with fewer keeps some that are free, because a tensor has as many slots for all.
        taken = int(is_attended.sum(1).max())
        least = max(count, min(left, self._slots // _WORTHWHILE))
        if self._slots - taken < least:
            return False
        # The sort is stable, so the order of the slots stays.
        slots = is_attended.int().argsort(dim=1, descending=True, stable=True)
        self._move_to_front(slots[:, :taken])
        self._slots = taken
        return True

    def _move_to_front(self, slots: Tensor) -> None:
        """Let the first slots be those with these numbers, `[sentences, slots]`, and hide all others."""
        count = slots.shape[1]
        indices = slots[:, None, :, None]
        indices = indices.expand(2, -1, self._heads, -1, self._width)
        for layer in self.layers:
            in_use = layer[:, : self.sentences]
            in_use[:, :, :, :count] = in_use.gather(3, indices)
        if self.positions is not None:
            self.positions[:, :count] = self.positions.gather(1, slots)
        indices = slots.unsqueeze(1).expand(-1, self.num_beams, -1)
        self._mask[:, :, :count] = self._mask.gather(2, indices)
        self._mask[:, :, count:] = -torch.inf


def moved_rows(tensor: Tensor, rows: Tensor, moved: Tensor) -> Tensor:
    """Copy the rows `rows[moved]` to the places `moved`, and return the tensor, `[sentences, ...]`."""
    if len(moved):
        tensor[moved] = tensor[rows[moved]]
    return tensor
