"""Peak memory of a piece of work."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import finalize

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_CPU = 0  # as the profiler's trace has it: c10::DeviceType


def peak_memory(run: Callable[[], object], device: torch.device) -> int:
    """Return the most bytes of tensors that `run()` has on the device at one time, beyond those before it.

    Args:
        run: the work.
        device: a CUDA device, whose allocator keeps count, or a CPU, whose allocations are profiled, or another that
            PyTorch's profiler tells of as a CPU.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    allocated = peak = 0
    for change in _allocations(profiled):
        allocated += change
        peak = max(peak, allocated)
    return peak


def peak_of_live_tensors(run: Callable[[], object]) -> int:
    """Return the most bytes of tensors made by operations of `run()` that live at one time.

    What an operation uses inside itself does not count. For work of many steps, whose profile would take gigabytes.
    """
    with _LiveTensors() as live:
        run()
    return live.peak


class _LiveTensors(TorchDispatchMode):
    """Counts the memory of the tensors that operations return, until it is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._bytes = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Callable, types: Sequence[type], args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        before = {tensor.untyped_storage()._cdata for tensor in _tensors((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            if storage._cdata not in before and storage._cdata not in self._known:
                self._known.add(storage._cdata)
                self._bytes += storage.nbytes()
                self.peak = max(self.peak, self._bytes)
                finalize(storage, self._forget, storage._cdata, storage.nbytes())
        return result

    def _forget(self, address: int, size: int) -> None:
        self._known.discard(address)
        self._bytes -= size


def _tensors(values: Any) -> list[Tensor]:
    # Those in oneDNN's layout are weights, whose memory cannot be asked for.
    return [x for x in tree_leaves(values) if isinstance(x, Tensor) and x.layout == torch.strided]


def _allocations(profiled: profile) -> list[int]:
    """Bytes allocated and (below zero) freed on the CPU, in the order of time."""
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    found = [event for event in events if event["name"] == "[memory]" and event["args"]["Device Type"] == _CPU]
    # Sorting is stable: events of one time stay in the order in which they were recorded.
    return [event["args"]["Bytes"] for event in sorted(found, key=lambda event: event["ts"])]
