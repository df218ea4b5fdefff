"""What a GPU is asked, in pieces of at most four minutes: tests, train, decode, profile, study.

Each piece appends its measurements to records.jsonl in --output_dir, skips those that are there, and prints its table.
The same command continues after a kill. --quick goes through a piece with tiny sizes, also with --device cpu.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PIECES = ("tests", "train", "decode", "profile", "study")
METHODS = ("transformer", "em-routing", "head-em-routing", "gdr")
TESTS = (
    "benchmarks/test_speed.py",
    "decoding/test_half_weights.py",
    "decoding/test_on_gpu.py",
    "decoding/test_proof.py",
    "decoding/test_seldom_checks.py",
    "modeling/test_em_routing_kernels.py",
)
"""The files with tests marked `cuda`: others import what a machine with a GPU may lack."""
_MARIAN = "Marian of Transformers"
_ROUNDS = 5
_GRACE = 20  # seconds in which a training that is told to end saves a checkpoint
_STUDY_AT_ONCE = 12  # rows of the study: `tiny` keeps a core busy, and a large device idle
_LAUNCHER = "accelerate launch --num_processes 1 --num_machines 1 --mixed_precision {} --dynamo_backend no"

Measured = Iterator[tuple[str, dict[str, Any]]]
"""Names and values of measurements."""
Records = Sequence[dict[str, Any]]
"""Measurements of a piece, with their names."""
Table = list[list[str]]
"""Rows of cells."""


def measure_tests(args: argparse.Namespace, done: set[str]) -> Measured:
    """Run the tests marked `cuda`."""
    if "cuda" not in done:
        files = [str(ROOT / "tests" / name) for name in TESTS]
        command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider", *files]
        status, output = _run(command, args.seconds)
        print(output[-3000:])
        if status == 0:
            *_, last_line = output.strip().splitlines()
            yield "cuda", {"result": last_line}


def measure_train(args: argparse.Namespace, done: set[str]) -> Measured:
    """Time updates in bfloat16, 10 seconds a system, all systems in turns."""
    if done:
        return
    import torch

    from benchmarks.common.workload import make_trainer, new_model, number_of_words, peak_memory, training_batches

    torch.manual_seed(0)
    batches = training_batches(_workload(args, rounds=1 if args.quick else 8))
    tokens = sum(number_of_words(batch) for batch in batches)
    trainers = {}
    for name, config in _configs(args).items():
        model = new_model(config, args.device)
        trainers[name] = make_trainer(model, torch.bfloat16)

    def train(name: str, times: int) -> None:
        for _ in range(times):
            for batch in batches:
                trainers[name](batch)

    turns = {}
    memory = {}
    for name, update in trainers.items():
        # Every shape once, before anything is measured.
        train(name, 1)
        memory[name] = peak_memory(partial(update, batches[0]), args.device)
        seconds = _seconds(partial(train, name, 1), args.device)
        turns[name] = max(1, round(args.turn / seconds))
    rates: dict[str, list[float]] = {name: [] for name in trainers}
    for _ in range(1 if args.quick else _ROUNDS):
        for name in trainers:
            seconds = _seconds(partial(train, name, turns[name]), args.device)
            rates[name].append(turns[name] * tokens / seconds)
    for name in trainers:
        yield name, {"tokens_per_second": rates[name], "memory": memory[name]}


def measure_decode(args: argparse.Namespace, done: set[str]) -> Measured:
    """Time generate() of Marian and the engine with the same weights, in turns, by sentences at a time."""
    import torch

    from benchmarks.common.workload import decoding_batches, new_model
    from benchmarks.decoding.decode import generate_batch

    beams = 4
    new_tokens = 2 if args.quick else 24
    torch.manual_seed(0)
    model = new_model(_configs(args)[_MARIAN], args.device)
    half = new_model(model.config, args.device)
    half.load_state_dict(model.state_dict())
    systems = {
        "generate() float32": partial(generate_batch, model, beams, None),
        "generate() bfloat16": partial(generate_batch, half.bfloat16(), beams, None),
        "engine float32": partial(generate_batch, model, beams, "float32"),
        "engine bfloat16": partial(generate_batch, model, beams, "bfloat16"),
    }
    counts = (1, 2) if args.quick else (1, 32, 64, 256, 512, 1024)
    for count in counts:
        if str(count) in done:
            continue
        batches = decoding_batches(_workload(args, rounds=3, warmup_rounds=1, batch_size=count))
        rates: dict[str, list[float]] = {name: [] for name in systems}
        for batch in batches:
            for name, system in systems.items():
                seconds = _seconds(partial(system, batch, new_tokens), args.device)
                rates[name].append(count * new_tokens / seconds)
        # The first batch warms up.
        yield str(count), {"tokens_per_second": {name: timed[1:] for name, timed in rates.items()}}


def measure_profile(args: argparse.Namespace, done: set[str]) -> Measured:
    """Profile an update and a step of the engine: kernel time, host time, and the five largest kernels."""
    import torch

    from benchmarks.common.workload import decoding_batches, make_trainer, new_model, training_batches
    from benchmarks.decoding.decode import generate_batch

    new_tokens = 2 if args.quick else 24
    workload = _workload(args, rounds=1, batch_size=2 if args.quick else 64)
    for method, config in _configs(args).items():
        name = f"update of {method}"
        if name not in done:
            model = new_model(config, args.device)
            update = make_trainer(model, torch.bfloat16)
            [batch] = training_batches(workload)
            yield name, _profile(partial(update, batch), args.device, steps=1)
        name = f"step of {method}"
        if name not in done and method != _MARIAN:
            model = new_model(config, args.device)
            [batch] = decoding_batches(workload)
            search = partial(generate_batch, model, 4, "bfloat16", batch, new_tokens)
            yield name, _profile(search, args.device, steps=new_tokens)


def _profile(run: Callable[[], object], device: str, steps: int) -> dict[str, Any]:
    """Return milliseconds a step of `run()`, which has so many: on the wall, in kernels and on the host."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    is_cuda = device.startswith("cuda")
    # The first two calls warm up.
    run()
    run()
    wall = _seconds(run, device)
    activities = [ProfilerActivity.CPU]
    if is_cuda:
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiled:
        _seconds(run, device)
    device_types = torch.autograd.DeviceType
    device_type = device_types.CUDA if is_cuda else device_types.CPU
    host_ms = 0.0
    kernels = []
    for event in profiled.key_averages():
        host_ms += event.self_cpu_time_total / 1e3
        if event.device_type == device_type:
            microseconds = event.self_device_time_total if is_cuda else event.self_cpu_time_total
            milliseconds = microseconds / 1e3 / steps
            kernels.append([event.key, event.count / steps, milliseconds])
    kernels.sort(key=_milliseconds_of, reverse=True)
    return {
        "wall_ms": 1e3 * wall / steps,
        "kernel_ms": sum(map(_milliseconds_of, kernels)),
        "host_ms": host_ms / steps,
        "largest": kernels[:5],
    }


