"""No text costs much more than its length: every expression is fed with a megabyte of each kind."""

import subprocess
import sys
from pathlib import Path

from linear_reading import NOT_COLLECTED, beginnings, written_in_functions


def test_every_expression_is_linear():
    """A quadratic one is named together with the text that shows it."""
    program = Path(__file__).with_name("linear_reading.py")
    result = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=800)
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""


def test_expressions_in_functions_are_known():
    """They cannot be collected, so they stand at the top of their modules, or read no long texts."""
    assert written_in_functions() == set(NOT_COLLECTED)


def test_beginnings_follow_from_an_expression():
    import re

    assert {"<", "<a", "<a ", '<a "'} <= set(beginnings(re.compile(r'<[a-z]+\s*(?:"[^"]*"|x)>')))
