"""The pieces of benchmarks/gpu.sh, on a GPU: tests, speed and memory, decoders, and whether routing pays.

Each piece is one command of less than ten minutes. It and what it prints are NAME.md in --output_dir, which marks it as
done; what it measured is a record in its folder `records`; the studies leave translations, which their commands in
--list score without --without_scores, in the root of any clone with `multi30k` in it. The same command goes on after a
kill.
"""

import argparse
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_LIMIT = 560  # seconds
_LEAST = 60  # seconds without which no piece is begun
_GRACE = 25  # seconds in which a training that is told to end saves a checkpoint
_WARMUP_ROUNDS = 3  # each has shapes of its own, for which a device loads kernels and finds room
_AT_ONCE = 12  # rows of the study: `tiny` keeps a core busy, and a large device idle
_MARIAN = (
    *("transformer", "linear-combination", "dynamic-combination", "dynamic-routing", "em-routing"),
    *("head-simple-routing", "head-em-routing", "head-em-effective", "gdr", "gdr-classifier", "gdr-attention"),
)
_FAMILIES = {
    "layers": _MARIAN[:5],
    "heads": _MARIAN[5:8],
    "guided": _MARIAN[8:],
    "rnmt": ("rnmt", "rnmt-gdr", "capsnmt-hybrid"),
}
_TESTS = (
    "benchmarks/test_speed.py",
    "decoding/test_on_gpu.py",
    "decoding/test_seldom_looks.py",
    "modeling/test_em_routing_kernels.py",
)
"""The files with tests marked `cuda`: others import what a machine with a GPU may lack."""
_STUDIES = {"does_routing_pay": "train.lc.norm.tok.de.gz", "does_routing_pay_french": "train.fr.gz"}
"""With one of the files of Multi30k that each reads."""
_CAPSNMT = ("transformer", "capsnmt", "capsnmt-pooling")
_LAUNCHER = "accelerate launch --num_processes 1 --num_machines 1 --mixed_precision {} --dynamo_backend no"


@dataclass(frozen=True)
class Piece:
    """One command.

    Attributes:
        name: of the piece and of its files.
        needs: what must be there, in words.
        words: of the command, after `python -m`.
        data: a file without which it cannot run, if there is one.
    """

    name: str
    needs: str
    words: tuple[str, ...]
    data: Path | None = None


Run = Callable[[Piece, Path, Path, float], str]
"""Runs a piece, with a file for what it prints, in a folder, for so many seconds; returns what became of it."""


def pieces(args: argparse.Namespace) -> list[Piece]:
    """Return the pieces in their order."""
    paths = (str(ROOT / "tests" / name) for name in _TESTS)
    tests = ("pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider", *paths)
    sizes = ("tiny",) if args.quick else ("tiny", "base", "big")
    tables = [_table(args, family, size) for size in sizes for family in _FAMILIES]
    growth = [_growth(args, size) for size in sizes]
    sentences = (1,) if args.quick else (1, 32, 256)
    decoders = [_decoders(args, size, count) for size in sizes[:2] for count in sentences]
    studies = [_study(args, name, file) for name, file in _STUDIES.items()]
    return [Piece("tests", "pytest, hypothesis, sacrebleu", tests), *tables, *growth, *decoders, *studies]


def _table(args: argparse.Namespace, family: str, size: str) -> Piece:
    """Training, decoding and memory of the methods of a family, next to its plain model."""
    tokens, rounds, batch, new_tokens = (96, 1, 1, 1) if args.quick else (16384, 7, 64, 24)
    methods = _FAMILIES[family][:1] if args.quick else _FAMILIES[family]
    workload = {"max_tokens_per_batch": tokens, "rounds": rounds, "batch_size": batch, "max_new_tokens": new_tokens}
    workload["warmup_rounds"] = 0 if args.quick else _WARMUP_ROUNDS
    return _measure(args, "train", f"speed_{size}_{family}", size, methods, ["--dtype", "bfloat16"], workload)


def _growth(args: argparse.Namespace, size: str) -> Piece:
    """Training and decoding of CapsNMT, which has no plain model, by the length of sentences."""
    lengths = ("4", "8") if args.quick else ("32", "64", "128", "256", "512")
    options = ["--lengths", *lengths, "--fit_from", lengths[0]]
    workload = {"rounds": 1 if args.quick else 3, "batch_size": 1 if args.quick else 32}
    return _measure(args, "growth", f"growth_{size}", size, _CAPSNMT, options, workload)


def _decoders(args: argparse.Namespace, size: str, sentences: int) -> Piece:
    """Decoding by `generate()` and by the engine in its precisions, so many sentences at a time, and its memory."""
    tokens, rounds = (1, 1) if args.quick else (24, 7)
    methods = ("transformer",) if args.quick else ("transformer", "em-routing")
    workload = {"rounds": rounds, "batch_size": sentences, "max_new_tokens": tokens, "memory_length": 4 * tokens}
    workload["warmup_rounds"] = 0 if args.quick else _WARMUP_ROUNDS
    return _measure(args, "decode", f"decoders_{size}_{sentences}", size, methods, [], workload)


def _measure(
    args: argparse.Namespace,
    command: str,
    name: str,
    size: str,
    methods: Sequence[str],
    options: Sequence[str],
    workload: dict[str, int],
) -> Piece:
    vocabulary = 100 if args.quick else 10000 if size == "tiny" else 32000
    numbers = {"vocab_size": vocabulary, **workload}
    words = ["benchmarks.speed", command, "--device", args.device, "--size", size, "--methods", *methods, *options]
    words += [word for option, number in numbers.items() for word in (f"--{option}", str(number))]
    record = args.output_dir / "records" / f"gpu_{name}.json"
    return Piece(name, f"torch and transformers, {args.device}", (*words, "--output_file", str(record)))


