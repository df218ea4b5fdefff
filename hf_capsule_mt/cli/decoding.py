"""What the options of commands that decode stand for: the model, how it decodes, the files and the processes."""

import argparse
from dataclasses import fields
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import parse_flag_from_env

from hf_capsule_mt.decoding.precision import check_asked
from hf_capsule_mt.translation.generation.model_options import DecodingOptions
from hf_capsule_mt.translation.terms.glossary import Glossary

from .common import check_text_file, meet, usable_device, warn_if_busy, warn_of_one_process


def check_options(args: argparse.Namespace) -> None:
    """Check the options in every process, before anything is loaded or connected."""
    # A command that only reads translations has neither.
    if getattr(args, "engine", None) is not None:
        check_asked(args.dtype, args.engine)
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


def glossary_of(args: argparse.Namespace) -> Glossary | None:
    """Return the terms of a command that translates."""
    if args.glossary is None:
        return None
    return Glossary.read(args.glossary, *(args.glossary_languages or ()))


def process_state(device: str | None) -> PartialState:
    """Return the state of this process in its group. Raise a UserError for an unusable device."""
    # By itself PartialState sees neither `accelerate launch --cpu` nor that there are only CPUs.
    state = meet(cpu=_is_cpu(device))
    warn_of_one_process(state.num_processes)
    warn_if_busy(usable_device(device or state.device))
    return state


def _is_cpu(device: str | None) -> bool:
    return device == "cpu" or parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()


def device_of(args: argparse.Namespace, state: PartialState) -> torch.device:
    """Return the device that was asked for, or that of this process."""
    return torch.device(args.device or state.device)
