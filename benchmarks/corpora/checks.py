"""Checks of `translate --output_dir` that take minutes: bytes after `kill -9`, flat memory, and equal rows.

python -m benchmarks.corpora.checks kills --model checkpoints/tatoeba-en-de-transformer --text train.en.gz
python -m benchmarks.corpora.checks memory --model checkpoints/tatoeba-en-de-transformer
python -m benchmarks.corpora.checks duplicates --model checkpoints/tatoeba-en-de-transformer --text train.en.gz
"""

import argparse
import hashlib
import json
import multiprocessing
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count, islice
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pyarrow as pa
from pyarrow import parquet

from benchmarks.serving.processes import cpu_seconds
from hf_capsule_mt import CorpusTranslator
from hf_capsule_mt.cli.translate import main as translate
from hf_capsule_mt.data import row_formats
from hf_capsule_mt.data.lines import each_line
from hf_capsule_mt.translation.files import job

PART_SIZE = 5000
"""Characters of a part of the files for kills. With the usual size they would have one part each."""
ROWS = 150
"""Rows of each of these files."""
NAMES = ("a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.parquet", "e.jsonl.zst", "f.parquet")
KILLED = -9

# Every process is forked from one that has imported all, so that most of its time is translation.
_CONTEXT = multiprocessing.get_context("forkserver")


def rows_of(lines: Iterator[str]) -> Iterator[dict[str, object]]:
    """Yield rows with texts of one to four lines, of which each has one to three sentences."""
    sizes = random.Random(1)
    for number in count():
        texts = []
        for _ in range(sizes.randint(1, 4)):
            texts.append(" ".join(islice(lines, sizes.randint(1, 3))))
        yield {"id": f"row {number}", "text": "\n".join(texts), "score": sizes.random()}


def write_rows(rows: Sequence[dict[str, object]], path: Path) -> None:
    """Write a file of rows in the format of its name."""
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
        return
    compression = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    with pa.output_stream(str(path), compression=compression) as stream:
        for row in rows:
            stream.write(json.dumps(row).encode() + b"\n")


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each output. Nothing but outputs and records may be left."""
    wanted = {".records", *NAMES, *(f"{name}.json" for name in NAMES), "int8_choice.json"}
    left = sorted(path.name for path in folder.rglob("*") if path.name not in wanted)
    if left:
        raise RuntimeError(f"{folder} also has {left}.")
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in NAMES}


def start(words: Sequence[str], part_size: int | None = None) -> ForkServerProcess:
    """Start the command in a process of its own."""
    process = _CONTEXT.Process(target=_run, args=(words, part_size))
    process.start()
    return process


def log_of(words: Sequence[str]) -> Path:
    """Return the file for the words of a command, next to its output."""
    return Path(words[words.index("--output_dir") + 1] + ".log")


def _run(words: Sequence[str], part_size: int | None) -> None:
    # Only a line with an error matters, the last one.
    with open(log_of(words), "w") as log:
        sys.stdout = log
        sys.stderr = log
        if part_size is not None:
            row_formats.PART_SIZE = part_size
            job.PART_SIZE = part_size
        translate(words)


def run_shares(words: Sequence[str], processes: int, waits: Sequence[float] = ()) -> list[str]:
    """Run the command for all shares at once.

    Args:
        words: of the command.
        processes: number of shares.
        waits: CPU seconds of one of the processes before each kill. A killed process is started again.

    Returns:
        What was finished at each kill.
    """
    output = Path(words[words.index("--output_dir") + 1])
    victims = random.Random(repr(waits))
    running = {number: start([*words, "--part", f"{number}/{processes}"], PART_SIZE) for number in _numbers(processes)}
    finished = []
    left = list(waits)
    while running:
        if left:
            victim = running[victims.choice(sorted(running))]
            _kill_after(victim, left.pop(0))
        time.sleep(0.1)
        for number, process in sorted(running.items()):
            if process.is_alive():
                continue
            process.join()
            if process.exitcode == KILLED:
                finished.append(_finished(output))
                running[number] = start([*words, "--part", f"{number}/{processes}"], PART_SIZE)
            elif process.exitcode == 0:
                del running[number]
            else:
                raise RuntimeError(log_of(words).read_text().splitlines()[-1])
    return finished


def _kill_after(process: ForkServerProcess, seconds: float) -> None:
    """Kill a process when it has used so many CPU seconds more, unless it ends before."""
    with suppress(psutil.NoSuchProcess):
        state = psutil.Process(process.pid)
        end = cpu_seconds(state) + seconds
        while process.is_alive() and cpu_seconds(state) < end:
            time.sleep(0.05)
    process.kill()


def _finished(output: Path) -> str:
    files = len(list(output.glob("*.*")))
    parts = len(list(output.glob(".unfinished/*/part-*.json")))
    return f"{files} files + {parts} parts"


def _numbers(processes: int) -> range:
    return range(1, processes + 1)


def kills(args: argparse.Namespace) -> None:
    """Compare the bytes of one, two and four processes, and of runs with kills."""
    with TemporaryDirectory() as folder:
        source = Path(folder, "in")
        source.mkdir()
        rows = rows_of(each_line(args.text))
        for name in NAMES:
            write_rows(list(islice(rows, ROWS)), source / name)
        for dtype in args.dtypes:
            words = ["--model", args.model, "--device", "cpu", "--num_beams", "1", "--sentences", "en"]
            words += ["--dtype", dtype, "--input_file", *(str(source / name) for name in NAMES)]
            whole = Path(folder, dtype)
            run_shares([*words, "--output_dir", str(whole)], 1)
            for processes in args.processes:
                output = Path(folder, f"{dtype}-{processes}")
                copy_int8_choice(whole, output)
                run_shares([*words, "--output_dir", str(output)], processes)
                print(f"{dtype}, {processes} processes:", _compared(output, whole), flush=True)
            for run in range(args.runs):
                output = Path(folder, f"{dtype}-killed-{run}")
                copy_int8_choice(whole, output)
                begin = time.monotonic()
                times = random.Random(run)
                waits = [times.uniform(*args.seconds) for _ in range(args.kills)]
                finished = run_shares([*words, "--output_dir", str(output)], 3, waits)
                seconds = time.monotonic() - begin
                result = _compared(output, whole)
                print(f"{dtype}, run {run + 1}: {len(finished)} kills in {seconds:.0f} s, {result}", flush=True)
                print(f"    finished at the kills: {', '.join(finished)}", flush=True)


def copy_int8_choice(whole: Path, output: Path) -> None:
    """Let an output have the int8 products of another. Each folder times them, and may choose others."""
    choice = Path(".records", "int8_choice.json")
    if (whole / choice).is_file():
        (output / choice.parent).mkdir(parents=True)
        shutil.copy(whole / choice, output / choice)


def _compared(output: Path, whole: Path) -> str:
    return "the same bytes" if hashes(output) == hashes(whole) else "OTHER BYTES"


def memory(args: argparse.Namespace) -> None:
    """Print the memory of the command as it goes through rows without letters, which need no model."""
    with TemporaryDirectory() as folder:
        source = Path(folder, args.name)
        rows = []
        for number in range(args.rows):
            rows.append({"id": number, "text": f"{number % 24}:{number % 60:02} {number}"})
        write_rows(rows, source)
        output = Path(folder, "out")
        words = ["--model", args.model, "--device", "cpu", "--num_beams", "1"]
        process = start([*words, "--input_file", str(source), "--output_dir", str(output)])
        step = ""
        while process.is_alive():
            # Joining and the last check take seconds.
            is_read = step.startswith(f"{args.rows} rows")
            time.sleep(min(args.every, 1) if is_read else args.every)
            step = _step(output, args.name, args.rows)
            megabytes = _private_megabytes(process.pid)
            if megabytes is not None:
                print(f"{step}: {megabytes:.0f} MB", flush=True)
        process.join()
        record = json.loads((output / ".records" / f"{args.name}.json").read_text())
        print(f"status {process.exitcode}, {record['rows']} rows in the output")


def _step(output: Path, name: str, total: int) -> str:
    """Return the number of finished rows, and what happens to them when these are all."""
    records = sorted(output.glob(f".unfinished/{name}/part-*.json"))
    rows = sum(json.loads(path.read_text())["rows"] for path in records)
    if rows < total:
        return f"{rows} rows"
    is_joined = Path(output, ".unfinished", name, f"whole-{name}").is_file()
    return f"{rows} rows, {'checking' if is_joined else 'joining'}"


def _private_megabytes(pid: int) -> float | None:
    """Return the memory that only this process has, or None if it has ended."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1000
    except FileNotFoundError:
        pass
    return None


