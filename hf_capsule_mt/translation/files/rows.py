"""Translation of the rows of a corpus, as `datasets.map`, Ray Data, datatrove and the command `translate` call it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.encoding import warn_of_cut
from hf_capsule_mt.data.languages import ONE_PAIR
from hf_capsule_mt.errors import UserError

from ..formats.messages import without_halves
from ..generation.model_options import DecodingOptions
from ..preparation import RawText, TextOptions, TooLong
from ..quality.faults import FAULTS
from ..terms.forcing import check_glossary
from ..terms.glossary import Glossary
from ..text.segments import check_language
from ..text.words import keep_pattern, with_addresses
from ..text_translator import TextTranslator, first_equal_sentences
from ..translation import PreparedText, Translation

_NAMES = ("source_lang", "target_lang")


COUNTED = tuple(fault.name for fault in FAULTS if fault.holds is not None and not fault.needs_pass)
"""The faults that are counted in rows: those that are found without another pass of the model."""


class RowCounts(dict[str, int]):
    """What became of the sentences of a row: numbers by their names. Sums are those of a corpus.

    "segments" is the number of sentences, also of those that were translated for another row. "words" are those of the
    source, between white space. "copied" sentences have no letters. The others are the faults of [`COUNTED`].
    """

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        super().__init__(dict.fromkeys(("segments", "words", "copied", *COUNTED), 0))
        for name, number in (counts or {}).items():
            # As finished outputs of earlier clones call it.
            self["source_cut" if name == "cut" else name] = number

    def __add__(self, other: Mapping[str, int]) -> "RowCounts":
        return RowCounts({name: number + other[name] for name, number in self.items()})


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
        glossary: terms that translations must have: a file (.tsv, .csv or .tbx), or a [`Glossary`].
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
        glossary: str | Path | Glossary | None = None,
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
        if isinstance(glossary, str | Path):
            glossary = Glossary.read(glossary, source_lang or sentences, target_lang)
        self.options = TextOptions(sentences, tags, pattern, glossary, split="lines")
        self.decoding = DecodingOptions(str(model), **decoding).pinned()
        self._translator: TextTranslator | None = None
        self._direction = ONE_PAIR

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_translator": None}

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that translations depend on, except the texts."""
        glossary = self.options.glossary
        return {
            **({} if glossary is None else {"glossary": glossary.digest()}),
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
            columns[self.report_column] = [dict(of_row) for of_row in counts]
        return columns

    def translate(self, texts: Iterable[str | None]) -> tuple[list[str | None], list[RowCounts]]:
        """Return the translation of each text, None for None, and the numbers of each row."""
        rows = [_readable(text) for text in texts]
        filled = [number for number, text in enumerate(rows) if text is not None]
        prepared = self._prepared([rows[number] for number in filled], filled)
        translated = self._translated(prepared, filled)

        translations: list[str | None] = [None] * len(rows)
        counts = [RowCounts()] * len(rows)
        for number, text, translation in zip(filled, prepared, translated, strict=True):
            translations[number] = translation.text
            counts[number] = _counts(text, translation)
        return translations, counts

    def _prepared(self, texts: Sequence[str], rows: Sequence[int]) -> list[PreparedText]:
        """Return the sentences of texts. Warn of those that are cut, by the numbers of their rows."""
        reader = self._loaded().reader
        sources = [RawText(text, self.options) for text in texts]
        prepared = reader.prepare_all(sources, self._direction, TooLong.CUT)
        sentences = [sentence for text in prepared for sentence in text.sentences]
        if reader.codes.are_missing(sentence.segment.source for sentence in sentences):
            raise UserError(f"{reader.codes.missing()}, or give target_lang.")

        cut = []
        for row, text in zip(rows, prepared, strict=True):
            cut += [row + 1 for sentence in text.sentences if sentence.is_cut]
        warn_of_cut(cut, reader.limit)
        return prepared

    def _translated(self, prepared: Sequence[PreparedText], rows: Sequence[int]) -> list[Translation]:
        """Return the translations of texts, with what is judged of their sentences."""
        translator = self._loaded()
        sentences = [sentence for text in prepared for sentence in text.sentences]
        numbers = [row + 1 for row, text in zip(rows, prepared, strict=True) for _ in text.sentences]
        first_of = first_equal_sentences(sentences)
        lengths = []
        for index, sentence in enumerate(sentences):
            lengths.append(len(sentence.token_ids) if first_of[index] == index else 0)
        batches = batch_by_tokens(lengths, self.decoding.max_tokens_per_batch, numbers)
        ranked = translator.decode(sentences, batches, **self.decoding.generate_options())

        remaining = iter(first_of)
        translated = []
        for text in prepared:
            of_text = [ranked[index] for index in islice(remaining, len(text.sentences))]
            translated.append(translator.join(text, of_text, has_record=True))
        return translated

    def _loaded(self) -> TextTranslator:
        if self._translator is None:
            default = "cpu"
            if torch.cuda.is_available():
                default = "cuda"
            translator = TextTranslator(*self.decoding.load(torch.device(self.device or default)))
            if self.options.glossary is not None:
                check_glossary(self.options.glossary, translator.tokenizer, translator.model.generation_config)
            self._direction = translator.reader.languages.direction(self.source_lang, self.target_lang, _NAMES)
            self._translator = translator
        return self._translator


def _readable(text: Any) -> str | None:
    """Return the text of a row as UTF-8 can spell it, or None for a null."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise UserError(f"{text!r:.80} is not a text. A column of texts has only texts and nulls.")
    return without_halves(text)


def _counts(text: PreparedText, translation: Translation) -> RowCounts:
    """Return the numbers of a row."""
    counts = RowCounts()
    for sentence, translated in zip(text.sentences, translation.sentences, strict=True):
        if not sentence.segment.text:
            continue
        faults = {name: int(translated.record[name]) for name in COUNTED}
        words = len(sentence.segment.text.split())
        counts += RowCounts({"segments": 1, "words": words, "copied": int(sentence.copy is not None), **faults})
    return counts
