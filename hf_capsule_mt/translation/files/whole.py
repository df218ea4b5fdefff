"""Translate a file of a format as a whole."""

import codecs
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.languages import Direction
from hf_capsule_mt.data.lines import opened, text_bytes
from hf_capsule_mt.environment import check_installed
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import replaced_file
from hf_capsule_mt.translation.files.partial_output import PartialOutput, held_folder
from hf_capsule_mt.translation.preparation import RawText, TextOptions, TooLong, named_in_errors
from hf_capsule_mt.translation.terms.forcing import check_glossary
from hf_capsule_mt.translation.terms.glossary import Glossary
from hf_capsule_mt.translation.text.segments import check_language
from hf_capsule_mt.translation.text.words import keep_pattern, with_addresses, with_own_flags
from hf_capsule_mt.translation.text_translator import TextTranslator

from ..formats.base import Document, FileFormat, Text, lines_kept, lines_left, unit_starts, warn_of_left
from ..formats.recognition import HEAD_BYTES, LINES, recognise_contents
from ..formats.running_text import RunningText

if TYPE_CHECKING:
    from regex import Pattern

    from hf_capsule_mt.translation.pipeline import TranslationPipeline


_GROUP = 20_000
"""Characters of texts that are decoded together, and then kept."""
TEXT = RunningText()
"""The format of files that have no other one."""


class TranslatedFile(NamedTuple):
    """What became of a file."""

    units: int
    """How many messages, paragraphs, sentences of subtitles and so on there were to translate."""
    left: list[int]
    """The lines, from 1, of those that stay as they are, because a translation lacks a mark or a placeholder."""
    kept: Mapping[str, list[int]] = MappingProxyType({})
    """The lines of other words that stay in the language of the file, by the reasons: values of [`Reason`]."""


class ReportedText(NamedTuple):
    """A text of a file that was translated."""

    translation: str
    records: Sequence[tuple[int, dict[str, Any]]]
    """For each of its sentences, its line in the text, from 0, and what the report says. Empty without a report."""


def translate_file(
    translator: "TextTranslator | TranslationPipeline",
    input_file: str | Path,
    output_file: str | Path | None,
    language: str,
    *,
    file_format: str | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    keep: str | None = None,
    translate_addresses: bool = False,
    fuzzy: bool = False,
    glossary: Glossary | None = None,
    max_tokens_per_batch: int = 4096,
    report_file: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    advance: Callable[[int], Any] | None = None,
    **options: Any,
) -> TranslatedFile:
    """Translate a file of Markdown, HTML, subtitles or localisation, or plain text.

    Everything but its texts stays as it is.

    The whole file is read at once, and written at the end, whole or not at all.

    Args:
        translator: a translation pipeline, or what it translates with.
        input_file: the file. It may be compressed.
        output_file: where the translation goes. If its name ends in .gz it is compressed. None is standard output.
        language: two letters of the language of the file, whose sentences are translated one by one.
        file_format: a name among `FORMATS`, or "lines" for plain text, whose paragraphs end with an empty line. By
            default the name and the beginning of the file tell.
        source_lang: code of the source language, for NLLB, M2M-100 and mBART.
        target_lang: code of the language to write. Multilingual models need it. Pages of HTML name it, by default that
            of a tokenizer which knows its pair.
        keep: a regular expression for more parts that are not translated.
        translate_addresses: whether addresses of the Web and of e-mail are translated like words.
        fuzzy: whether translations that wait for a review are replaced. Only .po and XLIFF have such ones.
        glossary: terms that translations must have.
        max_tokens_per_batch: source tokens that are decoded together, with padding.
        report_file: where a line of JSON for each sentence goes, with the name of its unit in the file.
        settings: everything that the translations depend on. With it, finished texts are kept in a folder next to the
            output file until all are done, and a call with the same settings continues after an interruption.
        advance: is told the number of units that were translated, each time.
        **options: of decoding, such as `num_beams=4`.

    Returns:
        How many units there were, and the lines of what stays as it is.

    Raises:
        UserError: if the file is no text, of no format that is supported, or damaged, or there is no such language.
    """
    input_file = Path(input_file)
    check_language(language)
    translator = getattr(translator, "texts", translator)
    # That of an OPUS-MT model knows its pair.
    known_target = getattr(translator.tokenizer, "target_lang", None)
    mark, document = _read(input_file, file_format, target_lang or known_target, fuzzy)
    direction = checked_direction(translator, source_lang, target_lang, glossary)
    reading = TextOptions(language, keep=_keep(keep, translate_addresses), glossary=glossary)
    has_report = report_file is not None
    translate = partial(_translations, translator, reading, direction, max_tokens_per_batch, has_report, options)
    with ExitStack() as stack:
        kept = None
        if settings is not None and output_file is not None:
            stack.enter_context(held_folder(Path(output_file)))
            more_files = {"report": Path(report_file)} if has_report else None
            kept = PartialOutput(Path(output_file), settings, more_files)
        with named_in_errors(str(input_file)):
            translated = _resumed(translate, document.texts, kept, has_report, advance)
        written = mark + document.written([text.translation for text in translated])
        if has_report:
            records = _report(input_file, document, translated)
            lines = [json.dumps(record, ensure_ascii=False) for record in records]
            _write(text_bytes(lines), report_file)
        _write(written, output_file)
        if kept is not None:
            kept.discard()
    warn_of_left(str(input_file), document)
    return TranslatedFile(sum(unit_starts(document.texts)), lines_left(document), lines_kept(document))


