"""The models of `tests/modeling` are exported, as the table that `tests/plugs` reads says."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("modeling", "plugs")]
