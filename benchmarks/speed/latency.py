"""Measure the milliseconds that the translation of one sentence takes (Wang et al. 2019, Table 3).

    python -m benchmarks.speed latency --tokenizer_name tokenizer --input_file test.en --references test.de

By default the Transformer and CapsNMT with 4, 6 and 8 capsules. Sentences come one at a time; every model has to write
as many tokens as the reference has, or the source without a reference file. Weights are random, which changes no time;
the vocabulary is the tokenizer's. Every decoder of every model takes its turn on each sentence.
"""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from benchmarks.speed.decode import decoders
from benchmarks.speed.decoding_tables import GENERATE, machine
from benchmarks.speed.workload import add_row_options, configs_of_rows, new_model, seconds
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.evaluation.tables import table_in_markdown

_ROWS = ("transformer", *(f"capsnmt num_sentence_capsules={capsules}" for capsules in (4, 6, 8)))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_row_options(parser, _ROWS)
    parser.add_argument("--tokenizer_name", required=True, help="name or folder of the tokenizer")
    parser.add_argument("--input_file", type=Path, required=True, help="sources, one a line, plain or .gz")
    parser.add_argument("--references", type=Path, help="their translations, for the number of tokens to write")
    parser.add_argument("--num_sentences", type=int, help="the first so many (default: all)")
    parser.add_argument("--num_beams", type=int, default=1, help="default: 1, greedy search")
    parser.add_argument("--rounds", type=int, default=1, help="how often all are translated (default: %(default)s)")


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], str]]:
    """Decode every sentence by itself with every decoder of every model."""
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer_name)
    args.vocab_size = len(tokenizer)
    sources, targets = (read_lines(file) for file in (args.input_file, args.references or args.input_file))
    pairs = [pair for pair in zip(sources, targets, strict=True) if all(map(str.strip, pair))][: args.num_sentences]
    ids = tokenizer([source for source, _ in pairs])["input_ids"]
    lengths = [len(each) for each in tokenizer(text_target=[target for _, target in pairs])["input_ids"]]
    sentences = list(zip(ids, lengths, strict=True))
    torch.manual_seed(args.seed)
    runs = {}
    for row, config in configs_of_rows(args, max(*map(len, ids), *lengths)).items():
        for name, decoder in decoders(new_model(config, args.device), args.num_beams).items():
            runs[row if name == GENERATE else f"{row}, {name}"] = decoder
    times: dict[str, list[float]] = {row: [] for row in runs}
    # The first three do not count.
    for words, new_tokens in [*sentences[:1] * 3, *sentences * args.rounds]:
        input_ids = torch.tensor([words], device=args.device)
        batch = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
        for row, decoder in runs.items():
            times[row].append(seconds(partial(decoder, batch, new_tokens), args.device))
    results = {
        "sentences": len(sentences),
        "seconds": {row: found[3:] for row, found in times.items()},
        "words": {"source": sum(map(len, ids)), "target": sum(lengths)},
    }
    return results, report


def report(record: Mapping[str, Any]) -> str:
    """Return the table in Markdown, and under it how it was measured."""
    settings, words = record["settings"], record["words"]
    means = {row: 1000 * sum(found) / len(found) for row, found in record["seconds"].items()}
    first = next(iter(means))
    rows = [["model", "milliseconds a sentence", f"times as fast as {first}"]]
    rows += [[row, f"{mean:.1f}", f"{means[first] / mean:.2f}"] for row, mean in means.items()]
    search = "greedy" if settings["num_beams"] == 1 else f"{settings['num_beams']} beams"
    return (
        f"{table_in_markdown(rows)}\n\n"
        f"Means over {record['sentences']} sentences ({words['source']} source tokens, {words['target']} written), one "
        f"at a time, {settings['rounds']} round(s), the models in turns; {search}. `{settings['size']}`, vocabulary of "
        f"{settings['vocab_size']}, float32 but where it says otherwise, "
        f"{'CPU time' if settings.get('clock') == 'cpu' else 'time that passed'}, {machine(record['environment'])}."
    )
