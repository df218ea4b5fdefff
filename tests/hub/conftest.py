"""Tests of export take models of `tests/modeling`, and the table of `tests/plugs`."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("modeling", "plugs")]
