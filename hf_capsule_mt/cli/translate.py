"""Translate a file, or standard input, with a trained encoder-decoder.

    python scripts/translate.py --model outputs/run --num_beams 4 < in.en > out.de
    accelerate launch scripts/translate.py --model outputs/run --input_file in.en.gz --output_file out.de
    accelerate launch --num_processes 4 scripts/translate.py --model Helsinki-NLP/opus-mt-en-de \\
        --input_file in.en --output_file out.de --num_beams 5 --length_penalty 0.6 --dtype bfloat16

Line i of the output translates line i of the input; blank lines stay empty. With --output_file, finished batches are
kept beside it until it is complete, and the same command continues after an interruption.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import report_user_errors
from .output import check_output_file, replace_text

if TYPE_CHECKING:
    from accelerate import PartialState

_GENERATE_OPTIONS = ("num_beams", "length_penalty", "max_new_tokens")


@dataclass
class _Job:
    """What is to be translated, and how."""

    encoded: list[list[int]]
    batches: list[list[int]]
    settings: dict[str, Any]


def build_parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint's folder, or a model's name on the Hub")
    parser.add_argument("--revision", help="branch, tag or commit of a model on the Hub (default: main); pin a commit")
    parser.add_argument("--input_file", type=Path, help="one segment a line, plain or .gz (default: standard input)")
    parser.add_argument("--output_file", type=Path, help="default: standard output")
    parser.add_argument("--num_beams", type=int, help="default: the model's generation config")
    parser.add_argument("--length_penalty", type=float, help="default: the model's generation config")
    parser.add_argument(
        "--max_new_tokens",
        type=int,
        help="longest translation, in tokens (default: twice the source plus 20, within the model's limit)",
    )
    parser.add_argument(
        "--max_tokens_per_batch",
        type=int,
        default=4096,
        help="source tokens, padding included (default: %(default)s)",
    )
    parser.add_argument(
        "--dtype",
        choices=["auto", "float32", "bfloat16", "float16"],
        default="auto",
        help="auto (default) is the checkpoint's",
    )
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: what accelerate finds)")
    return parser


@report_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Translate; of several processes each takes a share of the batches."""
    args = build_parser().parse_args(argv)
    _check_arguments(args)

    from accelerate.utils import broadcast_object_list, gather_object

    from hf_capsule_mt.evaluation.journal import read_journals, remove_journals

    state = _process_state(args.device)
    job, translations = None, {}
    if state.is_main_process:
        job = _prepare(args)
        if args.output_file is not None:
            translations = read_journals(args.output_file, job.settings)
            job.batches = _unfinished(job.batches, translations)
    [job] = broadcast_object_list([job])
    shares = gather_object([_translate_share(args, job, state)])
    if state.is_main_process:
        for share in shares:
            translations.update(share)
        _write(args.output_file, [translations.get(index, "") for index in range(len(job.encoded))])
        if args.output_file is not None:
            remove_journals(args.output_file)
    state.destroy_process_group()


def _check_arguments(args: argparse.Namespace) -> None:
    """Find the usual mistakes at once, and in every process, before anything is imported or connected."""
    for name in ("num_beams", "max_new_tokens", "max_tokens_per_batch"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} is {value}; it must be at least 1")
    _check_model(args.model, args.revision)
    if args.input_file is not None and not args.input_file.is_file():
        raise FileNotFoundError(f"--input_file {args.input_file} is not a file")
    if args.output_file is not None:
        check_output_file(args.output_file)


def _check_model(model: str, revision: str | None) -> None:
    """Raise FileNotFoundError if `model` is a path to no checkpoint, ValueError if it has an impossible name."""
    from hf_capsule_mt.hub.names import check_repo_id, check_revision

    folder = Path(model)
    if revision is not None:
        check_revision(revision)
        if folder.is_dir():
            raise ValueError(f"--revision is {revision}, but --model {model} is a folder, which has none")
    if not folder.is_dir():
        if folder.is_file() or folder.is_absolute() or model.startswith(".") or model.count("/") > 1:
            raise FileNotFoundError(f"--model {model} is not a folder")
        return check_repo_id(model)
    parts = {
        "config": ["config.json"],
        "weights": ["*.safetensors"],
        "tokenizer": ["tokenizer_config.json", "tokenizer.json"],
    }
    for part, patterns in parts.items():
        if not any(file for pattern in patterns for file in folder.glob(pattern)):
            raise FileNotFoundError(f"--model {model} holds no {part} ({' or '.join(patterns)})")


