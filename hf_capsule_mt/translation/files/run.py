"""Translate inputs of every kind: skip what is complete, name what is wrong and go on, and keep what is finished.

One input is translated by all processes together, window by window. The files of a folder are shared among them.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate import PartialState
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from hf_capsule_mt.data.languages import Direction
from hf_capsule_mt.data.lines import text_bytes
from hf_capsule_mt.data.reading_ahead import each_one_ahead
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import hash_file, replaced_file

from ..formats.base import warn_of_left
from ..preparation import TextReader
from ..quality.counts import RowCounts
from ..terms.forcing import check_glossary
from ..terms.glossary import Glossary
from ..text_translator import TextTranslator
from ..translation import PreparedText
from .crew import Crew, gathered
from .job import DOCUMENT, LINES, ROWS, Job
from .journal import InMemory, Journal, folder_beside, kept_settings
from .output_folders import FileOfFolder, TranslatedFile, report_beside, share_of, with_common_int8
from .sinks import DocumentSink, FinishedUnit, KnownText, LinesSink, Sink, sink_of
from .sources import DocumentSource, LinesSource, RowsSource, Source, Unit, Window, kind_of

if TYPE_CHECKING:
    from hf_capsule_mt.translation.pipeline import TranslationPipeline


class Progress(tqdm):
    """Shows what is done, source tokens a second, and the time left."""

    def __init__(self, total: int | None, *, unit: str = "lines", shown: bool = True) -> None:
        # With a delay it appears with the first line, and not before an error.
        super().__init__(total=total, unit=f" {unit}", disable=not shown, delay=1e-6)
        self._counts_sentences = unit == "lines"
        self._tokens = 0
        self._start = time.monotonic()

    def skip(self, units: int) -> None:
        """Count units that take no time: empty ones, and those that an earlier run has done."""
        self.delay = 0
        if not self.disable:
            self.initial += units
            self.update(units)

    def add(self, sentences: int, tokens: int) -> None:
        """Count sentences that were done, and their source tokens."""
        self.delay = 0
        self._tokens += tokens
        speed = self._tokens / max(time.monotonic() - self._start, 1e-9)
        self.set_postfix_str(f"{speed:.0f} tokens/s", refresh=False)
        if self._counts_sentences:
            self.update(sentences)

    def end_window(self, units: int, without_tokens: int) -> None:
        """Count the units of a window, or its sentences that the model does not read."""
        if self._counts_sentences:
            self.skip(without_tokens)
        else:
            self.update(units)


def translated_lines(
    job: Job,
    state: PartialState,
    input_file: Path | None = None,
    output_file: Path | None = None,
    lines: Iterator[str] | None = None,
    number: int | None = None,
) -> Iterator[list[str]]:
    """Translate lines or running text window by window. Yield the lines of each, unless they go to an output file.

    FinishedUnit windows, and the report, are kept next to the output file until all is done. Only the main process has
    lines. Each process takes a share of the batches.

    Args:
        job: what is translated, and how.
        state: this process among the others.
        input_file: the text. None is standard input.
        output_file: where the translations go. None gives them to the caller.
        lines: are read instead of the input file.
        number: the number of these lines, for the progress bar.

    Raises:
        BlockingIOError: if another process writes the output file.
        UserError: if the input cannot be read, or is not that of the interrupted run.
    """
    if not state.is_main_process:
        Crew(job.decoding, job.device or state.device, state).help()
        return

    source = LinesSource(job, input_file, lines, number)
    total = source.total()
    with ExitStack() as stack:
        journal = None
        if output_file is not None:
            journal, job = _held_beside(stack, job, LINES, output_file)
            source.job = job
        else:
            job = job.pinned()
        sink = LinesSink(job, source)
        # No folder keeps the lines of these files, so they are written as a whole at the end.
        more_files = {} if journal is not None else _opened(stack, job.more_files)
        progress = stack.enter_context(Progress(total, shown=not job.interactive))
        crew = Crew(job.decoding, job.device or state.device, state)
        source.begin(direction_of(LINES, crew.reader, job))
        check_terms(crew.reader, job)
        for window, finished in _translated(source, sink, crew, journal, progress):
            if journal is None:
                parts = sink.lines(window, finished)
                for name, file in more_files.items():
                    file.write(text_bytes(parts[name]))
                yield parts["lines"]

        crew.dismiss()
        if journal is not None:
            journal.write("lines", output_file)
            for name, path in job.more_files.items():
                journal.write(name, path)
            journal.discard()


def _held_beside(stack: ExitStack, job: Job, kind: str, output_file: Path, **more_settings: Any) -> tuple[Journal, Job]:
    """Return the journal next to an output file, and the job with what an interrupted run has chosen."""
    folder = folder_beside(output_file)
    job = job.pinned(kept_settings(folder).get("int8_choice"))
    names = ("lines",) if kind == DOCUMENT else ("lines", *job.more_files)
    journal = stack.enter_context(Journal.held(folder, {**job.settings(kind), **more_settings}, names))
    return journal, job


def _opened(stack: ExitStack, files: Mapping[str, Path]) -> dict[str, Any]:
    return {name: stack.enter_context(replaced_file(file)) for name, file in files.items()}


def _translated(
    source: Source, sink: Sink, crew: Crew, journal: "Journal | InMemory | None", progress: Progress
) -> Iterator[tuple[Window, list[FinishedUnit]]]:
    """Translate the windows that are not finished, and keep them."""
    if journal is not None and journal.items:
        journal.pass_finished(source.skip(journal.items))
        progress.skip(journal.items)
        if journal.code is not None:
            source.begin(replace(source.direction, code=journal.code))

    job = source.job
    for window, units, prepared, code in each_one_ahead(_prepared(source, sink, crew.reader)):
        started = time.monotonic()
        sentences = [sentence for text in prepared for sentence in text.sentences]
        lines = []
        for unit, text in zip(units, prepared, strict=True):
            lines += [source.line_of(unit, sentence.segment) for sentence in text.sentences]
        translations = crew.translate(
            prepared, lines, job.budget, job.answers(), has_record=job.judges, progress=progress
        )
        finished = list(map(FinishedUnit, units, prepared, translations))
        progress.end_window(source.units_in(window), sum(not sentence.token_ids for sentence in sentences))
        if journal is not None:
            counts = sink.counts(window, finished) if job.in_folder else None
            seconds = time.monotonic() - started
            parts = sink.parts(window, finished)
            journal.append(len(window.items), window.hashed(), parts, code, counts, seconds)
        yield window, finished


def _prepared(
    source: Source, sink: Sink, reader: TextReader
) -> Iterator[tuple[Window, list[Unit], list[PreparedText], str]]:
    """Yield windows with the sentences of their new units, and the code of the language of the last one."""
    for window in source.windows():
        units = sink.new_units(window)
        prepared = source.prepared(reader, window, units)
        yield window, units, prepared, source.direction.code


def direction_of(kind: str, reader: TextReader, job: Job) -> Direction:
    """Return the languages of inputs of a kind.

    Raises:
        UserError: if there is no such language, or one is missing.
    """
    target_lang = job.target_lang
    languages = reader.languages
    if (kind == DOCUMENT or job.in_folder) and not languages.are_arguments and not languages.codes:
        # A page, or the name of an output, may have it where the model has only one.
        target_lang = None
    return languages.direction(job.source_lang, target_lang)


def check_terms(reader: TextReader, job: Job) -> None:
    """Raise a UserError if the model cannot write a term of the glossary."""
    if job.glossary is not None and job.decoding is not None:
        check_glossary(job.glossary, reader.tokenizer, job.decoding.generation_config())


def translate_document(job: Job, state: PartialState, input_file: Path, output_file: Path | None) -> None:
    """Translate a file of a format with all processes.

    Args:
        job: what is translated, and how.
        state: this process among the others.
        input_file: the file.
        output_file: where the translation goes. None is standard output.

    Raises:
        UserError: as [`translate_file`] does.
    """
    with ExitStack() as stack:
        crew = Crew(job.decoding, job.device or state.device, state)
        if not state.is_main_process:
            crew.help()
            return

        source = DocumentSource(job, input_file, written_language(job, crew.reader))
        journal: Journal | InMemory = InMemory()
        job = job.pinned()
        if output_file is not None:
            of_format = {"format": source.format.name, "fuzzy": job.fuzzy}
            journal, job = _held_beside(stack, job, DOCUMENT, output_file, **of_format)
        crew.decoding = job.decoding
        check_terms(crew.reader, job)
        _write_document(source, crew, journal, output_file)
        crew.dismiss()


def written_language(job: Job, reader: TextReader) -> str | None:
    """Return the language that files name as theirs. The tokenizer of an OPUS-MT model knows its pair."""
    return job.target_lang or getattr(reader.tokenizer, "target_lang", None)


def _write_document(
    source: DocumentSource, crew: Crew, journal: "Journal | InMemory", output_file: Path | None
) -> TranslatedFile:
    """Translate a document, and write it and its report."""
    job = source.job
    sink = DocumentSink(job, source)
    source.begin(direction_of(DOCUMENT, crew.reader, job))
    with Progress(source.units, unit="units", shown=job.decoding is not None) as progress:
        for _ in _translated(source, sink, crew, journal, progress):
            pass
    sink.write(journal, output_file)
    if job.report_file is not None:
        sink.write_report(journal, job.report_file)
    if isinstance(journal, Journal):
        journal.discard()
    warn_of_left(str(source.path), source.document)
    return TranslatedFile(**sink.numbers())


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
    errors: str = "strict",
    glossary: Glossary | None = None,
    max_tokens_per_batch: int = 4096,
    report_file: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
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
        errors: "strict", or "replace" for bytes that are not UTF-8.
        glossary: terms that translations must have.
        max_tokens_per_batch: source tokens that are decoded together, with padding.
        report_file: where a line of JSON for each sentence goes, with the name of its unit in the file.
        settings: everything that the translations depend on. With it, finished texts are kept in a folder next to the
            output file until all are done, and a call with the same settings continues after an interruption.
        **options: of decoding, such as `num_beams=4`.

    Returns:
        How many units there were, and the lines of what stays as it is.

    Raises:
        UserError: if the file is no text, of no format that is supported, or damaged, or there is no such language.
    """
    job = Job(
        documents=language,
        keep=keep,
        translate_addresses=translate_addresses,
        glossary=glossary,
        source_lang=source_lang,
        target_lang=target_lang,
        format=file_format,
        fuzzy=fuzzy,
        errors=errors,
        report_file=None if report_file is None else Path(report_file),
        max_tokens_per_batch=max_tokens_per_batch,
    )
    job.check()
    texts = getattr(translator, "texts", translator)
    crew = Crew.with_translator(texts, options)
    source = DocumentSource(job, Path(input_file), written_language(job, texts.reader))
    if glossary is not None:
        check_glossary(glossary, texts.tokenizer, texts.model.generation_config)
    with ExitStack() as stack:
        journal: Journal | InMemory = InMemory()
        if settings is not None and output_file is not None:
            folder = folder_beside(Path(output_file))
            journal = stack.enter_context(Journal.held(folder, settings))
        return _write_document(source, crew, journal, None if output_file is None else Path(output_file))