def duplicates(args: argparse.Namespace) -> None:
    """Print the CPU seconds of 2,000 different rows, and of 200 rows ten times."""
    lines = list(islice(dict.fromkeys(each_line(args.text)), 2000))
    translator = CorpusTranslator(args.model, device="cpu", sentences="en", num_beams=1)
    # It loads the model.
    translator.translate(lines[:2])
    for name, texts in (("2,000 different rows", lines), ("200 rows ten times", lines[:200] * 10)):
        begin = time.process_time()
        translator.translate(texts)
        print(f"{name}: {time.process_time() - begin:.2f} CPU seconds", flush=True)


def main() -> None:
    """Run one of the checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    of_kills = commands.add_parser("kills", help=kills.__doc__)
    of_kills.add_argument("--model", required=True)
    of_kills.add_argument("--text", type=Path, required=True, help="English lines.")
    of_kills.add_argument("--dtypes", nargs="+", default=["float32", "int8"])
    of_kills.add_argument("--processes", nargs="*", type=int, default=[2, 4], help="Compared with one process.")
    of_kills.add_argument("--runs", type=int, default=10, help="Runs with kills in each precision.")
    of_kills.add_argument("--kills", type=int, default=4, help="Kills in a run, of one of three processes.")
    of_kills.add_argument(
        "--seconds", type=float, nargs=2, default=(0.2, 1.5), help="CPU seconds before a kill, at least and at most."
    )
    of_kills.set_defaults(run=kills)
    of_memory = commands.add_parser("memory", help=memory.__doc__)
    of_memory.add_argument("--model", required=True)
    of_memory.add_argument("--name", default="rows.jsonl", help="Of the file of rows. It says the format.")
    of_memory.add_argument("--rows", type=int, default=1_000_000)
    of_memory.add_argument("--every", type=float, default=15, help="Seconds between two lines.")
    of_memory.set_defaults(run=memory)
    of_duplicates = commands.add_parser("duplicates", help=duplicates.__doc__)
    of_duplicates.add_argument("--model", required=True)
    of_duplicates.add_argument("--text", type=Path, required=True, help="English lines.")
    of_duplicates.set_defaults(run=duplicates)
    args = parser.parse_args()
    _CONTEXT.set_forkserver_preload(["hf_capsule_mt.cli.translate", __name__])
    args.run(args)


if __name__ == "__main__":
    main()
