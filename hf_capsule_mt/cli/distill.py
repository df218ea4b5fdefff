"""Translate a training corpus with a teacher, for a student to train on.

    accelerate launch -m hf_capsule_mt.cli.distill --model runs/transformer/average --num_beams 4 \\
        --train_file train.en train.de --output_file distilled.en distilled.de
    hf-capsule-mt distill --model Helsinki-NLP/opus-mt-en-de --train_file mono.en --output_file distilled.tsv.gz

This is sequence-level distillation. The corpus is what `train` reads (its targets are not looked at), or one plain text
file of sources; it is read a shard at a time, so that memory does not grow with it. The output is what `train` reads:
two text files, or one .tsv or .jsonl file. Sentences that the teacher could not translate are left out, and named in
OUTPUT.manifest.json, beside the teacher, its settings and the hashes of the data. So are those, as a number, whose
score, the mean log-probability of the tokens as in the reports of `translate`, is below --min_score.

Finished shards are kept in OUTPUT.shards until all are done, and the same command continues after an interruption.
"""

import argparse
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain, count, islice, tee
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from tqdm import tqdm
from transformers.utils import logging

from hf_capsule_mt.data.code_check import each_checked
from hf_capsule_mt.data.pair_files import expand
from hf_capsule_mt.data.parallel_text import (
    check_corpus,
    check_parallel_files,
    each_hub_source,
    each_line,
    each_source,
    is_plain_text,
    write_parallel_text,
)
from hf_capsule_mt.files import each_hashed, hash_file, hash_text, locked, write_json
from hf_capsule_mt.records import Environment
from hf_capsule_mt.training.distillation import Distilled, Shards, distill
from hf_capsule_mt.translation.language_codes import LanguageCodes

from . import decoding
from .common import (
    CommandParser,
    at_least,
    check_distinct,
    check_input_file,
    check_output_file,
    files_of_dataset,
    report_user_errors,
)
from .processes import leave_group_at_exit, warn_if_alone

