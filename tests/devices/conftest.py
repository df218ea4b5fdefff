"""Tests here use the tiny models of those of modeling, and the comparisons of those of decoding."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("decoding", "modeling")]

from agreement import engine_calls  # noqa: F401
