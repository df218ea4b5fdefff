"""Serve translations to programs that speak LibreTranslate's or DeepL's protocol.

    hf-capsule-mt serve --models en-de=checkpoints/tatoeba-en-de-transformer
    Serving en-de on http://127.0.0.1:5000

    curl http://127.0.0.1:5000/translate -d q="A dog runs." -d source=en -d target=de
    {"translatedText":"Ein Hund läuft."}

Sentences of all clients are decoded together, and each request has its turn. Text is cut into sentences, and
format=html keeps tags. By default only this computer is served. Another --host needs --api_keys or --open.

A SIGTERM, as `kill` sends it, answers what was accepted and then ends the server. A SIGHUP reads --api_keys again.
"""

import argparse
from pathlib import Path

from hf_capsule_mt.cli.parser import CommandParser, add_decoding, add_import, at_least, finite


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    models = parser.add_argument_group("models")
    models.add_argument(
        "--models",
        nargs="+",
        required=True,
        metavar="PAIR=MODEL",
        help="Pairs of languages with their models, such as en-de=Helsinki-NLP/opus-mt-en-de. Write en-pt=NAME:pt_BR "
        "for a multilingual model that calls the target language pt_BR.",
    )
    add_import(models)

    _add_clients(parser)
    _add_texts(parser)
    _add_limits(parser)
    _add_log(parser)

    search = parser.add_argument_group(
        "decoding",
        "In larger batches decoding is faster, but others wait longer. In int8 some translations depend on the "
        "sentences that are decoded at the same time.",
    )
    add_decoding(search, max_tokens_per_batch=1024)
    return parser


def _add_texts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("text")
    group.add_argument(
        "--keep", metavar="REGEX", help=r"Text that is copied, not translated, such as '\[X\d+X\]' for Weblate."
    )
    group.add_argument(
        "--translate_addresses",
        action="store_true",
        help="Translate addresses of the Web and of e-mail like words. By default they are copied.",
    )


def _add_clients(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("clients")
    group.add_argument("--host", default="127.0.0.1", help="Address to listen at (default: %(default)s).")
    group.add_argument("--port", type=at_least(0), default=5000, help="Port, 0 for a free one (default: %(default)s).")

    group.add_argument(
        "--api_keys",
        type=Path,
        metavar="FILE",
        help="Serve only clients with a key. Each line of the file has a name and the SHA-256 of the key, 64 digits.",
    )
    group.add_argument("--open", action="store_true", help="Serve everybody who reaches --host, without keys.")

    group.add_argument(
        "--allowed_hosts",
        nargs="+",
        metavar="NAME",
        help="Names by which clients call the server (default: localhost and 127.0.0.1, or all with another --host).",
    )
    group.add_argument(
        "--cors_origins", nargs="+", default=[], metavar="ORIGIN", help="Sites whose pages may call the server."
    )

    group.add_argument(
        "--demo", action="store_true", help="Show the page of the command demo at /demo. Needs the extra demo."
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits")
    group.add_argument("--max_texts", type=at_least(1), default=50, help="Texts of a request (default: %(default)s).")
    group.add_argument(
        "--char_limit", type=at_least(-1), default=-1, help="Characters of a text (default: -1, no limit)."
    )
    group.add_argument(
        "--max_request_bytes",
        type=at_least(1),
        default=131_072,
        help="Bytes of a request's body (default: %(default)s).",
    )
    group.add_argument(
        "--max_file_bytes",
        type=at_least(0),
        default=1_048_576,
        help="Bytes of a request with a file, 0 to translate no files (default: %(default)s).",
    )

    group.add_argument(
        "--file_timeout",
        type=finite,
        default=600.0,
        help="Seconds to read a file, and then to translate it. After that it is given up (default: %(default)s).",
    )
    group.add_argument(
        "--max_wait",
        type=finite,
        default=8.0,
        help="Seconds that a new request may have to wait for others. Beyond, it is refused at once with status 429 "
        "(default: %(default)s).",
    )
    group.add_argument(
        "--timeout", type=finite, default=60.0, help="Seconds until a request is given up (default: %(default)s)."
    )
    group.add_argument(
        "--drain",
        type=at_least(1),
        default=30,
        help="Seconds to answer what was accepted, when the server is stopped (default: %(default)s).",
    )


def _add_log(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("log")
    group.add_argument(
        "--log_format",
        choices=("text", "json"),
        default="text",
        help="Lines of text, or an object of JSON in each line (default: %(default)s).",
    )
    group.add_argument("--log_texts", action="store_true", help="Write texts and translations into the log.")
