"""Measure the milliseconds that the translation of one sentence takes (Wang et al. 2019, Table 3).

    python -m benchmarks.decoding latency --tokenizer_name tokenizer --input_file test.en --references test.de

By default the Transformer and CapsNMT with 4, 6 and 8 capsules. Sentences come one at a time; every model has to write
as many tokens as the reference has, or the source without a reference file. Weights are random, which changes no time;
the vocabulary is the tokenizer's. Every decoder of every model takes its turn on each sentence.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from benchmarks.common.records import Record
from benchmarks.common.tables import GENERATE, clock_in_words, machine
from benchmarks.common.workload import Measured, add_row_options, configs_of_rows, new_model, seconds
from benchmarks.decoding.decode import Decoder, decoders
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.evaluation.tables import table_in_markdown

_ROWS = (
    "transformer",
    "capsnmt num_sentence_capsules=4",
    "capsnmt num_sentence_capsules=6",
    "capsnmt num_sentence_capsules=8",
)
_WARM_UP = 3  # translations that do not count


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_row_options(parser, _ROWS)
    parser.add_argument("--tokenizer_name", required=True, help="name or folder of the tokenizer")
    parser.add_argument("--input_file", type=Path, required=True, help="sources, one a line, plain or .gz")
    parser.add_argument("--references", type=Path, help="their translations, for the number of tokens to write")
    parser.add_argument("--num_sentences", type=int, help="the first so many (default: all)")
    parser.add_argument("--num_beams", type=int, default=1, help="default: 1, greedy search")
    parser.add_argument("--rounds", type=int, default=1, help="how often all are translated (default: %(default)s)")


def measure(args: argparse.Namespace) -> Measured:
    """Decode every sentence by itself with every decoder of every model."""
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer_name)
    args.vocab_size = len(tokenizer)
    sentences = _sentences(args, tokenizer)
    runs = _decoders_of_rows(args, sentences)
    times: dict[str, list[float]] = {row: [] for row in runs}
    warm_up = sentences[:1] * _WARM_UP
    for sentence in [*warm_up, *sentences * args.rounds]:
        input_ids = torch.tensor([sentence.token_ids], device=args.device)
        batch = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
        for row, decoder in runs.items():
            taken = seconds(partial(decoder, batch, sentence.new_tokens), args.device)
            times[row].append(taken)
    source_tokens = sum(len(sentence.token_ids) for sentence in sentences)
    target_tokens = sum(sentence.new_tokens for sentence in sentences)
    results = {
        "sentences": len(sentences),
        "seconds": {row: taken[_WARM_UP:] for row, taken in times.items()},
        "words": {"source": source_tokens, "target": target_tokens},
    }
    return results, report


class Sentence(NamedTuple):
    """A source, and how much is written for it."""

    token_ids: list[int]
    new_tokens: int
    """How many tokens its reference has."""


def _sentences(args: argparse.Namespace, tokenizer: PreTrainedTokenizerBase) -> list[Sentence]:
    """Return the sources that are translated. Pairs with an empty side are left out."""
    sources = read_lines(args.input_file)
    targets = read_lines(args.references or args.input_file)
    pairs = []
    for source, target in zip(sources, targets, strict=True):
        if source.strip() and target.strip():
            pairs.append((source, target))
    pairs = pairs[: args.num_sentences]
    source_ids = tokenizer([source for source, _ in pairs])["input_ids"]
    target_ids = tokenizer(text_target=[target for _, target in pairs])["input_ids"]
    return [Sentence(ids, len(target)) for ids, target in zip(source_ids, target_ids, strict=True)]


def _decoders_of_rows(args: argparse.Namespace, sentences: Sequence[Sentence]) -> dict[str, Decoder]:
    """Return every decoder of every model, by the name of its row in the table."""
    longest_source = max(len(sentence.token_ids) for sentence in sentences)
    longest_target = max(sentence.new_tokens for sentence in sentences)
    torch.manual_seed(args.seed)
    runs = {}
    for row, config in configs_of_rows(args, max(longest_source, longest_target)).items():
        model = new_model(config, args.device)
        for name, decoder in decoders(model, args.num_beams).items():
            title = row if name == GENERATE else f"{row}, {name}"
            runs[title] = decoder
    return runs


def report(record: Record) -> str:
    """Return the table in Markdown, and under it how it was measured."""
    milliseconds = {row: 1000 * sum(taken) / len(taken) for row, taken in record["seconds"].items()}
    first = next(iter(milliseconds))
    rows = [["model", "milliseconds a sentence", f"times as fast as {first}"]]
    for row, mean in milliseconds.items():
        times_as_fast = milliseconds[first] / mean
        rows.append([row, f"{mean:.1f}", f"{times_as_fast:.2f}"])
    settings = record["settings"]
    words = record["words"]
    search = "greedy" if settings["num_beams"] == 1 else f"{settings['num_beams']} beams"
    return (
        f"{table_in_markdown(rows)}\n\n"
        f"Means over {record['sentences']} sentences ({words['source']} source tokens, {words['target']} written), one "
        f"at a time, {settings['rounds']} round(s), the models in turns; {search}. `{settings['size']}`, "
        f"vocabulary of {settings['vocab_size']}, float32 but where it says otherwise, "
        f"{clock_in_words(settings.get('clock'))}, "
        f"{machine(record['environment'])}."
    )
