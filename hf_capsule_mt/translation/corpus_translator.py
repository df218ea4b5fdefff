"""Translation of the rows of a corpus, as `datasets.map`, Ray Data and datatrove call it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from hf_capsule_mt.data.encoding import warn_of_cut
from hf_capsule_mt.data.languages import ONE_PAIR
from hf_capsule_mt.errors import UserError

from .files.crew import Crew
from .files.job import ROWS, Job
from .files.sources import check_codes
from .formats.messages import without_halves
from .generation.model_options import DecodingOptions
from .preparation import RawText, TooLong
from .quality.counts import RowCounts
from .terms.forcing import check_glossary
from .terms.glossary import Glossary
from .text_translator import TextTranslator
from .translation import PreparedText

_NAMES = ("source_lang", "target_lang")


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
        if isinstance(glossary, str | Path):
            glossary = Glossary.read(glossary, source_lang or sentences, target_lang)
        self.job = Job(
            DecodingOptions(str(model), **decoding),
            sentences=sentences,
            tags=tags,
            keep=keep,
            translate_addresses=translate_addresses,
            glossary=glossary,
            source_lang=source_lang,
            target_lang=target_lang,
            text_column=text_column,
            translation_column=translation_column,
            report_column=report_column,
            device=device,
            # Rows are cut as those of files in a folder.
            in_folder=True,
        )
        self.job.check()
        self.job = self.job.pinned()
        self._options = self.job.texts(ROWS)
        self._crew: Crew | None = None
        self._direction = ONE_PAIR

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_crew": None}

    def __call__(self, batch: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Translate the rows of a batch.

        Args:
            batch: columns, lists or arrays of equal length.

        Returns:
            The columns as lists, with the new ones.

        Raises:
            UserError: if the column of texts is missing or has something else than text, or a new column exists.
        """
        job = self.job
        new_columns = [name for name in (job.translation_column, job.report_column) if name is not None]
        for name in new_columns:
            if name in batch:
                raise UserError(f"There is a column {name!r} already. Give the new column another name.")
        if job.text_column not in batch:
            raise UserError(f"There is no column {job.text_column!r}. The columns are {', '.join(batch)}.")

        translations, counts = self.translate(batch[job.text_column])
        columns = {name: list(column) for name, column in batch.items()}
        columns[job.translation_column] = translations
        if job.report_column is not None:
            columns[job.report_column] = [dict(of_row) for of_row in counts]
        return columns

    def translate(self, texts: Iterable[str | None]) -> tuple[list[str | None], list[RowCounts]]:
        """Return the translation of each text, None for None, and the numbers of each row."""
        rows = [_readable(text) for text in texts]
        filled = [number for number, text in enumerate(rows) if text is not None]
        crew = self._loaded()
        prepared = self._prepared(crew, [rows[number] for number in filled], filled)
        numbers = [row + 1 for row, text in zip(filled, prepared, strict=True) for _ in text.sentences]
        translated = crew.translate(prepared, numbers, self.job.budget, {}, has_record=True)

        translations: list[str | None] = [None] * len(rows)
        counts = [RowCounts()] * len(rows)
        for number, text, translation in zip(filled, prepared, translated, strict=True):
            translations[number] = translation.text
            counts[number] = RowCounts.of(text, translation)
        return translations, counts

    def _prepared(self, crew: Crew, texts: Sequence[str], rows: Sequence[int]) -> list[PreparedText]:
        """Return the sentences of texts. Warn of those that are cut, by the numbers of their rows."""
        sources = [RawText(text, self._options) for text in texts]
        prepared = crew.reader.prepare_all(sources, self._direction, TooLong.CUT)
        check_codes(crew.reader, prepared)

        cut = []
        for row, text in zip(rows, prepared, strict=True):
            cut += [row + 1 for sentence in text.sentences if sentence.is_cut]
        warn_of_cut(cut, crew.reader.limit)
        return prepared

    def _loaded(self) -> Crew:
        """Return what translates, with the model."""
        if self._crew is None:
            default = "cuda" if torch.cuda.is_available() else "cpu"
            decoding = self.job.decoding
            translator = TextTranslator(*decoding.load(torch.device(self.job.device or default)))
            crew = Crew.with_translator(translator, decoding.generate_options())
            if self.job.glossary is not None:
                check_glossary(self.job.glossary, translator.tokenizer, translator.model.generation_config)
            languages = crew.reader.languages
            self._direction = languages.direction(self.job.source_lang, self.job.target_lang, _NAMES)
            self._crew = crew
        return self._crew


def _readable(text: Any) -> str | None:
    """Return the text of a row as UTF-8 can spell it, or None for a null."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise UserError(f"{text!r:.80} is not a text. A column of texts has only texts and nulls.")
    return without_halves(text)
