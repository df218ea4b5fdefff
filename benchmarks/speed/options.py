"""Options of the commands that measure speed: which models, of which size, on which device."""

import argparse
from collections.abc import Sequence

import torch
from transformers import PreTrainedConfig

from hf_capsule_mt.cli.common import usable_device
from hf_capsule_mt.configuration import preset_config
from hf_capsule_mt.json_fields import parse_override
from hf_capsule_mt.records import split_row


def add_row_options(parser: argparse.ArgumentParser, methods: Sequence[str]) -> None:
    """Add the options that name what is measured, by default `methods`."""
    shown = " ".join(f'"{method}"' if " " in method else method for method in methods)
    parser.add_argument(
        "--methods",
        nargs="+",
        default=list(methods),
        metavar='METHOD | "METHOD NAME=VALUE ..."',
        help=f"rows: presets, in quotes with fields of their configuration (default: {shown})",
    )
    parser.add_argument("--size", default="base", help="tiny, base (default) or big")
    parser.add_argument(
        "--config_overrides", nargs="+", default=[], metavar="NAME=VALUE", help="fields of every configuration"
    )
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda where there is one)")


def configs_of_rows(args: argparse.Namespace) -> dict[str, PreTrainedConfig]:
    """Return the configuration of every row, all with the vocabulary of `args.vocab_size`.

    Raises:
        ValueError: if a method, the size or a field is unknown, or a value is not allowed.
    """
    if args.vocab_size < 4:
        raise ValueError(f"--vocab_size is {args.vocab_size}; it must be at least 4, for three are special tokens")
    configs = {}
    for row in args.methods:
        method, own = split_row(row)
        overrides = dict(parse_override(text) for text in [*args.config_overrides, *own])
        if "vocab_size" in overrides:
            raise ValueError("config_overrides has 'vocab_size'; give it as --vocab_size")
        configs[row] = preset_config(method, args.size, vocab_size=args.vocab_size, **overrides)
    return configs


def device_of(args: argparse.Namespace) -> torch.device:
    """Return the device that was named, by default a GPU where there is one; raise a ValueError if it is unusable."""
    return usable_device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
