"""`python -m benchmarks.speed train|decode|growth|latency|page`."""

import sys
from collections.abc import Sequence

from benchmarks.speed import benchmark, growth, latency_command

COMMANDS = {
    "train": benchmark.main,
    "decode": lambda options: benchmark.main(["--decoders", *options]),
    "growth": growth.main,
    "latency": latency_command.main,
    "page": lambda options: benchmark.main(["--page", *options]),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first word names."""
    name, *options = sys.argv[1:] if argv is None else argv
    if name not in COMMANDS:
        raise SystemExit(f"{name} is not one of {', '.join(COMMANDS)}")
    sys.argv = [f"python -m benchmarks.speed {name}", *options]
    COMMANDS[name](options)


if __name__ == "__main__":
    main()
