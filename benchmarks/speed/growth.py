"""Measure how the time of training and of decoding grows with sentence length.

    python -m benchmarks.speed growth --size tiny --vocab_size 10000 --output_file growth.json --figure_file growth.png

Source and target are equally long, words and weights random, decoding greedy. The models take turns. The table, in
Markdown, has medians in seconds and, in its last row, the exponent k of time = c * length^k from --fit_from on.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.speed.options import add_row_options, configs_of_rows, device_of
from benchmarks.speed.speed import clock
from benchmarks.speed.time_by_length import KINDS, measure_time_by_length, record_times, report
from benchmarks.studies.line_figures import draw_time_by_length
from hf_capsule_mt.analysis.figures import check_figure_file, save_figure
from hf_capsule_mt.cli.common import (
    CommandParser,
    check_distinct,
    check_output_file,
    quiet_transformers,
    report_user_errors,
)
from hf_capsule_mt.json_fields import decode
from hf_capsule_mt.records import Environment, TimeByLengthSettings, write


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    add_row_options(parser, ["transformer", "capsnmt"])
    parser.add_argument("--vocab_size", type=int, default=32000, help="default: %(default)s")
    parser.add_argument(
        "--lengths",
        type=int,
        nargs="+",
        default=[32, 64, 128, 256, 512, 1024, 2048],
        help="in words (default: 32 ... 2048)",
    )
    parser.add_argument("--fit_from", type=int, default=128, help="shortest length of the fit (default: %(default)s)")
    parser.add_argument("--batch_size", type=int, default=1, help="sentences at a time (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is timed (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and words (default: %(default)s)")
    parser.add_argument("--output_file", type=Path, help="a JSON record of every measurement")
    parser.add_argument("--figure_file", type=Path, help="a figure: .png, .svg or .pdf; needs matplotlib")
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write the record and the figure if asked."""
    args = build_parser().parse_args(argv)
    configs = _configs(args)
    device = device_of(args)
    _check_arguments(args)
    options = {name: getattr(args, name) for name in ("batch_size", "rounds", "seed")}
    total = args.rounds * len(configs) * len(args.lengths) * len(KINDS)
    with quiet_transformers():
        found = measure_time_by_length(configs, args.lengths, device=device, **options)
        measurements = list(tqdm(found, total=total, unit=" times"))
    settings = decode(TimeByLengthSettings, {**vars(args), "clock": clock(device)})
    record = record_times(settings, measurements, Environment.here(device))
    print(report(record))
    if args.output_file is not None:
        write(record, args.output_file)
    if args.figure_file is not None:
        save_figure(draw_time_by_length(record), args.figure_file)


def _configs(args: argparse.Namespace) -> dict[str, Any]:
    """Return the rows' configurations, with enough positions for the longest sentences."""
    configs = configs_of_rows(args)
    for config in configs.values():
        if hasattr(config, "max_position_embeddings"):
            config.max_position_embeddings = max(config.max_position_embeddings, max(args.lengths) + 1)
    return configs


def _check_arguments(args: argparse.Namespace) -> None:
    if sum(length >= args.fit_from for length in set(args.lengths)) < 2:
        raise ValueError(f"--fit_from is {args.fit_from}, and fewer than two of --lengths are as long; lower it")
    for file in (args.output_file, args.figure_file):
        check_output_file(file)
    check_distinct([("--output_file", args.output_file), ("--figure_file", args.figure_file)], [])
    if args.figure_file is not None:
        check_figure_file(args.figure_file)


if __name__ == "__main__":
    main()
