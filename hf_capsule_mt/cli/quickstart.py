"""The command `quickstart`. Its options stand in options/quickstart_options.py."""

import argparse
import os
import random
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import pipeline

from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.files import read_json, write_json
from hf_capsule_mt.quickstart import write_corpus
from hf_capsule_mt.training.checkpoint_folders import checkpoints

from . import evaluate, train, train_tokenizer, translate
from .common import check_output_folder, report_user_errors
from .options.quickstart_options import build_parser

VOCABULARY = 1500
SHOWN = 8
READY_MODEL = Path(__file__).parents[2] / "checkpoints" / "tatoeba-en-de-transformer"
"""A trained model, which only a clone has."""
READY_SENTENCES = (
    "Where did you buy that coat?",
    "We have to go home because it is raining.",
    "My sister is reading a book.",
)
NEXT_SENTENCE = "The dog is sleeping under a table."
_BEGUN = "training.json"
"""File with the options of a training that has not ended. It continues after SIGTERM if they are the same."""


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Run the whole way from text to scores."""
    args = build_parser().parse_args(argv)
    check_output_folder(args.output_dir)
    _use_free_processors()
    corpus = args.output_dir / "corpus"
    tokenizer = args.output_dir / "tokenizer"
    model = args.output_dir / "model"
    translations = args.output_dir / "test.output.de"

    if READY_MODEL.is_dir():
        _say(f"Translating with a ready model: {READY_MODEL.name}")
        _show_ready_model()
    _say(f"The corpus: {corpus}")
    write_corpus(corpus)
    _say("The tokenizer")
    train_tokenizer.main(
        ["--train_file", f"{corpus}/train.en", f"{corpus}/train.de", "--vocab_size", str(VOCABULARY)]
        + ["--output_dir", str(tokenizer), "--overwrite_output_dir"]
    )
    _say(f"Training: {args.method}, tiny, {args.max_steps} updates")
    _train(args, corpus, tokenizer, model)
    _say("Translating the test sentences")
    translate.main(["--model", str(model), "--input_file", f"{corpus}/test.en", "--output_file", str(translations)])
    _show(corpus, translations)
    _say("Scores on the test sentences")
    evaluate.main(["--hypotheses", str(translations), "--references", f"{corpus}/test.de"])
    _say(f"The checkpoint: {model}")
    next_step = f"echo '{NEXT_SENTENCE}' | {_own_command()} translate --model {shlex.quote(str(model))}"
    _say(f"Now translate a sentence with it:\n\n  {next_step}")


def _own_command() -> str:
    """Return words that start the command in the user's shell, also if its folder is not in the path."""
    if shutil.which("hf-capsule-mt"):
        return "hf-capsule-mt"
    return f"{shlex.quote(sys.executable)} -m hf_capsule_mt"


def _show_ready_model() -> None:
    """Print translations of a few sentences, so that a new user sees some before the training."""
    translator = pipeline("translation", model=str(READY_MODEL))
    for sentence in READY_SENTENCES:
        translation = translator(sentence)[0]["translation_text"]
        print(f"\n  {sentence}\n  -> {translation}", flush=True)


def _use_free_processors() -> None:
    # Threads that wait for other programs make an update several times slower.
    free = (os.cpu_count() or 1) - round(os.getloadavg()[0])
    torch.set_num_threads(max(1, min(torch.get_num_threads(), free)))


def _train(args: argparse.Namespace, corpus: Path, tokenizer: Path, model: Path) -> None:
    """Train, or continue what SIGTERM ended if the options are the same."""
    begun = args.output_dir / _BEGUN
    options = {"method": args.method, "max_steps": args.max_steps}
    if not begun.is_file() or read_json(begun) != options:
        _delete_checkpoints(model)
    write_json(begun, options)
    train.main(
        ["--method", args.method, "--size", "tiny", "--config_overrides", "dropout=0.1"]
        + ["--tokenizer_name", str(tokenizer), "--output_dir", str(model), "--overwrite_output_dir"]
        + ["--train_file", f"{corpus}/train.en", f"{corpus}/train.de"]
        + ["--validation_file", f"{corpus}/validation.en", f"{corpus}/validation.de"]
        # In a short run, a rate that falls to zero learns more than the default, which is still high at the end.
        + ["--max_steps", str(args.max_steps), "--warmup_steps", "0.2", "--learning_rate", "3e-3"]
        + ["--lr_scheduler_type", "linear", "--max_tokens_per_batch", "1024", "--logging_steps", "50"]
        + ["--save_strategy", "no", "--per_device_eval_batch_size", "100", "--generation_max_length", "64"]
        + ["--resume_from_checkpoint", "auto"]
    )
    # The next quickstart trains again, instead of continuing the run that has ended.
    begun.unlink()
    _delete_checkpoints(model)


def _delete_checkpoints(run: Path) -> None:
    for checkpoint in checkpoints(run):
        shutil.rmtree(checkpoint)


def _show(corpus: Path, translations: Path) -> None:
    """Print a few translations."""
    files = [corpus / "test.en", translations, corpus / "test.de"]
    lines = list(zip(*map(read_lines, files), strict=True))
    for source, translation, reference in random.Random(0).sample(lines, min(SHOWN, len(lines))):
        print(f"\n  {source}\n  -> {translation}")
        if translation != reference:
            print(f"     ({reference})")


def _say(text: str) -> None:
    print(f"\n== {text}", flush=True)
