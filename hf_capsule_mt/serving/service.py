"""Translates the texts of clients: prepares them, gives their sentences to the queue, and joins the answers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from hf_capsule_mt.language_tags import known_code
from hf_capsule_mt.long_work import LongWork
from hf_capsule_mt.translation.preparation import TextOptions
from hf_capsule_mt.translation.text_translator import Ranked
from hf_capsule_mt.translation.translation import PreparedText

from .calls import Call, Protocol, endpoint
from .detection import LanguageDetector
from .glossaries import GlossaryStore
from .models import ServedModel
from .operators.metrics import Metrics
from .queue.batcher import Batcher
from .refusals import RequestError
from .settings import ServerSettings
from .texts import SourceText, TranslatedText, TranslationRequest, join, prepare, sentences_to_decode

logger = logging.getLogger(__name__)

_CHARACTERS_OF_TOKEN = 3
"""A low estimate, so that a wait is rather predicted too long."""
_TOKENS_OF_SENTENCE = 32
_SHORT = 4000
"""Characters of a request that is prepared in the thread for short ones."""
_FEW = 500
"""Characters of a request without tags that is prepared at once. To give it to a thread would take longer."""


class Service:
    """What all routes share.

    Args:
        models: at least one.
        settings: limits.
        metrics: are kept if given.
    """

    def __init__(self, models: Sequence[ServedModel], settings: ServerSettings, metrics: Metrics | None) -> None:
        self.models = [*models]
        self.settings = settings
        self.metrics = metrics
        self.detector = LanguageDetector(models)
        self.glossaries = GlossaryStore()
        self.translated_characters = 0

        self.batcher = Batcher(
            {model.name: model.decode for model in models},
            max_tokens_per_batch=settings.max_tokens_per_batch,
            max_wait=settings.max_wait,
            max_waiting_tokens=settings.max_waiting_tokens,
            on_batch=None if metrics is None else metrics.add_batch,
        )

        # A long page must not hold up the preparing of short texts.
        self._for_short = ThreadPoolExecutor(1, "short texts")
        self._for_long = ThreadPoolExecutor(1, "long texts")

        if metrics is not None:
            metrics.watch("waiting_sentences", "Sentences that wait.", self.batcher.waiting_sentences)
            wait_of_a_sentence = partial(self.batcher.predicted_wait, _TOKENS_OF_SENTENCE)
            metrics.watch("predicted_wait_seconds", "Seconds that a sentence would wait.", wait_of_a_sentence)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the engine. At the end, what was accepted is answered."""
        with self.batcher:
            yield
            await asyncio.to_thread(self.batcher.close)
        # Meanwhile the loop runs, so that work for which nobody waits any more is given up.
        for pool in (self._for_short, self._for_long):
            await asyncio.to_thread(pool.shutdown)

    def route(
        self, protocol: Protocol, path: str, handler: Callable[["Service", Call], Awaitable[Response]], *methods: str
    ) -> Route:
        """Return a route of a protocol.

        Args:
            protocol: the protocol.
            path: of the route.
            handler: answers a call with this service, or raises.
            *methods: of HTTP, that the route takes.
        """
        respond = endpoint(protocol, path, partial(handler, self), self.settings, self.metrics)
        return Route(path, respond, methods=[*methods])

    def model(self, source: str, target: str) -> ServedModel:
        """Return the model for two languages, whose codes a client wrote.

        Raises:
            RequestError: if there is none.
        """
        known_source = known_code(source, [model.source for model in self.models])
        candidates = [model for model in self.models if model.source == known_source]
        known_target = known_code(target, [model.target for model in candidates])
        for model in candidates:
            if model.target == known_target:
                return model
        message = f"{source:.40} to {target:.40} is not supported"
        raise RequestError(400, message, reason="No model translates these languages.")

    async def sources(
        self, texts: Sequence[str], source: str | None, target: str, options: TextOptions
    ) -> list[SourceText]:
        """Return texts with their models.

        Args:
            texts: of a client.
            source: their language. None detects that of each text.
            target: the language of their translations.
            options: how they are read. The server says what is kept.

        Raises:
            RequestError: if there is no such pair of languages, or the language cannot be detected.
        """
        options = replace(options, keep=self.settings.keep)
        if source is not None:
            model = self.model(source, target)
            return [SourceText(text, model, options) for text in texts]
        sources = []
        for text, detected in zip(texts, await self.detecting(self.detector.best, texts), strict=True):
            sources.append(SourceText(text, self.model(detected.language, target), options, detected.confidence))
        return sources

    async def translate(self, call: Call, request: TranslationRequest) -> list[TranslatedText]:
        """Translate texts, unless the client goes away.

        Raises:
            RequestError: if they are too large, would wait too long, or are not translated, or the client has gone.
            UserError: if a text cannot be read.
        """
        call.asked = request
        self._check_size(request)
        translated = await call.answered(self._translated(call, request), self.settings.timeout)
        self.note(request, translated)
        return translated

    def note(self, request: TranslationRequest, translated: Sequence[TranslatedText]) -> None:
        """Count what was translated, and log it if this is asked for."""
        self.translated_characters += request.characters
        if self.settings.log_texts:
            for source, text in zip(request.sources, translated, strict=True):
                # Quoted, so that a text is one line, and cannot look like another one.
                fields = {"pair": source.model.name, "text": source.text, "translation": text.text}
                logger.info("%(pair)s %(text)r -> %(translation)r", fields)

    async def detecting(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns that may detect languages, in a thread if detection takes time."""
        return await in_pool(self._for_short if self.detector.takes_time else None, function, *arguments)

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns that takes some time, without holding up other requests."""
        return await in_pool(self._for_short, function, *arguments)

    async def _translated(self, call: Call, request: TranslationRequest) -> list[TranslatedText]:
        """Return the translations of texts. If nobody waits for them any more, their sentences are dropped."""
        pool = self._pool_for(request)
        with self.batcher.admitted(request.characters // _CHARACTERS_OF_TOKEN):
            prepared = await in_pool(pool, prepare, request)
            call.sentences = len(sentences_to_decode(prepared))
            decoding = self._decoding(request, prepared)
        decoded = await _all_of(decoding)
        return await in_pool(pool, join, request, prepared, decoded)

    def _pool_for(self, request: TranslationRequest) -> ThreadPoolExecutor | None:
        """Return the thread that prepares and joins the texts of a request, or None if they are short and plain."""
        if request.characters < _FEW and not any(source.may_have_parts for source in request.sources):
            return None
        return self._for_short if request.characters < _SHORT else self._for_long

    def _check_size(self, request: TranslationRequest) -> None:
        if len(request.sources) > self.settings.max_texts:
            raise RequestError(400, f"Invalid request: over {self.settings.max_texts} texts")
        limit = self.settings.char_limit
        if limit >= 0:
            longest = max(len(source.text) for source in request.sources)
            if longest > limit:
                raise RequestError(400, f"Invalid request: a text has {longest} characters, over the limit of {limit}")

    def _decoding(self, request: TranslationRequest, prepared: Sequence[PreparedText]) -> dict[str, asyncio.Future]:
        """Give the sentences of texts to the queue, those of one model at once. Return its answers by their model."""
        texts_of: dict[str, list[PreparedText]] = {}
        for source, text in zip(request.sources, prepared, strict=True):
            texts_of.setdefault(source.model.name, []).append(text)
        self.batcher.check_wait(sentences_to_decode(prepared))

        decoding = {}
        for name, texts in texts_of.items():
            future = self.batcher.submit(
                name,
                sentences_to_decode(texts),
                alternatives=request.alternatives,
            )
            decoding[name] = asyncio.wrap_future(future)
        return decoding


async def _all_of(decoding: Mapping[str, asyncio.Future]) -> dict[str, list[Ranked]]:
    """Return what the queue answers. If one of its answers fails, nobody waits for the others."""
    try:
        ranked = await asyncio.gather(*decoding.values())
    finally:
        for future in decoding.values():
            future.cancel()
    return dict(zip(decoding, ranked, strict=True))


async def in_pool(pool: ThreadPoolExecutor | None, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a thread. If nobody waits for it any more, it ends at its next step.

    Args:
        pool: the thread. None calls the function at once, which is faster if it takes almost no time.
        function: the work.
        *arguments: of the function.
    """
    if pool is None:
        return function(*arguments)
    work = LongWork()
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, work.run, function, *arguments)
    finally:
        work.give_up()
