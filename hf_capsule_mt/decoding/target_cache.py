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
    """Keys and values that layers attend to. `like` is keys of the source, `[sentences, heads, source, d / heads]`."""

    def __init__(self, num_layers: int, like: Tensor, num_beams: int) -> None:
        self.sentences, self.num_beams, self.num_layers = like.shape[0], num_beams, num_layers
        # Keys and values, `[sentences or more, 2, heads, slots, d / heads]`. The first rows are in use.
        self.layers: list[Tensor] = []
        # The slots that the next step writes: a slice, or a tensor that is counted up if several steps are reserved.
        self.new: slice | Tensor = slice(0, 0)
        self.read = slice(0, 0)  # The slots that the next step attends to.
        self._heads, self._width = like.shape[1], like.shape[3]
        self._slots = 0  # Written or reserved.
        # `[sentences, beams, slots]`: 0 where a beam attends to a slot, else -inf. None: it attends to all.
        self._strangers: Tensor | None = None
        self._itself = like.new_full((num_beams, num_beams), -torch.inf).fill_diagonal_(0)

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
            self.read = slice(0, self.layers[0].shape[3])
            new = torch.arange(self._slots, self._slots + self.num_beams, device=self._itself.device)
            self.new = self.new.copy_(new) if isinstance(self.new, Tensor) else new
        self._slots += count

    def begin_step(self) -> Tensor | None:
        """Return what attention adds to the scores of the slots `read`, `[sentences, 1, beams, slots]`."""
        if self._strangers is None:
            return None
        self._strangers[:, :, self.new] = self._itself
        return self._strangers[:, None, :, self.read]

    def end_step(self) -> None:
        """Go on to the slots of the next step that is reserved."""
        if isinstance(self.new, Tensor):
            self.new.add_(self.num_beams)

    def reorder(self, parents: Tensor) -> None:
        """Let beams continue others, as [`Decoding.reorder`] says."""
        strangers = self._strangers[:, :, self.read]
        strangers.copy_(strangers.gather(1, parents.unsqueeze(-1).expand(-1, -1, strangers.shape[2])))

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Keep only some sentences, as [`Decoding.select`] says."""
        self.sentences = len(rows)
        for layer in self.layers:
            moved_rows(layer[:, :, :, : self._slots], rows, moved)
        if self._strangers is not None:
            self._strangers = self._strangers[rows]

    def _hide_what_is_not_written(self) -> None:
        if self._strangers is None:
            shape = self.sentences, self.num_beams, self.layers[0].shape[3]
            self._strangers = self._itself.new_full(shape, -torch.inf)
            self._strangers[:, :, : self._slots] = 0

    def _make_room(self, count: int, left: int) -> None:
        """Let `count` slots follow those that are taken, of `left` that are still to come."""
        more = max(count, min(left, _STEPS * self.num_beams))
        if not self.layers:
            shape = self.sentences, 2, self._heads, more, self._width
            self.layers = [self._itself.new_zeros(shape) for _ in range(self.num_layers)]
            if self.num_beams > 1:
                self._hide_what_is_not_written()
        elif self._slots + count > self.layers[0].shape[3] and not self._frees(count, left):
            for index, layer in enumerate(self.layers):
                # One after the other, so that only one is there twice.
                self.layers[index] = F.pad(layer, (0, 0, 0, more))
            if self._strangers is not None:
                self._strangers = F.pad(self._strangers, (0, more), value=-torch.inf)

    def _frees(self, count: int, left: int) -> bool:
        """Move the slots that beams attend to to the front. Return False if that would free too few."""
        if self._strangers is None:
            return False
        attended = self._strangers[:, :, : self._slots].amax(1) == 0
        taken = int(attended.sum(1).max())
        if self._slots - taken < max(count, min(left, self._slots // _WORTHWHILE)):
            return False
        slots = attended.int().argsort(dim=1, descending=True, stable=True)[:, :taken]
        for layer in self.layers:
            own = layer[: self.sentences]
            own[:, :, :, :taken] = own.gather(
                3, slots[:, None, None, :, None].expand(-1, *own.shape[1:3], -1, own.shape[4])
            )
        self._strangers[:, :, :taken] = self._strangers.gather(2, slots.unsqueeze(1).expand(-1, self.num_beams, -1))
        self._strangers[:, :, taken:] = -torch.inf
        self._slots = taken
        return True


def moved_rows(tensor: Tensor, rows: Tensor, moved: Tensor) -> Tensor:
    """Copy the rows `rows[moved]` to the places `moved`, and return the tensor."""
    if len(moved):
        tensor[moved] = tensor[rows[moved]]
    return tensor
