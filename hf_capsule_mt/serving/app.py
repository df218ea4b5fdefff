"""The application: both protocols over one engine, and what operators ask."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .api_description import description, docs_page
from .models import ServedModel
from .protocols.deepl_routes import DeepLRoutes
from .protocols.libretranslate_routes import LibreTranslateRoutes
from .requests import RequestError
from .service import ServerSettings, Service

if TYPE_CHECKING:
    from .metrics import Metrics

_HAS_KNOWN_HOST = "hf_capsule_mt.has_known_host"


def build_app(
    models: Sequence[ServedModel], settings: ServerSettings | None = None, metrics: "Metrics | None" = None
) -> Starlette:
    """Return the application for some models. Its engine runs while the application does.

    Args:
        models: at least one, as [`load_models`] returns them.
        settings: limits and doors.
        metrics: are kept if given, and shown at /metrics.
    """
    settings = settings or ServerSettings()
    service = Service(models, settings, metrics)
    routes = [
        *LibreTranslateRoutes(service).routes(),
        *DeepLRoutes(service).routes(),
        *_OperatorRoutes(service).routes(),
    ]
    middleware = [Middleware(_WithoutTraceback), Middleware(_KnownHosts, hosts=settings.hosts)]
    if settings.cors_origins:
        middleware.append(Middleware(CORSMiddleware, allow_origins=[*settings.cors_origins], allow_methods=["*"]))
    return Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers={HTTPException: _no_such_route},
        lifespan=service.lifespan,
    )


async def _no_such_route(request: Request, error: HTTPException) -> Response:
    """Answer a request to an unknown path, or with a wrong method, in JSON with the field of its protocol."""
    path = request.url.path
    content = _error(path, f"{request.method} {path:.80} is not supported.")
    return JSONResponse(content, status_code=error.status_code, headers=error.headers)


def _error(path: str, message: str) -> dict[str, str]:
    name = "message" if path.startswith(("/v2/", "/v3/")) else "error"
    return {name: message}


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
        content = _error(scope["path"], "The server does not know this name. Its --allowed_hosts must have it.")
        await JSONResponse(content, status_code=400)(scope, receive, send)


async def _note_known(scope: Scope, receive: Receive, send: Send) -> None:
    """Note that Starlette lets a request through."""
    scope[_HAS_KNOWN_HOST] = True


async def _drop(message: Message) -> None:
    """Send nothing."""


class _OperatorRoutes:
    """What whoever runs the server asks."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """Return the routes."""
        routes = [
            Route("/", self._home, methods=["GET"]),
            Route("/health", self._health, methods=["GET"]),
            Route("/spec", self._spec, methods=["GET"]),
            Route("/docs", self._docs, methods=["GET"], name="docs"),
        ]
        if self._service.metrics is not None:
            routes.append(Route("/metrics", self._metrics, methods=["GET"]))
        return routes

    async def _home(self, request: Request) -> Response:
        return RedirectResponse(request.url_for("docs").path)

    async def _spec(self, request: Request) -> Response:
        return JSONResponse(description())

    async def _docs(self, request: Request) -> Response:
        return HTMLResponse(docs_page(self._service.models))

    async def _health(self, request: Request) -> Response:
        if self._service.is_alive:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "stopped"}, status_code=503)

    async def _metrics(self, request: Request) -> Response:
        keys = self._service.settings.keys
        if keys.are_needed:
            scheme, _, key = request.headers.get("authorization", "").partition(" ")
            try:
                keys.owner(key if scheme == "Bearer" else None)
            except RequestError as error:
                return JSONResponse({"error": error.message}, status_code=401)
        return Response(self._service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
