"""Windows of lines that a command translates: what is translated of them, and the lines that come of it."""

import argparse
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from accelerate import PartialState
from regex import Pattern
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.parallel_text import unbroken
from hf_capsule_mt.translation.documents import Fits, Segment, cut_document, cut_text
from hf_capsule_mt.translation.finishing import Finisher, Found
from hf_capsule_mt.translation.marked_segments import MarkedSegment, keep_pattern, marked_segments
from hf_capsule_mt.translation.translation_report import Judgement, report_line
from hf_capsule_mt.translation.translator import translate_batches

from . import decoding
from .common import Progress

Put = Callable[[list[Segment]], list[Segment]]


@dataclass(frozen=True)
class Reading:
    """What the lines of the input are.

    Attributes:
        documents: the language, if they are running text.
        sentences: the language, if each line may have several sentences.
        tags: whether they have tags of XML or HTML.
        keep: a regular expression for what is not translated.
        report: the file for what is judged of translations.
        target_lang: the language of the translations, for models that are told so by a code.
    """

    documents: str | None = None
    tags: bool = False
    keep: str | None = None
    report: str | None = None
    sentences: str | None = None
    target_lang: str | None = None

    @property
    def are_segments(self) -> bool:
        """Whether something else than the lines is translated at a time."""
        return bool(self.documents or self.sentences or self.tags or self.keep is not None)

    @property
    def is_whole(self) -> bool:
        """Whether the input is one text, in which tags can be closed far from where they are opened."""
        return bool(self.documents and self.tags)

    def settings(self) -> dict[str, Any]:
        """Return what translations depend on."""
        return {name: value for name, value in vars(self).items() if value is not None and value is not False}

    def segments(self, lines: Sequence[str], fits: Fits, first: int, put: Put = list) -> list[Segment] | None:
        """Return what is translated at a time of lines; None if it is they.

        Args:
            lines: of the input.
            fits: whether the model can read a text of documents.
            first: the number of the first line.
            put: gives the segments of a text the code of their language.

        Raises:
            ValueError: if tags of a line are wrong, or `keep` searches for too long.
        """
        if not self.are_segments:
            return None
        pattern = None if self.keep is None else keep_pattern(self.keep)
        if self.documents is None:
            cut = partial(cut_text, language=self.sentences, fits=fits) if self.sentences else None
            of_lines = (self._of_line(line, pattern, cut, number, first) for number, line in enumerate(lines))
            return [part for parts in of_lines for part in put(parts)]
        text = "".join(f"{line}\n" for line in lines)
        if not self.tags and pattern is None:
            return put(cut_document(text, self.documents, fits))
        return put(marked_segments(text, self.tags, pattern, partial(cut_text, language=self.documents, fits=fits)))

    def _of_line(
        self, line: str, pattern: Pattern | None, cut: Callable[[str], list[str]] | None, number: int, first: int
    ) -> list[Segment]:
        try:
            segments = marked_segments(f"{line}\n", self.tags, pattern, cut)
        except ValueError as error:
            raise ValueError(f"line {first + number} of the input: {error}") from error
        return [segment.on_line(number) for segment in segments]


@dataclass
class Job:
    """A window of lines.

    Attributes:
        lines: of the input.
        encoded: source tokens of every line, or of every segment.
        batches: indices of those that are shown to the model.
        numbers: of the lines in the input, from 1.
        revision: of the model.
        segments: what is translated instead of the lines, if there are any.
        cut: indices of those that are longer than the model reads.
        copies: those that are their own translations, by index.
        code: of the language, which the last text has.
    """

    lines: list[str]
    encoded: list[list[int]]
    batches: list[list[int]]
    numbers: list[int]
    revision: str | None = None
    segments: list[Segment] | None = None
    cut: Set[int] = frozenset()
    copies: dict[int, str] = field(default_factory=dict)
    code: str = ""

    def output(self, translations: dict[int, Found]) -> list[str]:
        """Return the lines of the output, of the translations by index."""
        found = {**self.copies, **{index: found["text"] for index, found in translations.items()}}
        if self.segments is None:
            return unbroken((found.get(index, "") for index in range(len(self.encoded))), "translations")
        texts = [
            found[index] if index in found else _untranslated(segment) for index, segment in enumerate(self.segments)
        ]
        return "".join(map(Segment.around, self.segments, texts)).removesuffix("\n").split("\n")

    def report(self, translations: dict[int, Found]) -> list[str]:
        """Return the lines of a report, one for each sentence."""
        blank, names = {}, Judgement.__dataclass_fields__
        lines = []
        for index, number in enumerate(self.numbers):
            found = translations.get(index, blank) | {"source_cut": index in self.cut}
            lines.append(report_line(number, Judgement(**{name: found[name] for name in names if name in found})))
        return lines


def _untranslated(segment: Segment) -> str:
    """Return what stands in the place of a segment that the tokenizer makes nothing of: its tags, without words."""
    return segment.put_back("") if isinstance(segment, MarkedSegment) else ""


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
