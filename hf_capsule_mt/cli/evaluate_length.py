"""`--length_buckets` and `--length_edges` of `hf-capsule-mt evaluate`: BLEU and length by length of the source."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hf_capsule_mt.analysis.figures import check_figure_file, draw_lengths, save_figure
from hf_capsule_mt.evaluation.length import (
    check_edges,
    count_words,
    quantile_edges,
    record_buckets,
    score_by_length,
)
from hf_capsule_mt.evaluation.scores import AlignedTexts

from .common import at_least, check_output_file


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that set the lengths of the buckets."""
    group = parser.add_argument_group("by length", "BLEU and length of translations by words of the source (--sources)")
    lengths = group.add_mutually_exclusive_group()
    lengths.add_argument("--length_buckets", type=at_least(2), metavar="N", help="N buckets of about as many sentences")
    lengths.add_argument(
        "--length_edges", type=int, nargs="+", metavar="WORDS", help="the longest of each bucket, as 10 20 30 40 50"
    )
    group.add_argument("--length_figure", type=Path, help="a figure of it: .png, .svg or .pdf; needs matplotlib")


def is_wanted(args: argparse.Namespace) -> bool:
    """Return whether buckets were asked for."""
    return args.length_buckets is not None or args.length_edges is not None


def check_options(args: argparse.Namespace) -> None:
    """Raise a ValueError or an OSError if the options cannot be met."""
    if args.length_figure is not None:
        if not is_wanted(args):
            raise ValueError("--length_figure needs --length_buckets or --length_edges")
        check_output_file(args.length_figure)
        check_figure_file(args.length_figure)
    if args.length_edges is not None:
        check_edges(args.length_edges)


def check_sources(args: argparse.Namespace, sources: Sequence[str]) -> None:
    """Raise a ValueError if the sources do not fill as many buckets as are asked for."""
    if args.length_buckets is not None:
        quantile_edges(count_words(sources, args.source_tokenize), args.length_buckets)


def measure(args: argparse.Namespace, texts: AlignedTexts) -> dict[str, Any]:
    """Score the buckets, and draw them if asked."""
    lengths = count_words(texts.sources, args.source_tokenize)
    edges = args.length_edges or quantile_edges(lengths, args.length_buckets)
    buckets = score_by_length(texts, lengths, edges, tokenize=args.tokenize, lowercase=args.lowercase)
    record = {"source_tokenize": args.source_tokenize, "buckets": record_buckets(buckets)}
    if args.length_figure is not None:
        save_figure(draw_lengths(record), args.length_figure)
    return record