def _keep(keep: str | None, translate_addresses: bool) -> "Pattern | None":
    """Return what finds the parts of a file that are not translated. Arguments and errors: [`translate_file`]."""
    pattern = None
    if keep is not None:
        pattern = keep_pattern(keep)
    if not translate_addresses:
        pattern = with_addresses(pattern)
    return pattern


def _write(content: bytes, path: str | Path | None) -> None:
    """Write a whole file, or to standard output if it has no name."""
    if path is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    with replaced_file(Path(path)) as file:
        file.write(content)


def number_of_units(
    path: Path, file_format: str | None = None, target_lang: str | None = None, fuzzy: bool = False
) -> int:
    """Return how many units of a file there are to translate.

    Args:
        path: the file.
        file_format: as of [`translate_file`], and so are all others.
        target_lang: code of the language to write.
        fuzzy: whether translations that wait for a review are replaced.

    Raises:
        UserError: as in [`translate_file`].
    """
    _, document = _read(path, file_format, target_lang, fuzzy)
    return sum(unit_starts(document.texts))


def _read(path: Path, file_format: str | None, target_lang: str | None, fuzzy: bool) -> tuple[bytes, Document]:
    """Return the mark at the beginning of a file, and the file behind it. Arguments and errors: [`translate_file`]."""
    with opened(path) as file:
        data = file.read()
    recognised = recognise_contents(path, data[:HEAD_BYTES], file_format) or TEXT
    check_package(recognised)
    if fuzzy:
        recognised = recognised.with_fuzzy()
    mark = byte_order_mark(data)
    with named_in_errors(str(path)):
        return mark, recognised.read(data.removeprefix(mark), target_lang)


def _resumed(
    translate: Callable[[Sequence[Text]], list[ReportedText]],
    texts: Sequence[Text],
    kept: PartialOutput | None,
    has_report: bool,
    advance: Callable[[int], Any] | None,
) -> list[ReportedText]:
    """Return the translation of each text. Groups of texts that an interrupted run has finished are not repeated."""
    starts = unit_starts(texts)
    sources = [json.dumps([text.text, text.keep]) for text in texts]
    translated = []
    if kept is not None:
        kept.skip(iter(sources))
        translations = [json.loads(line) for line in kept.kept_lines()]
        records: list[Any] = [()] * len(translations)
        if has_report:
            records = [json.loads(line) for line in kept.kept_lines("report")]
        translated = list(map(ReportedText, translations, records))
    if advance is not None:
        advance(sum(starts[: len(translated)]))
    for start, end in _groups(texts, len(translated)):
        group = translate(texts[start:end])
        translated += group
        if kept is not None:
            lines = {"lines": [json.dumps(text.translation) for text in group]}
            if has_report:
                lines["report"] = [json.dumps(text.records) for text in group]
            kept.append(sources[start:end], lines, "")
        if advance is not None:
            advance(sum(starts[start:end]))
    return translated


