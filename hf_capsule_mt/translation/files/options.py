"""What the command `translate` is asked to do with a file."""

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from hf_capsule_mt.decoding.products.int8 import Int8Choice
from hf_capsule_mt.files import hash_file

from ..generation.model_options import DecodingOptions
from ..preparation import TextOptions
from ..quality.calibration import Calibration
from ..tags.segments import keep_pattern, with_addresses
from ..terms.glossary import Glossary
from .partial_output import kept_settings

STANDARD_INPUT = Path("/dev/stdin")


@dataclass(frozen=True)
class FileTranslationOptions:
    """What is translated, and where the translations go.

    Args:
        decoding: the model, and how it decodes.
        input_file: the text, one sentence a line. None is standard input.
        output_file: where the translations go. None gives them to the caller.
        report_file: where a line of JSON for each sentence goes.
        device: name of the device. None is that of the process.
        chunk_size: number of lines that are read, sorted and written at a time.
        interactive: whether each line is translated as soon as it arrives.
        documents: language of running text, such as "en". Its sentences are translated one by one.
        sentences: language of lines that are cut into sentences.
        tags: whether there are tags of XML or HTML.
        keep: regular expression for parts that are not translated.
        translate_addresses: whether addresses are translated like words, in documents, texts with tags and files with a
            format.
        source_lang: source language, for NLLB, M2M-100 and mBART.
        target_lang: language to write with these, and with multilingual OPUS-MT and MADLAD, until a text names another.
        glossary: file of terms that translations must have.
        glossary_languages: source and target language, for a glossary that has several.
        calibration: adds the expected quality to the lines of the report.
        errors: "strict", or "replace" for bytes that are not UTF-8.
        n_best: number of translations of each line, in lines of their own. None is one, without its number and score.
        alignments_file: where the alignments of words go: a line of JSON for each sentence if its name ends in .jsonl
            or .jsonl.gz, otherwise a line of Pharaoh's format for each line.
    """

    decoding: DecodingOptions
    input_file: Path | None = None
    output_file: Path | None = None
    report_file: Path | None = None
    device: str | None = None
    chunk_size: int = 10_000
    interactive: bool = False
    documents: str | None = None
    sentences: str | None = None
    tags: bool = False
    keep: str | None = None
    translate_addresses: bool = False
    source_lang: str | None = None
    target_lang: str | None = None
    glossary: Path | None = None
    glossary_languages: tuple[str, str] | None = None
    calibration: Calibration | None = None
    errors: str = "strict"
    n_best: int | None = None
    alignments_file: Path | None = None

    @property
    def more_files(self) -> dict[str, Path]:
        """The files that are written next to the output, by their names in the folder of an unfinished one."""
        files = {"report": self.report_file, "alignments": self.alignments_file}
        return {name: file for name, file in files.items() if file is not None}

    @property
    def is_pharaoh(self) -> bool:
        """Whether alignments are in Pharaoh's format."""
        return not str(self.alignments_file).endswith((".jsonl", ".jsonl.gz"))

    @cached_property
    def of_texts(self) -> TextOptions:
        """How the texts are cut, and which terms they need."""
        pattern = keep_pattern(self.keep) if self.keep else None
        # Words are not aligned with kept parts.
        keeps_addresses = (self.documents or self.tags) and not self.translate_addresses
        if keeps_addresses and self.alignments_file is None:
            pattern = with_addresses(pattern)
        glossary = None
        if self.glossary is not None:
            glossary = Glossary.read(self.glossary, *(self.glossary_languages or ()))
        return TextOptions(self.documents or self.sentences, self.tags, pattern, glossary)

    def pinned(self) -> "FileTranslationOptions":
        """Return options for all processes, with the products in int8 of the interrupted run if there is one."""
        decoding = self.decoding
        if self.output_file is not None:
            choice = kept_settings(self.output_file).get("int8_choice")
            if choice is not None:
                decoding = replace(decoding, int8_choice=Int8Choice(**choice))
        return replace(self, decoding=decoding.pinned())

    def settings(self) -> dict[str, object]:
        """Return everything that the output depends on, except the input."""
        settings = self.decoding.settings()
        if self.decoding.int8_choice is not None:
            settings["int8_choice"] = asdict(self.decoding.int8_choice)
        for name in ("documents", "sentences", "tags", "keep", "translate_addresses", "source_lang", "target_lang"):
            value = getattr(self, name)
            if value:
                settings[name] = value
        if self.glossary is not None:
            settings["glossary"] = hash_file(self.glossary)
            if self.glossary_languages is not None:
                settings["glossary_languages"] = list(self.glossary_languages)
        if self.n_best is not None:
            settings["n_best"] = self.n_best
        if self.report_file is not None:
            settings["report_file"] = str(self.report_file.resolve())
        if self.alignments_file is not None:
            settings["alignments"] = str(self.alignments_file.resolve())
        if self.calibration is not None:
            settings["calibration"] = self.calibration.digest()
        return settings
