"""Translates the texts of requests: prepares them, gives their sentences to the engine, and joins the answers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from regex import Pattern
from starlette.applications import Starlette
from starlette.requests import Request

from hf_capsule_mt.long_work import LongWork
from hf_capsule_mt.translation.quality.judge import judge
from hf_capsule_mt.translation.tags.segments import with_addresses
from hf_capsule_mt.translation.terms.glossary import Glossary
from hf_capsule_mt.translation.text_translator import Ranked
from hf_capsule_mt.translation.translation import PreparedText, Sentence

from .detection import LanguageDetector
from .endpoints import EXPECTED_ERRORS, Logged
from .file_jobs import FileJob, read_file_job
from .file_store import FileStore
from .glossaries import GlossaryStore
from .jobs import ClientJob, SentenceQuality, SourceText, TranslatedText
from .models import ServedModel
from .queue.batcher import Batcher
from .queue.refusals import BusyError, LateError
from .requests import ApiKeys, BodyLimits, RequestError, Upload, client_gone

if TYPE_CHECKING:
    from .metrics import Metrics

logger = logging.getLogger(__name__)

_CHARACTERS_OF_TOKEN = 3
"""A low estimate, so that a wait is rather predicted too long."""
_TOKENS_OF_SENTENCE = 32
_SHORT = 4000
"""Characters of a request that is prepared in the thread for short ones."""
_FEW = 500
"""Characters of a request without tags that is prepared at once. To give it to a thread would take longer."""

_PART_OF_FILE = 64
"""Sentences of a file that wait at a time. All of them would fill the queue, and others would be refused."""
_FILES_AT_ONCE = 4
_MOST_FILES = 32
"""Files that are translated or wait for their turn."""
_SECONDS_OF_FILES = 30.0
"""After which a client may send a file again, if there are too many."""


@dataclass(frozen=True)
class ServerSettings:
    """Limits and doors of a server.

    Args:
        max_texts: the most texts of a request.
        char_limit: the most characters of a text, -1 for no limit.
        body: limits of the body of a request.
        file_body: limits of a request with a file. A size of 0 switches files off.
        file_timeout: the most seconds until a file is read, and then until it is translated.
        timeout: the most seconds of a request.
        max_wait: the most seconds that a new request may have to wait for others.
        max_waiting_tokens: the most source tokens that may wait.
        max_tokens_per_batch: the most source tokens of a batch.
        keep: finds parts of all texts that are not translated, by default addresses of the Web and of e-mail.
        keys: the keys of clients.
        hosts: names by which the server may be called.
        cors_origins: sites whose pages may call it.
        log_texts: whether texts and translations are in the log.
    """

    max_texts: int = 50
    char_limit: int = -1
    body: BodyLimits = field(default_factory=BodyLimits)
    file_body: BodyLimits = field(default_factory=partial(BodyLimits, size=1_048_576, seconds=60.0))
    file_timeout: float = 600.0
    timeout: float = 60.0
    max_wait: float = 8.0
    max_waiting_tokens: int = 65_536
    max_tokens_per_batch: int = 1024
    keep: Pattern | None = field(default_factory=with_addresses)
    keys: ApiKeys = field(default_factory=ApiKeys)
    hosts: Sequence[str] = ("*",)
    cors_origins: Sequence[str] = ()
    log_texts: bool = False


@dataclass(frozen=True)
class _Prepared:
    """A text with its sentences."""

    source: SourceText
    text: PreparedText

    @property
    def sentences(self) -> list[Sentence]:
        """Those that the model reads."""
        return [sentence for sentence in self.text.sentences if sentence.token_ids]

    def joined(self, decoded: Sequence[Ranked]) -> TranslatedText:
        """Return the text from what was decoded of the sentences that the model reads."""
        remaining = iter(decoded)
        of_text = []
        for sentence in self.text.sentences:
            of_text.append(next(remaining) if sentence.token_ids else ())
        translation = self.source.model.translator.join(self.text, of_text)
        # Beams that differ in their tokens may have the same text.
        texts = dict.fromkeys([translation.text, *(other.text for other in translation.alternatives)])
        best, *others = texts
        return TranslatedText(best, tuple(others), tuple(self._qualities(decoded)))

    def _qualities(self, decoded: Sequence[Ranked]) -> Iterator[SentenceQuality]:
        """Yield what is expected of the translations that the model has read again."""
        model = self.source.model
        if model.calibration is None:
            return
        for sentence, ranked in zip(self.sentences, decoded, strict=True):
            judgement = judge(model.translator.reader, sentence, ranked[0])
            if judgement.score is None:
                continue
            [expected] = model.calibration.expect([judgement.score], [judgement.source_length])
            yield SentenceQuality(sentence.segment.text, model.calibration.metric, expected)


@dataclass(frozen=True)
class _Submitted:
    """What the engine has of one model."""

    indices: list[int]  # Of the texts.
    translations: asyncio.Future[list[Ranked]]  # Of all sentences of these texts.


class Service:
    """Translates for all protocols, with one engine.

    Args:
        models: at least one.
        settings: limits and doors.
        metrics: are kept if given.
    """

    def __init__(self, models: Sequence[ServedModel], settings: ServerSettings, metrics: "Metrics | None") -> None:
        self.models = [*models]
        self.settings = settings
        self.metrics = metrics
        self.detector = LanguageDetector(models)
        self.glossaries = GlossaryStore()
        self.files = FileStore()
        self.translated_characters = 0
        self._batcher = Batcher(
            {model.name: model.decode for model in models},
            max_tokens_per_batch=settings.max_tokens_per_batch,
            max_wait=settings.max_wait,
            max_waiting_tokens=settings.max_waiting_tokens,
            on_batch=None if metrics is None else metrics.add_batch,
        )
        # A long page must not hold up the preparing of short texts.
        self._for_short = ThreadPoolExecutor(1, "short texts")
        self._for_long = ThreadPoolExecutor(1, "long texts")
        self._for_files = ThreadPoolExecutor(1, "files")
        self._files = 0
        """Files that are being translated, or wait for their turn."""
        self._background: set[asyncio.Task] = set()
        self._file_turns = asyncio.Semaphore(_FILES_AT_ONCE)
        if metrics is not None:
            metrics.watch("waiting_sentences", "Sentences that wait.", self._batcher.waiting_sentences)
            metrics.watch("predicted_wait_seconds", "Seconds that a sentence would wait.", self._wait_of_a_sentence)

    @property
    def is_alive(self) -> bool:
        """Whether requests are taken and decoded."""
        return self._batcher.is_alive

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Run the engine. At the end, what was accepted is answered."""
        with self._batcher:
            yield
            for task in self._background:
                task.cancel()
            await asyncio.to_thread(self._batcher.close)
        # Meanwhile the loop runs, so that work for which nobody waits any more is given up.
        for pool in (self._for_short, self._for_long, self._for_files):
            await asyncio.to_thread(pool.shutdown)

    async def translate(self, request: Request, job: ClientJob, logged: Logged) -> list[TranslatedText]:
        """Translate the texts of a job, unless the client goes away.

        Raises:
            RequestError: if the job is too large, or the client has gone.
            UserError: if a text cannot be read.
            BusyError: if it would wait too long.
            LateError, StoppedError, FailedSentenceError: if it is not translated.
        """
        logged.describe(job)
        self._check_size(job)
        with self._batcher.admitted(job.characters // _CHARACTERS_OF_TOKEN):
            prepared = await self._in_thread_if_long(job, self._prepare, job.sources)
            logged.sentences = sum(len(text.sentences) for text in prepared)
            submitted = self._submitted(prepared, job)
        decoding = asyncio.ensure_future(_decoded(prepared, submitted))
        translations = await answered(request, decoding, self.settings.timeout)
        self.translated_characters += job.characters
        translated = await self._in_thread_if_long(job, _join, prepared, translations)
        self._log_texts(job, translated)
        return translated

    async def _in_thread_if_long(self, job: ClientJob, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns that prepares or joins the texts of a job, in a thread if they are long."""
        if job.characters < _FEW and not any(self._has_parts(source) for source in job.sources):
            return function(*arguments)
        pool = self._for_short if job.characters < _SHORT else self._for_long
        return await _in_pool(pool, function, *arguments)

    def _has_parts(self, source: SourceText) -> bool:
        """Return whether a text may have tags, kept parts or terms, which are looked for and put back."""
        reading = source.reading
        keep = reading.keep or self.settings.keep
        has_kept_parts = keep is not None and keep.search(source.text) is not None
        return reading.tags or has_kept_parts or reading.glossary is not None

    async def read_file(
        self, request: Request, upload: Upload, model: ServedModel, glossary: Glossary | None = None
    ) -> FileJob:
        """Read the file of a request, unless the client goes away.

        Args:
            request: of the client.
            upload: the file.
            model: translates it.
            glossary: terms that the translation must have.

        Raises:
            RequestError: if it is of a format that is not supported, or the client has gone.
            UserError: if it is damaged.
            LateError: if it takes longer than a file may.
        """
        reading = _in_pool(self._for_files, read_file_job, upload, model, self.settings.keep, glossary)
        return await answered(request, asyncio.ensure_future(reading), self.settings.file_timeout)

    async def translate_file(self, job: FileJob, logged: Logged) -> bytes:
        """Translate a file. Its sentences go to the engine in small parts, so that others do not wait for them.

        Raises:
            UserError: if a text of it cannot be read.
            BusyError: if too many files are being translated.
            LateError, StoppedError, FailedSentenceError: if it is not translated.
        """
        logged.describe(job)
        self.check_file_turns()
        self._files += 1
        try:
            async with asyncio.timeout(self.settings.file_timeout), self._file_turns:
                prepared = await _in_pool(self._for_files, self._prepare, job.sources)
                logged.sentences = sum(len(text.sentences) for text in prepared)
                translations = await self._decoded_in_parts(prepared)
                translated = await _in_pool(self._for_files, _join, prepared, translations)
                self.translated_characters += job.characters
                self._log_texts(job, translated)
                return await _in_pool(self._for_files, job.written, [text.text for text in translated])
        except TimeoutError as error:
            raise LateError("The translation took too long.") from error
        finally:
            self._files -= 1

    def check_file_turns(self) -> None:
        """Refuse a file if too many are translated or wait.

        Raises:
            BusyError: if there are too many.
        """
        if self._files >= _MOST_FILES:
            raise BusyError(_SECONDS_OF_FILES)

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work for which no request waits. It is given up when the server stops."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._end_of_background)

    def _end_of_background(self, task: asyncio.Task) -> None:
        self._background.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, EXPECTED_ERRORS):
            logger.error("A file failed.", exc_info=error)

    async def _decoded_in_parts(self, prepared: Sequence[_Prepared]) -> list[list[Ranked]]:
        """Return the translations of the sentences of each text, all of one model."""
        sentences = [sentence for text in prepared for sentence in text.sentences]
        translations: list[Ranked] = []
        for start in range(0, len(sentences), _PART_OF_FILE):
            part = sentences[start : start + _PART_OF_FILE]
            future = self._batcher.submit(prepared[0].source.model.name, part)
            translations += await asyncio.wrap_future(future)
        return _by_text(translations, prepared)

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns that takes some time, without holding up other requests."""
        return await _in_pool(self._for_short, function, *arguments)

    async def detecting(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns that may detect languages, in a thread if detection takes time."""
        if self.detector.takes_time:
            return await self.in_thread(function, *arguments)
        return function(*arguments)

    def _log_texts(self, job: ClientJob, translated: Sequence[TranslatedText]) -> None:
        if self.settings.log_texts:
            for source, text in zip(job.sources, translated, strict=True):
                # Quoted, so that a text is one line, and cannot look like another one.
                logger.info("%s %r -> %r", source.model.name, source.text, text.text)

    def _wait_of_a_sentence(self) -> float:
        return self._batcher.predicted_wait(_TOKENS_OF_SENTENCE)

    def _check_size(self, job: ClientJob) -> None:
        if len(job.sources) > self.settings.max_texts:
            raise RequestError(400, f"Invalid request: over {self.settings.max_texts} texts")
        limit = self.settings.char_limit
        if limit >= 0:
            longest = max(len(source.text) for source in job.sources)
            if longest > limit:
                raise RequestError(400, f"Invalid request: a text has {longest} characters, over the limit of {limit}")

    def _prepare(self, sources: Sequence[SourceText]) -> list[_Prepared]:
        prepared = []
        for source in sources:
            reading = replace(source.reading, keep=source.reading.keep or self.settings.keep)
            prepared.append(_Prepared(source, source.model.prepare(source.text, reading)))
        return prepared

    def _submitted(self, prepared: Sequence[_Prepared], job: ClientJob) -> list[_Submitted]:
        """Give the sentences of texts to the engine. Texts of one model are one request to it."""
        by_model: dict[str, list[int]] = {}
        for index, text in enumerate(prepared):
            by_model.setdefault(text.source.model.name, []).append(index)
        submitted = []
        for name, indices in by_model.items():
            sentences = [sentence for index in indices for sentence in prepared[index].sentences]
            future = self._batcher.submit(
                name,
                sentences,
                seconds=self.settings.timeout,
                alternatives=job.alternatives,
                rereads=job.wants_quality,
            )
            submitted.append(_Submitted(indices, asyncio.wrap_future(future)))
        return submitted


async def _in_pool(pool: ThreadPoolExecutor, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a thread. If nobody waits for it any more, it ends at its next step."""
    work = LongWork()
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, work.run, function, *arguments)
    finally:
        work.give_up()


async def _decoded(prepared: Sequence[_Prepared], submitted: Sequence[_Submitted]) -> list[list[Ranked]]:
    """Return the translations of the sentences of each text."""
    futures = [of_model.translations for of_model in submitted]
    translations: dict[int, list[Ranked]] = {}
    try:
        await asyncio.gather(*futures)
    finally:
        # If one fails, nobody waits for the others.
        for future in futures:
            future.cancel()
    for of_model in submitted:
        of_texts = _by_text(of_model.translations.result(), [prepared[index] for index in of_model.indices])
        translations.update(zip(of_model.indices, of_texts, strict=True))
    return [translations[index] for index in range(len(prepared))]


async def answered(request: Request, future: asyncio.Future, seconds: float) -> Any:
    """Wait for a result, or until the client goes away or the time is over. These drop what waits.

    Raises:
        RequestError: if the client has gone.
        LateError: if the time is over.
    """
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({future, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            return future.result()
        if gone.done():
            raise client_gone()
        raise LateError("The translation took too long.")
    finally:
        future.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    """Wait until the client closes the connection."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return


def _by_text(translations: Sequence[Ranked], prepared: Sequence[_Prepared]) -> list[list[Ranked]]:
    """Return the translations of each text, given those of all texts in order."""
    remaining = iter(translations)
    return [list(islice(remaining, len(text.sentences))) for text in prepared]


def _join(prepared: Sequence[_Prepared], translations: Sequence[Sequence[Ranked]]) -> list[TranslatedText]:
    return [text.joined(of_text) for text, of_text in zip(prepared, translations, strict=True)]
