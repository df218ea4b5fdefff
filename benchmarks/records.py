"""Records of measurements: a file for each study or series, with a JSON object of `name` and `record` a line.

python -m benchmarks.records add benchmarks/records/speed.jsonl outputs/gpu/records/*.json
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "records"


def read_records(file: Path) -> dict[str, dict[str, Any]]:
    """Return the records of a file by name; none if there is no file. A later record replaces one of the same name."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {line["name"]: line["record"] for line in map(json.loads, lines)}


def append_records(file: Path, records: Mapping[str, Any]) -> None:
    """Add records to the end of a file."""
    lines = (json.dumps({"name": name, "record": record}, ensure_ascii=False) for name, record in records.items())
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as output:
        output.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    _, command, target, *sources = sys.argv
    if command != "add":
        raise SystemExit(__doc__)
    append_records(Path(target), {Path(file).stem: json.loads(Path(file).read_text("utf-8")) for file in sources})