def _milliseconds_of(kernel: list[Any]) -> float:
    _, _, milliseconds = kernel
    return milliseconds


def measure_study(args: argparse.Namespace, done: set[str]) -> Measured:
    """Train and translate rows of a study, several at once. It needs the study's data, `datasets` and accelerate."""
    if args.study.stem in done:
        return
    launcher = _LAUNCHER.format("no" if args.device == "cpu" else "bf16")
    name = args.study.stem
    runs = args.output_dir / name
    records = args.output_dir / f"{name}.jsonl"
    command = [sys.executable, "-m", "benchmarks.studies", "run", str(args.study)]
    command += ["--output_dir", str(runs), "--records", str(records)]
    command += ["--launcher", launcher, "--jobs", str(_STUDY_AT_ONCE), "--without_scores"]
    if args.quick:
        command.append("--dry_run")
    status, output = _run(command, args.seconds)
    print(output[-3000:])
    if status == 0:
        yield args.study.stem, {"result": "done"}


_MEASURES = {
    "tests": measure_tests,
    "train": measure_train,
    "decode": measure_decode,
    "profile": measure_profile,
    "study": measure_study,
}
"""What measures each of `PIECES`."""


def table(piece: str, records: Records) -> str:
    """Return the table of a piece in Markdown."""
    tables = {"train": _train_table, "decode": _decode_table, "profile": _profile_table}
    make_table = tables.get(piece, _result_table)
    rows = make_table(records)
    head, *lines = [f"| {' | '.join(row)} |" for row in rows]
    # Not by the package's own function, whose imports a machine with a GPU may lack.
    rule = "|" + " --- |" * len(rows[0])
    return "\n".join([head, rule, *lines])


def _train_table(records: Records) -> Table:
    medians = {record["name"]: median(record["tokens_per_second"]) for record in records}
    rows = [["training", "tokens/s", "times Marian", "memory of an update, MiB"]]
    for record in records:
        name = record["name"]
        times_marian = medians[name] / medians[_MARIAN]
        mebibytes = record["memory"] / 2**20
        rows.append([name, _spread(record["tokens_per_second"]), f"{times_marian:.2f}", f"{mebibytes:.0f}"])
    return rows


