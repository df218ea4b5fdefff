"""Train a translation model from scratch, or fine-tune one.

From scratch, with a tokenizer made by train_tokenizer:

    hf-capsule-mt train --method em-routing --size tiny --tokenizer_name tokenizer --train_file train.en train.de \\
        --validation_file val.en val.de --output_dir run --max_steps 8000 --eval_strategy epoch --save_strategy epoch
    ...
    The model is in run.

Fine-tune OPUS-MT:

    hf-capsule-mt train --model Helsinki-NLP/opus-mt-en-de --train_file train.jsonl --source_lang en --target_lang de \\
        --output_dir tuned

With --model the defaults are those of fine-tuning: --learning_rate 2e-5, --added_learning_rate 1e-3 for the layers that
--method adds, and 500 updates of warm-up, or a tenth of a shorter run. With --lora_rank the rate is 1e-3.

With --general_validation_file the best checkpoint is one that has not become much worse on texts of another kind.

--resume_from_checkpoint last continues a run that was killed. --lora_rank 8 trains only an adapter. The output folder
then holds the model with the adapter in it, and the adapter itself in adapter/.

Several processes share the batch of each update:

    accelerate launch --num_processes 8 -m hf_capsule_mt train ...
    torchrun --nproc_per_node 2 -m hf_capsule_mt train --use_cpu ...
"""

import argparse
import sys
import time
from argparse import ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import HfArgumentParser, set_seed
from transformers.utils import logging

from hf_capsule_mt.environment import environment
from hf_capsule_mt.errors import UserError, blamed_on_user
from hf_capsule_mt.files import write_json
from hf_capsule_mt.loading import commit_of, load_tokenizer
from hf_capsule_mt.modeling.warm_start import added_weights
from hf_capsule_mt.training.arguments import DataArguments, ModelArguments, TranslationTrainingArguments
from hf_capsule_mt.training.build import build_model
from hf_capsule_mt.training.callbacks import StopOnSigterm
from hf_capsule_mt.training.lora import merge_adapter, with_adapter
from hf_capsule_mt.training.resuming import claim_folder, find_checkpoint
from hf_capsule_mt.training.run_recorder import RunRecorder, evaluations_of
from hf_capsule_mt.training.trainer import TranslationTrainer
from hf_capsule_mt.training.training_data import load_data

from .common import leave_group_at_exit, report_user_errors, warn_if_busy

logger = logging.get_logger(__name__)

_FINE_TUNING = {"learning_rate": 2e-5, "warmup_steps": None}
# Of layers that a method adds, and of an adapter: they start at zero, and would stay there at the rate above.
_ADDED_RATE = 1e-3
# What people use: --help shows these, and --help_all all of them.
_SHOWN = (
    *("method", "size", "model", "tokenizer_name", "config_overrides", "lora_rank", "train_file", "validation_file"),
    *("general_validation_file", "max_general_loss", "dataset_name", "source_lang", "target_lang", "output_dir"),
    *("overwrite_output_dir", "resume_from_checkpoint", "max_steps", "num_train_epochs", "max_tokens_per_batch"),
    *("gradient_accumulation_steps", "learning_rate", "warmup_steps", "eval_strategy", "eval_steps", "save_strategy"),
    *("save_steps", "bf16", "use_cpu", "push_to_hub", "hub_model_id"),
)


class _HelpFormatter(RawDescriptionHelpFormatter, ArgumentDefaultsHelpFormatter):
    """The description as it is, and a default with every option."""


class _Help(argparse.Action):
    """Shows the options that people use, or all of them with `--help_all`."""

    def __call__(self, parser: argparse.ArgumentParser, *args: Any) -> None:
        for action in parser._actions:
            if args[-1] != "--help_all" and action.dest not in (*_SHOWN, argparse.SUPPRESS):
                action.help = argparse.SUPPRESS
            # Not the spelling with hyphens, no value of a flag, and no default that is none.
            action.option_strings = [name for name in action.option_strings if "-" not in name.lstrip("-")]
            action.nargs = 0 if action.const is True else action.nargs
            if not action.default:
                action.default = argparse.SUPPRESS
        parser.print_help()
        parser.exit()


