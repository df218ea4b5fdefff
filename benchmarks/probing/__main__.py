"""`python -m benchmarks.probing generate|run`."""

import sys
from collections.abc import Sequence

from benchmarks.probing import generate, run

COMMANDS = {"generate": generate.main, "run": run.main}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first word names."""
    name, *options = sys.argv[1:] if argv is None else argv
    if name not in COMMANDS:
        raise SystemExit(f"{name} is not one of {', '.join(COMMANDS)}")
    sys.argv = [f"python -m benchmarks.probing {name}", *options]
    COMMANDS[name](options)


if __name__ == "__main__":
    main()
