"""Print the table of benchmarks/multi30k.md from the records of benchmarks/multi30k.sh.

python benchmarks/multi30k_table.py RUNS/transformer RUNS/em-routing
"""

import json
import sys
from pathlib import Path

TESTS = ("test_2016_flickr", "test_2017_flickr")


def row(folder: Path) -> str:
    """One run's line of the table."""
    run = json.loads((folder / "run_record.json").read_text())
    bleu = [json.loads((folder / f"{test}.json").read_text())["scores"]["bleu"] for test in TESTS]
    device = f"{run['environment']['device']}, {run['environment']['cpu_threads']} thread(s)"
    minutes = run["seconds_of_this_call"] / 60
    cells = [run["model"]["method"], f"{run['parameters'] / 1e6:.2f}M", run["updates"]]
    cells += [f"{entry['score']:.1f}" for entry in bleu]
    return (
        "| "
        + " | ".join(map(str, [*cells, f"{minutes:.0f} min", device, bleu[0]["signature"].replace("|", " ")]))
        + " |"
    )


print("| method | parameters | updates | test_2016 | test_2017 | wall time | machine | BLEU signature |")
print("|---|---|---|---|---|---|---|---|")
for argument in sys.argv[1:]:
    print(row(Path(argument)))
