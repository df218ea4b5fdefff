"""The option of `evaluate` that chooses which heads align words, and what it does."""

import argparse
from pathlib import Path

from hf_capsule_mt.data.corpus_files import check_two_files
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.alignment_heads import heads_report, rate_heads, store_heads
from hf_capsule_mt.translation.direction import KnownLanguages
from hf_capsule_mt.translation.texts import TextTranslator

from . import decoding
from .common import check_line_counts, check_text_file

_NOT_WITH_HEADS = ("hypotheses", "compare", "input_file", "references", "translations_file", "figure_file")
_NOT_WITH_HEADS += ("adequacy", "length_buckets", "length_edges", "alignment_data", "output_file", "calibrate", "terms")
"""Options of `evaluate` that would be ignored."""


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    group = parser.add_argument_group("alignment", "Which heads of the attention of --model align words best?")
    group.add_argument(
        "--choose_heads",
        type=Path,
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="Choose the heads on parallel text, and store them in the folder of --model. Alignments, tags and "
        "--aligner attention use them from then on. A few hundred sentences are enough.",
    )


def check(args: argparse.Namespace) -> None:
    """Find mistakes in the options before any work is done."""
    for name in _NOT_WITH_HEADS:
        if getattr(args, name):
            raise UserError(f"--{name} does not go with --choose_heads. Leave it out.")
    if args.aligner not in (None, "attention"):
        raise UserError("--choose_heads is for --aligner attention. Leave out --aligner.")
    if args.model is None or not Path(args.model).is_dir():
        raise UserError("--choose_heads stores the heads with the model. Give --model the folder of a checkpoint.")
    decoding.check_options(args)
    for path in args.choose_heads:
        check_text_file("--choose_heads", path)
    check_two_files(*args.choose_heads, "--choose_heads")


def choose(args: argparse.Namespace) -> str:
    """Choose the heads, store them, and return a table."""
    sources, targets = map(read_lines, args.choose_heads)
    sources_file, targets_file = args.choose_heads
    check_line_counts({f"--choose_heads {sources_file}": sources, f"--choose_heads {targets_file}": targets})
    state = decoding.process_state(args.device)
    if state.num_processes > 1:
        raise UserError("--choose_heads runs in one process. Start only one.")
    translator = TextTranslator(*decoding.load(args, state, decodes=False))
    direction = KnownLanguages(translator.tokenizer).direction(args.source_lang, args.target_lang)
    rated = rate_heads(
        translator, sources, targets, direction=direction, max_tokens_per_batch=args.max_tokens_per_batch
    )
    if not rated:
        raise UserError("--choose_heads has no sentences.")
    store_heads(Path(args.model), rated[0].heads)
    return f"{heads_report(rated)}\n\nStored with {args.model}: {rated[0].name}."
