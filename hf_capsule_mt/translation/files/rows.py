"""Translation of the rows of a corpus, as `datasets.map`, Ray Data, datatrove and the command `translate` call it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.languages import ONE_PAIR
from hf_capsule_mt.errors import UserError

from ..formats.messages import without_halves
from ..generation.model_options import DecodingOptions
from ..preparation import TextOptions
from ..quality.judge import judge
from ..text.segments import Segment, check_language
from ..text.words import keep_pattern, with_addresses
from ..text_translator import Ranked, TextTranslator
from ..translation import Sentence

_NAMES = ("source_lang", "target_lang")


@dataclass(frozen=True)
class RowCounts:
    """What became of the sentences of a row. Sums are those of a corpus."""

    segments: int = 0  # Sentences, also those that were translated for another row.
    words: int = 0  # Words of the source, between white space.
    copied: int = 0  # They have no letters.
    cut: int = 0  # They were longer than the model reads, so that the rest is not translated.
    limit_reached: int = 0  # The translation was cut at the limit to its length.
    empty: int = 0  # The translation has no words.
    too_short: int = 0  # A part must be missing.
    repeats: int = 0  # The translation repeats a phrase many times.

    def __add__(self, other: "RowCounts") -> "RowCounts":
        sums = {}
        for field in fields(self):
            sums[field.name] = getattr(self, field.name) + getattr(other, field.name)
        return RowCounts(**sums)


class CorpusTranslator:
    """Translates a column of text, and keeps all others.

        translate = CorpusTranslator("Helsinki-NLP/opus-mt-en-de", sentences="en", num_beams=1)
        translate({"id": ["1", "2"], "text": ["A dog runs.\\nIt is late.", None]})["translation"]
        # ["Ein Hund läuft.\\nEs ist spät.", None]

    A line of a text is translated by itself, or sentence by sentence. Line breaks, and white space around sentences,
    stay. A null stays null. Equal sentences of one call are translated once.

    Other processes may get a copy. The model is loaded by the first call in each, and no copy carries it.

    Args:
        model: folder of a checkpoint, or name on the Hub. Its commit is looked up at once, and in int8 the fastest
            products are chosen at once, so that all copies have the same.
        text_column: name of the column with the texts.
        translation_column: name of the new column.
        report_column: name of a new column with the numbers of a row, see [`RowCounts`]. None adds none.
        sentences: language of the texts, such as "en". Each line is cut into sentences. Most models need it.
        tags: whether texts have tags of XML or HTML.
        keep: regular expression for more parts than addresses that are not translated.
        translate_addresses: whether addresses of the Web and of e-mail are translated like words.
        source_lang: source language, for NLLB, M2M-100 and mBART.
        target_lang: language to write with these, and with multilingual OPUS-MT and MADLAD.
        device: name of the device. By default it is a GPU if there is one.
        **decoding: fields of [`DecodingOptions`], such as `num_beams`,
            `dtype` and `revision`.

    Raises:
        UserError: if there is no such language, or the regular expression is wrong.
    """

    def __init__(
        self,
        model: str,
        *,
        text_column: str = "text",
        translation_column: str = "translation",
        report_column: str | None = None,
        sentences: str | None = None,
        tags: bool = False,
        keep: str | None = None,
        translate_addresses: bool = False,
        source_lang: str | None = None,
        target_lang: str | None = None,
        device: str | None = None,
        **decoding: Any,
    ) -> None:
        if sentences is not None:
            check_language(sentences)
        self.text_column = text_column
        self.translation_column = translation_column
        self.report_column = report_column
        self.source_lang = source_lang
        self.target_lang = target_lang
        self.device = device
        self.keep = keep
        self.translate_addresses = translate_addresses
        pattern = None
        if keep:
            pattern = keep_pattern(keep)
        if not translate_addresses:
            pattern = with_addresses(pattern)
        self.options = TextOptions(sentences, tags, pattern)
        self.decoding = DecodingOptions(str(model), **decoding).pinned()
        self._translator: TextTranslator | None = None
        self._direction = ONE_PAIR

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_translator": None}

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that translations depend on, except the texts."""
        return {
            **self.decoding.settings(),
            # In int8, and by rounding, a translation depends on the sentences of its batch.
            "max_tokens_per_batch": self.decoding.max_tokens_per_batch,
            "int8_choice": self.decoding.int8_choice and asdict(self.decoding.int8_choice),
            "text_column": self.text_column,
            "translation_column": self.translation_column,
            "report_column": self.report_column,
            "sentences": self.options.language,
            "tags": self.options.tags,
            "keep": self.keep,
            "translate_addresses": self.translate_addresses,
            "source_lang": self.source_lang,
            "target_lang": self.target_lang,
        }

    def __call__(self, batch: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Translate the rows of a batch.

        Args:
            batch: columns, lists or arrays of equal length.

        Returns:
            The columns as lists, with the new ones.

        Raises:
            UserError: if the column of texts is missing or has something else than text, or a new column exists.
        """
        new_columns = [name for name in (self.translation_column, self.report_column) if name is not None]
        for name in new_columns:
            if name in batch:
                raise UserError(f"There is a column {name!r} already. Give the new column another name.")
        if self.text_column not in batch:
            raise UserError(f"There is no column {self.text_column!r}. The columns are {', '.join(batch)}.")
        translations, counts = self.translate(batch[self.text_column])
        columns = {name: list(column) for name, column in batch.items()}
        columns[self.translation_column] = translations
        if self.report_column is not None:
            columns[self.report_column] = [asdict(of_row) for of_row in counts]
        return columns

    def translate(self, texts: Iterable[str | None]) -> tuple[list[str | None], list[RowCounts]]:
        """Return the translation of each text, None for None, and the numbers of each row."""
        rows = [_Row(text) for text in texts]
        sentences = _DifferentSentences()
        for number, row in enumerate(rows):
            for line in row.lines:
                segments = self._segments(line)
                row.segments.append(sentences.add(segments, number + 1))
        translated = self._decode(sentences)
        translations = [row.translation(translated) for row in rows]
        counts = [row.counts(translated) for row in rows]
        return translations, counts

    def _segments(self, line: str) -> list[Segment]:
        """Return the segments of a line, with all of its white space around them."""
        words = line.strip()
        before = line[: len(line) - len(line.lstrip())]
        after = line[len(before) + len(words) :]
        translator = self._loaded()
        segments = translator.reader.segments(words, self.options, self._direction)
        segments[0] = replace(segments[0], before=before + segments[0].before)
        segments[-1] = replace(segments[-1], after=segments[-1].after + after)
        return segments

    def _decode(self, different: "_DifferentSentences") -> list[tuple[str, RowCounts]]:
        """Return the translation of every different sentence, and its numbers."""
        translator = self._loaded()
        codes = translator.reader.codes
        if codes.are_missing(segment.source for segment in different.segments):
            raise UserError(f"{codes.missing()}, or give target_lang.")
        sentences = translator.reader.encode(different.segments, self._direction, different.rows)
        lengths = [len(sentence.token_ids) for sentence in sentences]
        batches = batch_by_tokens(lengths, self.decoding.max_tokens_per_batch, different.rows)
        ranked = translator.decode(sentences, batches, **self.decoding.generate_options())
        translated = []
        for sentence, of_sentence in zip(sentences, ranked, strict=True):
            translated.append(self._translated(sentence, of_sentence))
        return translated

    def _translated(self, sentence: Sentence, ranked: Ranked) -> tuple[str, RowCounts]:
        """Return the translation of a sentence, with its tags and kept parts, and its numbers."""
        translator = self._loaded()
        counts = RowCounts(
            segments=1,
            words=len(sentence.segment.text.split()),
            copied=int(sentence.copy is not None),
            cut=int(sentence.is_cut),
        )
        translation = translator.restored(sentence, ranked)
        if ranked:
            written = sentence.segment.without_tags(translation.text)
            judgement = judge(translator.reader, sentence, ranked[0], written, translation.places)
            counts = replace(
                counts,
                limit_reached=int(judgement.limit_reached),
                empty=int(judgement.empty),
                too_short=int(judgement.too_short),
                repeats=int(judgement.repeats),
            )
        return translation.text, counts

    def _loaded(self) -> TextTranslator:
        if self._translator is None:
            default = "cpu"
            if torch.cuda.is_available():
                default = "cuda"
            translator = TextTranslator(*self.decoding.load(torch.device(self.device or default)))
            self._direction = translator.reader.languages.direction(self.source_lang, self.target_lang, _NAMES)
            self._translator = translator
        return self._translator


class _Row:
    """The lines of a text, and the segments of each line with the indices of their sentences."""

    def __init__(self, text: str | None) -> None:
        if text is not None and not isinstance(text, str):
            raise UserError(f"{text!r:.80} is not a text. A column of texts has only texts and nulls.")
        self.is_null = text is None
        self.lines = []
        if text is not None:
            self.lines = without_halves(text).split("\n")
        self.segments: list[list[tuple[Segment, int]]] = []

    def translation(self, translated: Sequence[tuple[str, RowCounts]]) -> str | None:
        """Return the translation of the text."""
        if self.is_null:
            return None
        lines = []
        for line in self.segments:
            parts = []
            for segment, index in line:
                text, _ = translated[index]
                parts.append(segment.around(text))
            lines.append("".join(parts))
        return "\n".join(lines)

    def counts(self, translated: Sequence[tuple[str, RowCounts]]) -> RowCounts:
        """Return the numbers of the row."""
        counts = RowCounts()
        for line in self.segments:
            for segment, index in line:
                if segment.text:
                    counts += translated[index][1]
        return counts


class _DifferentSentences:
    """The different sentences of a call, in the order in which they come."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.rows: list[int] = []
        """The row, from 1, in which each comes first."""
        self._index_of: dict[str, int] = {}

    def add(self, segments: Iterable[Segment], row: int) -> list[tuple[Segment, int]]:
        """Return segments with the indices of their sentences."""
        with_index = []
        for segment in segments:
            index = self._index_of.get(segment.source)
            # Tags and kept parts stand at other places of the same words.
            if index is None or segment.has_parts:
                index = len(self.segments)
                self.segments.append(segment)
                self.rows.append(row)
                if not segment.has_parts:
                    self._index_of[segment.source] = index
            with_index.append((segment, index))
        return with_index
