"""A window of the lines of a file: its sentences, and what its translations become in the files of the command."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby

from hf_capsule_mt.data.lines import unbroken

from .decoding_options import DecodingOptions
from .expected_quality import Calibration
from .term_writer import PlacedTerm
from .text_reader import PreparedText, Sentence
from .translation_report import Judgement
from .translations import Translation, WordLink, pharaoh_links, score_of_text


@dataclass(frozen=True)
class Translated:
    """The translation of a sentence, with its tags and kept parts, as processes give it to each other."""

    text: str
    judgement: Judgement | None = None
    terms: tuple[PlacedTerm, ...] = ()
    words: str = ""  # The translation without tags, as the model wrote it.
    score: float | None = None
    links: tuple[WordLink, ...] = ()
    alternatives: tuple["Translated", ...] = ()  # The best first.

    @classmethod
    def of(cls, translation: Translation, sentence: Sentence) -> "Translated":
        """Return the translation of a sentence with its tags and kept parts."""
        return cls(
            text=sentence.put_back(translation),
            judgement=translation.judgement,
            terms=translation.terms,
            words=translation.text,
            score=translation.score,
            links=translation.links or (),
            alternatives=tuple(cls.of(alternative, sentence) for alternative in translation.alternatives),
        )

    def number(self, index: int) -> "Translated":
        """Return this translation for 0, and an alternative for others."""
        return self.alternatives[index - 1] if index else self


@dataclass(frozen=True)
class Job:
    """A window of lines."""

    lines: list[str]  # The input.
    sentences: list[Sentence]  # Of the lines, or of the texts in them.
    numbers: list[int]  # Their lines in the input, from 1.
    batches: list[list[int]]  # Indices of the sentences that the model reads.
    decoding: DecodingOptions  # Those of the main process, with the commit of the model.
    code: str  # The code of the language of the last text.
    is_of_lines: bool  # Whether each line is one sentence.
    lines_before: int = 0  # Lines of the input before this window.

    def output(self, translations: dict[int, Translated]) -> list[str]:
        """Return the lines of the output from the translations by the index of their sentence."""
        texts = []
        for index, sentence in enumerate(self.sentences):
            translated = translations.get(index)
            text = sentence.put_back(None) if translated is None else translated.text
            texts.append(sentence.segment.around(text))
        if self.is_of_lines:
            return unbroken(texts, "translations")
        return "".join(texts).removesuffix("\n").split("\n")

    def report(self, translations: dict[int, Translated], calibration: Calibration | None = None) -> list[str]:
        """Return the lines of a report, one for each sentence, with the expected quality if there is a calibration."""
        records = []
        for index, number, place in self._places():
            sentence = self.sentences[index]
            translated = translations.get(index)
            if translated is None:
                translated = Translated("", words=sentence.copy or "")
            judgement = replace(translated.judgement or Judgement(), source_cut=sentence.is_cut)
            record = {
                "line": number,
                "sentence": place,
                "source": sentence.segment.text,
                "translation": translated.words,
                **judgement.fields(),
            }
            if translated.terms:
                record["terms"] = [asdict(term) for term in translated.terms]
            records.append(record)
        if calibration is not None:
            calibration.add_to(records)
        return [json.dumps(record, ensure_ascii=False) for record in records]

    def ranked_output(self, translations: dict[int, Translated]) -> list[str]:
        """Return the lines of the output with several translations of each line, as Moses and Marian write them.

        A line has the number of its source from 0, the translation, and the score twice: as a feature, and in all.
        """
        lines = []
        for number, (_, indices) in enumerate(self._of_lines(), self.lines_before):
            of_line = {index: translations[index] for index in indices if index in translations}
            lengths = [len(self.sentences[index].token_ids) for index in indices]
            most = max((len(translated.alternatives) for translated in of_line.values()), default=0)
            for rank in range(most + 1):
                ranked = {index: translated.number(rank) for index, translated in of_line.items()}
                scores = []
                for index in indices:
                    scores.append(ranked[index].score if index in ranked else None)
                score = score_of_text(scores, lengths)
                # What is copied is certain.
                written = f"{score or 0.0:.4f}"
                text = self._joined(indices, ranked)
                lines.append(f"{number} ||| {text} ||| score= {written} ||| {written}")
        return lines

    def pharaoh(self, translations: dict[int, Translated]) -> list[str]:
        """Return a line for each line of the input, with the numbers of words that belong together, such as "0-0 1-2".

        Words stand between white space.
        """
        lines = []
        for line, indices in self._of_lines():
            of_line = [_linked(translations.get(index)) for index in indices]
            text = PreparedText([self.sentences[index] for index in indices], line)
            translation = text.translation(of_line, has_links=True)
            pairs = pharaoh_links(translation.links, line, translation.text)
            lines.append(" ".join(f"{source}-{target}" for source, target in pairs))
        return lines

    def alignments(self, translations: dict[int, Translated]) -> list[str]:
        """Return a line of JSON for each sentence, with its words and the places of their characters."""
        lines = []
        for index, number, place in self._places():
            sentence = self.sentences[index]
            translation = _linked(translations.get(index))
            links = sentence.links(translation)
            record = {
                "line": number,
                "sentence": place,
                "source": sentence.segment.text,
                "translation": sentence.put_back(translation),
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

    def _joined(self, indices: Sequence[int], translations: dict[int, Translated]) -> str:
        """Return the translation of a line from those of its sentences."""
        parts = []
        for index in indices:
            sentence = self.sentences[index]
            text = translations[index].text if index in translations else sentence.put_back(None)
            parts.append(sentence.segment.around(text))
        [line] = unbroken(["".join(parts).removesuffix("\n")], "translations")
        return line


def _linked(translated: Translated | None) -> Translation | None:
    """Return a translation as the model wrote it, with its links of words."""
    return None if translated is None else Translation(translated.words, links=translated.links)
