"""Attack with damaged inputs and hard texts for a while, and print a table of what came of it.

    python tests/faults/fuzz.py --minutes 30

Every area in turn, by seeds that count up, in a process of its own: one that does not answer in time has hung, one that
dies has failed inside. The exit status is 1 if any attack ended badly; `--area NAME --seed N` repeats one.
"""

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

COLUMNS = ("refused", "accepted and right", "traceback", "death", "hang", "silent change", "wrong refusal")
BAD = COLUMNS[2:]


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30, help="how long to attack (default: %(default)s)")
    parser.add_argument("--area", help="attack this area alone")
    parser.add_argument("--seed", type=int, help="one attack of --area, with all that is known about it")
    parser.add_argument(
        "--patience",
        type=float,
        default=300,
        help="seconds after which an attack has hung; most take less than one (default: %(default)s)",
    )
    parser.add_argument("--first_seed", type=int, default=0, help="where the seeds begin (default: %(default)s)")
    return parser


def work(pipe: Connection) -> None:
    """Carry out the attacks whose area and seed come through the pipe, and send back what came of them."""
    from transformers.utils import logging

    threading.Thread(target=_die_with_parent, daemon=True).start()
    logging.disable_progress_bar()
    sys.path.append(str(Path(__file__).parents[1]))
    from bad_inputs import AREAS, attack

    pipe.send(list(AREAS))
    while True:
        area, seed = pipe.recv()
        folder = Path(tempfile.mkdtemp(prefix="fuzz"))
        (folder / "attack").mkdir()
        finding = attack(area, seed, folder / "attack")
        shutil.rmtree(folder)
        pipe.send((finding.outcome.value, finding.about))


def _die_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


class Worker:
    """A process that attacks, and another in its place once it hangs or dies."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.areas = self._pipe.recv()

    def attack(self, area: str, seed: int) -> tuple[str, str]:
        """Return the outcome of an attack and what is known about it."""
        self._pipe.send((area, seed))
        try:
            if self._pipe.poll(self._patience):
                return self._pipe.recv()
            outcome = "hang", f"no answer in {self._patience:g} seconds"
        except EOFError:
            self._process.join()
            outcome = "death", f"the process died with exit code {self._process.exitcode}"
        self._process.kill()
        self._start()
        return outcome


def table(counts: dict[str, Counter]) -> str:
    """Return the table of outcomes by area, in Markdown."""
    rows = [["area", "tried", *COLUMNS], ["---", *["---:"] * (len(COLUMNS) + 1)]]
    rows += [[area, count.total(), *(count[column] for column in COLUMNS)] for area, count in counts.items()]
    total = sum(counts.values(), Counter())
    rows.append(["all", total.total(), *(total[column] for column in COLUMNS)])
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def main() -> int:
    """Attack, print each bad outcome as it comes and the table at the end, and return the exit status."""
    args = build_parser().parse_args()
    worker = Worker(args.patience)
    areas = [args.area] if args.area else worker.areas
    if args.seed is not None:
        print(*worker.attack(areas[0], args.seed), sep="\n")
        return 0
    counts = {area: Counter() for area in areas}
    end, seed = time.monotonic() + 60 * args.minutes, args.first_seed
    while time.monotonic() < end:
        for area in areas:
            outcome, about = worker.attack(area, seed)
            counts[area][outcome] += 1
            if outcome in BAD:
                print(f"{area} {seed}: {outcome}\n{about}", flush=True)
        seed += 1
    print(table(counts))
    return int(any(count[column] for count in counts.values() for column in BAD))


if __name__ == "__main__":
    sys.exit(main())
