"""Versions, device and source of a process, for the records of its work."""

import platform
import subprocess
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_PACKAGES = (
    "hf-capsule-mt",
    "torch",
    "transformers",
    "accelerate",
    "tokenizers",
    "datasets",
    "sacrebleu",
    "ctranslate2",
)


@dataclass(frozen=True)
class Environment:
    """Versions, device, threads, source commit and date of a piece of work.

    Of the first measurements no device, threads, commit or date are known.
    """

    python: str
    packages: dict[str, str]
    device: str | None
    cpu_threads: int | None
    commit: str | None
    date: str | None = None

    @classmethod
    def here(cls, device: "torch.device | str | None" = None) -> "Environment":
        """Describe this process; `device` does its work, by default a GPU where there is one."""
        import torch

        device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return cls(
            python=platform.python_version(),
            # That of PyTorch has its build: +cpu, +cu130.
            packages={name: found for name in _PACKAGES if (found := _version(name)) is not None}
            | {"torch": str(torch.__version__)},
            device=torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
            cpu_threads=torch.get_num_threads(),
            commit=_commit(),
            date=date.today().isoformat(),
        )

    def __str__(self) -> str:
        versions = [f"{name} {self.packages[name]}" for name in ("torch", "transformers") if name in self.packages]
        return ", ".join([f"{self.device}, {self.cpu_threads} thread(s)", *versions, *filter(None, [self.date])])


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
    here = Path(__file__)
    git = ["git", "-C", str(here.parent)]
    try:
        # Installed in a folder of another repository, it is none of that one's files.
        subprocess.run([*git, "ls-files", "--error-unmatch", here.name], capture_output=True, check=True)
        describe = [*git, "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
