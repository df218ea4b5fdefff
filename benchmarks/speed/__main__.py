"""Measure how fast and large models are.

python -m benchmarks.speed train|decode|nllb|growth|latency|trained --help
python -m benchmarks.speed page benchmarks/decoding.md
python -m benchmarks.speed profile --size tiny --methods transformer rnmt
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.records import json_settings
from benchmarks.speed.page import render_page
from benchmarks.speed.workload import clock
from hf_capsule_mt.environment import environment
from hf_capsule_mt.files import replace_text, write_json

COMMANDS = ("train", "decode", "nllb", "growth", "latency", "trained", "profile")
KINDS = {"nllb": "NLLB decoding", "growth": "time by length", "latency": "latency", "trained": "file decoding"}
"""What a record says that it is of; others are of speed."""


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write the record if asked."""
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
    command = importlib.import_module(f"benchmarks.speed.{name}")
    if name == "profile":
        command.main(options)
        return
    parser = argparse.ArgumentParser(
        f"python -m benchmarks.speed {name}",
        description=command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_options(parser)
    args = parser.parse_args(options)
    results, table = command.measure(args)
    record = {"kind": KINDS.get(name, "speed"), "version": 2, **results, "environment": environment(args.device)}
    if name != "trained":
        record["settings"] = {"dtype": "float32", **json_settings(args), "clock": clock(args.device)}
    print(table(record))
    if args.output_file is not None:
        write_json(Path(args.output_file), record)


if __name__ == "__main__":
    main()
