"""Serve the Explorer, a page that shows how checkpoints translate and route.

    hf-capsule-mt demo --models checkpoints/*/
    hf-capsule-mt demo --models runs/em-routing/average runs/transformer/average --port 8000
    hf-capsule-mt demo --models Helsinki-NLP/opus-mt-en-de user/name --host 0.0.0.0

Type a sentence, choose a checkpoint or two, and step through the words of the translation. The page loads nothing from
elsewhere, so it needs no network but for checkpoints of the Hub, and none of their code is run. Where others can open
it, by --host, it offers the checkpoints of --models alone. It takes no files, and bounds what waits.

The folder space/ is the page as a Space: copy it, put hf_capsule_mt/ in it, and push it with `hf upload`. Its variable
MODELS names the checkpoints, with spaces between them.
Needs gradio and matplotlib: pip install -e ".[demo]".
"""

import argparse
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.analysis.figures import check_matplotlib
from hf_capsule_mt.explorer.door import is_loopback

from . import decoding
from .common import CommandParser, report_user_errors

if TYPE_CHECKING:
    import gradio as gr
_KEPT_MODELS = 4


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    parser.add_argument("--models", nargs="+", default=[], help="checkpoints' folders, or names on the Hub, to offer")
    parser.add_argument(
        "--fixed_models", action="store_true", help="offer no others; always so with a --host that others can reach"
    )
    parser.add_argument("--host", help="address to listen on (default: $GRADIO_SERVER_NAME, or 127.0.0.1)")
    parser.add_argument("--port", type=int, help="default: $GRADIO_SERVER_PORT, or the first free one from 7860 on")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: what accelerate finds)")
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Serve the page until interrupted."""
    args = build_parser().parse_args(argv)
    if args.port is not None and not 0 < args.port < 65536:
        raise ValueError(f"--port is {args.port}; it must be from 1 to 65535")
    host = args.host or os.environ.get("GRADIO_SERVER_NAME") or "127.0.0.1"
    if not is_loopback(host) and not args.models:
        raise ValueError(f"others can open a page at {host}, so it offers named checkpoints alone; add --models")
    fixed_models = args.fixed_models or not is_loopback(host)
    page = build_demo(args.models, fixed_models=fixed_models, device=args.device)

    from hf_capsule_mt.explorer.page import launch_page

    try:
        # By itself Gradio takes a variable that is set and empty for every address.
        launch_page(page, host, args.port)
    except OSError as error:
        # Gradio's message names parameters of its own instead of options.
        port = args.port or os.environ.get("GRADIO_SERVER_PORT") or "7860 and the 99 after it"
        raise OSError(
            f"the page cannot be served at port {port}, which may be in use: name a free one as --port, and with "
            "--host an address of this machine"
        ) from error


def build_demo(models: Sequence[str], *, fixed_models: bool = False, device: str | None = None) -> "gr.Blocks":
    """Build the page of [`hf_capsule_mt.explorer.page.build_page`], and check what it offers.

    It offers `models`, folders or names on the Hub, and no others if `fixed_models`.

    Raises:
        OSError: if there is no such checkpoint.
        ValueError: if one is no encoder-decoder, none can be chosen, the device cannot be used, or Gradio is missing.
    """
    if find_spec("gradio") is None:
        raise ValueError('the page needs Gradio; pip install -e ".[demo]"')
    if fixed_models and not models:
        raise ValueError("--fixed_models leaves nothing to choose; name checkpoints with --models")
    for model in models:
        _checked(model, device)

    from hf_capsule_mt.explorer.page import build_page

    check_matplotlib()
    return build_page(models, _loader(device), fixed=fixed_models)


def _loader(device: str | None) -> Callable[[str], tuple[PreTrainedModel, PreTrainedTokenizerBase]]:
    """Return a function that loads a checkpoint by its name, and keeps the last few, until they are saved anew."""
    state = decoding.process_state(device)
    kept: dict[str, tuple[list[list[Any]], tuple[PreTrainedModel, PreTrainedTokenizerBase]]] = {}

    def load(model: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        files = decoding.model_files(model)
        # The one that was asked for last comes last.
        found = kept.pop(model, None)
        if found is None or found[0] != files:
            # What is not kept is freed before another takes its memory.
            found = None
            for oldest in list(kept)[: max(0, len(kept) + 1 - _KEPT_MODELS)]:
                del kept[oldest]
            found = files, decoding.load(_checked(model, device), state)
        kept[model] = found
        return found[1]

    return load


def _checked(model: str, device: str | None) -> argparse.Namespace:
    """Return the options that load a checkpoint, once it is sure that it is one."""
    options = argparse.Namespace(model=model, revision=None, dtype="auto", device=device, verify=False)
    decoding.check_model(model, None)
    decoding.pin_revision(options)
    return options


if __name__ == "__main__":
    main()
