"""`python -m benchmarks.studies run|report|export FILE`.

run     train and score the rows of a study, and print their table
report  write the page of a study, from its records
export  write a data set of the Hub as text files, for a study

Each has a --help of its own."""

import sys
from collections.abc import Sequence

from benchmarks.studies import export, report, run

COMMANDS = {"run": run.main, "report": report.main, "export": export.main}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first word names."""
    name, *options = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        print(__doc__)
        return
    if name not in COMMANDS:
        raise SystemExit(f"{name!r} is not one of {', '.join(COMMANDS)}.")
    sys.argv = [f"python -m benchmarks.studies {name}", *options]
    COMMANDS[name](options)


if __name__ == "__main__":
    main()
