"""The command `distill`. Its options stand in options/distill_options.py."""

import argparse
import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain, tee
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from transformers.utils import logging

from hf_capsule_mt.data.arrow_cache import read_corpora
from hf_capsule_mt.data.corpus_files import Columns, expand, file_format
from hf_capsule_mt.data.languages import LanguageCodes, each_checked, languages_of_columns
from hf_capsule_mt.data.lines import each_line
from hf_capsule_mt.data.pair_writer import check_parallel_files, write_parallel_text
from hf_capsule_mt.environment import environment
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import hash_file, locked, read_json, write_json
from hf_capsule_mt.translation.files.job import Job
from hf_capsule_mt.translation.files.run import translated_lines
from hf_capsule_mt.translation.generation.model_options import DecodingOptions
from hf_capsule_mt.translation.quality.faults import faults_in

from . import decoding
from .common import check_distinct, check_output_file, import_code, leave_group_at_exit, report_user_errors
from .options.distill_options import build_parser

logger = logging.get_logger(__name__)

_TRANSLATIONS = "translations"
_REPORT = "report"
"""Files of the folder for what is unfinished."""


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Translate as `translate` does, and write what comes out as a corpus."""
    args = build_parser().parse_args(argv)
    import_code(args.imports)

    decoding.check_options(args)
    check_parallel_files(args.output_file, args.source_lang, args.target_lang)
    for file in args.output_file:
        check_output_file(Path(file))
    outputs = [("--output_file", Path(file)) for file in args.output_file]
    check_distinct(outputs, [*_files(args), *_files_of_dataset(args), args.vocabulary])

    state = decoding.process_state(args.device)
    # The first process writes for all.
    folder = Path(f"{args.output_file[0]}.distilling")
    with locked(folder) if state.is_main_process else nullcontext():
        _distill(args, state, folder)
    leave_group_at_exit()


def _distill(args: argparse.Namespace, state: PartialState, folder: Path) -> None:
    if not state.is_main_process:
        [is_translated] = broadcast_object_list([None])
        if not is_translated:
            _translate(args, decoding.decoding_options(args), state, folder, iter(()), 0)
        return

    started = time.time()
    options = decoding.decoding_options(args).pinned()
    # A decoder-only model is refused before the data is read.
    options.config()
    tokenizer = options.tokenizer()

    pair = languages_of_columns(tokenizer, args.source_lang, args.target_lang)
    # A code that is given stands in front of each source that has none.
    codes = None if pair[1] is not None else LanguageCodes(tokenizer)
    sentences, digest = _look_through(args, codes)
    settings = {"data": digest, **options.settings()}
    if any(pair):
        settings["languages"] = list(pair)

    finished = folder / "finished.json"
    if finished.is_file() and read_json(finished) != settings:
        raise UserError(f"{folder} is of other data or other settings. Repeat that command, or delete the folder.")

    [is_translated] = broadcast_object_list([finished.is_file()])
    if not is_translated:
        _translate(args, options, state, folder, _sources(args), sentences, pair)
        write_json(finished, settings)

    manifest = {
        **_write_corpus(args, folder, sentences),
        "settings": settings,
        "processes": state.num_processes,
        "environment": environment(state.device),
        "seconds_of_this_call": round(time.time() - started, 1),
    }
    write_json(Path(f"{args.output_file[0]}.manifest.json"), manifest)
    shutil.rmtree(folder)


def _translate(
    args: argparse.Namespace,
    teacher: DecodingOptions,
    state: PartialState,
    folder: Path,
    sources: Iterator[str],
    sentences: int,
    pair: tuple[str | None, str | None] = (None, None),
) -> None:
    """Write the translations of the sources, and a report, to a folder.

    Args:
        args: the options of the command.
        teacher: the model, and how it decodes.
        state: this process among the others.
        folder: where the files go.
        sources: the sentences. Only the main process has them.
        sentences: their number.
        pair: the languages that the teacher is told.
    """
    source_lang, target_lang = pair
    job = Job(
        teacher,
        report_file=folder / _REPORT,
        chunk_size=args.chunk_size,
        source_lang=source_lang,
        target_lang=target_lang,
        device=args.device,
    )

    # The lines go to the file, so there are no windows.
    output_file = folder / _TRANSLATIONS
    list(translated_lines(job, state, output_file=output_file, lines=sources, number=sentences))


def _look_through(args: argparse.Namespace, codes: LanguageCodes | None) -> tuple[int, str]:
    """Return the number of sentences and their hash. Warn if one lacks a code that it needs."""
    name = args.dataset_name or ", ".join(args.train_file)
    digest = hashlib.sha256()
    sentences = 0
    sources = _sources(args)
    if codes is not None:
        sources = each_checked(codes, sources, name, partial(logger.warning, "%s"))

    for source in sources:
        digest.update(source.encode() + b"\n")
        sentences += 1
    if not sentences:
        raise UserError(f"{name} holds no usable sentence.")
    return sentences, digest.hexdigest()


def _files_of_dataset(args: argparse.Namespace) -> list[Path]:
    """Return the files of a data set that is a folder."""
    if args.dataset_name is None:
        return []
    return [path for path in Path(args.dataset_name).rglob("*") if path.is_file()]


def _files(args: argparse.Namespace) -> list[Path]:
    """Return the files that the words and patterns of `--train_file` name."""
    return [path for word in args.train_file for path in expand(word)]


def _sources(args: argparse.Namespace) -> Iterator[str]:
    """Yield the sentences of the corpus as they are read."""
    files = _files(args)
    if len(args.train_file) == 1 and file_format(files[0]) == "text":
        return chain.from_iterable(map(each_line, files))
    columns = Columns(args.source_lang, args.target_lang, args.source_column, args.target_column)
    texts = read_corpora(args.train_file, columns, args.dataset_name, args.dataset_config_name)
    return chain.from_iterable(text.sources() for text in texts)


class _Choice:
    """Chooses the translations that are kept, and counts the others."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._args = args
        self._folder = folder
        self.failures: dict[int, str] = {}
        """The reasons, by the number of the sentence."""
        self.unlikely: list[int] = []
        """The numbers of the sentences with a score that is too low."""

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the sources and translations that are kept."""
        translations = each_line(self._folder / _TRANSLATIONS)
        report = each_line(self._folder / _REPORT)
        rows = zip(_sources(self._args), translations, report, strict=True)
        for number, (source, translation, judged) in enumerate(rows, start=1):
            if self._is_kept(number, translation, json.loads(judged)):
                yield source, translation

    def _is_kept(self, number: int, translation: str, judged: dict[str, Any]) -> bool:
        certain = [fault for fault in faults_in(judged) if fault.is_certain]
        # What is wrong with the source is why its translation is wrong.
        certain.sort(key=lambda fault: not fault.is_of_source)
        if certain:
            self.failures[number] = certain[0].words
            return False
        if not translation:
            self.failures[number] = "empty source"
            return False

        # Copies have no score, and are right.
        score = judged["score"]
        if self._args.min_score is not None and score is not None and score < self._args.min_score:
            self.unlikely.append(number)
            return False
        return True


def _write_corpus(args: argparse.Namespace, folder: Path, sentences: int) -> dict[str, Any]:
    """Write the corpus, and return its fields of the manifest."""
    choice = _Choice(args, folder)
    pairs = choice.pairs()
    first = next(pairs, None)
    if first is None:
        reason = "Lower --min_score"
        if not choice.unlikely:
            reason = f"The first reason: {next(iter(choice.failures.values()))}"
        raise UserError(f"None of {sentences} sentences has a translation to keep. {reason}.")

    # Both sides are taken in turns, so that only one pair is held.
    of_sources, of_targets = tee(chain([first], pairs))
    sources = (source for source, _ in of_sources)
    targets = (target for _, target in of_targets)
    write_parallel_text(args.output_file, sources, targets, args.source_lang, args.target_lang)

    left_out = len(choice.failures) + len(choice.unlikely)
    kept = sentences - left_out
    summary = f"{', '.join(args.output_file)}: {kept} of {sentences} sentences, {left_out} left out"
    if choice.unlikely:
        summary += f", {len(choice.unlikely)} of them with a score below {args.min_score}"
    print(summary)

    fields = {
        "teacher": args.model,
        "data": {"files": args.train_file, "dataset_name": args.dataset_name, "sentences": sentences},
        "output": {file: hash_file(Path(file)) for file in args.output_file},
        "kept": kept,
    }

    if args.min_score is not None:
        fields["min_score"] = args.min_score
        fields["below_min_score"] = len(choice.unlikely)
    fields["failed"] = [{"sentence": number, "reason": reason} for number, reason in choice.failures.items()]
    return fields
