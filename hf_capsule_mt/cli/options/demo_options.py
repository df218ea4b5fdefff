"""Serve a page that shows how checkpoints translate and route.

    hf-capsule-mt demo --models checkpoints/*/
    Running on http://127.0.0.1:7860/

    hf-capsule-mt demo --models runs/em-routing/average runs/transformer/average --port 8000
    hf-capsule-mt demo --models Helsinki-NLP/opus-mt-en-de user/name --host 0.0.0.0

Type a sentence, choose a checkpoint or two, and step through the words of the translation. The page loads nothing from
elsewhere. It needs a network only for checkpoints of the Hub, and runs none of their code. It takes no files.

The folder space/ is the page as a Space: copy it, put hf_capsule_mt/ in it, and push it with `hf upload`. Its variable
MODELS names the checkpoints, with spaces between them.
Needs gradio and matplotlib: pip install -e ".[demo]".
"""

import argparse

from hf_capsule_mt.cli.parser import CommandParser, add_device, add_import, add_languages

EXAMPLES = (
    "Where did you buy that coat?",
    "A dog runs through the snow.",
    "Two men are sitting on a bench.",
    "I would like to learn another language.",
)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    model = parser.add_argument_group("models")
    model.add_argument(
        "--models", nargs="+", default=[], metavar="MODEL", help="Checkpoints to offer: folders, or names on the Hub."
    )
    model.add_argument(
        "--fixed_models",
        action="store_true",
        help="Offer no other checkpoints. It is always so with a --host that others can reach.",
    )
    add_import(model)
    add_languages(model)
    add_device(model)

    page = parser.add_argument_group("page")
    page.add_argument(
        "--examples",
        nargs="+",
        metavar="TEXT",
        default=EXAMPLES,
        help="Sentences to click. The page opens with the first one (default: some in English).",
    )
    page.add_argument("--host", help="Address to listen on (default: $GRADIO_SERVER_NAME, or 127.0.0.1).")
    page.add_argument("--port", type=int, help="Port (default: $GRADIO_SERVER_PORT, or the first free from 7860 on).")
    return parser
