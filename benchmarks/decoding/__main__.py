"""Measure how fast decoders are, and write their page from the records.

python -m benchmarks.decoding decode|nllb|latency|trained --help
python -m benchmarks.decoding page benchmarks/decoding/README.md
"""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common.command import run_measurement
from benchmarks.decoding.page import render_page
from hf_capsule_mt.files import replace_text

COMMANDS = ("decode", "nllb", "latency", "trained")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first word names."""
    if argv is None:
        argv = sys.argv[1:]
    name, *options = argv or ["--help"]
    if name == "page":
        for option in options:
            page = Path(option)
            replace_text(page, render_page(page))
        return
    if name not in COMMANDS:
        raise SystemExit(__doc__)
    # Each needs other packages.
    run_measurement(importlib.import_module(f"benchmarks.decoding.{name}"), options)


if __name__ == "__main__":
    main()
