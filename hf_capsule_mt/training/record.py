"""The JSON record of a run: what was trained on what, with which versions, and what came out."""

import hashlib
import platform
import subprocess
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("hf-capsule-mt", "torch", "transformers", "accelerate", "tokenizers", "datasets", "sacrebleu")


def environment(device_type: str | None = None) -> dict[str, Any]:
    """Versions, device, thread count and source commit of this process.

    Args:
        device_type: "cuda" or "cpu", whichever did the work; by default "cuda" where there is one.
    """
    on_gpu = torch.cuda.is_available() if device_type is None else device_type == "cuda"
    device = torch.cuda.get_device_name() if on_gpu else _processor()
    return {
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
        "device": device,
        "cpu_threads": torch.get_num_threads(),
        "commit": _commit(),
    }


def text_hash(lines: Iterable[str]) -> str:
    """SHA-256 of lines, each ended by a newline."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