def _decode_table(records: Records) -> Table:
    columns = [f"{name}, tokens/s" for name in records[0]["tokens_per_second"]]
    rows = [["sentences at a time", *columns]]
    for record in records:
        cells = [_spread(rates) for rates in record["tokens_per_second"].values()]
        rows.append([record["name"], *cells])
    return rows


def _profile_table(records: Records) -> Table:
    rows = [["", "wall, ms", "kernels, ms", "host, ms", "five largest: calls, ms"]]
    for record in records:
        largest = [f"`{name[:60]}` {count:.0f}, {ms:.3f}" for name, count, ms in record["largest"]]
        times = [f"{record[name]:.2f}" for name in ("wall_ms", "kernel_ms", "host_ms")]
        rows.append([record["name"], *times, "<br>".join(largest)])
    return rows


def _result_table(records: Records) -> Table:
    rows = [["", "result"]]
    for record in records:
        rows.append([record["name"], record["result"]])
    return rows


def _spread(rates: Sequence[float]) -> str:
    return f"{median(rates):.0f} ({min(rates):.0f}–{max(rates):.0f})"


def _workload(
    args: argparse.Namespace, rounds: int, warmup_rounds: int = 0, batch_size: int | None = None
) -> argparse.Namespace:
    """Return the settings of `training_batches` and `decoding_batches`."""
    return argparse.Namespace(
        seed=0,
        device=args.device,
        vocab_size=args.vocab_size,
        max_tokens=96 if args.quick else 16384,
        batch_size=batch_size,
        rounds=rounds,
        warmup_rounds=warmup_rounds,
    )


def _configs(args: argparse.Namespace) -> dict[str, Any]:
    """Return the configurations of all systems, Marian first."""
    from benchmarks.common.workload import plain_config
    from hf_capsule_mt import preset_config

    size = "tiny" if args.quick else "base"
    configs = {method: preset_config(method, size, vocab_size=args.vocab_size) for method in METHODS}
    return {_MARIAN: plain_config(configs["transformer"]), **configs}


def _seconds(run: Callable[[], object], device: str) -> float:
    """Return the seconds of `run()`, with the work that it starts on the device."""
    import torch

    is_cuda = device.startswith("cuda")
    if is_cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _run(command: Sequence[str], limit: float) -> tuple[int | None, str]:
    """Run a command for so many seconds; return its status, None if it was ended, and what it printed."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": ROOT}
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        output, _ = process.communicate(timeout=limit)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        # With all that it started, which may take a moment to save what it has.
        os.killpg(process.pid, signal.SIGTERM)
        try:
            output, _ = process.communicate(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        return None, output


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pieces", nargs="+", choices=PIECES, metavar="PIECE", help=", ".join(PIECES))
    parser.add_argument("--device", default="cuda", help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try a piece")
    parser.add_argument("--output_dir", type=Path, default=Path("outputs/gpu"), help="default: %(default)s")
    parser.add_argument("--minutes", type=float, default=4, help="of a piece (default: %(default)s)")
    study = ROOT / "benchmarks" / "routing" / "does_routing_pay.yaml"
    parser.add_argument("--study", type=Path, default=study, help="default: %(default)s")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run pieces and print their tables; return 1 if one is not done."""
    args = build_parser().parse_args(argv)
    args.output_dir = args.output_dir.resolve()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    args.vocab_size = 100 if args.quick else 32000
    args.turn = 0.05 if args.quick else 2  # seconds of training in a turn
    args.seconds = 60 * args.minutes - _GRACE
    done = [_run_piece(args, piece) for piece in args.pieces]
    return 0 if all(done) else 1


def _run_piece(args: argparse.Namespace, piece: str) -> bool:
    """Run a piece and print its table. Return whether it is done."""
    path = args.output_dir / "records.jsonl"
    settings = {"piece": piece, "device": args.device, "quick": args.quick}
    records = _known_records(path, settings)
    done = {record["name"] for record in records}
    until = time.monotonic() + args.seconds
    is_complete = True
    measure = _MEASURES[piece]
    for name, values in measure(args, done):
        record = {**settings, "name": name, **values, **_environment(args.device)}
        records.append(record)
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        # The others measure all at once, or end their command by themselves.
        if time.monotonic() > until and piece in ("decode", "profile"):
            is_complete = False
            break
    print(table(piece, records) if records else f"{piece}: no record", flush=True)
    if not is_complete:
        print(f"{piece}: the minutes are over. Run it again.", flush=True)
    return bool(records) and is_complete


def _known_records(path: Path, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the records of a file that were measured with these settings."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if settings.items() <= record.items():
            records.append(record)
    return records


def _environment(device: str) -> dict[str, Any]:
    from hf_capsule_mt.environment import environment

    return {"environment": environment(device)}


if __name__ == "__main__":
    sys.exit(main())
