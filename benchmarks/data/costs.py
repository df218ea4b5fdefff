"""Measure what a corpus costs: memory, CPU seconds of a start and a restart, disk, and batches a second.

    python -m benchmarks.data.costs --text train.en train.de --pairs 4500000 --folder corpus

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
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from threading import Event

BATCHES = 500
WINDOWS = 3
MAX_TOKENS = 4096
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
        costs = stream_costs(args) if args.measure == "stream" else corpus_costs(args)
        print(json.dumps(costs))
        return
    args.folder.mkdir(parents=True, exist_ok=True)
    if any(args.folder.iterdir()):
        parser.error(f"{args.folder} is not empty: the first start would find what it should make; name a new folder")
    make_corpus(args)
    environment = {**os.environ, "HF_DATASETS_CACHE": str(args.folder / "cache")}
    for kind in MEASURES:
        if kind == "repeated":
            if args.times is None:
                continue
            repeat(args.folder, args.times)
        command = [sys.executable, __file__, *sys.argv[1:], "--measure", kind]
        process = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        print(kind, process.stdout.splitlines()[-1], flush=True)
    for path in sorted((args.folder / "cache").rglob("*.arrow")):
        print(f"{path.name.partition('-')[0]}: {path.stat().st_size / args.pairs:.0f} bytes a pair")


def files(folder: Path) -> list[Path]:
    """Return source and target file of the corpus."""
    return [folder / f"train.{language}" for language in LANGUAGES]


def make_corpus(args: argparse.Namespace) -> None:
    """Write the corpus and the tokenizer."""
    from hf_capsule_mt.data.parallel_text import read_parallel_text
    from hf_capsule_mt.data.tokenizer import train_joint_bpe
    from hf_capsule_mt.files import replaced_files

    text = read_parallel_text(args.text)
    tokenizer = train_joint_bpe([*text.sources, *text.targets], 10_000)
    tokenizer.save_pretrained(args.folder / "tokenizer")
    generator = random.Random(0)
    source_file, target_file = files(args.folder)
    with replaced_files([source_file, target_file]) as (sources, targets):
        for _ in range(args.pairs):
            number = generator.choice([1, 1, 2, 2, 3, 3, 4, 5])
            chosen = [generator.randrange(len(text.sources)) for _ in range(number)]
            source = " ".join(text.sources[index] for index in chosen)
            target = " ".join(text.targets[index] for index in chosen)
            sources.write(f"{source}\n".encode())
            targets.write(f"{target}\n".encode())


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
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            kilobytes = int(line.split()[1])
            return kilobytes // 1000
    raise KeyError(name)


def corpus_costs(args: argparse.Namespace) -> dict[str, float]:
    """Read, tokenise and batch the corpus, or map it."""
    costs = Costs()
    from datasets import Dataset
    from transformers import AutoTokenizer, DataCollatorForSeq2Seq

    from hf_capsule_mt.data.arrow_cache import read_corpus, tokenize_corpus
    from hf_capsule_mt.data.batching import TokenBudgetBatchSampler, longest_sides
    from hf_capsule_mt.data.corpus_files import Columns, find_corpora

    tokenizer = AutoTokenizer.from_pretrained(args.folder / "tokenizer")
    measured = {"import": round(costs.lap(), 1)}
    if args.measure == "repeated":
        pairs = Dataset.from_file(str(args.folder / "repeated.arrow"))
    else:
        [corpus] = find_corpora(files(args.folder), Columns())
        pairs = tokenize_corpus(read_corpus(corpus, Columns()), tokenizer, 256, 256)
    lengths = longest_sides(pairs)
    sampler = TokenBudgetBatchSampler(lengths, MAX_TOKENS)
    batches = iter(sampler)
    first = next(batches)
    measured["until the first batch"] = round(costs.lap(), 1)
    collator = DataCollatorForSeq2Seq(tokenizer)
    tokens = 0
    for batch in [first, *islice(batches, BATCHES - 1)]:
        # As a loader of PyTorch reads a batch.
        rows = pairs.__getitems__(batch)
        collator(rows)
        tokens += number_of_tokens(rows)
    measured["tokens a CPU second"] = round(tokens / costs.lap())
    measured["pairs"] = len(pairs)
    measured["tokens of the longer side"] = round(float(lengths.mean()), 1)
    return {**measured, **memories()}


def stream_costs(args: argparse.Namespace) -> dict[str, float]:
    """Stream the corpus for three windows."""
    costs = Costs()
    from transformers import AutoTokenizer, DataCollatorForSeq2Seq

    from hf_capsule_mt.data.corpus_files import Columns, find_corpora
    from hf_capsule_mt.data.streaming import TokenBudgetStream, file_rows

    tokenizer = AutoTokenizer.from_pretrained(args.folder / "tokenizer")
    measured = {"import": round(costs.lap(), 1)}
    rows = file_rows(find_corpora(files(args.folder), Columns()), Columns())
    stream = TokenBudgetStream(rows, tokenizer, MAX_TOKENS, limits=(256, 256))
    collator = DataCollatorForSeq2Seq(tokenizer)
    tokens = 0
    # Iterating over the stream would tokenise more than is counted, since it is a window ahead.
    for window in islice(stream._windows(Event()), WINDOWS):
        for batch in stream.batches(window):
            collator(batch.pairs)
            tokens += number_of_tokens(batch.pairs)
    measured["tokens a CPU second"] = round(tokens / costs.lap())
    return {**measured, **memories()}


def number_of_tokens(pairs: Sequence[Mapping[str, Sequence[int]]]) -> int:
    """Return the number of tokens on both sides."""
    return sum(len(pair["input_ids"]) + len(pair["labels"]) for pair in pairs)


def memories() -> dict[str, int]:
    """Return the memory of this process in MB: its peak, with mapped files, and what is its own at the end."""
    return {"peak MB": memory("VmHWM"), "own MB at the end": memory("RssAnon")}


class Costs:
    """CPU seconds of this process and those it waited for, since it was asked last."""

    def __init__(self) -> None:
        self._last = self._now()

    def lap(self) -> float:
        """Return the seconds since the last lap."""
        before = self._last
        self._last = self._now()
        return self._last - before

    @staticmethod
    def _now() -> float:
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()
