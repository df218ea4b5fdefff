"""The options of commands that decode, and the model, tokenizer and processes that these name."""

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import PartialState
from accelerate.utils import parse_flag_from_env

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files.options import FileOptions
from hf_capsule_mt.translation.generation.model_options import DecodingOptions
from hf_capsule_mt.translation.generation.settings import ENGINES

from .common import at_least, check_text_file, finite, meet, usable_device, warn_if_busy


class OptionHolder(Protocol):
    """A parser, or a group of its options. argparse has no public class for both."""

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action:
        """Add an option."""


def add_decoding(parser: OptionHolder, max_tokens_per_batch: int | None = None) -> None:
    """Add the options that say how a model decodes.

    Args:
        parser: the parser, or a group of it.
        max_tokens_per_batch: the default of this option. None depends on the device, see [`check_options`].
    """
    parser.add_argument("--num_beams", type=at_least(1), help="Beam size (default: the model's own).")
    parser.add_argument(
        "--length_penalty", type=finite, help="Above 0: longer translations (default: the model's own)."
    )
    parser.add_argument(
        "--max_new_tokens",
        type=at_least(1),
        help="Longest translation, in tokens (default: 20 more than twice the source, and at most what "
        "generation_config.json allows).",
    )
    parser.add_argument(
        "--dtype",
        choices=["auto", "float32", "bfloat16", "float16", "int8"],
        default="auto",
        help="Precision of decoding. auto (default): the checkpoint's on a GPU, float32 on a CPU. int8 is fastest on a "
        "CPU for models of OPUS-MT's size, and needs --engine fast.",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        help="Decoder to use. fast (default): the decoder of this package, which gives the same output as "
        "transformers, but faster. It switches to transformers for options that it does not support.",
    )
    add_batches(parser, max_tokens_per_batch)


def add_batches(parser: OptionHolder, max_tokens_per_batch: int | None = None) -> None:
    """Add the options that say where a model computes, and how much at a time. Arguments are as of [`add_decoding`]."""
    default = max_tokens_per_batch or "4096, on a GPU 16384"
    parser.add_argument(
        "--max_tokens_per_batch",
        type=at_least(1),
        default=max_tokens_per_batch,
        help=f"Batch size, in source tokens with padding (default: {default}). A batch that does not fit in memory is "
        "halved.",
    )
    add_device(parser)


def add_device(parser: OptionHolder) -> None:
    """Add the option that names the device."""
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one).")


def add_model(parser: OptionHolder, *, required: bool = True) -> None:
    """Add the options that name the model."""
    parser.add_argument("--model", required=required, help="Folder of a checkpoint, or name of a model on the Hub.")
    parser.add_argument("--revision", help="Branch, tag or commit of a model on the Hub (default: main).")


def add_languages(parser: OptionHolder) -> None:
    """Add the options that name the languages, for models that have several."""
    parser.add_argument(
        "--source_lang", help="Source language, for NLLB (eng_Latn), M2M-100 (en) and mBART (en_XX). Others need none."
    )
    parser.add_argument(
        "--target_lang",
        help="Language to write, for the same models, and for multilingual OPUS-MT and MADLAD: pt stands for >>pt<< "
        "and <2pt>.",
    )


def add_vocabulary(parser: OptionHolder) -> None:
    """Add the option that names a set of words."""
    parser.add_argument(
        "--vocabulary",
        type=Path,
        metavar="FILE",
        help="Words that translations may have, by hf-capsule-mt shortlist. Models with many words are faster with it.",
    )


def check_options(args: argparse.Namespace) -> None:
    """Check the options in every process, before anything is loaded or connected."""
    # A command that only reads translations has neither.
    if getattr(args, "engine", None) == "transformers" and args.dtype == "int8":
        raise UserError("--dtype int8 needs --engine fast.")
    if getattr(args, "vocabulary", None) is not None:
        check_text_file("--vocabulary", args.vocabulary)
    if args.max_tokens_per_batch is None:
        args.max_tokens_per_batch = 4096 if _is_cpu(args.device) else 16384


def decoding_options(args: argparse.Namespace, **others: Any) -> DecodingOptions:
    """Return the options of a command that are about decoding.

    Args:
        args: the options of the command. Those with the name of a field of [`DecodingOptions`] are taken.
        **others: fields that the command has no option for.
    """
    names = {field.name for field in fields(DecodingOptions)}
    given = {name: value for name, value in vars(args).items() if name in names}
    return DecodingOptions(**(given | others))


def file_options(args: argparse.Namespace, model: DecodingOptions, **others: Any) -> FileOptions:
    """Return the options of a command that translates a file.

    Args:
        args: the options of the command, with the device and the languages.
        model: the model, and how it decodes.
        **others: more fields of [`FileOptions`], such as its files, or other languages.
    """
    common = {"device": args.device, "source_lang": args.source_lang, "target_lang": args.target_lang}
    return FileOptions(model, **(common | others))


def process_state(device: str | None) -> PartialState:
    """Return the state of this process in its group. Raise a UserError for an unusable device."""
    # By itself PartialState sees neither `accelerate launch --cpu` nor that there are only CPUs.
    state = meet(cpu=_is_cpu(device))
    warn_if_busy(usable_device(device or state.device))
    return state


def _is_cpu(device: str | None) -> bool:
    return device == "cpu" or parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()


def device_of(args: argparse.Namespace, state: PartialState) -> torch.device:
    """Return the device that was asked for, or that of this process."""
    return torch.device(args.device or state.device)