@dataclass
class Outcome:
    """What became of many files."""

    files: dict[Path, TranslatedFile] = field(default_factory=dict)
    """The files that are complete now, also those that were before."""
    num_complete_before: int = 0
    """How many of them an earlier run has translated."""
    errors: list[str] = field(default_factory=list)
    """What is wrong with the others. Each error names its file."""

    @contextmanager
    def noting(self, path: Path) -> Iterator[None]:
        """Note a mistake of the user, or of the user's machine, with a file. The others are translated all the same."""
        try:
            yield
        except (UserError, OSError) as error:
            text = str(error)
            if str(path) not in text:
                text = f"{path}: {text}"
            self.errors.append(text)

    def counts(self) -> RowCounts:
        """Return the numbers of the sentences of all files."""
        return sum((RowCounts(file.counts) for file in self.files.values()), RowCounts())


def translate_files(
    job: Job,
    outputs: Mapping[Path, Path],
    output_dir: Path,
    state: PartialState | None = None,
    load: Callable[[], TextTranslator] | None = None,
) -> Outcome:
    """Translate files of formats, text and rows into a folder. A wrong file stops nothing.

    A file is complete if its record has the settings of the job and the hash of the file as it is now. A changed
    document, and one with other settings, are translated again, unless somebody has changed the output since it was
    written. LinesSource and rows, which may be corpora, are not.

    Args:
        job: what is translated, and how.
        outputs: the output of each file, as [`output_paths`] returns it.
        output_dir: the folder of the outputs, which holds their records.
        state: this process among the others, each of which translates a share of the files.
        load: loads what translates. It is called once, and only if there is something to translate.

    Returns:
        What became of all files, in the main process. The others get what became of theirs.

    Raises:
        UserError: if there is no such language, the model cannot write a term, or a library that reads one of the
            formats is missing.
    """
    job = replace(job, in_folder=True)
    job.check()
    if job.decoding is not None:
        job = replace(job, decoding=with_common_int8(job.decoding.pinned(), output_dir))
    own = outputs
    if state is not None:
        own = share_of(outputs, state.process_index + 1, state.num_processes)
    outcome = Outcome()
    files = _files(outcome, job, own, output_dir)
    device = None if state is None else job.device or state.device
    with logging_redirect_tqdm():
        shown = state is None or state.is_main_process
        _translate_waiting(outcome, files, job, Crew(job.decoding, device, load=load), shown)

    outcomes = gathered(outcome, state)
    if state is not None and not state.is_main_process:
        return outcome
    whole = Outcome()
    for part in outcomes:
        whole.files.update(part.files)
        whole.num_complete_before += part.num_complete_before
        whole.errors += part.errors
    if job.report_file is not None:
        complete = [output for path, output in outputs.items() if path in whole.files]
        _join([report_beside(output, output_dir) for output in complete], job.report_file)
    return whole


