"""Train a translation model from scratch, or fine-tune one.

From scratch, on two aligned text files, with a tokenizer made by train_tokenizer:

    accelerate launch -m hf_capsule_mt.cli.train --method em-routing --size tiny --tokenizer_name tokenizer \\
        --train_file train.en train.de --validation_file val.en val.de \\
        --output_dir run --max_tokens_per_batch 4096 --max_steps 8000 --eval_strategy epoch --save_strategy epoch

Warm-started from a Marian checkpoint; defaults, such as 4,000 updates of warm-up, are those of training from scratch:

    accelerate launch -m hf_capsule_mt.cli.train --model_name_or_path Helsinki-NLP/opus-mt-en-de --method em-routing \\
        --train_file train.jsonl --source_lang en --target_lang de --output_dir run --learning_rate 2e-5 \\
        --added_learning_rate 1e-3 --warmup_steps 500

A killed run goes on with --resume_from_checkpoint last, or run/checkpoint-1234. With --push_to_hub true and
--hub_model_id user/name checkpoints go to the Hub, with their model card, as they are saved. Several processes share
each update's batch: accelerate launch --num_processes 8 -m ... on GPUs; on CPUs, torchrun --nproc_per_node 2 -m ...
--use_cpu (accelerate launch --cpu starts one, whatever --num_processes says).

With --lora_rank 8 the weights of --model_name_or_path stay as they are, and an adapter for them is trained. The output
folder then holds the model with the adapter merged into it, and the adapter alone in adapter/.
"""

import sys
import time
from argparse import ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from transformers import HfArgumentParser, set_seed

from hf_capsule_mt.checkpoints import is_whole, load_tokenizer
from hf_capsule_mt.data.tokenizer import words_hash
from hf_capsule_mt.files import locked
from hf_capsule_mt.records import Environment, write
from hf_capsule_mt.training.arguments import DataArguments, ModelArguments, TranslationTrainingArguments
from hf_capsule_mt.training.build import build_model
from hf_capsule_mt.training.data import load_data
from hf_capsule_mt.training.hyperparameters import check_is_added
from hf_capsule_mt.training.lora import check_peft, check_same_adapter, merge_adapter, with_adapter
from hf_capsule_mt.training.resuming import check_same_model, check_same_tokenizer, find_checkpoint
from hf_capsule_mt.training.run_identity import check_no_other_run, settings_of
from hf_capsule_mt.training.run_recorder import RunRecorder
from hf_capsule_mt.training.stopping import STATUS, StopOnSigterm
from hf_capsule_mt.training.trainer import TranslationTrainer

from .common import check_output_folder, report_user_errors
from .processes import leave_group_at_exit, warn_if_alone


class _HelpFormatter(RawDescriptionHelpFormatter, ArgumentDefaultsHelpFormatter):
    """The description as it is, and a default with every option."""


def build_parser() -> HfArgumentParser:
    """Return the parser of the command."""
    return HfArgumentParser(
        (ModelArguments, DataArguments, TranslationTrainingArguments),
        usage="%(prog)s --option value ...",
        description=__doc__,
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
    )


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Train, evaluate, and save model, tokenizer, `run_record.json` and the model card in the output folder."""
    model_args, data_args, args = build_parser().parse_args_into_dataclasses(argv)
    warn_if_alone("hf_capsule_mt.cli.train", "--use_cpu")
    args.check_with(data_args)
    _check_lora(model_args, args)
    check_output_folder(Path(args.output_dir))
    settings = settings_of([model_args, data_args, args])
    # As the trainer does, but before data is read and until the record is written.
    with locked(Path(args.output_dir)) if args.process_index == 0 else nullcontext():
        if args.resume_from_checkpoint is not None:
            args.resume_from_checkpoint = find_checkpoint(args.resume_from_checkpoint, args)
        if args.process_index == 0:
            check_no_other_run(args, settings, args.resume_from_checkpoint, model_args.model_name_or_path)
        recorder, trainer = _prepare(model_args, data_args, args, sys.argv[1:] if argv is None else argv)
        trainer.identity.settings = settings
        _train(model_args, trainer, recorder)
    leave_group_at_exit()


def _check_lora(model_args: ModelArguments, args: TranslationTrainingArguments) -> None:
    if model_args.lora_rank is None:
        return
    check_peft()
    if args.added_learning_rate is not None:
        raise ValueError(
            f"added_learning_rate is {args.added_learning_rate}, and lora_rank is {model_args.lora_rank}: adapters "
            "alone are trained; leave out one of them"
        )
    if args.push_to_hub:
        raise ValueError(
            "push_to_hub is true and lora_rank given: checkpoints of the run are adapters, and its end is a model; "
            "push that with hf-capsule-mt push_to_hub when it is trained"
        )


def _prepare(
    model_args: ModelArguments, data_args: DataArguments, args: TranslationTrainingArguments, words: Sequence[str]
) -> tuple[RunRecorder, TranslationTrainer]:
    """Load what the run starts from, and its data."""
    started, environment = time.time(), Environment.here(args.device)
    option = "model_name_or_path" if model_args.tokenizer_name is None else "tokenizer_name"
    tokenizer = load_tokenizer(*model_args.tokenizer(), option=option)
    if args.resume_from_checkpoint is not None:
        check_same_tokenizer(args.resume_from_checkpoint, words_hash(tokenizer))
    set_seed(args.seed)
    model = build_model(model_args, tokenizer)
    if args.added_learning_rate is not None:
        check_is_added(model, args.added_learning_rate)
    if model_args.lora_rank is not None:
        model = with_adapter(model, model_args)
    if args.resume_from_checkpoint is not None:
        check = check_same_model if model_args.lora_rank is None else check_same_adapter
        check(args.resume_from_checkpoint, model)
    data = load_data(data_args, args, tokenizer, model.config)
    recorder = RunRecorder(model_args, data_args, data.facts, words, started, environment)
    data_sets = {"train_dataset": data.train, "eval_dataset": data.validation}
    return recorder, TranslationTrainer(model, args, processing_class=tokenizer, recorder=recorder, **data_sets)


def _train(model_args: ModelArguments, trainer: TranslationTrainer, recorder: RunRecorder) -> None:
    """Train, and save and push what comes out."""
    args = trainer.args
    with StopOnSigterm(trainer.accelerator) as stop:
        trainer.add_callback(stop)
        result = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    if stop.stopped:
        _end_after_sigterm(trainer)
    if model_args.lora_rank is not None:
        merge_adapter(trainer)
    # `_internal_call` saves without pushing, which is done at the end, with the scores.
    trainer.save_model(_internal_call=True)
    trainer.save_state()
    metrics = {**result.metrics, **(trainer.evaluate() if trainer.eval_dataset is not None else {})}
    if trainer.is_world_process_zero():
        write(recorder.record(trainer, metrics), Path(args.output_dir) / "run_record.json")
    if args.push_to_hub:
        trainer.push_to_hub()
    else:
        trainer.create_model_card()


def _end_after_sigterm(trainer: TranslationTrainer) -> None:
    step = trainer.state.global_step
    if trainer.is_world_process_zero():
        checkpoint = Path(trainer.args.output_dir) / f"checkpoint-{step}"
        saved = "is saved; go on" if is_whole(checkpoint) else "is not saved; go on from an earlier one"
        print(
            f"stopped by SIGTERM after update {step}: {checkpoint} {saved} with --resume_from_checkpoint last",
            file=sys.stderr,
        )
    leave_group_at_exit()
    raise SystemExit(STATUS)


if __name__ == "__main__":
    main()
