"""The application: routes of both protocols over one queue, errors, and what happens when a client goes away."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regex import Pattern
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.texts import PreparedText

from . import deepl, libretranslate
from .batcher import Batcher, BusyError, FailedSentenceError, LateError, StoppedError
from .libretranslate import Job
from .models import ServedModel
from .requests import ApiKeys, BodyLimits, Fields, RequestError, read_fields

if TYPE_CHECKING:
    from .metrics import Metrics

logger = logging.getLogger(__name__)

_LIBRETRANSLATE = "libretranslate"
_DEEPL = "deepl"
_ERROR_FIELDS = {_LIBRETRANSLATE: "error", _DEEPL: "message"}
"""The protocols, and the field of an error in each."""
CLIENT_GONE = 499
"""Nobody reads this status. It is for logs and metrics."""
_CHARACTERS_OF_TOKEN = 3
"""A low estimate, so that a wait is rather predicted too long."""
_TOKENS_OF_SENTENCE = 32
_SHORT = 4000
"""Characters of a request that is prepared in the thread for short ones."""


@dataclass(frozen=True)
class ServerSettings:
    """Limits and doors of a server.

    Args:
        max_texts: the most texts of a request.
        char_limit: the most characters of a text, -1 for no limit.
        body: limits of the body of a request.
        timeout: the most seconds of a request.
        max_wait: the most seconds that a new request may have to wait for others.
        max_waiting_tokens: the most source tokens that may wait.
        max_tokens_per_batch: the most source tokens of a batch.
        keep: finds parts of all texts that are not translated.
        keys: the keys of clients.
        hosts: names by which the server may be called.
        cors_origins: sites whose pages may call it.
    """

    max_texts: int = 50
    char_limit: int = -1
    body: BodyLimits = field(default_factory=BodyLimits)
    timeout: float = 60.0
    max_wait: float = 8.0
    max_waiting_tokens: int = 65_536
    max_tokens_per_batch: int = 1024
    keep: Pattern | None = None
    keys: ApiKeys = field(default_factory=ApiKeys)
    hosts: Sequence[str] = ("*",)
    cors_origins: Sequence[str] = ()


@dataclass
class _Logged:
    """What the log says of a request."""

    api: str
    key: str = "-"
    pair: str = "-"
    texts: int = 0
    characters: int = 0
    sentences: int = 0


Handler = Callable[[Request, _Logged], Awaitable[Response]]


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
    server = _Server(models, settings, metrics)
    middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=[*settings.hosts])]
    if settings.cors_origins:
        middleware.append(Middleware(CORSMiddleware, allow_origins=[*settings.cors_origins], allow_methods=["*"]))
    return Starlette(routes=server.routes(), middleware=middleware, lifespan=server.lifespan)


class _Server:
    def __init__(self, models: Sequence[ServedModel], settings: ServerSettings, metrics: "Metrics | None") -> None:
        self._models = [*models]
        self._settings = settings
        self._metrics = metrics
        self._batcher = Batcher(
            {model.name: model.decode for model in models},
            max_tokens_per_batch=settings.max_tokens_per_batch,
            max_wait=settings.max_wait,
            max_waiting_tokens=settings.max_waiting_tokens,
            on_batch=None if metrics is None else metrics.add_batch,
        )
        # A long page must not hold up the preparing of short texts.
        self._characters = 0
        """Of all texts that were translated."""
        self._for_short = ThreadPoolExecutor(1, "short texts")
        self._for_long = ThreadPoolExecutor(1, "long texts")
        if metrics is not None:
            metrics.watch("waiting_sentences", "Sentences that wait.", self._batcher.waiting_sentences)
            metrics.watch(
                "predicted_wait_seconds",
                "Seconds that a sentence would wait.",
                lambda: self._batcher.predicted_wait(32),
            )

    def _wait_of_a_sentence(self) -> float:
        return self._batcher.predicted_wait(_TOKENS_OF_SENTENCE)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Run the engine. At the end, what was accepted is answered."""
        with self._batcher:
            yield
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._batcher.close)
        self._for_short.shutdown()
        self._for_long.shutdown()

    def routes(self) -> list[Route]:
        """Return the routes."""
        both = ["GET", "POST"]
        routes = [
            Route("/translate", self._endpoint(self._translate), methods=["POST"]),
            Route("/detect", self._endpoint(self._detect), methods=["POST"]),
            Route("/languages", self._endpoint(self._languages), methods=both),
            Route("/frontend/settings", self._endpoint(self._frontend_settings), methods=["GET"]),
            Route("/translate_file", self._endpoint(self._switched_off), methods=["POST"]),
            Route("/suggest", self._endpoint(self._switched_off), methods=["POST"]),
            Route("/v2/translate", self._endpoint(self._translate_deepl, _DEEPL), methods=["POST"]),
            Route("/v2/languages", self._endpoint(self._languages_deepl, _DEEPL), methods=both),
            Route("/v2/usage", self._endpoint(self._usage_deepl, _DEEPL), methods=both),
            Route("/v2/glossary-language-pairs", self._endpoint(self._no_glossary_pairs, _DEEPL), methods=["GET"]),
            Route("/v2/glossaries", self._endpoint(self._no_glossaries, _DEEPL), methods=["GET"]),
            Route("/v3/glossaries", self._endpoint(self._no_glossaries, _DEEPL), methods=["GET"]),
            Route("/health", self._health, methods=["GET"]),
        ]
        if self._metrics is not None:
            routes.append(Route("/metrics", self._show_metrics, methods=["GET"]))
        return routes

    def _endpoint(self, handler: Handler, api: str = _LIBRETRANSLATE) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler with errors as the protocol writes them, and a line in the log."""

        async def respond(request: Request) -> Response:
            started = time.monotonic()
            logged = _Logged(api)
            try:
                response = await handler(request, logged)
            except Exception as error:
                response = _refusal(error, _ERROR_FIELDS[api])
            self._log(logged, response.status_code, time.monotonic() - started)
            return response

        return respond

    async def _translate(self, request: Request, logged: _Logged) -> Response:
        fields = await read_fields(request, self._settings.body)
        logged.key = self._settings.keys.owner(fields.get("api_key"))
        job = libretranslate.job(fields, self._models)
        translations = await self._translations(request, job, logged)
        return JSONResponse(libretranslate.answer(job, translations))

    async def _translate_deepl(self, request: Request, logged: _Logged) -> Response:
        fields = await self._fields_of_deepl(request, logged)
        job = deepl.job(fields, self._models)
        translations = await self._translations(request, job, logged)
        return JSONResponse(deepl.answer(job, translations))

    async def _languages_deepl(self, request: Request, logged: _Logged) -> Response:
        fields = await self._fields_of_deepl(request, logged)
        return JSONResponse(deepl.languages(fields, self._models))

    async def _usage_deepl(self, request: Request, logged: _Logged) -> Response:
        await self._fields_of_deepl(request, logged)
        return JSONResponse(deepl.usage(self._characters))

    async def _no_glossaries(self, request: Request, logged: _Logged) -> Response:
        await self._fields_of_deepl(request, logged)
        return JSONResponse({"glossaries": []})

    async def _no_glossary_pairs(self, request: Request, logged: _Logged) -> Response:
        await self._fields_of_deepl(request, logged)
        return JSONResponse({"supported_languages": []})

    async def _fields_of_deepl(self, request: Request, logged: _Logged) -> Fields:
        """Return the fields of a request with a key."""
        fields = await read_fields(request, self._settings.body)
        key = deepl.key_of(fields, request.headers.get("authorization", ""))
        logged.key = self._settings.keys.owner(key)
        return fields

    async def _detect(self, request: Request, logged: _Logged) -> Response:
        fields = await read_fields(request, self._settings.body)
        logged.key = self._settings.keys.owner(fields.get("api_key"))
        return JSONResponse(libretranslate.detection(fields, self._models))

    async def _languages(self, request: Request, logged: _Logged) -> Response:
        return JSONResponse(libretranslate.languages(self._models))

    async def _frontend_settings(self, request: Request, logged: _Logged) -> Response:
        settings = self._settings
        return JSONResponse(libretranslate.settings(self._models, settings.char_limit, settings.keys.are_needed))

    async def _switched_off(self, request: Request, logged: _Logged) -> Response:
        raise RequestError(403, "This is switched off on this server.")

    async def _health(self, request: Request) -> Response:
        if self._batcher.is_alive:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "stopped"}, status_code=503)

    async def _show_metrics(self, request: Request) -> Response:
        if self._settings.keys.are_needed:
            scheme, _, key = request.headers.get("authorization", "").partition(" ")
            try:
                self._settings.keys.owner(key if scheme == "Bearer" else None)
            except RequestError as error:
                return JSONResponse({"error": error.message}, status_code=401)
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _translations(self, request: Request, job: Job, logged: _Logged) -> list[str]:
        """Translate the texts of a job."""
        logged.pair = job.model.name
        logged.texts = len(job.texts)
        logged.characters = sum(len(text) for text in job.texts)
        self._check_size(job)
        self._batcher.check_wait(logged.characters // _CHARACTERS_OF_TOKEN)
        loop = asyncio.get_running_loop()
        pool = self._for_short if logged.characters < _SHORT else self._for_long
        prepared = await loop.run_in_executor(pool, self._prepare, job)
        sentences = [sentence for text in prepared for sentence in text.sentences if sentence.token_ids]
        logged.sentences = len(sentences)
        future = self._batcher.submit(job.model.name, sentences, seconds=self._settings.timeout)
        translations = await self._answered(request, asyncio.wrap_future(future))
        self._characters += logged.characters
        return await loop.run_in_executor(pool, _put_back, prepared, translations)

    def _check_size(self, job: Job) -> None:
        if len(job.texts) > self._settings.max_texts:
            raise RequestError(400, f"Invalid request: over {self._settings.max_texts} texts")
        limit = self._settings.char_limit
        if limit >= 0:
            longest = max(len(text) for text in job.texts)
            if longest > limit:
                raise RequestError(400, f"Invalid request: a text has {longest} characters, over the limit of {limit}")

    def _prepare(self, job: Job) -> list[PreparedText]:
        prepared = []
        for text in job.texts:
            prepared.append(job.model.prepare(text, tags=job.has_tags, keep=self._settings.keep, split=job.split))
        return prepared

    async def _answered(self, request: Request, future: asyncio.Future) -> Any:
        """Wait for the translations, or until the client goes away or the time is over. These drop what waits."""
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({future, gone}, timeout=self._settings.timeout, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            if gone.done():
                raise RequestError(CLIENT_GONE, "The client has closed the connection.")
            raise LateError("The translation took too long.")
        finally:
            future.cancel()
            gone.cancel()

    def _log(self, logged: _Logged, status: int, seconds: float) -> None:
        logger.info(
            "%s %s %d texts=%d characters=%d sentences=%d ms=%d key=%s",
            logged.api,
            logged.pair,
            status,
            logged.texts,
            logged.characters,
            logged.sentences,
            round(1000 * seconds),
            logged.key,
        )
        if self._metrics is not None:
            self._metrics.add_request(logged.api, status, seconds)


async def _disconnected(request: Request) -> None:
    """Wait until the client closes the connection."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return


