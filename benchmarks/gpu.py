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
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PIECES = ("tests", "train", "decode", "profile", "study")
METHODS = ("transformer", "em-routing", "head-em-routing", "gdr")
TESTS = (
    "benchmarks/test_speed.py",
    "decoding/test_on_gpu.py",
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


def measure_tests(args: argparse.Namespace, done: set[str]) -> Measured:
    """Run the tests marked `cuda`."""
    if "cuda" not in done:
        files = [str(ROOT / "tests" / name) for name in TESTS]
        command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider", *files]
        status, output = _run(command, args.seconds)
        print(output[-3000:])
        if status == 0:
            yield "cuda", {"result": output.strip().splitlines()[-1]}


def measure_train(args: argparse.Namespace, done: set[str]) -> Measured:
    """Time updates in bfloat16, 10 seconds a system, all systems in turns."""
    if done:
        return
    import torch

    from benchmarks.speed.workload import make_trainer, new_model, peak_memory, training_batches

    torch.manual_seed(0)
    numbers = argparse.Namespace(
        **{"seed": 0, "device": args.device, "vocab_size": args.vocab_size, "max_tokens": 96 if args.quick else 16384},
        **{"warmup_rounds": 0, "rounds": 1 if args.quick else 8},
    )
    batches = training_batches(numbers)
    tokens = sum(int((batch["labels"] >= 0).sum()) for batch in batches) / len(batches)
    trainers = {}
    for name, config in _configs(args).items():
        trainers[name] = make_trainer(new_model(config, args.device), torch.bfloat16)
    turns, memory = {}, {}
    for name, update in trainers.items():
        # Every shape once, then the number of updates for a turn.
        for batch in batches:
            update(batch)
        memory[name] = peak_memory(partial(update, batches[0]), args.device)
        seconds = _seconds(lambda: [update(batch) for batch in batches], args.device)  # noqa: B023
        turns[name] = max(1, round(args.turn / seconds))
    rates = {name: [] for name in trainers}
    for _ in range(1 if args.quick else _ROUNDS):
        for name, update in trainers.items():
            seconds = _seconds(
                lambda: [update(batch) for _ in range(turns[name]) for batch in batches],  # noqa: B023
                args.device,
            )
            rates[name].append(turns[name] * len(batches) * tokens / seconds)
    for name in trainers:
        yield name, {"tokens_per_second": rates[name], "memory": memory[name]}


def measure_decode(args: argparse.Namespace, done: set[str]) -> Measured:
    """Time generate() of Marian and the engine with the same weights, in turns, by sentences at a time."""
    import torch

    from benchmarks.speed.decode import _generate
    from benchmarks.speed.workload import decoding_batches, new_model

    beams, new_tokens = 4, 2 if args.quick else 24
    torch.manual_seed(0)
    model = new_model(_configs(args)[_MARIAN], args.device)
    half = new_model(model.config, args.device)
    half.load_state_dict(model.state_dict())
    systems = {
        "generate() float32": partial(_generate, model, beams, None),
        "generate() bfloat16": partial(_generate, half.bfloat16(), beams, None),
        "engine float32": partial(_generate, model, beams, "float32"),
        "engine bfloat16": partial(_generate, model, beams, "bfloat16"),
    }
    for count in (1, 2) if args.quick else (1, 32, 64, 256, 512, 1024):
        if str(count) in done:
            continue
        numbers = {"seed": 0, "device": args.device, "vocab_size": args.vocab_size, "batch_size": count}
        batches = decoding_batches(argparse.Namespace(**numbers, warmup_rounds=1, rounds=3))
        rates: dict[str, list[float]] = {name: [] for name in systems}
        for batch in batches:
            for name, system in systems.items():
                seconds = _seconds(partial(system, batch, new_tokens), args.device)
                rates[name].append(count * new_tokens / seconds)
        yield str(count), {"tokens_per_second": {name: own[1:] for name, own in rates.items()}}


def measure_profile(args: argparse.Namespace, done: set[str]) -> Measured:
    """Profile an update and a step of the engine: kernel time, host time, and the five largest kernels."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from benchmarks.speed.decode import _generate
    from benchmarks.speed.workload import decoding_batches, make_trainer, new_model, training_batches

    is_cuda = args.device.startswith("cuda")
    kind = torch.autograd.DeviceType.CUDA if is_cuda else torch.autograd.DeviceType.CPU
    count, new_tokens, max_tokens = (2, 2, 96) if args.quick else (64, 24, 16384)
    numbers = {"seed": 0, "device": args.device, "vocab_size": args.vocab_size, "warmup_rounds": 0, "rounds": 1}
    numbers = argparse.Namespace(**numbers, max_tokens=max_tokens, batch_size=count)
    for method, config in _configs(args).items():
        for what in ("update", "step"):
            if f"{what} of {method}" in done or (what == "step" and method == _MARIAN):
                continue
            model = new_model(config, args.device)
            if what == "update":
                run, steps = partial(make_trainer(model, torch.bfloat16), training_batches(numbers)[0]), 1
            else:
                batch = decoding_batches(numbers)[0]
                run, steps = partial(_generate, model, 4, "bfloat16", batch, new_tokens), new_tokens
            run(), run()
            wall = _seconds(run, args.device)
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_cuda else [])]
            with profile(activities=activities) as profiled:
                _seconds(run, args.device)
            averages = profiled.key_averages()
            time_of = (lambda each: each.self_device_time_total) if is_cuda else (lambda each: each.self_cpu_time_total)
            kernels = sorted((each for each in averages if each.device_type == kind), key=time_of, reverse=True)
            yield (
                f"{what} of {method}",
                {
                    "wall_ms": 1e3 * wall / steps,
                    "kernel_ms": sum(map(time_of, kernels)) / 1e3 / steps,
                    "host_ms": sum(each.self_cpu_time_total for each in averages) / 1e3 / steps,
                    "largest": [[each.key, each.count / steps, time_of(each) / 1e3 / steps] for each in kernels[:5]],
                },
            )


def measure_study(args: argparse.Namespace, done: set[str]) -> Measured:
    """Train and translate rows of a study, several at once. It needs the study's data, `datasets` and accelerate."""
    if args.study.stem in done:
        return
    launcher = _LAUNCHER.format("no" if args.device == "cpu" else "bf16")
    folders = ["--output_dir", str(args.output_dir / args.study.stem)]
    folders += ["--records", str(args.output_dir / f"{args.study.stem}.jsonl")]
    command = [sys.executable, "-m", "benchmarks.studies", "run", str(args.study), *folders, "--launcher", launcher]
    command += ["--jobs", str(_STUDY_AT_ONCE), "--without_scores", *(["--dry_run"] if args.quick else [])]
    status, output = _run(command, args.seconds)
    print(output[-3000:])
    if status == 0:
        yield args.study.stem, {"result": "done"}


def table(piece: str, records: Sequence[dict[str, Any]]) -> str:
    """Return the table of a piece in Markdown."""
    rows: list[list[str]] = []
    if piece == "train":
        rows = [["training", "tokens/s", "times Marian", "memory of an update, MiB"]]
        marian = next(median(each["tokens_per_second"]) for each in records if each["name"] == _MARIAN)
        for each in records:
            rate = median(each["tokens_per_second"])
            rows.append([each["name"], _spread(each["tokens_per_second"]), f"{rate / marian:.2f}"])
            rows[-1].append(f"{each['memory'] / 2**20:.0f}")
    elif piece == "decode":
        rows = [["sentences at a time", *(f"{name}, tokens/s" for name in records[0]["tokens_per_second"])]]
        rows += [[each["name"], *map(_spread, each["tokens_per_second"].values())] for each in records]
    elif piece == "profile":
        rows = [["", "wall, ms", "kernels, ms", "host, ms", "five largest: calls, ms"]]
        for each in records:
            largest = "<br>".join(f"`{name[:60]}` {count:.0f}, {ms:.3f}" for name, count, ms in each["largest"])
            rows.append([each["name"], *(f"{each[name]:.2f}" for name in ("wall_ms", "kernel_ms", "host_ms")), largest])
    else:
        rows = [["", "result"], *([each["name"], each["result"]] for each in records)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def _spread(rates: Sequence[float]) -> str:
    return f"{median(rates):.0f} ({min(rates):.0f}–{max(rates):.0f})"


def _configs(args: argparse.Namespace) -> dict[str, Any]:
    """The configurations of all systems, Marian first."""
    from benchmarks.speed.workload import plain_config
    from hf_capsule_mt import preset_config

    size = "tiny" if args.quick else "base"
    configs = {method: preset_config(method, size, vocab_size=args.vocab_size) for method in METHODS}
    return {_MARIAN: plain_config(configs["transformer"]), **configs}


def _seconds(run: Callable[[], object], device: str) -> float:
    """Return the seconds of `run()`, with the work that it starts on the device."""
    import torch

    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    wait()
    start = time.perf_counter()
    run()
    wait()
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
    study = ROOT / "benchmarks" / "studies" / "does_routing_pay.yaml"
    parser.add_argument("--study", type=Path, default=study, help="default: %(default)s")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run pieces and print their tables; return 1 if one is not done."""
    args = build_parser().parse_args(argv)
    args.output_dir = args.output_dir.resolve()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    args.vocab_size, args.turn = (100, 0.05) if args.quick else (32000, 2)
    args.seconds = 60 * args.minutes - _GRACE
    path, failed = args.output_dir / "records.jsonl", False
    for piece in args.pieces:
        own = {"piece": piece, "device": args.device, "quick": args.quick}
        records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        records = [each for each in records if own.items() <= each.items()]
        until, complete = time.monotonic() + args.seconds, True
        for name, values in globals()[f"measure_{piece}"](args, {each["name"] for each in records}):
            records.append({**own, "name": name, **values, **_environment(args.device)})
            with path.open("a") as file:
                file.write(json.dumps(records[-1]) + "\n")
            if time.monotonic() > until and piece not in ("train", "tests", "study"):
                complete = False
                break
        failed |= not (records and complete)
        print(table(piece, records) if records else f"{piece}: no record", flush=True)
        if not complete:
            print(f"{piece}: the minutes are over. Run it again.", flush=True)
    return int(failed)


def _environment(device: str) -> dict[str, Any]:
    from hf_capsule_mt.environment import environment

    return {"environment": environment(device)}


if __name__ == "__main__":
    sys.exit(main())
