"""Translate a training corpus with a teacher, for a student to train on.

    accelerate launch -m hf_capsule_mt distill --model runs/transformer/average --num_beams 4 \\
        --train_file train.en train.de --output_file distilled.en distilled.de
    distilled.en, distilled.de: 29000 of 29000 sentences, 0 left out

    hf-capsule-mt distill --model Helsinki-NLP/opus-mt-en-de --train_file mono.en --output_file distilled.tsv.gz

This is sequence-level distillation. The corpus is what `train` reads, or one plain text file of sources. Its targets
are ignored. `train` can read the output. Sentences that the teacher could not translate are left out, and sentences
with a score below --min_score. OUTPUT.manifest.json lists them, with the teacher, its settings and hashes of the data.
Lines without letters are copied.

Finished translations are kept in the folder OUTPUT.distilling until all are done. The same command continues after an
interruption.
"""

import argparse
import hashlib
import json
import math
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
from hf_capsule_mt.data.language_codes import LanguageCodes, each_checked
from hf_capsule_mt.data.lines import each_line
from hf_capsule_mt.data.pair_writer import check_parallel_files, write_parallel_text
from hf_capsule_mt.environment import environment
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import hash_file, locked, read_json, write_json
from hf_capsule_mt.translation.file_translation import FileTranslationOptions, translate_windows

from . import decoding
from .common import (
    CommandParser,
    at_least,
    check_distinct,
    check_output_file,
    finite,
    leave_group_at_exit,
    report_user_errors,
)

logger = logging.get_logger(__name__)

_FAILURES = {
    "source_cut": "source too long for the teacher",
    "limit_reached": "no end within the limit",
    "empty": "empty translation",
}
"""Why a translation is left out, by what the report of `translate` says of it."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    decoding.add_options(parser)
    corpus = parser.add_mutually_exclusive_group(required=True)
    corpus.add_argument(
        "--train_file",
        nargs="+",
        default=[],
        help="The corpus: files as for hf-capsule-mt train, or one file of sources.",
    )
    corpus.add_argument("--dataset_name", help="Data set of the Hub, instead of files.")
    parser.add_argument("--dataset_config_name", help="Configuration of the data set.")
    parser.add_argument("--source_lang", help="Source language, as a .jsonl file or a data set names it, such as en.")
    parser.add_argument(
        "--target_lang",
        help="Target language, as a .jsonl file or a data set names it, such as de. The codes of multilingual OPUS-MT, "
        "such as >>de<<, must be in the data.",
    )
    parser.add_argument(
        "--output_file", nargs="+", required=True, help="Two text files, or one .tsv or .jsonl file. All may be .gz."
    )
    parser.add_argument(
        "--min_score",
        type=finite,
        help="Leave out translations whose mean log-probability of a token is lower, such as -1.5 (default: keep all).",
    )
    parser.add_argument(
        "--chunk_size",
        type=at_least(1),
        default=2000,
        help="Number of sentences to translate and keep at a time (default: %(default)s).",
    )
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Translate as `translate` does, and write what comes out as a corpus."""
    args = build_parser().parse_args(argv)
    decoding.check_options(args)
    check_parallel_files(args.output_file, args.source_lang, args.target_lang)
    for file in args.output_file:
        check_output_file(Path(file))
    inputs = [*_files(args), *(path for path in Path(args.dataset_name or "/dev/null").rglob("*") if path.is_file())]
    check_distinct((("--output_file", Path(file)) for file in args.output_file), inputs)
    state = decoding.process_state(args.device)
    # The first process writes for all.
    folder = Path(f"{args.output_file[0]}.distilling")
    with locked(folder) if state.is_main_process else nullcontext():
        _distill(args, state, folder)
    leave_group_at_exit()


