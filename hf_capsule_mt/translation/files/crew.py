"""The processes that translate the windows of an input together. The main one reads and writes, and the others help."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from threading import Timer
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

from hf_capsule_mt.data.batching import batch_by_tokens

from ..generation.model_options import DecodingOptions
from ..preparation import TextReader
from ..text_translator import Ranked, TextTranslator, finish_unread, first_equal_sentences
from ..translation import PreparedText, Sentence, Translation

logger = logging.getLogger(__name__)

PATIENCE = 300
"""Seconds after which a process says that it waits for the others."""
_WAITS = (
    "This process has waited %d seconds for the other processes of the command. See whether one is slower, or stopped: "
    "ps shows T for it, and kill -CONT continues it."
)


@dataclass(frozen=True)
class Task:
    """What the processes do together: the sentences of a window."""

    sentences: Sequence[Sentence]
    batches: list[list[int]]  # Indices of the sentences that the model reads.
    equal: Mapping[int, Sequence[int]]  # For each of them all that have its translation.
    answers: Mapping[str, Any]  # What is asked of the search, by `decode_batches`.
    has_record: bool
    options: Mapping[str, Any]  # Of decoding.
    decoding: DecodingOptions | None  # Those of the main process, with the commit of the model.


class Crew:
    """Translates the windows of inputs.

    Args:
        decoding: the model, and how it decodes. The model is loaded with the first window.
        device: where it is loaded.
        state: this process among the others. None if there are no others.
        load: loads what translates. By default it is loaded as `decoding` says.
    """

    def __init__(
        self,
        decoding: DecodingOptions | None,
        device: str | torch.device | None = None,
        state: PartialState | None = None,
        load: Callable[[], TextTranslator] | None = None,
    ) -> None:
        self.decoding = decoding
        self._load = load
        self.options: Mapping[str, Any] = {}
        self._device = device
        self._state = state
        self._translator: TextTranslator | None = None
        self._reader: TextReader | None = None

    @classmethod
    def with_translator(cls, translator: TextTranslator, options: Mapping[str, Any]) -> "Crew":
        """Return a crew of this process with a model that was loaded.

        Args:
            translator: translates.
            options: of decoding, such as `num_beams`.
        """
        crew = cls(None, load=lambda: translator)
        crew.options = options
        return crew

    @property
    def processes(self) -> int:
        """How many processes there are."""
        return 1 if self._state is None else self._state.num_processes

    @property
    def reader(self) -> TextReader:
        """Prepares texts. It needs no weights, so what is wrong with an input is said before a model is loaded."""
        if self._reader is None and self._load is not None:
            self._reader = self.translator.reader
        elif self._reader is None:
            self._reader = TextReader(self.decoding.config(), self.decoding.tokenizer())
        return self._reader

    @property
    def translator(self) -> TextTranslator:
        """Has the model."""
        if self._translator is None and self._load is not None:
            self._translator = self._load()
        elif self._translator is None:
            self._translator = TextTranslator(*self.decoding.load(torch.device(self._device or "cpu")))
        return self._translator

    def translate(
        self,
        prepared: Sequence[PreparedText],
        numbers: Sequence[int],
        budget: int,
        answers: Mapping[str, Any],
        *,
        has_record: bool = False,
        progress: Any = None,
    ) -> list[Translation]:
        """Return the translations of texts. Equal sentences are decoded once.

        Args:
            prepared: the texts.
            numbers: the lines of all their sentences, for messages.
            budget: source tokens of a batch, with padding.
            answers: what is asked of the search, by [`TextTranslator.decode_batches`].
            has_record: whether each sentence is judged.
            progress: is told of sentences that are done.
        """
        sentences = [sentence for text in prepared for sentence in text.sentences]
        equal: dict[int, list[int]] = {}
        for index, first in enumerate(first_equal_sentences(sentences)):
            equal.setdefault(first, []).append(index)
        lengths = [0] * len(sentences)
        for index in equal:
            lengths[index] = len(sentences[index].token_ids)
        batches = batch_by_tokens(lengths, budget, numbers)

        task = Task(sentences, batches, equal, answers, has_record, self.options, self.decoding)
        translated = self._together(task, progress)
        has_links = bool(answers.get("return_alignments"))
        finished = []
        for index, sentence in enumerate(sentences):
            if index in translated:
                finished.append(translated[index])
            else:
                unread = finish_unread(self.reader, sentence, has_links=has_links, has_record=has_record)
                finished.append(unread)
        remaining = iter(finished)
        texts = []
        for text in prepared:
            texts.append(text.join(list(islice(remaining, len(text.sentences))), has_links=has_links))
        return texts

    def help(self) -> None:
        """Translate this process's share of every window, until the main process says that there are no more."""
        while self._together(None) is not None:
            pass

    def dismiss(self) -> None:
        """Let the other processes end."""
        self._together(None)

    def _together(self, task: Task | None, progress: Any = None) -> dict[int, Translation] | None:
        """Do a task of the main process on all processes, and return all translations by their sentence.

        The other processes give None. If the main process does, the work ends, and all get None.
        """
        if self._state is not None:
            with _telling_of_long_waits():
                [task] = broadcast_object_list([task])
        if task is None:
            return None

        own_share = self._share(task, progress)
        shares = gathered(own_share, self._state)
        translated: dict[int, Translation] = {}
        for share in shares:
            translated.update(share)
        return translated

    def _share(self, task: Task, progress: Any = None) -> dict[int, Translation]:
        """Return the translations of this process by the index of their sentence."""
        number = 0 if self._state is None else self._state.process_index
        batches = task.batches[number :: self.processes]
        if task.decoding is not None:
            self.decoding = task.decoding
        options = dict(task.options)
        if self.decoding is not None:
            options |= self.decoding.generate_options()

        # Also without a batch, before anything is written: the checkpoint may be damaged.
        translator = self.translator
        translated = {}
        for batch in translator.decode_batches(task.sentences, batches, **task.answers, **options):
            tokens = 0
            done = 0
            for index, ranked in batch.items():
                tokens += len(task.sentences[index].token_ids)
                for equal in task.equal[index]:
                    translated[equal] = self._finished(task, equal, ranked)
                    done += 1
            if progress is not None:
                # Only this process shows progress. The others have shares of the same size, and are about as far.
                progress.add(done * self.processes, tokens * self.processes)
        return translated

    def _finished(self, task: Task, index: int, ranked: Ranked) -> Translation:
        return self.translator.finish(
            task.sentences[index],
            ranked,
            has_links=bool(task.answers.get("return_alignments")),
            has_record=task.has_record,
        )


def gathered(own: Any, state: PartialState | None) -> list[Any]:
    """Return what each process has, in their order."""
    if state is None:
        return [own]
    with _telling_of_long_waits():
        return gather_object([own])


@contextmanager
def _telling_of_long_waits() -> Iterator[None]:
    """Say so if the block takes long. A process that is stopped, but not dead, holds up the others for days."""
    timer = Timer(PATIENCE, logger.warning, (_WAITS, PATIENCE))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