logger = logging.get_logger(__name__)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    decoding.add_options(parser)
    parser.add_argument(
        "--train_file", nargs="+", default=[], help="the corpus: files as of hf-capsule-mt train, or one of sources"
    )
    parser.add_argument("--dataset_name", help="data set of the Hub, instead of files")
    parser.add_argument("--dataset_config_name", help="configuration of that data set")
    parser.add_argument("--source_lang", help="as a .jsonl file or a data set names it (en)")
    parser.add_argument(
        "--target_lang", help="likewise (de); the codes of multilingual OPUS-MT, such as >>de<<, must be in the data"
    )
    parser.add_argument("--output_file", nargs="+", required=True, help="two text files, or one .tsv or .jsonl (.gz)")
    parser.add_argument(
        "--min_score", type=float, help="leave out translations that are less likely, such as -1.5 (default: keep all)"
    )
    parser.add_argument("--shard_size", type=at_least(1), default=2000, help="sentences a shard (default: %(default)s)")
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Translate shard by shard; shards are dealt out to the processes in turn."""
    args = build_parser().parse_args(argv)
    warn_if_alone("hf_capsule_mt.cli.distill")
    _check_arguments(args)
    state = decoding.process_state(args.device)
    # The first process writes for all.
    with locked(_shards_folder(args)) if state.is_main_process else nullcontext():
        _distill(args, state)
    leave_group_at_exit()


def _shards_folder(args: argparse.Namespace) -> Path:
    first = Path(args.output_file[0])
    return first.with_name(f"{first.name}.shards")


def _distill(args: argparse.Namespace, state: PartialState) -> None:
    started, corpus = time.time(), None
    if state.is_main_process:
        decoding.pin_revision(args)
        corpus = _look_through(args, LanguageCodes(decoding.load_tokenizer(args)))
    [args.revision, corpus] = broadcast_object_list([args.revision, corpus])
    sentences, digest = corpus
    # Before anything is written, since the checkpoint may be damaged.
    model, tokenizer = decoding.load(args, state)
    first = Path(args.output_file[0])
    shards = Shards(_shards_folder(args), sentences, args.shard_size)
    if state.is_main_process:
        settings = {"data": digest, **decoding.settings(args)}
        # What is kept is decided in the end, but of shards without scores there is nothing to decide by.
        settings |= {} if args.min_score is None else {"scores": True}
        shards.open(settings)
    state.wait_for_everyone()
    _make_shards(args, shards, partial(distill, model, tokenizer, scores=args.min_score is not None), state)
    state.wait_for_everyone()
    if state.is_main_process:
        manifest = {
            **_finish(args, shards, digest),
            "settings": settings,
            "processes": state.num_processes,
            "seconds_of_this_call": round(time.time() - started, 1),
            "environment": Environment.here(state.device),
        }
        write_json(first.with_name(f"{first.name}.manifest.json"), manifest)
        shards.remove()


def _check_arguments(args: argparse.Namespace) -> None:
    decoding.check_options(args)
    if args.min_score is not None and not math.isfinite(args.min_score):
        raise ValueError(f"--min_score is {args.min_score}; it must be a number")
    check_corpus(args.train_file, args.dataset_name, args.dataset_config_name)
    files = _files(args)
    for file in files:
        check_input_file("--train_file", file)
    check_parallel_files(args.output_file, args.source_lang, args.target_lang)
    for file in args.output_file:
        check_output_file(Path(file))
    inputs = [*files, *files_of_dataset(args.dataset_name)]
    check_distinct((("--output_file", Path(file)) for file in args.output_file), inputs)


def _files(args: argparse.Namespace) -> list[Path]:
    """Return the files that the words of `--train_file` name, some of which may be patterns."""
    return [path for word in args.train_file for path in expand(word)]


def _look_through(args: argparse.Namespace, codes: LanguageCodes) -> tuple[int, str]:
    """Return the number of sentences and their hash, having read all of them; warn if one lacks a code that it needs.

    Raises:
        ValueError: if there is none, or something is wrong with the corpus, or one begins with a code that is unknown.
    """
    numbers, sources = count(), each_checked(codes, _sources(args), _name(args), partial(logger.warning, "%s"))
    # The pair is taken apart for the hash, and zip draws a number for the end too.
    digest = hash_text(source for _, source in zip(numbers, sources))
    sentences = next(numbers) - 1
    if not sentences:
        raise ValueError(f"{_name(args)} holds no usable sentence")
    return sentences, digest


def _name(args: argparse.Namespace) -> str:
    """Of the corpus, in messages."""
    return args.dataset_name or ", ".join(args.train_file)


def _sources(args: argparse.Namespace) -> Iterator[str]:
    """Yield the sentences of the corpus as they are read."""
    languages = args.source_lang, args.target_lang
    if args.dataset_name is not None:
        if None in languages:
            raise ValueError(f"dataset_name is {args.dataset_name!r}; it needs --source_lang and --target_lang")
        return each_hub_source(args.dataset_name, args.dataset_config_name, "train", *languages)
    files = _files(args)
    if len(args.train_file) == 1 and is_plain_text(files[0]):
        return chain.from_iterable(map(each_line, files))
    return each_source(args.train_file, *languages)


def _make_shards(
    args: argparse.Namespace, shards: Shards, translate: Callable[..., list[Distilled]], state: PartialState
) -> None:
    """Make the missing shards of this process, and show the progress of all."""
    missing = shards.missing()
    # By number, so that no two processes make the same shard, whatever the others have finished meanwhile.
    own = {shard for shard in missing if shard % state.num_processes == state.process_index}
    done = len(shards) - len(missing)
    options = decoding.generate_options(args)
    with tqdm(total=len(shards), initial=done, unit=" shards", disable=not state.is_main_process) as bar:
        for shard, texts in enumerate(_parts(_sources(args), args.shard_size) if own else ()):
            if shard in own:
                first = shard * args.shard_size + 1
                shards.write(shard, translate(texts, args.max_tokens_per_batch, first=first, **options))
                # As if the others were as far.
                bar.update(min(state.num_processes, len(shards) - bar.n))


def _parts(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    lines = iter(lines)
    return iter(lambda: list(islice(lines, size)), [])


def _finish(args: argparse.Namespace, shards: Shards, digest: str) -> dict[str, Any]:
    """Write the corpus, whose hash is `digest`, and return its fields of the manifest."""
    failures, unlikely, found = {}, [], hashlib.sha256()

    def kept() -> Iterator[tuple[str, str]]:
        # With one more or less of the sources, their hash is another.
        for number, (source, result) in enumerate(zip(each_hashed(_sources(args), found), shards.read()), start=1):
            if result.failure:
                failures[number] = result.failure
            elif args.min_score is not None and result.score < args.min_score:
                unlikely.append(number)
            else:
                yield source, result.translation
        if found.hexdigest() != digest:
            raise ValueError(
                f"{_name(args)} has changed since the command began; delete {shards.folder}, and repeat the command"
            )

    pairs = kept()
    first = next(pairs, None)
    if first is None and unlikely:
        raise ValueError(f"all {len(unlikely)} translations have a score below --min_score {args.min_score}; lower it")
    if first is None:
        raise ValueError(f"all {len(failures)} translations failed; the first: {failures[1]}")
    # Both sides are taken in turns, so that a pair is all that is held.
    sources, targets = tee(chain([first], pairs))
    languages = args.source_lang, args.target_lang
    write_parallel_text(args.output_file, (pair[0] for pair in sources), (pair[1] for pair in targets), *languages)
    sentences, left_out = shards.num_sentences, len(failures) + len(unlikely)
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


if __name__ == "__main__":
    main()
