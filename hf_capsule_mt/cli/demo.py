"""The command `demo`. Its options stand in options/demo_options.py."""

import ipaddress
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.environment import check_installed
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.generation.model_options import DecodingOptions

from . import decoding
from .common import import_code, report_user_errors
from .options.demo_options import EXAMPLES, build_parser

if TYPE_CHECKING:
    import gradio as gr
_KEPT_MODELS = 4


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Serve the page until interrupted."""
    args = build_parser().parse_args(argv)
    import_code(args.imports)

    host = args.host or os.environ.get("GRADIO_SERVER_NAME") or "127.0.0.1"
    if not is_loopback(host) and not args.models:
        raise UserError(f"Others can open a page at {host}. Name the checkpoints that it offers with --models.")

    fixed = args.fixed_models or not is_loopback(host)
    page = build_demo(
        args.models,
        fixed_models=fixed,
        device=args.device,
        examples=args.examples,
        languages=(args.source_lang, args.target_lang),
    )

    from hf_capsule_mt.analysis.demo_page import launch_page

    # Gradio takes a variable that is empty for every address.
    launch_page(page, host, args.port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def build_demo(
    models: Sequence[str],
    *,
    fixed_models: bool = False,
    device: str | None = None,
    examples: Sequence[str] = EXAMPLES,
    languages: tuple[str | None, str | None] = (None, None),
) -> "gr.Blocks":
    """Build the page.

    Args:
        models: folders of checkpoints, or names on the Hub, that the page offers.
        fixed_models: whether a visitor may name no others.
        device: name of the device (default: a GPU if there is one).
        examples: sentences to click. The page opens with the first one.
        languages: source and target language, for models that have several.

    Raises:
        OSError: if there is no such checkpoint.
        UserError: if one is no encoder-decoder, none can be chosen, or the device cannot be used.
    """
    if fixed_models and not models:
        raise UserError("--fixed_models leaves nothing to choose. Name checkpoints with --models.")
    for model in models:
        _checked(model)
    for package in ("matplotlib", "gradio"):
        check_installed(package, "demo")
    from hf_capsule_mt.analysis.demo_page import build_page

    return build_page(models, _loader(device), examples, fixed=fixed_models, languages=languages)


def _loader(device: str | None) -> Callable[[str], tuple[PreTrainedModel, PreTrainedTokenizerBase]]:
    """Return a function that loads a checkpoint by its name, and keeps the last few until they are saved again."""
    state = decoding.process_state(device)
    where = torch.device(device or state.device)

    @lru_cache(_KEPT_MODELS)
    def load(model: str, saved: float) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        return _checked(model).load(where)

    def load_newest(model: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        times = [file.stat().st_mtime for file in Path(model).glob("*")]
        return load(model, max(times, default=0))

    return load_newest


def _checked(model: str) -> DecodingOptions:
    """Return the options that load a checkpoint, once it is sure that it is one."""
    options = DecodingOptions(model).pinned()
    options.config()
    return options
