"""The options of commands that decode, and the model, tokenizer and processes that these name."""

import argparse
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import parse_flag_from_env
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.decoding import UnsupportedModelError, adapter_for
from hf_capsule_mt.decoding.products import precisions_on
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import hash_file
from hf_capsule_mt.loading import check_decodes, commit_of, in_usable_precision, load_config, load_model, load_tokenizer
from hf_capsule_mt.translation.translator import ENGINES

from .common import at_least, meet, usable_device, warn_if_busy

_MODEL = (".safetensors", ".bin", ".json", ".spm", ".model", ".txt")
_OF_GENERATE = ("num_beams", "length_penalty", "max_new_tokens")
# The engine makes these precisions itself, from weights in float32.
_OF_ENGINE = ("bfloat16", "int8")


def add_options(parser: argparse._ActionsContainer, *, required: bool = True) -> None:
    """Add the options that name the model and say how it decodes."""
    add_model(parser, required=required)
    parser.add_argument("--num_beams", type=at_least(1), help="Beam size (default: the model's own).")
    parser.add_argument("--length_penalty", type=float, help="Above 0: longer translations (default: the model's own).")
    parser.add_argument(
        "--max_new_tokens",
        type=at_least(1),
        help="Longest translation, in tokens (default: 20 more than twice the source, and at most what "
        "generation_config.json allows).",
    )
    parser.add_argument(
        "--max_tokens_per_batch",
        type=at_least(1),
        help="Batch size, in source tokens with padding (default: 4096, on a GPU 16384). A batch that does not fit in "
        "memory is halved.",
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
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one).")


def add_model(parser: argparse._ActionsContainer, *, required: bool = True) -> None:
    """Add the options that name the model."""
    parser.add_argument("--model", required=required, help="Folder of a checkpoint, or name of a model on the Hub.")
    parser.add_argument("--revision", help="Branch, tag or commit of a model on the Hub (default: main).")


def check_options(args: argparse.Namespace) -> None:
    """Check the options in every process, before anything is loaded or connected."""
    if args.engine == "transformers" and args.dtype == "int8":
        raise UserError("--dtype int8 needs --engine fast.")
    if args.max_tokens_per_batch is None:
        args.max_tokens_per_batch = 4096 if _is_cpu(args.device) else 16384


def pin_revision(args: argparse.Namespace) -> PreTrainedConfig:
    """Load the model's configuration, and make `args.revision` its commit if the model is on the Hub.

    Tokenizer and weights then come from the same commit, in every process and after an interruption.
    """
    args.revision = commit_of(args.model, args.revision)
    config = load_config(args.model, args.revision)
    if not config.is_encoder_decoder:
        raise UserError(f"{args.model} is of type {config.model_type}, which is not an encoder-decoder.")
    return config


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return everything that translations depend on, except the text. Batch size and device only change rounding."""
    folder = Path(args.model)
    return {
        "model": str(folder.resolve()) if folder.is_dir() else args.model,
        "revision": args.revision,
        # Another file may have the same size and time.
        "model files": {file.name: hash_file(file) for file in sorted(folder.glob("*")) if file.suffix in _MODEL},
        **{name: getattr(args, name) for name in (*_OF_GENERATE, "dtype", "engine")},
    }


def generate_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the given options that `translate_batches` takes."""
    options = {name: getattr(args, name) for name in (*_OF_GENERATE, "engine") if getattr(args, name) is not None}
    if args.dtype in _OF_ENGINE and args.engine != "transformers":
        options["dtype"] = args.dtype
    return options


def process_state(device: str | None) -> PartialState:
    """Return the state of this process in its group. Raise a UserError for an unusable device."""
    # By itself PartialState sees neither `accelerate launch --cpu` nor that there are only CPUs.
    state = meet(cpu=_is_cpu(device))
    warn_if_busy(usable_device(device or state.device))
    return state


def _is_cpu(device: str | None) -> bool:
    return device == "cpu" or parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()


def load(
    args: argparse.Namespace, state: PartialState, *, decodes: bool = True
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the model, on this process's device, and its tokenizer.

    The weights are in float32 where the engine makes `args.dtype` itself. With `decodes` False it does not.

    Raises:
        UserError: if int8 is asked of a model or a device that it is not for.
    """
    device = torch.device(args.device or state.device)
    of_engine = decodes and args.dtype in _OF_ENGINE and getattr(args, "engine", None) != "transformers"
    model = load_model(args.model, revision=args.revision, dtype="float32" if of_engine else args.dtype)
    if args.dtype == "auto":
        in_usable_precision(model, device)
    has_engine = of_engine and args.dtype in precisions_on(device)
    if has_engine:
        try:
            adapter_for(model)
        except UnsupportedModelError:
            has_engine = False
    if of_engine and not has_engine:
        if args.dtype == "int8":
            raise UserError(
                f"--dtype int8 is for models of this package and MarianMTModel on a CPU, but {args.model} is a "
                f"{type(model).__name__} on {device}. Use float32 or bfloat16."
            )
        model.to(getattr(torch, args.dtype))
    model.to(device)
    if decodes:
        check_decodes(model)
    return model, load_tokenizer(args.model, args.revision)
