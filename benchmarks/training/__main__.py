"""Measure how fast and large models are, next to plain ones.

python -m benchmarks.training train|growth --help
python -m benchmarks.training profile --size tiny --methods transformer rnmt
"""

import importlib
import sys
from collections.abc import Sequence

from benchmarks.common.command import run_measurement

COMMANDS = ("train", "growth", "profile")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first word names."""
    if argv is None:
        argv = sys.argv[1:]
    name, *options = argv or ["--help"]
    if name not in COMMANDS:
        raise SystemExit(__doc__)
    # Each needs other packages.
    command = importlib.import_module(f"benchmarks.training.{name}")
    if name == "profile":
        command.main(options)
    else:
        run_measurement(command, options)


if __name__ == "__main__":
    main()
