"""Records of measurements: a file for each study or series, with a JSON object of `name` and `record` a line.

python -m benchmarks.common.records add benchmarks/training/speed.jsonl outputs/gpu/records/*.json
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]
"""A measurement: what was measured, with its settings and its environment."""


def read_records(file: Path) -> dict[str, dict[str, Any]]:
    """Return the records of a file by name; none if there is no file. A later record replaces one of the same name."""
    if not file.exists():
        return {}
    records = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        records[entry["name"]] = entry["record"]
    return records


def append_records(file: Path, records: Mapping[str, Any]) -> None:
    """Add records to the end of a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as output:
        for name, record in records.items():
            line = json.dumps({"name": name, "record": record}, ensure_ascii=False)
            output.write(f"{line}\n")


def json_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a command as a record has them."""
    settings = {}
    for name, value in vars(args).items():
        settings[name] = str(value) if isinstance(value, Path) else value
    return settings


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] != "add":
        raise SystemExit(__doc__)
    _, _, target, *names = sys.argv
    added = {}
    for name in names:
        file = Path(name)
        added[file.stem] = json.loads(file.read_text("utf-8"))
    append_records(Path(target), added)