def _files(outcome: Outcome, job: Job, outputs: Mapping[Path, Path], output_dir: Path) -> list[FileOfFolder]:
    """Return the files whose kinds and formats go with the job, and note what is wrong with the others."""
    files = []
    for path, output in outputs.items():
        with outcome.noting(path):
            kind = kind_of(path, job)
            files.append(FileOfFolder(path, output, output_dir, kind, job))
    return files


def _translate_waiting(outcome: Outcome, files: Iterable[FileOfFolder], job: Job, crew: Crew, shown: bool) -> None:
    """Translate the files that are not complete, and show progress or not. Note those that are."""
    waiting = []
    for file in files:
        with outcome.noting(file.path):
            complete = file.complete()
            if complete is None:
                # What is damaged is said before a model is loaded.
                waiting.append((file, _source(file, job, crew).total()))
            else:
                outcome.files[file.path] = complete
                outcome.num_complete_before += 1
    if not waiting:
        return

    # What is wrong for all files is said once.
    check_terms(crew.reader, job)
    directions = {kind: direction_of(kind, crew.reader, job) for kind in (LINES, DOCUMENT, ROWS)}
    totals = [total for _, total in waiting]
    total = None if None in totals else sum(totals)
    with Progress(total, unit="units", shown=shown) as progress:
        for file, _ in waiting:
            with outcome.noting(file.path):
                source = _source(file, job, crew)
                source.begin(directions[file.kind])
                outcome.files[file.path] = _translate_into_folder(file, source, crew, progress)


