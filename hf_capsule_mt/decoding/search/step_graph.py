"""A step of decoding as a CUDA graph: one launch instead of some hundred, for which the device would wait."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from transformers.utils import logging

logger = logging.get_logger(__name__)

_UNCHANGED = ("adapter", "vocabulary", "settings", "routing", "bound_layers")
"""Attributes of a search and its parts that stay the same from step to step."""
_ENGINE = f"{__package__.rpartition('.')[0]}."
"""Where the classes of a search and its parts are defined."""


Step = Callable[[], None]
"""Writes the next token of every sentence, in place."""


def _record_on_cuda(step: Step) -> Step:
    """Record a step on the current device without running it, and return what runs it again."""
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    # Not `torch.cuda.graph`, which empties the allocator's cache and may collect garbage every time.
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            step()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph.replay


_RECORDERS: dict[str, Callable[[Step], Step]] = {"cuda": _record_on_cuda}
"""By the kind of device: records a step without running it, and returns what runs it again."""


class StepGraph:
    """Runs a step again and again, as a graph once it is known that the next ones are the same.

    The first step after a change runs by itself, which also loads what the device needs. The second is recorded.
    """

    def __init__(self, device: torch.device) -> None:
        self._record = _RECORDERS.get(device.type)
        self._places: list[Any] | None = None
        self._replay: Step | None = None
        self._is_warm = False

    def prepare(self, owner: object) -> None:
        """Forget the graph if a tensor of `owner`, or of an object in it, has another place or shape now."""
        if self._record is not None:
            places = [_place_of(part) for part in _parts(owner)]
            if places != self._places:
                self._places = places
                self._replay = None
                self._is_warm = False

    def run(self, step: Step) -> None:
        """Run a step, which reads and writes these tensors without a look at what is in them."""
        is_to_record = self._record is not None and self._replay is None and self._is_warm
        if is_to_record:
            try:
                self._replay = self._record(step)
            except RuntimeError as error:
                self._record = None
                logger.warning_once(f"The engine decodes without a CUDA graph, which takes longer: {error}")
        if self._replay is None:
            step()
        else:
            self._replay()
        self._is_warm = True


def _place_of(part: Any) -> Any:
    """Return what a graph depends on of a tensor or a slice."""
    if isinstance(part, Tensor):
        return part.data_ptr(), part.shape
    return part


def _parts(owner: object) -> Iterator[Any]:
    """The tensors and slices of an object and of the objects of the engine in it."""
    if isinstance(owner, Tensor | slice):
        yield owner
    elif isinstance(owner, list | tuple):
        for part in owner:
            yield from _parts(part)
    elif type(owner).__module__.startswith(_ENGINE) and not isinstance(owner, StepGraph):
        for name, part in vars(owner).items():
            if name not in _UNCHANGED:
                yield from _parts(part)
