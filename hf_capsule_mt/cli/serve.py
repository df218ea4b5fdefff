"""The command `serve`. Its options stand in options/serve_options.py."""

import argparse
import copy
import gc
import logging
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hf_capsule_mt.environment import check_installed
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.serving.operators.log import log_of_server
from hf_capsule_mt.translation.text.words import keep_pattern, with_addresses

from . import decoding
from .common import import_code, report_user_errors
from .demo import EXAMPLES, is_loopback
from .options.serve_options import build_parser

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from hf_capsule_mt.serving.models import ServedModel
    from hf_capsule_mt.serving.operators.process import KeyReloading
    from hf_capsule_mt.serving.settings import ServerSettings

logger = logging.getLogger(__name__)

_MOST_CONNECTIONS = 4096
"""A last wall, at which uvicorn answers 503 without JSON. Connections that send nothing count until they are closed."""


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Load the models, and serve until a signal ends it."""
    args = build_parser().parse_args(argv)
    with log_of_server(args.log_format):
        import_code(args.imports)
        _check_arguments(args)
        _serve(args)


def _serve(args: argparse.Namespace) -> None:
    """Load the models, and serve them."""
    from hf_capsule_mt.serving.app import build_app
    from hf_capsule_mt.serving.models import load_models
    from hf_capsule_mt.serving.operators.metrics import Metrics
    from hf_capsule_mt.serving.operators.process import KeyReloading

    settings = _settings(args)
    reloading = KeyReloading(settings.keys)

    # A port that is taken is found before minutes of loading.
    with _listening(args.host, args.port) as listener:
        device = decoding.device_of(args, decoding.process_state(args.device))
        options = decoding.decoding_options(args, model="")
        models = load_models(args.models, options, device)
        _warm_up(models)

        app = build_app(models, settings, Metrics())
        if args.demo:
            _mount_demo(app, models)

        host = f"[{args.host}]" if ":" in args.host else args.host
        address = f"http://{host}:{listener.getsockname()[1]}"
        # What is there now stays. Looking through it for garbage would hold up all requests for a while.
        gc.freeze()
        pairs = ", ".join(model.name for model in models)
        print(f"Serving {pairs} on {address}", flush=True)
        _run(app, listener, args, address, reloading)


def _check_arguments(args: argparse.Namespace) -> None:
    for package in ("starlette", "uvicorn", "multipart", "prometheus_client"):
        check_installed(package, "serve")
    decoding.check_options(args)

    if args.api_keys is not None and args.open:
        raise UserError("--open serves everybody, and --api_keys does not. Remove one of them.")
    if not is_loopback(args.host) and args.api_keys is None and not args.open:
        raise UserError(f"--host {args.host} can be reached by others. Give --api_keys FILE, or --open to serve all.")
    if args.demo and args.api_keys is not None:
        raise UserError("--demo shows a page to everybody, and --api_keys does not. Remove one of them.")

    if args.demo:
        for package in ("gradio", "matplotlib"):
            check_installed(package, "demo")
    if args.keep is not None:
        keep_pattern(args.keep)

    if args.log_texts:
        logger.warning("The log will have the texts of all clients, and their translations.")
    if args.dtype == "int8":
        logger.warning(
            "With int8, some translations depend on the sentences that are decoded at the same time. "
            "Use float32 where the same text must always have the same translation."
        )


def _settings(args: argparse.Namespace) -> "ServerSettings":
    from hf_capsule_mt.serving.settings import ApiKeys, BodyLimits, ServerSettings

    keep = None if args.keep is None else keep_pattern(args.keep)
    hosts = args.allowed_hosts or ["*"]
    if args.allowed_hosts is None and is_loopback(args.host):
        # A web page could give its own name the address of this computer, and then read the answers.
        hosts = ["localhost", "127.0.0.1", "[::1]"]

    return ServerSettings(
        max_texts=args.max_texts,
        char_limit=args.char_limit,
        body=BodyLimits(size=args.max_request_bytes),
        file_body=BodyLimits(size=args.max_file_bytes, seconds=60.0),
        file_timeout=args.file_timeout,
        timeout=args.timeout,
        max_wait=args.max_wait,
        max_tokens_per_batch=args.max_tokens_per_batch,
        keep=keep if args.translate_addresses else with_addresses(keep),
        keys=ApiKeys() if args.api_keys is None else ApiKeys.read(args.api_keys),
        hosts=hosts,
        cors_origins=args.cors_origins,
        log_texts=args.log_texts,
    )


def _mount_demo(app: "Starlette", models: "Sequence[ServedModel]") -> None:
    """Show the page of the command demo, with the models of the server."""
    from hf_capsule_mt.analysis.demo_page import build_page, mount_page

    tokenizers = {}
    for model in models:
        tokenizer = model.translator.tokenizer
        if model.direction.source is not None:
            # The page reads its languages from the tokenizer, and another pair may share it.
            tokenizer = copy.deepcopy(tokenizer)
            tokenizer.tgt_lang = model.direction.target
            tokenizer.src_lang = model.direction.source
        tokenizers[model.name] = tokenizer

    networks = {model.name: model.translator.model for model in models}
    page = build_page([*networks], lambda name: (networks[name], tokenizers[name]), EXAMPLES, fixed=True)
    mount_page(app, page, "/demo")


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise UserError(f"Nobody can listen at {host}, port {port}: {error.strerror}.") from error


def _warm_up(models: "Sequence[ServedModel]") -> None:
    """Decode a sentence with each model, so that the first client does not wait for the engine to be made."""
    for model in models:
        prepared = model.prepare("a")
        sentences = [sentence for sentence in prepared.sentences if sentence.token_ids]
        if sentences:
            model.decode(sentences)


def _run(
    app: object, listener: socket.socket, args: argparse.Namespace, address: str, reloading: "KeyReloading"
) -> None:
    import uvicorn

    from hf_capsule_mt.serving.app import refuse_stopping
    from hf_capsule_mt.serving.operators.connections import TimedConnection
    from hf_capsule_mt.serving.operators.process import LoggedServer

    config = uvicorn.Config(
        app,
        http=TimedConnection,
        # Its lines go where all others go.
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=args.drain,
    )
    LoggedServer(config, " ".join(args.models), address, reloading, refuse_stopping).run(sockets=[listener])
