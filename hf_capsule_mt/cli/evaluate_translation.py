"""`--input_file` of `hf-capsule-mt evaluate`: a model translates it before the scoring."""

import argparse
from pathlib import Path

from accelerate import PartialState

from hf_capsule_mt.data.parallel_text import check_two_files, read_lines

from . import decoding
from .common import check_output_file, check_text_file, refuse_options
from .translate import Reading, translate_windows

_SETTINGS = ("model", "revision", "num_beams", "length_penalty", "max_new_tokens", "dtype", "target_lang")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the model and say how it translates."""
    group = parser.add_argument_group(
        "model", "what translates --input_file; its attention aligns words as well (--adequacy, --aligner attention)"
    )
    decoding.add_options(group, required=False)
    group.add_argument("--target_lang", help="for multilingual OPUS-MT: pt puts >>pt<< in front of every source")
    group.add_argument(
        "--translations_file", type=Path, help="where to keep the translations of --input_file (default: nowhere)"
    )


def check_options(args: argparse.Namespace) -> None:
    """Complete the options; raise a ValueError or an OSError if they cannot be met."""
    if args.input_file is None:
        refuse_options(
            args, ["num_beams", "length_penalty", "max_new_tokens", "engine", "translations_file"], "--input_file"
        )
        return
    if args.model is None:
        raise ValueError("--input_file needs --model, which translates it; --hypotheses names translations")
    check_text_file("--input_file", args.input_file)
    decoding.check_options(args)
    for file in args.references:
        check_two_files(args.input_file, file, "--input_file and --references")
    refuse_options(args, ["sources"], "--hypotheses and --compare")
    args.sources = args.input_file
    if args.translations_file is not None:
        check_output_file(args.translations_file)


def translate_input(args: argparse.Namespace) -> list[str] | None:
    """Return the translations of the file; None in processes that only help with them."""
    windows = translate_windows(args, args.translations_file, reading=Reading(target_lang=args.target_lang))
    found = [line for window in windows for line in window]
    if not PartialState().is_main_process:
        return None
    return found if args.translations_file is None else read_lines(args.translations_file)


def settings(args: argparse.Namespace) -> dict[str, str | int | float | None]:
    """Return what translations depend on besides the text, for the record."""
    return {name: getattr(args, name) for name in _SETTINGS}
