"""What a record says of the process that wrote it, and whether a package is installed."""

import platform
import subprocess
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_capsule_mt.errors import UserError

if TYPE_CHECKING:
    import torch

_NAMED = [
    "hf-capsule-mt",
    "torch",
    "transformers",
    "accelerate",
    "tokenizers",
    "datasets",
    "sacrebleu",
    "ctranslate2",
]


def environment(device: "torch.device | str | None" = None) -> dict[str, Any]:
    """Return what a record says of this process: versions, device (a GPU if there is one), threads, commit and date."""
    import torch

    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    packages = {}
    for name in _NAMED:
        with suppress(PackageNotFoundError):
            packages[name] = version(name)

    return {
        "python": platform.python_version(),
        # The version of PyTorch names its build: +cpu, +cu130.
        "packages": packages | {"torch": str(torch.__version__)},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "cpu_threads": torch.get_num_threads(),
        "commit": _commit(),
        "date": date.today().isoformat(),
    }


def is_installed(package: str) -> bool:
    """Return whether a package is installed."""
    return find_spec(package) is not None


def check_installed(package: str, extra: str) -> None:
    """Raise a UserError if a package is not installed. `extra` is the extra of ours that installs it."""
    if not is_installed(package):
        raise UserError(f'{package} is not installed: pip install -e ".[{extra}]"')


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    here = Path(__file__)
    git = ["git", "-C", str(here.parent)]
    try:
        # An installed package can lie in a folder of another repository.
        subprocess.run([*git, "ls-files", "--error-unmatch", here.name], capture_output=True, check=True)
        describe = [*git, "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
