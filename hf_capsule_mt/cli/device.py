"""The device that a command is told to work on."""

import torch


def usable_device(name: str | torch.device) -> torch.device:
    """Return the device of this name; raise a ValueError if there is none, or it cannot be used."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"--device {name} cannot be used: {_reason(str(name), error)}") from error
    return device


def _reason(name: str, error: Exception) -> str:
    """Return the reason in one sentence; PyTorch gives it in several lines."""
    if not name.startswith("cuda"):
        return str(error).partition("\n")[0]
    if torch.version.cuda is None and torch.version.hip is None:
        return "this build of PyTorch has no support for GPUs"
    count = torch.cuda.device_count()
    return f"PyTorch finds {count} GPUs, counted from cuda:0" if count else "PyTorch finds no GPU"