def _distill(args: argparse.Namespace, state: PartialState, folder: Path) -> None:
    started = time.time()
    finished = folder / "finished.json"
    files = {"output_file": folder / "translations", "report_file": folder / "report"}
    sentences, settings, sources = 0, {}, iter(())
    if state.is_main_process:
        decoding.pin_revision(args)
        sentences, digest = _look_through(args, LanguageCodes(decoding.decoding_options(args).tokenizer()))
        settings, sources = {"data": digest, **decoding.settings(args)}, _sources(args)
        if finished.is_file() and read_json(finished) != settings:
            raise UserError(f"{folder} is of other data or other settings. Repeat that command, or delete the folder.")
    if not broadcast_object_list([finished.is_file()])[0]:
        # Codes of languages are in the data.
        options = FileTranslationOptions(
            decoding=decoding.decoding_options(args), device=args.device, chunk_size=args.chunk_size, **files
        )
        # The lines go to the file, so there are no windows.
        list(translate_windows(options, state, sources, sentences))
        if state.is_main_process:
            write_json(finished, settings)
    if state.is_main_process:
        made_by = environment(state.device)
        facts = {"settings": settings, "processes": state.num_processes, "environment": made_by}
        manifest = {**_finish(args, *files.values(), sentences), **facts}
        manifest["seconds_of_this_call"] = round(time.time() - started, 1)
        write_json(Path(f"{args.output_file[0]}.manifest.json"), manifest)
        shutil.rmtree(folder)


def _look_through(args: argparse.Namespace, codes: LanguageCodes) -> tuple[int, str]:
    """Return the number of sentences and their hash. Warn if one lacks a code that it needs."""
    name, digest, sentences = args.dataset_name or ", ".join(args.train_file), hashlib.sha256(), 0
    for source in each_checked(codes, _sources(args), name, partial(logger.warning, "%s")):
        digest.update(source.encode() + b"\n")
        sentences += 1
    if not sentences:
        raise UserError(f"{name} holds no usable sentence.")
    return sentences, digest.hexdigest()


def _files(args: argparse.Namespace) -> list[Path]:
    """Return the files that the words and patterns of `--train_file` name."""
    return [path for word in args.train_file for path in expand(word)]


def _sources(args: argparse.Namespace) -> Iterator[str]:
    """Yield the sentences of the corpus as they are read."""
    files = _files(args)
    if len(args.train_file) == 1 and file_format(files[0]) == "text":
        return chain.from_iterable(map(each_line, files))
    columns = Columns(args.source_lang, args.target_lang)
    texts = read_corpora(args.train_file, columns, args.dataset_name, args.dataset_config_name)
    return chain.from_iterable(text.sources() for text in texts)


def _finish(args: argparse.Namespace, translations: Path, report: Path, sentences: int) -> dict[str, Any]:
    """Write the corpus, and return its fields of the manifest."""
    failures, unlikely = {}, []

    def pairs() -> Iterator[tuple[str, str]]:
        rows = zip(_sources(args), each_line(translations), map(json.loads, each_line(report)), strict=True)
        for number, (source, translation, judged) in enumerate(rows, start=1):
            # Copies and blank lines have no score.
            score = math.inf if judged["score"] is None else judged["score"]
            if failure := next((reason for name, reason in _FAILURES.items() if judged[name]), None):
                failures[number] = failure
            elif not translation:
                failures[number] = "empty source"
            elif args.min_score is not None and score < args.min_score:
                unlikely.append(number)
            else:
                yield source, translation

    good = pairs()
    first = next(good, None)
    if first is None:
        reason = "Lower --min_score" if unlikely else f"The first reason: {next(iter(failures.values()))}"
        raise UserError(f"None of {sentences} sentences has a translation to keep. {reason}.")
    # Both sides are taken in turns, so that only one pair is held.
    sources, targets = tee(chain([first], good))
    languages = args.source_lang, args.target_lang
    write_parallel_text(args.output_file, (pair[0] for pair in sources), (pair[1] for pair in targets), *languages)
    left_out = len(failures) + len(unlikely)
    below = f", {len(unlikely)} of them with a score below {args.min_score}" if unlikely else ""
    print(f"{', '.join(args.output_file)}: {sentences - left_out} of {sentences} sentences, {left_out} left out{below}")
    return {
        "teacher": args.model,
        "data": {"files": args.train_file, "dataset_name": args.dataset_name, "sentences": sentences},
        "output": {file: hash_file(Path(file)) for file in args.output_file},
        "kept": sentences - left_out,
        **({} if args.min_score is None else {"min_score": args.min_score, "below_min_score": len(unlikely)}),
        "failed": [{"sentence": number, "reason": reason} for number, reason in failures.items()],
    }