def _process_state(device: str | None) -> "PartialState":
    from datetime import timedelta

    import torch
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    # By itself PartialState sees neither `accelerate launch --cpu` nor that there are only CPUs.
    cpu = device == "cpu" or parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()
    # The process that finishes first waits for the others, however long that takes.
    state = PartialState(cpu=cpu, timeout=timedelta(days=7))
    try:
        torch.empty(0, device=device or state.device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device {device} cannot be used: {error}") from error
    return state


def _prepare(args: argparse.Namespace) -> _Job:
    """Read the input and plan its batches."""
    from transformers import AutoConfig, AutoTokenizer

    from hf_capsule_mt.data.parallel_text import read_lines
    from hf_capsule_mt.evaluation.translator import batch_by_tokens, encode_lines, source_limit

    lines = read_lines(args.input_file or "/dev/stdin")
    try:
        config = AutoConfig.from_pretrained(args.model, **_where(args))
    except OSError as error:
        raise OSError(f"--model {args.model} is no folder here, and the Hub does not give it: {error}") from error
    if not config.is_encoder_decoder:
        raise ValueError(f"--model {args.model} is of type {config.model_type}, which is not an encoder-decoder")
    tokenizer = AutoTokenizer.from_pretrained(args.model, **_where(args))
    encoded = encode_lines(tokenizer, lines, source_limit(config, tokenizer))
    batches = batch_by_tokens([len(ids) for ids in encoded], args.max_tokens_per_batch)
    return _Job(encoded, batches, _settings(args, lines))


def _where(args: argparse.Namespace) -> dict[str, Any]:
    """How to find a model, and that no remote code comes with it."""
    return {"revision": args.revision or "main", "trust_remote_code": False}


def _settings(args: argparse.Namespace, lines: Sequence[str]) -> dict[str, Any]:
    """What the translations depend on; the size of a batch and the device change no more than their rounding."""
    import hashlib

    folder = Path(args.model)
    stats = [(file.name, file.stat()) for file in sorted(folder.glob("*")) if file.is_file()]
    return {
        "input": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
        "model": str(folder.resolve()) if folder.is_dir() else args.model,
        "revision": args.revision,
        "model files": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats],
        **{name: getattr(args, name) for name in (*_GENERATE_OPTIONS, "dtype")},
    }


def _unfinished(batches: list[list[int]], done: dict[int, str]) -> list[list[int]]:
    # Planned from all lines and then thinned, so that a resumed run has the batches of an uninterrupted one.
    rest = ([index for index in batch if index not in done] for batch in batches)
    return [batch for batch in rest if batch]


def _translate_share(args: argparse.Namespace, job: _Job, state: "PartialState") -> dict[int, str]:
    """This process's translations by index."""
    from tqdm import tqdm
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    from hf_capsule_mt.evaluation.journal import Journal
    from hf_capsule_mt.evaluation.translator import translate_batches

    batches = job.batches[state.process_index :: state.num_processes]
    tokenizer = AutoTokenizer.from_pretrained(args.model, **_where(args))
    model = AutoModelForSeq2SeqLM.from_pretrained(
        args.model, **_where(args), dtype=args.dtype, use_safetensors=True
    ).to(args.device or state.device)
    options = {name: getattr(args, name) for name in _GENERATE_OPTIONS if getattr(args, name) is not None}
    translations = {}
    with ExitStack() as stack:
        bar = tqdm(total=sum(map(len, batches)), unit=" lines", disable=not state.is_main_process)
        stack.enter_context(bar)
        if args.output_file is not None:
            journal = stack.enter_context(Journal(args.output_file, state.process_index, job.settings))
        for batch in translate_batches(model, tokenizer, job.encoded, batches, **options):
            translations.update(batch)
            if args.output_file is not None:
                journal.append(batch)
            bar.update(len(batch))
    return translations


def _write(output_file: Path | None, lines: Sequence[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    if output_file is None:
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    else:
        replace_text(output_file, text)
