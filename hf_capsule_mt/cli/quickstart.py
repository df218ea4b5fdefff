"""The command `quickstart`. Its options stand in options/quickstart_options.py."""

import argparse
import random
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm
from transformers import TrainerCallback, TrainerState, pipeline

from hf_capsule_mt.configuration import (
    CapsuleAggregatedM2M100Config,
    CapsuleAggregatedMarianConfig,
    method_config_class,
)
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.files import read_json, write_json
from hf_capsule_mt.loading import load_model, load_tokenizer
from hf_capsule_mt.quickstart import write_corpus
from hf_capsule_mt.training.checkpoint_folders import checkpoints

from . import evaluate, train, train_tokenizer, translate
from .common import check_output_folder, idle_processors, report_user_errors
from .options.quickstart_options import build_parser

VOCABULARY = 1500
SHOWN = 8
READY_MODEL = Path("checkpoints", "tatoeba-en-de-transformer")
"""A trained model, in a clone."""
READY_SENTENCES = (
    "Where did you buy that coat?",
    "We have to go home because it is raining.",
    "My sister is reading a book.",
)
SMALL = {"encoder_layers": 3, "decoder_layers": 2}
"""Layers of a Transformer. With those of `tiny`, which are four of each, the training takes half as long again."""
TIMED = 20
"""Updates after which the whole time is foretold."""
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

    ready_model = find_ready_model()
    if ready_model is None:
        _say("There is no ready model in this folder. Only a clone has one, in checkpoints/.")
    else:
        _say(f"Translating with a ready model: {ready_model.name}")
        _show_ready_model(ready_model)

    _say(f"The corpus: {corpus}")
    write_corpus(corpus)

    _say("The tokenizer")
    train_tokenizer.main(
        ["--train_file", f"{corpus}/train.en", f"{corpus}/train.de", "--vocab_size", str(VOCABULARY)]
        + ["--output_dir", str(tokenizer), "--overwrite_output_dir"]
    )

    threads = "one thread" if torch.get_num_threads() == 1 else f"{torch.get_num_threads()} threads"
    _say(f"Training: {args.method}, tiny, {args.max_steps} updates, {threads}")
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


def find_ready_model() -> Path | None:
    """Return the folder of a trained model: in the current folder, or next to the package. Only a clone has one."""
    for folder in (Path.cwd(), Path(__file__).parents[2]):
        if (folder / READY_MODEL).is_dir():
            return folder / READY_MODEL
    return None


def _show_ready_model(folder: Path) -> None:
    """Print translations of a few sentences, so that a new user sees some before the training."""
    model = load_model(folder, dtype=torch.float32)
    translator = pipeline("translation", model=model, tokenizer=load_tokenizer(folder))
    for sentence in READY_SENTENCES:
        translation = translator(sentence)[0]["translation_text"]
        print(f"\n  {sentence}\n  -> {translation}", flush=True)


def _use_free_processors() -> None:
    # Threads that wait for other programs make an update several times slower.
    free = round(idle_processors())
    torch.set_num_threads(max(1, min(torch.get_num_threads(), free)))


class _TimeForetold(TrainerCallback):
    """Prints how long the training takes, after the first updates."""

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Begin to count."""
        self._first_update = state.global_step
        self._began = time.monotonic()

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Foretell the time that is left."""
        left = state.max_steps - state.global_step
        if state.global_step - self._first_update == TIMED and left > 0:
            seconds = left * (time.monotonic() - self._began) / TIMED
            # print() would break the line of the progress bar.
            tqdm.write(f"{TIMED} updates are done. The other {left} take about {_duration(seconds)}.")


def _duration(seconds: float) -> str:
    """Return a time in words, such as "3 minutes 20 seconds"."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} seconds"
    return f"{minutes} minutes {rest} seconds"


def overrides(method: str) -> list[str]:
    """Return fields of the configuration that let a training take minutes."""
    fields = {"dropout": 0.1}
    if method_config_class(method) in (CapsuleAggregatedMarianConfig, CapsuleAggregatedM2M100Config):
        fields |= SMALL
    return [f"{name}={value}" for name, value in fields.items()]


def _train(args: argparse.Namespace, corpus: Path, tokenizer: Path, model: Path) -> None:
    """Train, or continue what SIGTERM ended if the options are the same."""
    begun = args.output_dir / _BEGUN
    options = {"method": args.method, "max_steps": args.max_steps}
    if not begun.is_file() or read_json(begun) != options:
        _delete_checkpoints(model)
    write_json(begun, options)

    train.main(
        ["--method", args.method, "--size", "tiny", "--config_overrides", *overrides(args.method)]
        + ["--tokenizer_name", str(tokenizer), "--output_dir", str(model), "--overwrite_output_dir"]
        + ["--train_file", f"{corpus}/train.en", f"{corpus}/train.de"]
        + ["--validation_file", f"{corpus}/validation.en", f"{corpus}/validation.de"]
        # In a short run, a rate that falls to zero learns more than the default, which is still high at the end.
        + ["--max_steps", str(args.max_steps), "--warmup_steps", "0.2", "--learning_rate", "3e-3"]
        + ["--lr_scheduler_type", "linear", "--max_tokens_per_batch", "1024", "--logging_steps", "50"]
        + ["--save_strategy", "no", "--per_device_eval_batch_size", "100", "--generation_max_length", "64"]
        + ["--resume_from_checkpoint", "auto"],
        callbacks=[_TimeForetold()],
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
