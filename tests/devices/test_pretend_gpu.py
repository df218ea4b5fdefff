"""What `on_gpu.py` tests, in a process of its own: no other test may see a GPU that is pretended."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils import backend_registration

HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (torch.cuda.is_available() or hasattr(backend_registration, "_setup_privateuseone_for_python_backend")),
        reason="this PyTorch takes no device from Python",
    ),
]


def _run(mark, tmp_path):
    command = [sys.executable, "-m", "pytest", str(HERE / "on_gpu.py"), "-q", "--tb=short", "-p", "no:cacheprovider"]
    process = subprocess.run(
        [*command, "-m", mark, f"--basetemp={tmp_path / 'there'}"], capture_output=True, text=True, check=False
    )
    print(process.stdout[-20_000:], process.stderr[-4000:])
    return process.returncode


def test_on_a_gpu(tmp_path):
    assert _run("not exhaustive", tmp_path) == 0


@pytest.mark.exhaustive
def test_all_on_a_gpu(tmp_path):
    assert _run("exhaustive", tmp_path) == 0
