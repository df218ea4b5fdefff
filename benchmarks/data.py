"""Measure what a corpus costs: memory, CPU seconds of a start and a restart, disk, and batches a second.

    python benchmarks/data.py --text train.en train.de --pairs 4500000 --folder corpus

It makes a corpus of WMT14's shape in the folder, about 37 tokens a side, by joining sentences of two aligned texts, and
a tokenizer of 10,000 tokens, and then reads it as `train` does, each time in a process of its own: with an empty cache,
with a full one, and as a stream; with --times also a map of more token ids. The cache is in the folder, too, which must
be empty or new.
"""

import argparse
import json
import os
import random
import subprocess
import sys
from itertools import islice
from pathlib import Path
from threading import Event

BATCHES, WINDOWS, MAX_TOKENS = 500, 3, 4096
LANGUAGES = ("en", "de")
MEASURES = ("start", "restart", "stream", "repeated")


def main() -> None:
    """Make what is missing and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs=2, required=True, help="two aligned text files (.gz)")
    parser.add_argument("--pairs", type=int, default=500_000, help="pairs of the corpus (default: %(default)s)")
    parser.add_argument("--folder", type=Path, required=True, help="folder of the corpus, the tokenizer and the cache")
    parser.add_argument("--times", type=int, help="measure token ids that many times as many, too, by repeating them")
    parser.add_argument("--measure", choices=MEASURES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure is not None:
        print(json.dumps((stream_costs if args.measure == "stream" else corpus_costs)(args)))
        return
    args.folder.mkdir(parents=True, exist_ok=True)
    if any(args.folder.iterdir()):
        parser.error(f"{args.folder} is not empty: the first start would find what it should make; name a new folder")
    make_corpus(args)
    for kind in MEASURES:
        if kind == "repeated" and args.times is None:
            continue
        if kind == "repeated":
            repeat(args.folder, args.times)
        environment = {**os.environ, "HF_DATASETS_CACHE": str(args.folder / "cache")}
        command = [sys.executable, __file__, *sys.argv[1:], "--measure", kind]
        found = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
        print(kind, found.splitlines()[-1], flush=True)
    for path in sorted((args.folder / "cache").rglob("*.arrow")):
        print(f"{path.name.partition('-')[0]}: {path.stat().st_size / args.pairs:.0f} bytes a pair")


def files(folder: Path) -> list[Path]:
    """Return source and target file of the corpus."""
    return [folder / f"train.{language}" for language in LANGUAGES]


def make_corpus(args: argparse.Namespace) -> None:
    """Write the corpus and the tokenizer."""
    from hf_capsule_mt.data.parallel_text import read_parallel_text
    from hf_capsule_mt.data.tokenizer import train_joint_bpe

    text, generator = read_parallel_text(args.text), random.Random(0)
    train_joint_bpe([*text.sources, *text.targets], 10_000).save_pretrained(args.folder / "tokenizer")
    sides = [open(f"{file}.part", "w", encoding="utf-8") for file in files(args.folder)]  # noqa: SIM115
    for _ in range(args.pairs):
        number = generator.choice([1, 1, 2, 2, 3, 3, 4, 5])
        chosen = [generator.randrange(len(text.sources)) for _ in range(number)]
        for side, lines in zip(sides, (text.sources, text.targets)):
            side.write(" ".join(lines[index] for index in chosen) + "\n")
    for side, file in zip(sides, files(args.folder)):
        side.close()
        Path(side.name).replace(file)


def repeat(folder: Path, times: int) -> None:
    """Write the cached token ids several times into one file."""
    import pyarrow as pa

    [cached] = (folder / "cache" / "hf_capsule_mt").glob("*/cache-*.arrow")
    with pa.memory_map(str(cached)) as file, pa.OSFile(str(folder / "repeated.arrow"), "wb") as output:
        table = pa.ipc.open_stream(file).read_all()
        with pa.ipc.new_stream(output, table.schema) as writer:
            for _ in range(times):
                writer.write_table(table)


def memory(name: str) -> int:
    """Return a line of this process's /proc/self/status, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) // 1000


def corpus_costs(args: argparse.Namespace) -> dict[str, float]:
    """Read, tokenise and batch the corpus, or map it."""
    imported = Costs()
    from datasets import Dataset
    from transformers import AutoTokenizer, DataCollatorForSeq2Seq

    from hf_capsule_mt.data.arrow_cache import read_corpus, tokenize_corpus
    from hf_capsule_mt.data.batching import TokenBudgetBatchSampler, longest_sides
    from hf_capsule_mt.data.corpus_files import Columns, find_corpora

    tokenizer = AutoTokenizer.from_pretrained(args.folder / "tokenizer")
    costs = {"import": round(imported.lap(), 1)}
    if args.measure == "repeated":
        pairs = Dataset.from_file(str(args.folder / "repeated.arrow"))
    else:
        [corpus] = find_corpora(files(args.folder), Columns())
        pairs = tokenize_corpus(read_corpus(corpus, Columns()), tokenizer, 256, 256)
    lengths = longest_sides(pairs)
    sampler = TokenBudgetBatchSampler(lengths, MAX_TOKENS)
    batches = iter(sampler)
    first = next(batches)
    costs["until the first batch"] = round(imported.lap(), 1)
    collator, tokens = DataCollatorForSeq2Seq(tokenizer), 0
    for batch in [first, *islice(batches, BATCHES - 1)]:
        found = pairs.__getitems__(batch)
        collator(found)
        tokens += sum(len(row[side]) for row in found for side in ("input_ids", "labels"))
    costs["tokens a CPU second"] = round(tokens / imported.lap())
    return {**costs, "pairs": len(pairs), "tokens of the longer side": round(float(lengths.mean()), 1), **memories()}


def stream_costs(args: argparse.Namespace) -> dict[str, float]:
    """Stream the corpus for three windows."""
    imported = Costs()
    from transformers import AutoTokenizer, DataCollatorForSeq2Seq

    from hf_capsule_mt.data.corpus_files import Columns, find_corpora
    from hf_capsule_mt.data.streaming import TokenBudgetStream, file_rows

    tokenizer = AutoTokenizer.from_pretrained(args.folder / "tokenizer")
    costs = {"import": round(imported.lap(), 1)}
    rows = file_rows(find_corpora(files(args.folder), Columns()), Columns())
    stream = TokenBudgetStream(rows, tokenizer, MAX_TOKENS, limits=(256, 256))
    collator, tokens = DataCollatorForSeq2Seq(tokenizer), 0
    # Iterating over the stream would tokenise more than is counted, since it is a window ahead.
    for window in islice(stream._windows(Event()), WINDOWS):
        for batch in stream.batches(window):
            collator(batch.pairs)
            tokens += sum(len(pair[side]) for pair in batch.pairs for side in ("input_ids", "labels"))
    costs["tokens a CPU second"] = round(tokens / imported.lap())
    return {**costs, **memories()}


def memories() -> dict[str, int]:
    """Return the memory of this process in MB: its peak, with mapped files, and what is its own at the end."""
    return {"peak MB": memory("VmHWM"), "own MB at the end": memory("RssAnon")}


class Costs:
    """CPU seconds of this process and those it waited for, since it was asked last."""

    def __init__(self) -> None:
        self._last = self._now()

    def lap(self) -> float:
        """Return the seconds since the last lap."""
        before, self._last = self._last, self._now()
        return self._last - before

    @staticmethod
    def _now() -> float:
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()
