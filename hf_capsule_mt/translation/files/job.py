"""What is translated, and how: made once, by a command or by the arguments of a function, and handed on whole."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from regex import Pattern

from hf_capsule_mt.data.row_formats import PART_SIZE
from hf_capsule_mt.decoding.products.int8 import Int8Choice
from hf_capsule_mt.errors import UserError

from ..formats.recognition import LINES as PLAIN
from ..generation.model_options import DecodingOptions
from ..preparation import TextOptions
from ..terms.glossary import Glossary
from ..text.segments import check_language
from ..text.words import keep_pattern, with_addresses

STANDARD_INPUT = Path("/dev/stdin")

LINES = "lines"
DOCUMENT = "document"
ROWS = "rows"
"""The kinds of inputs: lines of text, running text or a file of a format, and rows with columns."""


@dataclass(frozen=True)
class Job:
    """What is translated, how, and what is written beside the translations. The command `translate` has these options.

    Args:
        decoding: the model, and how it decodes. None if the caller has a translator.
        documents: language of running text, of files of formats, and of rows.
        sentences: language of lines and rows, which are cut into sentences.
        tags: whether texts have tags of XML or HTML.
        keep: regular expression for more parts that are not translated.
        translate_addresses: whether addresses of the Web and of e-mail are translated like words.
        glossary: terms that translations must have.
        source_lang: source language, for NLLB, M2M-100 and mBART.
        target_lang: language to write with these, and with multilingual OPUS-MT and MADLAD, until a text names another.
        format: the format of all inputs, "lines" for plain text. None: as their names and beginnings say.
        fuzzy: whether translations that wait for a review are replaced.
        errors: "strict", or "replace" for bytes that are not UTF-8.
        chunk_size: number of lines that are read, sorted and written at a time.
        interactive: whether each line is translated as soon as it arrives.
        report_file: where a line of JSON for each sentence goes.
        alignments: where the alignments of words go: a line of Pharaoh's format for each line, or a line of JSON for
            each sentence, see [`is_pharaoh`].
        n_best: number of translations of each line or row. None is one, without its number and score.
        text_column: name of the column with the texts of rows.
        translation_column: name of the new column.
        report_column: name of a new column with the numbers of a row. None adds none.
        device: name of the device. None is that of the process.
        in_folder: whether the outputs stand in a folder, with records.
        max_tokens_per_batch: source tokens that are decoded together, with padding. None: as `decoding` says.
    """

    decoding: DecodingOptions | None = None
    documents: str | None = None
    sentences: str | None = None
    tags: bool = False
    keep: str | None = None
    translate_addresses: bool = False
    glossary: Glossary | None = None
    source_lang: str | None = None
    target_lang: str | None = None
    format: str | None = None
    fuzzy: bool = False
    errors: str = "strict"
    chunk_size: int = 10_000
    interactive: bool = False
    report_file: Path | None = None
    alignments: Path | None = None
    n_best: int | None = None
    text_column: str = "text"
    translation_column: str = "translation"
    report_column: str | None = None
    device: str | None = None
    in_folder: bool = False
    max_tokens_per_batch: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any], **others: Any) -> "Job":
        """Return a job with the options that have the name of a field, and others."""
        names = {field.name for field in fields(cls)}
        given = {name: value for name, value in options.items() if name in names}
        return cls(**(given | others))

    @property
    def is_running_text(self) -> bool:
        """Whether text without a format is running text, whose paragraphs go over several lines."""
        return self.documents is not None and self.sentences is None

    @property
    def more_files(self) -> dict[str, Path]:
        """The files that are written next to an output, by their names in the folder of an unfinished one."""
        files = {"report": self.report_file, "alignments": self.alignments}
        return {name: file for name, file in files.items() if file is not None}

    @property
    def budget(self) -> int:
        """Source tokens that are decoded together, with padding."""
        if self.max_tokens_per_batch is not None or self.decoding is None:
            return self.max_tokens_per_batch or 4096
        return self.decoding.max_tokens_per_batch

    def texts(self, kind: str) -> TextOptions:
        """Return how the texts of a kind of input are cut, and what of them is not translated."""
        language = self.documents or self.sentences
        if kind != DOCUMENT and self.sentences is not None:
            language = self.sentences
        is_lines = self.in_folder and kind != DOCUMENT
        return TextOptions(
            language,
            tags=self.tags and kind != DOCUMENT,
            keep=self._keep(kind),
            glossary=self.glossary,
            split="lines" if is_lines else "paragraphs",
        )

    def _keep(self, kind: str) -> Pattern | None:
        """Return what finds the parts that are not translated. Words are not aligned with kept parts."""
        pattern = keep_pattern(self.keep) if self.keep else None
        has_addresses = self.in_folder or kind == DOCUMENT or self.is_running_text or self.tags
        if has_addresses and not self.translate_addresses and self.alignments is None:
            pattern = with_addresses(pattern)
        return pattern

    def answers(self) -> dict[str, Any]:
        """Return what is asked of the search besides the best translations."""
        return {
            "rereads": self.report_file is not None,
            "return_scores": self.n_best is not None,
            "return_alignments": self.alignments is not None,
            "num_return_sequences": self.n_best or 1,
        }

    @property
    def judges(self) -> bool:
        """Whether each sentence is judged. What a folder counts needs no other pass of the model."""
        return self.in_folder or self.report_file is not None

    def check(self) -> None:
        """Refuse what does not go together, whatever the inputs are, before anything is read.

        Raises:
            UserError: if an option is wrong, or two of them exclude each other.
        """
        for language in filter(None, (self.documents, self.sentences)):
            check_language(language)
        if self.keep is not None:
            keep_pattern(self.keep)
        for reason in filter(None, (self._wrong_terms(), self._wrong_n_best(), self._wrong_alignments())):
            raise UserError(reason)
        if self.in_folder and self.interactive:
            raise UserError("--interactive is for one input. Leave it out with --output_dir.")

    def _wrong_terms(self) -> str | None:
        """Return why the search cannot write the terms of a glossary."""
        if self.glossary is None or self.decoding is None:
            return None
        if self.decoding.engine == "transformers":
            return "--glossary needs --engine fast. Leave out --engine."
        if self.decoding.vocabulary is not None:
            return "--vocabulary may lack words of a --glossary. Leave out one of both."
        return None

    def _wrong_n_best(self) -> str | None:
        """Return why there cannot be several translations of a text."""
        if self.n_best is None:
            return None
        if self.is_running_text and not self.in_folder:
            return "--n_best is for lines, and --documents joins them. Give --sentences instead."
        if self.n_best > 1 and self.glossary is not None:
            return "--glossary gives one translation of a sentence. Leave out --n_best."
        num_beams = None if self.decoding is None else self.decoding.num_beams
        if num_beams is not None and num_beams < self.n_best:
            return f"--n_best {self.n_best} needs as many beams. Give --num_beams {self.n_best} or more."
        return None

    def _wrong_alignments(self) -> str | None:
        """Return why words cannot be aligned."""
        if self.alignments is None:
            return None
        if self.in_folder:
            return "--alignments is for one input. Leave it out with --output_dir."
        if self.tags or self.keep is not None:
            return "--alignments is for text without tags and kept parts. Leave out --tags and --keep."
        if is_pharaoh(self.alignments) and self.is_running_text:
            return "Pharaoh's format is for lines, and --documents joins them. Give --alignments FILE.jsonl."
        return None

    def check_kind(self, kind: str, what: str) -> None:
        """Refuse options that do not go with a kind of input. The reasons stand only here.

        Args:
            kind: of the input.
            what: says what the input is, such as "a.md is Markdown".

        Raises:
            UserError: if an option does not go with it.
        """
        if kind == ROWS and self.errors != "strict":
            raise UserError(f"--errors replace is for text. {what}, whose columns have types. Leave it out.")
        if kind == ROWS and self.format is not None:
            raise UserError(f"--format is for text, and {what}. Leave it out.")
        if kind != DOCUMENT:
            return

        # Its sentences are joined, and its marks are tags.
        names = ["n_best", "interactive", "alignments"]
        if not self.in_folder:
            # There it may be for other files.
            names.append("sentences")
        remedy = "Leave it out."
        if self.tags:
            remedy = f"Leave it out, or give --format {PLAIN}, which leaves the attributes as they are."
        for name in names:
            if getattr(self, name):
                raise UserError(f"--{name} is for lines of text, and {what}. {remedy}")

    def pinned(self, int8_choice: Mapping[str, Any] | None = None) -> "Job":
        """Return a job for all processes, with one commit of the model and one choice for products in int8.

        Args:
            int8_choice: that of an interrupted run, if there was one.
        """
        if self.decoding is None:
            return self
        decoding = self.decoding
        if int8_choice is not None:
            decoding = replace(decoding, int8_choice=Int8Choice(**int8_choice))
        return replace(self, decoding=decoding.pinned())

    def settings(self, kind: str) -> dict[str, Any]:
        """Return everything that the translations of a kind of input depend on, except the input."""
        settings = self._settings_of_model()
        if self.in_folder and kind != DOCUMENT:
            return settings | self._settings_of_rows()
        settings |= self._settings_of_texts(kind)
        for name in ("source_lang", "target_lang"):
            if getattr(self, name):
                settings[name] = getattr(self, name)
        if self.n_best is not None:
            settings["n_best"] = self.n_best
        if self.in_folder:
            # Translations do not depend on what a report says of them.
            return settings
        if self.report_file is not None:
            settings["report_file"] = str(self.report_file.resolve())
        if self.alignments is not None:
            settings["alignments"] = str(self.alignments.resolve())
        return settings

    def _settings_of_model(self) -> dict[str, Any]:
        if self.decoding is None:
            return {}
        settings = self.decoding.settings()
        if self.decoding.int8_choice is not None:
            settings["int8_choice"] = asdict(self.decoding.int8_choice)
        return settings

    def _settings_of_texts(self, kind: str) -> dict[str, Any]:
        texts = self.texts(kind)
        settings: dict[str, Any] = {}
        if texts.language:
            is_running = kind == DOCUMENT or self.is_running_text
            settings["documents" if is_running else "sentences"] = texts.language
        if texts.tags:
            settings["tags"] = True
        if texts.keep is not None:
            settings["keep"] = texts.keep.pattern
        if self.glossary is not None:
            settings["glossary"] = self.glossary.digest()
        if self.errors != "strict":
            settings["errors"] = self.errors
        return settings

    def _settings_of_rows(self) -> dict[str, Any]:
        """Return what else lines and rows of a folder depend on, as records of earlier clones have it too."""
        settings: dict[str, Any] = {"part_size": PART_SIZE, "sentences": self.texts(ROWS).language}
        # In int8, and by rounding, a translation depends on the sentences of its batch.
        settings["max_tokens_per_batch"] = self.budget
        for name in ("text_column", "translation_column", "report_column", "tags", "keep", "translate_addresses"):
            settings[name] = getattr(self, name)
        for name in ("source_lang", "target_lang", "n_best"):
            settings[name] = getattr(self, name)
        if self.glossary is not None:
            settings["glossary"] = self.glossary.digest()
        if self.errors != "strict":
            settings["errors"] = self.errors
        return settings


def is_pharaoh(alignments: Path) -> bool:
    """Return whether a file of alignments is in Pharaoh's format. Otherwise it has lines of JSON."""
    return not alignments.name.endswith((".jsonl", ".jsonl.gz"))
