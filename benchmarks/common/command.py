"""Run a command that measures: print its table, and write its record if asked."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from benchmarks.common.records import json_settings
from benchmarks.common.workload import clock
from hf_capsule_mt.environment import environment
from hf_capsule_mt.files import write_json

KINDS = {"nllb": "NLLB decoding", "growth": "time by length", "latency": "latency", "trained": "file decoding"}
"""What a record says that it is of; others are of speed."""


def run_measurement(command: ModuleType, options: Sequence[str]) -> None:
    """Measure, print the table, and write the record if asked.

    Args:
        command: a module with `add_options` and `measure`.
        options: those of the command, as they are typed.
    """
    package, _, name = command.__name__.rpartition(".")
    parser = argparse.ArgumentParser(
        f"python -m {package} {name}",
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
