"""Peak memory of a piece of work."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.profiler import ProfilerActivity, profile

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


def _allocations(profiled: profile) -> list[int]:
    """Bytes allocated and (below zero) freed on the CPU, in the order of time."""
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    found = [event for event in events if event["name"] == "[memory]" and event["args"]["Device Type"] == _CPU]
    # Sorting is stable: events of one time stay in the order in which they were recorded.
    return [event["args"]["Bytes"] for event in sorted(found, key=lambda event: event["ts"])]
