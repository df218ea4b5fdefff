"""Measure servers with 1, 8 and 64 clients, in turns: ours, a loop over `pipeline`, and CTranslate2.

    python -m benchmarks.serving.compare --model checkpoints/tatoeba-en-de-transformer --input_file test.en.gz \
        --output_file record.json

Each server is a process of its own. All run the whole time, and one at a time is called. Clients wait for an answer
before they send the next sentence. Sentences per CPU second of the server hardly depend on what else the machine does.
"""

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.serving.processes import Client, ServerProcess, in_threads, percentile, stopwatch
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.environment import environment
from hf_capsule_mt.files import write_json

CLIENTS = (1, 8, 64)


@dataclass(frozen=True)
class Turn:
    """What was measured of a server in one turn."""

    answers: int
    seconds: float
    cpu_seconds: float
    p50: float  # Seconds of an answer.
    p95: float
    p99: float


LIBRETRANSLATE = "libretranslate"


def command(kind: str, args: argparse.Namespace) -> list[str]:
    """Return the command of a server."""
    model = args.model
    if kind == LIBRETRANSLATE:
        return [args.libretranslate_python, "benchmarks/serving/libretranslate_server.py", str(args.packages)]
    if not kind.startswith("serve"):
        return [sys.executable, "-m", "benchmarks.serving.baselines", kind, model]
    words = ["--models", f"en-de={model}", "--port", "0", "--device", "cpu", "--max_wait", "1000"]
    precision = "int8" if kind.endswith("int8") else "float32"
    return [sys.executable, "-m", "hf_capsule_mt", "serve", *words, "--dtype", precision]


SERVERS = ("serve float32", "serve int8", "pipeline", "ctranslate2", "ctranslate2-batched")


def turn(server: ServerProcess, lines: Sequence[str], clients: int, seconds: float, seed: int) -> Turn:
    """Let clients call a server for some seconds, and return what was measured.

    Args:
        server: is called.
        lines: sentences.
        clients: how many call at the same time.
        seconds: no request is sent later.
        seed: of the sentences that are drawn.
    """
    latencies: list[float] = []
    cpu_before = server.cpu_seconds()
    elapsed = stopwatch()

    def work(number: int) -> None:
        client = Client(server.address)
        rng = random.Random(f"{seed} {number}")
        while elapsed() < seconds:
            taken = stopwatch()
            status, fields = client.translate(rng.choice(lines))
            if status != 200:
                raise RuntimeError(f"{status}: {fields}")
            latencies.append(taken())
        client.close()

    in_threads(clients, work)
    return Turn(
        answers=len(latencies),
        seconds=elapsed(),
        cpu_seconds=server.cpu_seconds() - cpu_before,
        p50=percentile(latencies, 0.5),
        p95=percentile(latencies, 0.95),
        p99=percentile(latencies, 0.99),
    )


def measure(args: argparse.Namespace, folder: Path) -> dict[str, dict[int, list[Turn]]]:
    """Return the turns of each server, by the number of clients."""
    lines = read_lines(args.input_file)
    with ThreadPoolExecutor() as threads:
        started = threads.map(lambda kind: ServerProcess(command(kind, args), folder / f"{kind}.log"), args.servers)
        servers = dict(zip(args.servers, started, strict=True))
    try:
        return take_turns(servers, lines, args)
    finally:
        for server in servers.values():
            server.stop()


def take_turns(
    servers: dict[str, ServerProcess], lines: Sequence[str], args: argparse.Namespace
) -> dict[str, dict[int, list[Turn]]]:
    """Return the turns of running servers, by the number of clients."""
    turns: dict[str, dict[int, list[Turn]]] = {kind: defaultdict(list) for kind in servers}
    for server in servers.values():
        turn(server, lines, 8, args.warmup, 0)
    for number in range(args.rounds):
        for clients in args.clients:
            for kind, server in servers.items():
                measured = turn(server, lines, clients, args.seconds, number + 1)
                turns[kind][clients].append(measured)
                print(kind, clients, measured, flush=True)
    return turns


def table(turns: dict[str, dict[int, list[Turn]]]) -> str:
    """Return medians of the rounds as a table."""
    rows = [
        "| server | clients | sentences/s | p50 ms | p95 ms | p99 ms | sentences per CPU second |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind, by_clients in turns.items():
        for clients, of_server in by_clients.items():
            rate = median(one.answers / one.seconds for one in of_server)
            per_cpu = median(one.answers / one.cpu_seconds for one in of_server)
            times = [1000 * median(getattr(one, name) for one in of_server) for name in ("p50", "p95", "p99")]
            cells = [kind, str(clients), f"{rate:.1f}", *(f"{time:.0f}" for time in times), f"{per_cpu:.1f}"]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint from English to German, of the Marian family")
    parser.add_argument("--input_file", type=Path, required=True, help="English sentences (.gz)")
    parser.add_argument(
        "--servers",
        nargs="+",
        choices=(*SERVERS, LIBRETRANSLATE),
        default=[*SERVERS],
        help=f"default: all but {LIBRETRANSLATE}",
    )
    parser.add_argument("--libretranslate_python", help="the Python of an environment that has LibreTranslate")
    parser.add_argument("--packages", type=Path, help="packages of the model for LibreTranslate")
    parser.add_argument("--clients", nargs="+", type=int, default=[*CLIENTS], help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=60, help="of a turn (default: %(default)s)")
    parser.add_argument("--warmup", type=float, default=10, help="seconds of warming up (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--output_file", type=Path, help="a JSON record of every turn")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        turns = measure(args, Path(folder))
    print(table(turns))
    if args.output_file is not None:
        recorded = {}
        for kind, by_clients in turns.items():
            recorded[kind] = {clients: [asdict(one) for one in found] for clients, found in by_clients.items()}
        write_json(args.output_file, {"environment": environment("cpu"), "turns": recorded})


if __name__ == "__main__":
    main()
