"""The routes of whoever runs the server: whether it is alive, its numbers, and pages about it."""

from functools import partial

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from ..calls import log_refused
from ..refusals import RequestError
from ..service import Service
from .api_description import description, docs_page


def routes(service: Service) -> list[Route]:
    """Return the routes."""
    all_routes = [
        Route("/", _home, methods=["GET"]),
        Route("/health", partial(_health, service), methods=["GET"]),
        Route("/spec", _spec, methods=["GET"]),
        Route("/docs", partial(_docs, service), methods=["GET"], name="docs"),
    ]
    if service.metrics is not None:
        all_routes.append(Route("/metrics", partial(_metrics, service), methods=["GET"]))
    return all_routes


async def _home(request: Request) -> Response:
    return RedirectResponse(request.url_for("docs").path)


async def _spec(request: Request) -> Response:
    return JSONResponse(description())


async def _docs(service: Service, request: Request) -> Response:
    return HTMLResponse(docs_page(service.models))


async def _health(service: Service, request: Request) -> Response:
    if service.batcher.is_alive:
        return JSONResponse({"status": "ok"})
    return JSONResponse({"status": "stopped"}, status_code=503)


async def _metrics(service: Service, request: Request) -> Response:
    keys = service.settings.keys
    if keys.are_needed:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        try:
            keys.owner(key if scheme == "Bearer" else None)
        except RequestError as error:
            log_refused(request.scope, 401, error.reason)
            return JSONResponse({"error": str(error)}, status_code=401)
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