def _study(args: argparse.Namespace, name: str, file: str) -> Piece:
    study = ROOT / "benchmarks" / "studies" / f"{name}.yaml"
    launcher = _LAUNCHER.format("no" if args.device == "cpu" else "bf16")
    folders = (
        "--output_dir",
        str(args.output_dir / name),
        "--records",
        str(args.output_dir / "studies" / f"{name}.jsonl"),
    )
    dry = ("--dry_run",) if args.quick else ()
    options = ("--launcher", launcher, "--jobs", str(_AT_ONCE), *dry, "--without_scores")
    words = ("benchmarks.studies", "run", str(study), *folders, *options)
    data = args.data / file
    needs = f"{data} and what else it names; datasets, accelerate, sacrebleu; goes on when run again"
    return Piece(name, needs, words, None if args.quick else data)


def run_in_a_process(piece: Piece, output: Path, folder: Path, limit: float) -> str:
    """Run a piece in `folder`, writing what it prints to a file; return "done" or what became of it.

    After `limit` seconds it is ended.
    """
    words = [sys.executable, "-m", *piece.words]
    with output.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(words, stdout=file, cwd=folder, start_new_session=True)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            return f"not done after {limit:.0f} seconds; run it again"
        finally:
            _end(process)
    return "done" if status == 0 else f"failed with status {status}"


def _end(process: subprocess.Popen) -> None:
    """End a command and all that it started, which may take a moment to save what it has."""
    until = time.monotonic() + _GRACE
    try:
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < until:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all have ended
    process.wait()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pieces", nargs="*", metavar="PIECE", help="names of --list (default: all)")
    parser.add_argument("--device", default="cuda", help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="the least work that goes through every piece")
    parser.add_argument("--output_dir", type=Path, default=Path("outputs/gpu"), help="default: %(default)s")
    parser.add_argument("--data", type=Path, default=Path("multi30k"), help="folder of Multi30k (default: %(default)s)")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="end the call, and what runs, after so many (default: never)"
    )
    parser.add_argument("--list", action="store_true", help="print the pieces, what they need and their commands")
    return parser


def main(argv: Sequence[str] | None = None, run: Run = run_in_a_process) -> int:
    """Run the pieces that are not done, and print what became of each; return 1 if one is not done yet."""
    parser = build_parser()
    args = parser.parse_args(argv)
    args.output_dir, args.data = args.output_dir.resolve(), args.data.resolve()
    all_pieces = {piece.name: piece for piece in pieces(args)}
    unknown = sorted(set(args.pieces) - set(all_pieces))
    if unknown:
        parser.error(f"there is no piece {unknown[0]}; there are {', '.join(all_pieces)}")
    chosen = [all_pieces[name] for name in args.pieces or all_pieces]
    if args.list:
        for piece in chosen:
            print(f"{piece.name}: needs {piece.needs}\n    {_command(piece)}")
        return 0
    _check_device(parser, args.device)
    (args.output_dir / "records").mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * args.minutes
    # What has failed, or not ended, is tried again behind the others.
    chosen.sort(key=lambda piece: _files(piece, args)[1].exists())
    results = {piece.name: _result(piece, args, run, until) for piece in chosen}
    return 0 if set(results.values()) == {"done"} else 1


def _command(piece: Piece) -> str:
    return f"python -m {shlex.join(piece.words)}"


def _check_device(parser: argparse.ArgumentParser, device: str) -> None:
    """End the script where the device is not: tests that want one would be skipped, and pass for done."""
    if device.startswith("cuda"):
        import torch

        if not torch.cuda.is_available():
            parser.error(f"there is no {device} here; --device cpu goes through all but the tests of a GPU")


def _files(piece: Piece, args: argparse.Namespace) -> tuple[Path, Path]:
    """Return the file of what a piece prints when it is done, and that before."""
    return args.output_dir / f"{piece.name}.md", args.output_dir / f"{piece.name}.md.part"


def _result(piece: Piece, args: argparse.Namespace, run: Run, until: float) -> str:
    limit = min(_LIMIT, until - time.monotonic() - _GRACE)
    finished, partial = _files(piece, args)
    heading = f"    {_command(piece)}\n\n"
    if finished.exists() and finished.read_text(encoding="utf-8").startswith(heading):
        result = "done"
    elif piece.data is not None and not piece.data.is_file():
        result = f"left out: it needs {piece.needs}"
    elif limit < _LEAST:
        result = "left out: the minutes are over; run it again"
    else:
        result = run(piece, partial, _folder(args), limit)
        if result == "done":
            finished.write_text(heading + partial.read_text(encoding="utf-8"), encoding="utf-8")
            partial.unlink()
    print(f"{piece.name}: {result}", flush=True)
    return result


def _folder(args: argparse.Namespace) -> Path:
    """Return a folder with what the studies name, by links."""
    folder = args.output_dir / "work"
    folder.mkdir(exist_ok=True)
    for name, target in {
        "multi30k": args.data,
        **{name: ROOT / name for name in ("benchmarks", "checkpoints")},
    }.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
    return folder


if __name__ == "__main__":
    # An exception, so that what runs is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
