"""The application: the routes of all protocols and of operators, over one engine."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .calls import log_refused
from .files import Files
from .models import ServedModel
from .operators import routes as operators
from .operators.metrics import Metrics
from .protocols import deepl, deepl_documents, deepl_glossaries, libretranslate
from .service import Service
from .settings import ServerSettings

_HAS_KNOWN_HOST = "hf_capsule_mt.has_known_host"


def build_app(
    models: Sequence[ServedModel], settings: ServerSettings | None = None, metrics: Metrics | None = None
) -> Starlette:
    """Return the application for some models. Its engine runs while the application does.

    Args:
        models: at least one, as [`load_models`] returns them.
        settings: limits and doors.
        metrics: are kept if given, and shown at /metrics.
    """
    settings = settings or ServerSettings()
    service = Service(models, settings, metrics)
    files = Files(service)

    routes = [
        *libretranslate.routes(service, files),
        *deepl.routes(service),
        *deepl_documents.routes(service, files),
        *deepl_glossaries.routes(service),
        *operators.routes(service),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with service.running(), files.running():
            yield

    middleware = [Middleware(_WithoutTraceback), Middleware(_KnownHosts, hosts=settings.hosts)]
    if settings.cors_origins:
        middleware.append(Middleware(CORSMiddleware, allow_origins=[*settings.cors_origins], allow_methods=["*"]))

    return Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers={HTTPException: _no_such_route},
        lifespan=lifespan,
    )


async def _no_such_route(request: Request, error: HTTPException) -> Response:
    """Answer a request to an unknown path, or with a wrong method, in JSON with the field of its protocol."""
    path = request.url.path
    log_refused(request.scope, error.status_code, error.detail)
    content = _error(path, f"{request.method} {path:.80} is not supported.")
    return JSONResponse(content, status_code=error.status_code, headers=error.headers)


def _error(path: str, message: str) -> dict[str, str]:
    name = "message" if path.startswith(("/v2/", "/v3/")) else "error"
    return {name: message}


async def refuse_stopping(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a request because the server stops. It is an application, which takes the place of the other one."""
    with suppress(asyncio.CancelledError):
        # A connection that is closed with an unread body may lose its answer.
        message = await receive()
        while message.get("more_body"):
            message = await receive()
        reason = "The server stops."
        log_refused(scope, 503, reason)
        content = _error(scope["path"], reason)
        await JSONResponse(content, status_code=503, headers={"Connection": "close"})(scope, receive, send)


class _WithoutTraceback:
    """Lets an answer end that its client does not read, when the server has to end. uvicorn would log a traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            # Routes have answered what waited for the engine. uvicorn closes the connection.
            return


class _KnownHosts:
    """Refuses requests to an unknown name, in JSON. Starlette's own refusal is plain text, and is dropped."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self._app = app
        self._check = TrustedHostMiddleware(_note_known, allowed_hosts=[*hosts], www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._check(scope, receive, _drop)
        if _HAS_KNOWN_HOST in scope:
            await self._app(scope, receive, send)
            return
        reason = "The server does not know this name. Its --allowed_hosts must have it."
        log_refused(scope, 400, reason)
        content = _error(scope["path"], reason)
        await JSONResponse(content, status_code=400)(scope, receive, send)


async def _note_known(scope: Scope, receive: Receive, send: Send) -> None:
    """Note that Starlette lets a request through."""
    scope[_HAS_KNOWN_HOST] = True


async def _drop(message: Message) -> None:
    """Send nothing."""