def _report(input_file: Path, document: Document, translated: Sequence[ReportedText]) -> list[dict[str, Any]]:
    """Return what the report says of each sentence of a file that was written, in the order of their lines."""
    left = set(document.left)
    records = []
    for number, (text, of_text) in enumerate(zip(document.texts, translated, strict=True)):
        for line, record in of_text.records:
            place = {
                "file": str(input_file),
                "line": text.place.line + line,
                "unit": text.place.unit,
                "context": text.place.context,
                "sentence": 0,
            }
            details = document.details.get(number, {})
            records.append({**place, **record, "left": number in left, **details})
    # Words in attributes and images are not between the other texts.
    records.sort(key=itemgetter("line"))
    for _, of_unit in groupby(records, key=itemgetter("line", "unit", "context")):
        for number, record in enumerate(of_unit, 1):
            record["sentence"] = number
    return records


def _groups(texts: Sequence[Text], start: int) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of groups of texts of about `_GROUP` characters, from one text on."""
    while start < len(texts):
        end = start + 1
        size = len(texts[start].text)
        while end < len(texts) and size < _GROUP:
            size += len(texts[end].text)
            end += 1
        yield start, end
        start = end


def check_readable(file_format: FileFormat, language: str | None) -> None:
    """Check that files of a format can be read, before a model is loaded.

    Raises:
        UserError: if there is no language, or a library is missing.
    """
    if language is None:
        raise UserError(
            f"The input is {file_format.title}. Give the language of its sentences, such as --documents en. To "
            f"translate each line as it is, give --format {LINES}."
        )
    check_language(language)
    check_package(file_format)


def check_package(file_format: FileFormat) -> None:
    """Raise a UserError if the library that reads files of a format is missing."""
    if file_format.package is not None:
        check_installed(file_format.package, "files")


def checked_direction(
    translator: TextTranslator, source_lang: str | None, target_lang: str | None, glossary: Glossary | None
) -> Direction:
    """Return the languages of files, and check that the model can write the terms.

    Args:
        translator: what translates.
        source_lang: code of the source language.
        target_lang: code of the language to write. A page may name it where the model has only one.
        glossary: terms that translations must have.

    Raises:
        UserError: if there is no such language, or the model cannot write a term.
    """
    if glossary is not None:
        check_glossary(glossary, translator.tokenizer, translator.model.generation_config)
    languages = translator.reader.languages
    if not languages.are_arguments and not languages.codes:
        target_lang = None
    return languages.direction(source_lang, target_lang)


def byte_order_mark(data: bytes) -> bytes:
    """Return the mark at the beginning of a file, or nothing. Some programs of Windows put it in front of UTF-8."""
    if data.startswith(codecs.BOM_UTF8):
        return codecs.BOM_UTF8
    return b""


def options_of(text: Text, reading: TextOptions) -> TextOptions:
    """Return how a text of a file is read: like all of them, but for its tags and for what is kept in it."""
    keep = reading.keep
    if text.keep is not None and keep is not None:
        keep = keep_pattern(f"{text.keep}|{with_own_flags(keep)}")
    elif text.keep is not None:
        keep = keep_pattern(text.keep)
    return replace(reading, tags=text.markup is not None, keep=keep)


def _translations(
    translator: TextTranslator,
    reading: TextOptions,
    direction: Direction,
    max_tokens_per_batch: int,
    has_report: bool,
    options: dict[str, Any],
    texts: Sequence[Text],
) -> list[ReportedText]:
    """Return the translation of each text. Sentences of all texts are decoded together."""
    sources = [RawText(text.text, options_of(text, reading), text.markup) for text in texts]
    prepared = translator.reader.prepare_all(sources, direction, TooLong.CUT)
    sentences = [sentence for text in prepared for sentence in text.sentences]
    batches = batch_by_tokens([len(sentence.token_ids) for sentence in sentences], max_tokens_per_batch)
    ranked = iter(translator.decode(sentences, batches, rereads=has_report, **options))

    translated = []
    for text in prepared:
        of_text = list(islice(ranked, len(text.sentences)))
        translation = translator.join(text, of_text, has_record=has_report)
        records = []
        for sentence, of_sentence in zip(text.sentences, translation.sentences):
            if sentence.segment.text:
                records.append((sentence.segment.line, of_sentence.record))
        translated.append(ReportedText(translation.text, records))
    return translated
