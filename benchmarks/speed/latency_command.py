"""Measure the milliseconds that the translation of one sentence takes.

    python -m benchmarks.speed latency --tokenizer_name tokenizer --input_file test.en --reference_file test.de

By default the Transformer and CapsNMT with 4, 6 and 8 capsules (Wang et al. 2019, Table 3). Sentences come one at a
time; every model has to write as many tokens as the reference has (or the source, without a reference file). Weights
are random, which changes no time; the vocabulary is the tokenizer's. The models take turns on each sentence, each
with `generate()`, with the engine in each precision and, for the method transformer on a CPU, with CTranslate2 if it is
installed (extra `benchmark`).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed.latency import measure_latency, report
from benchmarks.speed.options import add_row_options, configs_of_rows, device_of
from benchmarks.speed.speed import clock
from hf_capsule_mt.checkpoints import load_tokenizer
from hf_capsule_mt.cli.common import (
    CommandParser,
    at_least,
    check_distinct,
    check_input_file,
    check_output_file,
    quiet_transformers,
    report_user_errors,
)
from hf_capsule_mt.data.parallel_text import read_lines, read_parallel_text
from hf_capsule_mt.json_fields import decode
from hf_capsule_mt.records import Environment, LatencyRecord, LatencySettings, TokenCounts, write

_ROWS = ("transformer", *(f"capsnmt num_sentence_capsules={capsules}" for capsules in (4, 6, 8)))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    add_row_options(parser, _ROWS)
    parser.add_argument("--tokenizer_name", required=True, help="name or folder of the tokenizer")
    parser.add_argument("--input_file", type=Path, required=True, help="sources, one a line, plain or .gz")
    parser.add_argument("--reference_file", type=Path, help="their translations, for the number of tokens to write")
    parser.add_argument("--num_sentences", type=at_least(1), help="the first so many (default: all)")
    parser.add_argument("--num_beams", type=int, default=1, help="default: 1, greedy search")
    parser.add_argument("--rounds", type=int, default=1, help="how often all are translated (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights (default: %(default)s)")
    parser.add_argument("--output_file", type=Path, help="a JSON record of every sentence's time")
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the table and write the record if asked."""
    args = build_parser().parse_args(argv)
    for option in ("input_file", "reference_file"):
        if getattr(args, option) is not None:
            check_input_file(f"--{option}", getattr(args, option), pipe=True)
    check_output_file(args.output_file)
    check_distinct([("--output_file", args.output_file)], [args.input_file, args.reference_file])
    sentences, args.vocab_size = _sentences(args)
    configs, device = configs_of_rows(args), device_of(args)
    options = {name: getattr(args, name) for name in ("num_beams", "rounds", "seed")}
    with quiet_transformers():
        times = measure_latency(configs, sentences, device=device, **options)
    record = LatencyRecord(
        settings=decode(LatencySettings, {**vars(args), "clock": clock(device)}),
        sentences=len(sentences),
        seconds=times,
        words=TokenCounts(sum(len(words) for words, _ in sentences), sum(new for _, new in sentences)),
        environment=Environment.here(device),
    )
    print(report(record))
    if args.output_file is not None:
        write(record, args.output_file)


def _sentences(args: argparse.Namespace) -> tuple[list[tuple[list[int], int]], int]:
    """Return token ids and number of tokens to write of each source that is not blank, and the vocabulary's size."""
    tokenizer = load_tokenizer(args.tokenizer_name)
    if args.reference_file is None:
        sources = [line for line in read_lines(args.input_file) if line.strip()]
        targets = sources
    else:
        text = read_parallel_text([args.input_file, args.reference_file], name="test data")
        sources, targets = text.sources, text.targets
    sources, targets = sources[: args.num_sentences], targets[: args.num_sentences]
    if not sources:
        raise ValueError(f"{args.input_file} holds no sentence")
    words = tokenizer(sources)["input_ids"]
    lengths = [len(ids) for ids in tokenizer(text_target=targets)["input_ids"]]
    return list(zip(words, lengths, strict=True)), len(tokenizer)


if __name__ == "__main__":
    main()
