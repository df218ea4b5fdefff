"""The command `alignment_heads`. Its options stand in options/alignment_heads_options.py."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from hf_capsule_mt.data.languages import KnownLanguages
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.head_choice import heads_report, rate_heads, store_heads
from hf_capsule_mt.translation.text_translator import TextTranslator

from . import decoding
from .common import check_pairs, import_code, read_pairs, report_user_errors
from .options.alignment_heads_options import build_parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Rate the heads, store the best, and print a table."""
    args = build_parser().parse_args(argv)
    import_code(args.imports)
    _check_arguments(args)

    sources, targets = read_pairs(args)
    state = decoding.process_state(args.device)
    if state.num_processes > 1:
        raise UserError(f"There are {state.num_processes} processes. Start this command in one, without accelerate.")

    options = decoding.decoding_options(args)
    translator = TextTranslator(*options.load(decoding.device_of(args, state), decodes=False))
    direction = KnownLanguages(translator.tokenizer).direction(args.source_lang, args.target_lang)
    rated = rate_heads(
        translator, sources, targets, direction=direction, max_tokens_per_batch=args.max_tokens_per_batch
    )

    if not rated:
        raise UserError(f"{args.input_file} has no sentences.")
    store_heads(Path(args.model), rated[0].heads)
    print(f"{heads_report(rated)}\n\nStored with {args.model}: {rated[0].name}.")


def _check_arguments(args: argparse.Namespace) -> None:
    if not Path(args.model).is_dir():
        raise UserError("The heads are stored with the model. Give --model the folder of a checkpoint.")
    decoding.check_options(args)
    check_pairs(args)