def _put_back(prepared: Sequence[PreparedText], translations: Sequence[Any]) -> list[str]:
    """Join the texts of a request from the translations of all their sentences that have token ids."""
    remaining = iter(translations)
    texts = []
    for text in prepared:
        of_text = []
        for sentence in text.sentences:
            of_text.append(next(remaining) if sentence.token_ids else None)
        texts.append(text.put_back(of_text))
    return texts


def _refusal(error: Exception, name: str) -> Response:
    """Return the answer to a request that failed, with the message in the field `name`."""
    headers = {}
    if isinstance(error, RequestError):
        status = error.status
        message = error.message
        if status in (408, 413, 415):
            # The rest of the body was not read.
            headers["Connection"] = "close"
    elif isinstance(error, BusyError):
        status = 429
        message = str(error)
        headers["Retry-After"] = str(max(round(error.seconds), 1))
    elif isinstance(error, UserError):
        status = 400
        message = f"Invalid request: {error}"
    elif isinstance(error, StoppedError):
        status = 503
        message = str(error)
    elif isinstance(error, LateError):
        status = 504
        message = str(error)
    elif isinstance(error, FailedSentenceError):
        # The batcher has logged its cause.
        status = 500
        message = str(error)
    else:
        logger.error("A request failed.", exc_info=error)
        status = 500
        message = "The server failed. Its log says why."
    return JSONResponse({name: message}, status_code=status, headers=headers)
