"""The part that each process has in translating windows of lines."""

import argparse
from functools import cached_property

from accelerate import PartialState
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.translation.finishing import Finisher, Found
from hf_capsule_mt.translation.translator import translate_batches

from . import decoding
from .common import Progress
from .translation_job import Job, Reading


class Worker:
    """Translates a share of the batches of each window.

    Args:
        args: the decoding options.
        state: of this process among all.
        progress: what is shown of it.
        reading: what the lines are.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        state: PartialState,
        progress: Progress,
        reading: Reading,
    ) -> None:
        self._args, self._state, self._progress = args, state, progress
        self._reports = reading.report is not None

    @cached_property
    def _loaded(self) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        return decoding.load(self._args, self._state)

    def translate(self, job: Job) -> dict[int, Found]:
        """Return the translations of this process by the index of the line."""
        state = self._state
        self._args.revision = job.revision
        batches = job.batches[state.process_index :: state.num_processes]
        # Before anything is written, since the checkpoint may be damaged.
        model, tokenizer = self._loaded
        finish = Finisher(model, tokenizer, job.encoded, job.segments, self._reports)
        options = {"finish": finish, **decoding.generate_options(self._args)}
        translations = {}
        for batch in translate_batches(model, tokenizer, job.encoded, batches, **options):
            translations.update(batch)
            # As if the others were as far.
            tokens = sum(len(job.encoded[index]) for index in batch)
            self._progress.add(len(batch) * state.num_processes, tokens * state.num_processes)
        return translations
