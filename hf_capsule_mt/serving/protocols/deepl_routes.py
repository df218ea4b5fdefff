"""The routes of DeepL's protocol."""

from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..endpoints import DEEPL, Logged, protocol_route
from ..requests import Fields, read_fields
from ..service import Service
from . import deepl
from .deepl_documents import DocumentRoutes
from .deepl_glossaries import GlossaryRoutes


class DeepLRoutes:
    """Answers requests of DeepL's protocol."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """Return the routes."""
        route = partial(protocol_route, DEEPL, self._service.metrics)
        return [
            route("/v2/translate", self._translate, "POST"),
            route("/v2/languages", self._languages, "GET", "POST"),
            route("/v2/usage", self._usage, "GET", "POST"),
            *GlossaryRoutes(self._service, self._fields).routes(),
            *DocumentRoutes(self._service, self._fields).routes(),
        ]

    async def _translate(self, request: Request, logged: Logged) -> Response:
        fields = await self._fields(request, logged)
        service = self._service
        job = await service.detecting(
            deepl.job, fields, service.models, service.detector, service.glossaries, logged.key
        )
        translated = await service.translate(request, job, logged)
        return JSONResponse(deepl.answer(job, translated))

    async def _languages(self, request: Request, logged: Logged) -> Response:
        fields = await self._fields(request, logged)
        return JSONResponse(deepl.languages(fields, self._service.models))

    async def _usage(self, request: Request, logged: Logged) -> Response:
        await self._fields(request, logged)
        return JSONResponse(deepl.usage(self._service.translated_characters))

    async def _fields(self, request: Request, logged: Logged) -> Fields:
        """Return the fields of a request with a key."""
        settings = self._service.settings
        fields = await read_fields(request, settings.body)
        key = deepl.key_of(fields, request.headers.get("authorization", ""))
        logged.key = settings.keys.owner(key)
        return fields
