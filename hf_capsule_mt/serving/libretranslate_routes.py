"""The routes of LibreTranslate's protocol."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from . import libretranslate
from .endpoints import LIBRETRANSLATE, Handler, Logged, endpoint
from .requests import Fields, RequestError, read_fields
from .service import Service


class LibreTranslateRoutes:
    """Answers requests of LibreTranslate's protocol."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """Return the routes."""

        def route(path: str, handler: Handler, *methods: str) -> Route:
            return Route(path, endpoint(handler, LIBRETRANSLATE, self._service.metrics), methods=[*methods])

        return [
            route("/translate", self._translate, "POST"),
            route("/detect", self._detect, "POST"),
            route("/languages", self._languages, "GET", "POST"),
            route("/frontend/settings", self._settings, "GET"),
            route("/translate_file", self._switched_off, "POST"),
            route("/suggest", self._switched_off, "POST"),
        ]

    async def _translate(self, request: Request, logged: Logged) -> Response:
        fields = await self._fields(request, logged)
        job = libretranslate.job(fields, self._service.models)
        translated = await self._service.translate(request, job, logged)
        return JSONResponse(libretranslate.answer(job, translated))

    async def _detect(self, request: Request, logged: Logged) -> Response:
        fields = await self._fields(request, logged)
        return JSONResponse(libretranslate.detection(fields, self._service.models))

    async def _languages(self, request: Request, logged: Logged) -> Response:
        return JSONResponse(libretranslate.languages(self._service.models))

    async def _settings(self, request: Request, logged: Logged) -> Response:
        settings = self._service.settings
        return JSONResponse(
            libretranslate.settings(self._service.models, settings.char_limit, settings.keys.are_needed)
        )

    async def _switched_off(self, request: Request, logged: Logged) -> Response:
        raise RequestError(403, "This is switched off on this server.")

    async def _fields(self, request: Request, logged: Logged) -> Fields:
        """Return the fields of a request with a key."""
        settings = self._service.settings
        fields = await read_fields(request, settings.body)
        logged.key = settings.keys.owner(fields.get("api_key"))
        return fields
