"""No reader takes much longer for a text than a small multiple of its length: each gets long texts of every kind."""

import subprocess
import sys
from pathlib import Path


def test_every_reader_is_linear():
    """A quadratic one is named together with the text that shows it."""
    program = Path(__file__).with_name("long_texts.py")
    result = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=800)
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
