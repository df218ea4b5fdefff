"""Translate files of any size, window by window, on any number of processes."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from threading import Timer

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

from hf_capsule_mt.data.reading_ahead import each_one_ahead
from hf_capsule_mt.files import replaced_file

from ..text_translator import Ranked, TextTranslator
from ..translation import Sentence, Translation
from .options import STANDARD_INPUT, FileOptions
from .partial_output import held_folder
from .windows import Progress, Window, WindowReader, input_lines

logger = logging.getLogger(__name__)

PATIENCE = 300
"""Seconds after which a process says that it waits for the others."""
_WAITS = (
    "This process has waited %d seconds for the other processes of the command. See whether one is slower, or stopped: "
    "ps shows T for it, and kill -CONT continues it."
)


class Worker:
    """Translates the batches of one process."""

    def __init__(self, options: FileOptions, state: PartialState, progress: Progress) -> None:
        self._decoding = options.decoding
        self._device = torch.device(options.device or state.device)
        self._answers = {
            "rereads": options.report_file is not None,
            "return_scores": options.n_best is not None,
            "return_alignments": options.alignments_file is not None,
            "num_return_sequences": options.n_best or 1,
        }
        self._state = state
        self._progress = progress

    @cached_property
    def _translator(self) -> TextTranslator:
        return TextTranslator(*self._decoding.load(self._device))

    def translate(self, window: Window) -> dict[int, Translation]:
        """Return the translations of this process by the index of their sentence."""
        processes = self._state.num_processes
        batches = window.batches[self._state.process_index :: processes]
        self._decoding = window.decoding
        # Before anything is written: the checkpoint may be damaged.
        translator = self._translator
        options = self._decoding.generate_options()
        sentences = window.sentences
        translated = {}
        for batch in translator.decode_batches(sentences, batches, **self._answers, **options):
            for index, ranked in batch.items():
                translated[index] = self._finished(translator, sentences[index], ranked)
            tokens = sum(len(sentences[index].token_ids) for index in batch)
            # Only this process shows progress. The others have shares of the same size, and are about as far.
            self._progress.add(len(batch) * processes, tokens * processes)
        return translated

    def _finished(self, translator: TextTranslator, sentence: Sentence, ranked: Ranked) -> Translation:
        """Return the translation of a sentence, with what the report says of it."""
        has_links = self._answers["return_alignments"]
        return translator.finish(sentence, ranked, has_links=has_links, has_record=self._answers["rereads"])


def translate_windows(
    options: FileOptions,
    state: PartialState,
    lines: Iterator[str] | None = None,
    total: int | None = None,
) -> Iterator[list[str]]:
    """Translate a file window by window. Yield the lines of each window, unless they go to an output file.

    Finished windows, and the report, are kept next to the output file until all is done. Only the main process has
    lines. Each process takes a share of the batches.

    Args:
        options: what is translated, how, and where it goes.
        state: this process among the others.
        lines: are read instead of the input file.
        total: the number of these lines, for the progress bar.

    Raises:
        BlockingIOError: if another process writes the output file.
        UserError: if the input cannot be read, or is not that of the interrupted run.
    """
    if not state.is_main_process:
        _help_main_process(options, state)
        return
    if lines is None:
        lines = input_lines(options)
        # All lines are checked first, unless they are a stream, which comes only once.
        if not options.texts.has_segments and (options.input_file or STANDARD_INPUT).is_file():
            total = sum(1 for _ in input_lines(options))
    with ExitStack() as stack:
        if options.output_file is not None:
            stack.enter_context(held_folder(options.output_file))
        progress = stack.enter_context(Progress(total, shown=not options.interactive))
        more_files = {}
        if options.output_file is None:
            # No folder keeps the lines of these files, so they are written as a whole at the end.
            for name, file in options.more_files.items():
                more_files[name] = stack.enter_context(replaced_file(file))
        options = options.pinned()
        windows = WindowReader(options, progress)
        worker = Worker(options, state, progress)
        for window in each_one_ahead(windows.windows(lines)):
            translated = _translate_together(worker, window)
            output = windows.keep(window, translated, more_files)
            if output is not None:
                yield output
        _translate_together(worker, None)
        windows.finish()


def _help_main_process(options: FileOptions, state: PartialState) -> None:
    """Translate this process's share of every window, until the main process says that there are no more."""
    worker = Worker(options, state, Progress(None, shown=False))
    while _translate_together(worker, None) is not None:
        pass


def _translate_together(worker: Worker, window: Window | None) -> dict[int, Translation] | None:
    """Translate a window of the main process on all processes, and return all translations.

    The other processes give None as the window. If the main process does, the work ends, and all get None.
    """
    with _telling_of_long_waits():
        [window] = broadcast_object_list([window])
    if window is None:
        return None
    own_share = worker.translate(window)
    with _telling_of_long_waits():
        shares = gather_object([own_share])
    translated: dict[int, Translation] = {}
    for share in shares:
        translated.update(share)
    return translated


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
