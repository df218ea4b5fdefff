"""A window of the lines of a file: its sentences, and what its translations become in the files of the command."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from hf_capsule_mt.data.lines import unbroken

from ..alignment.links import pharaoh_links
from ..generation.model_options import DecodingOptions
from ..quality.calibration import Calibration
from ..translation import PreparedText, Sentence, Translation


class TranslatedSentence(NamedTuple):
    """A sentence that was translated, as processes give it to each other."""

    translation: Translation
    record: dict[str, Any] | None
    """What the report says of it, without its place, if there is a report."""


@dataclass(frozen=True)
class Window:
    """A window of lines."""

    lines: list[str]  # The input.
    sentences: list[Sentence]  # Of the lines, or of the texts in them.
    numbers: list[int]  # Their lines in the input, from 1.
    batches: list[list[int]]  # Indices of the sentences that the model reads.
    decoding: DecodingOptions  # Those of the main process, with the commit of the model.
    code: str  # The code of the language of the last text.
    is_of_lines: bool  # Whether each line is one sentence.
    lines_before: int = 0  # Lines of the input before this window.

    def output(self, finished: Sequence[TranslatedSentence]) -> list[str]:
        """Return the lines of the output."""
        texts = []
        for sentence, of_sentence in zip(self.sentences, finished, strict=True):
            texts.append(sentence.segment.around(of_sentence.translation.text))
        if self.is_of_lines:
            return unbroken(texts, "translations")
        return "".join(texts).removesuffix("\n").split("\n")

    def report(self, finished: Sequence[TranslatedSentence], calibration: Calibration | None = None) -> list[str]:
        """Return the lines of a report, one for each sentence, with the expected quality if there is a calibration."""
        records = []
        for index, number, place in self._places():
            records.append({"line": number, "sentence": place, **(finished[index].record or {})})
        if calibration is not None:
            calibration.add_to(records)
        return [json.dumps(record, ensure_ascii=False) for record in records]

    def ranked_output(self, finished: Sequence[TranslatedSentence]) -> list[str]:
        """Return the lines of the output with several translations of each line, as Moses and Marian write them.

        A line has the number of its source from 0, the translation, and the score twice: as a feature, and in all.
        """
        lines = []
        for number, (line, indices) in enumerate(self._of_lines(), self.lines_before):
            translation = self._joined(line, indices, finished)
            for ranked in (translation, *translation.alternatives):
                # What is copied is certain.
                score = f"{ranked.score or 0.0:.4f}"
                [text] = unbroken([ranked.text.removesuffix("\n")], "translations")
                lines.append(f"{number} ||| {text} ||| score= {score} ||| {score}")
        return lines

    def pharaoh(self, finished: Sequence[TranslatedSentence]) -> list[str]:
        """Return a line for each line of the input, with the numbers of words that belong together, such as "0-0 1-2".

        Words stand between white space.
        """
        lines = []
        for line, indices in self._of_lines():
            translation = self._joined(line, indices, finished, has_links=True)
            pairs = pharaoh_links(translation.links, line, translation.text)
            lines.append(" ".join(f"{source}-{target}" for source, target in pairs))
        return lines

    def alignments(self, finished: Sequence[TranslatedSentence]) -> list[str]:
        """Return a line of JSON for each sentence, with its words and the places of their characters."""
        lines = []
        for index, number, place in self._places():
            translation = finished[index].translation
            links = translation.links or ()
            record = {
                "line": number,
                "sentence": place,
                "source": self.sentences[index].segment.text,
                "translation": translation.text,
                "words": [(link.source, link.target) for link in links],
                "characters": [(link.source_span, link.target_span) for link in links],
            }
            lines.append(json.dumps(record, ensure_ascii=False))
        return lines

    def _places(self) -> Iterator[tuple[int, int, int]]:
        """Yield the index of each sentence, the line it begins on, and its number among those of the line, from 1."""
        for number, indices in groupby(range(len(self.numbers)), key=self.numbers.__getitem__):
            for place, index in enumerate(indices, 1):
                yield index, number, place

    def _of_lines(self) -> Iterator[tuple[str, list[int]]]:
        """Yield each line with the indices of its sentences, at least one."""
        groups = groupby(range(len(self.numbers)), key=self.numbers.__getitem__)
        for line, (_, indices) in zip(self.lines, groups, strict=True):
            yield line, list(indices)

    def _joined(
        self, line: str, indices: Sequence[int], finished: Sequence[TranslatedSentence], *, has_links: bool = False
    ) -> Translation:
        """Return the translation of a line from those of its sentences."""
        prepared = PreparedText([self.sentences[index] for index in indices], line)
        return prepared.joined([finished[index].translation for index in indices], has_links=has_links)
