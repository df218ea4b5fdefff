"""Tests here use the tiny models of those of modeling."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "modeling"))

from agreement import engine_calls  # noqa: F401
