"""`--length_buckets` and `--length_edges` of evaluate.py: BLEU and length of translations by length of the source."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_capsule_mt.markdown import markdown_table

if TYPE_CHECKING:
    from hf_capsule_mt.evaluation.streams import Streams


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which lengths make a bucket."""
    group = parser.add_argument_group("by length", "BLEU and length of translations by words of the source (--sources)")
    lengths = group.add_mutually_exclusive_group()
    lengths.add_argument("--length_buckets", type=int, metavar="N", help="N buckets of about as many sentences")
    lengths.add_argument(
        "--length_edges", type=int, nargs="+", metavar="WORDS", help="the longest of each bucket, as 10 20 30 40 50"
    )
    group.add_argument("--length_figure", type=Path, help="a figure of it: .png, .svg or .pdf; needs matplotlib")


def is_wanted(args: argparse.Namespace) -> bool:
    """Whether there are to be buckets."""
    return args.length_buckets is not None or args.length_edges is not None


def check_options(args: argparse.Namespace) -> None:
    """Raise a ValueError or an OSError if the options cannot be met."""
    from hf_capsule_mt.analysis.figures import check_figure_file
    from hf_capsule_mt.evaluation.length import check_edges, check_num_buckets

    from .output import check_output_file

    if args.length_figure is not None:
        if not is_wanted(args):
            raise ValueError("--length_figure needs --length_buckets or --length_edges")
        check_output_file(args.length_figure)
        check_figure_file(args.length_figure)
    if args.length_buckets is not None:
        check_num_buckets(args.length_buckets)
    if args.length_edges is not None:
        check_edges(args.length_edges)


def measure(args: argparse.Namespace, streams: "Streams") -> dict[str, Any]:
    """Score the buckets, and draw them if asked."""
    from hf_capsule_mt.evaluation.length import count_words, quantile_edges, record_buckets, score_by_length

    lengths = count_words(streams.sources, args.source_tokenize)
    edges = args.length_edges or quantile_edges(lengths, args.length_buckets)
    buckets = score_by_length(streams, lengths, edges, tokenize=args.tokenize, lowercase=args.lowercase)
    record = {"source_tokenize": args.source_tokenize, "buckets": record_buckets(buckets)}
    if args.length_figure is not None:
        from hf_capsule_mt.analysis.line_figures import draw_lengths

        draw_lengths(record, args.length_figure)
    return record


def report(record: dict[str, Any]) -> str:
    """The table in Markdown, and under it what it shows."""
    buckets = record["buckets"]
    systems = next(list(bucket["systems"]) for bucket in buckets if bucket["systems"])
    header = ["source words", "sentences"]
    for system in systems:
        header += [f"{system}: BLEU", "words", "ratio"]
    rows = [header, ["---:"] * len(header)]
    for bucket in buckets:
        cells = [
            f"{one['bleu']:.2f} {one['words']:.1f} {one['ratio']:.3f}".split() for one in bucket["systems"].values()
        ]
        values = [value for triple in cells for value in triple] or ["–"] * (3 * len(systems))
        rows.append([bucket["name"], str(bucket["sentences"]), *values])
    caption = (
        f"By length of the source in words ({record['source_tokenize']}): BLEU, words of a translation on average, and "
        "ratio of all words to those of the references."
    )
    return "\n".join([*markdown_table(rows), "", caption])
