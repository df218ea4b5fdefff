"""Let the tests find the small models of tests/modeling."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "modeling"))
