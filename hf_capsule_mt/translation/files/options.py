"""What the commands that translate are asked to do with a file."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from hf_capsule_mt.decoding.products.int8 import Int8Choice

from ..generation.model_options import DecodingOptions
from ..preparation import TextOptions
from .partial_output import kept_settings

STANDARD_INPUT = Path("/dev/stdin")


@dataclass(frozen=True)
class FileOptions:
    """What is translated, and where the translations go.

    Args:
        decoding: the model, and how it decodes.
        texts: what a line is. With a language and `split="paragraphs"`, the file is running text whose paragraphs go
            over several lines. Otherwise each line is a text.
        input_file: the text. None is standard input.
        output_file: where the translations go. None gives them to the caller.
        report_file: where a line of JSON for each sentence goes.
        alignments_file: where the alignments of words go: a line of Pharaoh's format for each line, or a line of JSON
            for each sentence, see [`is_pharaoh`].
        device: name of the device. None is that of the process.
        chunk_size: number of lines that are read, sorted and written at a time.
        interactive: whether each line is translated as soon as it arrives.
        source_lang: source language, for NLLB, M2M-100 and mBART.
        target_lang: language to write with these, and with multilingual OPUS-MT and MADLAD, until a text names another.
        errors: "strict", or "replace" for bytes that are not UTF-8.
        n_best: number of translations of each line, in lines of their own. None is one, without its number and score.
    """

    decoding: DecodingOptions
    texts: TextOptions = field(default_factory=TextOptions)
    input_file: Path | None = None
    output_file: Path | None = None
    report_file: Path | None = None
    alignments_file: Path | None = None
    device: str | None = None
    chunk_size: int = 10_000
    interactive: bool = False
    source_lang: str | None = None
    target_lang: str | None = None
    errors: str = "strict"
    n_best: int | None = None

    @property
    def is_document(self) -> bool:
        """Whether the file is running text."""
        return bool(self.texts.language) and self.texts.split == "paragraphs"

    @property
    def more_files(self) -> dict[str, Path]:
        """The files that are written next to the output, by their names in the folder of an unfinished one."""
        files = {"report": self.report_file, "alignments": self.alignments_file}
        return {name: file for name, file in files.items() if file is not None}

    def pinned(self) -> "FileOptions":
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
        settings |= self._settings_of_texts()
        for name in ("source_lang", "target_lang"):
            if getattr(self, name):
                settings[name] = getattr(self, name)
        if self.n_best is not None:
            settings["n_best"] = self.n_best
        if self.report_file is not None:
            settings["report_file"] = str(self.report_file.resolve())
        if self.alignments_file is not None:
            settings["alignments"] = str(self.alignments_file.resolve())
        return settings

    def _settings_of_texts(self) -> dict[str, object]:
        texts = self.texts
        settings: dict[str, object] = {}
        if texts.language:
            settings["documents" if self.is_document else "sentences"] = texts.language
        if texts.tags:
            settings["tags"] = True
        if texts.keep is not None:
            settings["keep"] = texts.keep.pattern
        if texts.glossary is not None:
            settings["glossary"] = texts.glossary.digest()
        return settings


def is_pharaoh(alignments_file: Path) -> bool:
    """Return whether a file of alignments is in Pharaoh's format. Otherwise it has lines of JSON."""
    return not alignments_file.name.endswith((".jsonl", ".jsonl.gz"))
