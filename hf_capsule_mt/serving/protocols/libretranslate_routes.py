"""The routes of LibreTranslate's protocol."""

import asyncio
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..endpoints import LIBRETRANSLATE, Logged, protocol_route
from ..file_jobs import supported_suffixes
from ..file_store import StoredFile, file_response
from ..requests import Fields, RequestError, read_fields, read_upload
from ..service import Service, answered
from . import libretranslate


class LibreTranslateRoutes:
    """Answers requests of LibreTranslate's protocol."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """Return the routes."""
        route = partial(protocol_route, LIBRETRANSLATE, self._service.metrics)
        return [
            route("/translate", self._translate, "POST"),
            route("/detect", self._detect, "POST"),
            route("/languages", self._languages, "GET", "POST"),
            route("/frontend/settings", self._settings, "GET"),
            route("/translate_file", self._translate_file, "POST"),
            route("/download_file/{secret}", self._download_file, "GET"),
            route("/suggest", self._suggest, "POST"),
        ]

    async def _translate(self, request: Request, logged: Logged) -> Response:
        fields = await self._fields(request, logged)
        service = self._service
        job = await service.detecting(libretranslate.job, fields, service.models, service.detector)
        translated = await service.translate(request, job, logged)
        return JSONResponse(libretranslate.answer(job, translated))

    async def _detect(self, request: Request, logged: Logged) -> Response:
        fields = await self._fields(request, logged)
        service = self._service
        return JSONResponse(await service.detecting(libretranslate.detection, fields, service.detector))

    async def _languages(self, request: Request, logged: Logged) -> Response:
        return JSONResponse(libretranslate.languages(self._service.models))

    async def _settings(self, request: Request, logged: Logged) -> Response:
        settings = self._service.settings
        file_formats = supported_suffixes() if settings.file_body.size else []
        needs_key = settings.keys.are_needed
        return JSONResponse(libretranslate.settings(self._service.models, settings.char_limit, needs_key, file_formats))

    async def _translate_file(self, request: Request, logged: Logged) -> Response:
        settings = self._service.settings
        if not settings.file_body.size:
            raise RequestError(403, "Files are switched off on this server.")
        fields, upload = await read_upload(request, settings.file_body)
        logged.key = settings.keys.owner(fields.get("api_key"))
        model = libretranslate.model_of_file(fields, self._service.models, self._service.detector)
        job = await self._service.read_file(request, upload, model)
        translating = asyncio.ensure_future(self._service.translate_file(job, logged))
        data = await answered(request, translating, settings.file_timeout)
        secret = self._service.files.add(StoredFile(job.name, data))
        return JSONResponse({"translatedFileUrl": f"{request.base_url}download_file/{secret}"})

    async def _download_file(self, request: Request, logged: Logged) -> Response:
        # Its name is as secret as a key.
        file = self._service.files.find(request.path_params["secret"])
        if file is None:
            raise RequestError(404, "There is no such file. It was never there, or too old.")
        return file_response(file)

    async def _suggest(self, request: Request, logged: Logged) -> Response:
        raise RequestError(403, "Suggestions are not supported.")

    async def _fields(self, request: Request, logged: Logged) -> Fields:
        """Return the fields of a request with a key."""
        settings = self._service.settings
        fields = await read_fields(request, settings.body)
        logged.key = settings.keys.owner(fields.get("api_key"))
        return fields