def _source(file: FileOfFolder, job: Job, crew: Crew) -> Source:
    """Return the input of a file."""
    if file.kind == DOCUMENT:
        return DocumentSource(job, file.path, written_language(job, crew.reader))
    return {LINES: LinesSource, ROWS: RowsSource}[file.kind](job, file.path)


def _translate_into_folder(file: FileOfFolder, source: Source, crew: Crew, progress: Progress) -> TranslatedFile:
    """Translate a file of a folder, and write its record before its output gets its place."""
    known = [KnownText(*json.loads(line)) for line in file.known_lines()]
    sink = sink_of(source.job, source, known)
    new = 0
    # What is read may be changed meanwhile. Then the next run translates it again.
    input_sha256 = hash_file(file.path)
    with file.held() as journal:
        for _, finished in _translated(source, sink, crew, journal, progress):
            new += len(finished)

        whole = journal.whole_file(file.output)
        sink.write(journal, whole)
        if source.job.report_file is not None:
            sink.write_report(journal, journal.whole_report)
            os.replace(journal.whole_report, file.report_file)
        translated = TranslatedFile(**{"units": journal.items, **sink.numbers()}, counts=journal.counts, new=new)
        if file.kind == DOCUMENT:
            journal.remember(file.heading, file.units_file)
        file.finish(whole, translated, input_sha256, journal.seconds)
        journal.discard()
    if isinstance(source, DocumentSource):
        warn_of_left(str(source.path), source.document)
    return translated


def _join(parts: Iterable[Path], whole_file: Path) -> None:
    """Write a file of the bytes of others."""
    with replaced_file(whole_file) as whole:
        for part in parts:
            with open(part, "rb") as content:
                shutil.copyfileobj(content, whole)
