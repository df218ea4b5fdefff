"""The models of `tests/modeling` are exported."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "modeling"))