def build_parser() -> HfArgumentParser:
    """Return the parser of the command."""
    parser = HfArgumentParser(
        (ModelArguments, DataArguments, TranslationTrainingArguments),
        usage="%(prog)s --option value ...",
        description=__doc__,
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    silent = {"action": _Help, "nargs": 0, "dest": argparse.SUPPRESS, "default": argparse.SUPPRESS}
    parser.add_argument("-h", "--help", **silent, help="show the options that people use, and exit")
    parser.add_argument("--help_all", **silent, help="show all options, and exit")
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Train, evaluate, and save model, tokenizer, `run_record.json` and the model card in the output folder."""
    words = sys.argv[1:] if argv is None else list(argv)
    parser = build_parser()
    options = {word.partition("=")[0].replace("-", "_") for word in words}
    if "__model" in options:
        parser.set_defaults(**_FINE_TUNING)
    if "__lora_rank" in options:
        parser.set_defaults(learning_rate=_ADDED_RATE)
    # Transformers finds options that do not fit each other.
    with blamed_on_user():
        model_args, data_args, args = parser.parse_args_into_dataclasses(words)
    args.check_with(data_args)
    # Data is read after this, which can take hours.
    claim_folder(args, find_checkpoint(args.resume_from_checkpoint, args.output_dir), deletes=False)
    if model_args.lora_rank is not None and args.push_to_hub:
        raise UserError("Checkpoints of --lora_rank are adapters. Push the merged model when it is trained.")
    recorder, trainer = _prepare(model_args, data_args, args, words)
    _train(model_args, trainer, recorder)
    leave_group_at_exit()


def _prepare(
    model_args: ModelArguments, data_args: DataArguments, args: TranslationTrainingArguments, words: Sequence[str]
) -> tuple[RunRecorder, TranslationTrainer]:
    """Load what the run starts from, and its data."""
    started, versions = time.time(), environment(args.device)
    if model_args.model is not None:
        model_args.revision = commit_of(model_args.model, model_args.revision) or "main"
    warn_if_busy(args.device)
    tokenizer = load_tokenizer(*model_args.tokenizer())
    set_seed(args.seed)
    model = build_model(model_args, tokenizer)
    if model_args.model is None:
        # The limit that `translate` has for the longest source of training. Plain generate() has no other.
        settings = model.generation_config
        settings.max_length = min(settings.max_length, 2 * data_args.max_source_length + 22)
    else:
        is_new = model_args.method is not None and added_weights(model)
        if is_new and args.added_learning_rate is None:
            args.added_learning_rate = _ADDED_RATE
        if args.should_log:
            added = f", {args.added_learning_rate} for added layers" if args.added_learning_rate else ""
            logger.warning(f"Fine-tuning with learning rate {args.learning_rate}{added}.")
    if model_args.lora_rank is not None:
        model = with_adapter(model, model_args)
    data = load_data(data_args, args, tokenizer, model.config)
    recorder = RunRecorder(model_args, data_args, data.facts, words, started, versions)
    data_sets = {"train_dataset": data.train, "eval_dataset": data.validation, "general_dataset": data.general}
    return recorder, TranslationTrainer(model, args, processing_class=tokenizer, recorder=recorder, **data_sets)


def _train(model_args: ModelArguments, trainer: TranslationTrainer, recorder: RunRecorder) -> None:
    """Train, and save and push what comes out."""
    args = trainer.args
    with StopOnSigterm() as stop:
        trainer.add_callback(stop)
        result = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    if stop.stopped:
        if trainer.is_world_process_zero():
            step = trainer.state.global_step
            print(f"Stopped by SIGTERM at update {step}. Continue with --resume_from_checkpoint last.", file=sys.stderr)
        leave_group_at_exit()
        raise SystemExit(StopOnSigterm.STATUS)
    if model_args.lora_rank is not None:
        merge_adapter(trainer)
    # `_internal_call` saves without pushing, which is done at the end, with the scores.
    trainer.save_model(_internal_call=True)
    trainer.save_state()
    evaluations = evaluations_of(trainer.comparable_log)
    metrics = {**result.metrics, **(trainer.evaluate() if trainer.eval_dataset is not None else {})}
    if trainer.is_world_process_zero():
        write_json(Path(args.output_dir) / "run_record.json", recorder.record(trainer, metrics, evaluations))
    if args.push_to_hub:
        trainer.push_to_hub()
    else:
        trainer.create_model_card()
    if trainer.is_world_process_zero():
        if trainer.general_dataset is not None:
            _print_curves(evaluations, args, trainer.state.best_global_step)
        print(f"The model is in {args.output_dir}.")


def _print_curves(
    evaluations: Sequence[dict[str, float]], args: TranslationTrainingArguments, best: int | None
) -> None:
    print(f"{'updates':>9}{'validation BLEU':>17}{'general BLEU':>14}")
    least = evaluations[0]["general_bleu"] - args.max_general_loss
    for each in evaluations:
        note = "best" if each["updates"] == best else "loses too much" if each["general_bleu"] < least else ""
        print(f"{each['updates']:>9}{each['bleu']:>17.2f}{each['general_bleu']:>14.2f}  {note}".rstrip())
    if best is None:
        logger.warning(
            f"Every checkpoint loses more than {args.max_general_loss} BLEU on the general validation data. The model "
            "is that of the last update. Lower --learning_rate, or raise --max_general_loss."
        )
    elif not max(each["bleu"] for each in evaluations[1:]) > evaluations[0]["bleu"]:
        logger.warning(f"No checkpoint is better than the model at the start. Do not use {args.output_dir}.")
