"""Words a CPU second of `CorpusTranslator` next to CTranslate2, in one process and in two that run together.

    python -m benchmarks.corpora.speed --text test_long.en.gz --tokenizer checkpoints/tatoeba-en-de-transformer \\
        --sizes tiny base --output_file corpora_speed.json

`tiny` is the checkpoint itself. `base` has random weights, so all translations have `--max_new_tokens` tokens. Both
read the same lines of text and write text. CTranslate2 gets 64 sentences a batch, which it sorts by length.
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from benchmarks.common.ctranslate2_models import ctranslate2_translator, for_ctranslate2
from hf_capsule_mt import CorpusTranslator
from hf_capsule_mt.configuration import preset_config
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.environment import environment

BATCH = 64
"""Sentences of a batch of CTranslate2."""

Translate = Callable[[Sequence[str]], Sequence[str]]

_CONTEXT = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Task:
    """What a process translates, and with what."""

    engine: str
    size: str
    folder: str
    dtype: str
    num_beams: int
    max_new_tokens: int
    lines: tuple[str, ...]


def cpu_seconds(task: Task, barrier: Barrier) -> float:
    """Return the CPU time of a task, without loading. All processes begin together."""
    torch.set_num_threads(1)
    run = _ours if task.engine == "ours" else _ctranslate2
    translate = run(task)
    translate(task.lines[:2])
    barrier.wait()
    start = time.process_time()
    translations = translate(task.lines)
    seconds = time.process_time() - start
    if len(translations) != len(task.lines):
        raise RuntimeError("lines are missing")
    return seconds


def _ours(task: Task) -> Translate:
    options = {"dtype": task.dtype, "num_beams": task.num_beams, "max_new_tokens": task.max_new_tokens}
    translator = CorpusTranslator(task.folder, device="cpu", **options)
    return lambda lines: translator.translate(lines)[0]


def _ctranslate2(task: Task) -> Translate:
    tokenizer = AutoTokenizer.from_pretrained(task.folder)
    plain = for_ctranslate2(AutoModelForSeq2SeqLM.from_pretrained(task.folder, dtype=torch.float32))
    translator = ctranslate2_translator(plain, task.dtype)

    def translate(lines: Sequence[str]) -> list[str]:
        sources = []
        for token_ids in tokenizer(list(lines))["input_ids"]:
            sources.append([str(token_id) for token_id in token_ids])
        results = translator.translate_batch(
            sources, max_batch_size=BATCH, beam_size=task.num_beams, max_decoding_length=task.max_new_tokens
        )
        token_ids = [[int(word) for word in result.hypotheses[0]] for result in results]
        return tokenizer.batch_decode(token_ids, skip_special_tokens=True)

    return translate


def _put_seconds(task: Task, barrier: Barrier, results: Queue) -> None:
    results.put(cpu_seconds(task, barrier))


def words_a_cpu_second(task: Task, processes: int) -> float:
    """Return the words of the source that processes translate together, by the CPU time of all."""
    barrier = _CONTEXT.Barrier(processes)
    results = _CONTEXT.Queue()
    running = []
    for number in range(processes):
        share = replace(task, lines=task.lines[number::processes])
        process = _CONTEXT.Process(target=_put_seconds, args=(share, barrier, results))
        process.start()
        running.append(process)
    seconds = sum(results.get(timeout=1800) for _ in running)
    for process in running:
        process.join()
    return sum(len(line.split()) for line in task.lines) / seconds


def save_random_base(tokenizer: str, folder: Path) -> None:
    """Write a Transformer of the size `base` with random weights, and the tokenizer of a checkpoint."""
    torch.manual_seed(0)
    config = preset_config("transformer", "base", vocab_size=32000)
    config.max_position_embeddings = 512
    AutoModelForSeq2SeqLM.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder)


def main() -> None:
    """Measure in turns, and print each speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="English lines (.gz)")
    parser.add_argument("--tokenizer", required=True, help="the checkpoint of size tiny")
    parser.add_argument("--sizes", nargs="+", choices=["tiny", "base"], default=["tiny", "base"])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "int8"])
    parser.add_argument("--beams", nargs="+", type=int, default=[1])
    parser.add_argument("--lines", nargs=2, type=int, default=[4000, 192], help="of tiny and of base")
    parser.add_argument("--max_new_tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output_file", type=Path, required=True)
    args = parser.parse_args()
    _CONTEXT.set_forkserver_preload(["hf_capsule_mt.cli.translate", "ctranslate2", __name__])
    lines = read_lines(args.text)
    numbers = dict(zip(("tiny", "base"), args.lines))
    records = []
    with TemporaryDirectory() as folder:
        folders = {"tiny": args.tokenizer, "base": folder}
        if "base" in args.sizes:
            save_random_base(args.tokenizer, Path(folder))
        tasks = []
        for size in args.sizes:
            texts = tuple(lines[: numbers[size]])
            for dtype, beams, engine in product(args.dtypes, args.beams, ("ours", "CTranslate2")):
                tasks.append(Task(engine, size, folders[size], dtype, beams, args.max_new_tokens, texts))
        for number in range(args.rounds):
            for task, processes in product(tasks, (1, 2)):
                speed = words_a_cpu_second(task, processes)
                measured = f"{task.size} {task.dtype} beam {task.num_beams} {task.engine}"
                # The next line comes after minutes.
                print(f"{measured} {processes} processes: {speed:.0f}", flush=True)
                settings = asdict(replace(task, folder="", lines=()))
                records.append({**settings, "processes": processes, "round": number, "words_a_cpu_second": speed})
            args.output_file.write_text(json.dumps({"environment": environment("cpu"), "records": records}, indent=1))


if __name__ == "__main__":
    main()
