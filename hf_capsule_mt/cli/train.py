"""Train a translation model from scratch, or fine-tune one.

From scratch, on two aligned text files, with a tokenizer made by train_tokenizer:

    accelerate launch -m hf_capsule_mt.cli.train --method em-routing --size tiny --tokenizer_name tokenizer \\
        --train_file train.en train.de --validation_file val.en val.de \\
        --output_dir run --max_tokens_per_batch 4096 --max_steps 8000 --eval_strategy epoch --save_strategy epoch

Warm-started from a Marian checkpoint:

    accelerate launch -m hf_capsule_mt.cli.train --model_name_or_path Helsinki-NLP/opus-mt-en-de --method em-routing \\
        --train_file train.jsonl --source_lang en --target_lang de --output_dir run --learning_rate 2e-5

A killed run goes on with --resume_from_checkpoint run/checkpoint-1234. With --push_to_hub true --hub_model_id user/name
checkpoints go to the Hub, with their model card, as they are saved. Several processes share each update's batch:
accelerate launch --num_processes 8 -m ... on GPUs; on CPUs, torchrun --nproc_per_node 2 -m ... --use_cpu.
"""

import sys
import time
from argparse import ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

from transformers import HfArgumentParser, set_seed

from hf_capsule_mt.checkpoints import load_tokenizer
from hf_capsule_mt.records import Environment, write
from hf_capsule_mt.training.arguments import DataArguments, ModelArguments, TranslationTrainingArguments
from hf_capsule_mt.training.build import build_model
from hf_capsule_mt.training.data import load_data
from hf_capsule_mt.training.resuming import check_same_model
from hf_capsule_mt.training.run_recorder import RunRecorder
from hf_capsule_mt.training.trainer import TranslationTrainer

from .errors import report_user_errors
from .output import check_output_folder
from .parser import NearestOptionParser
from .processes import leave_group_at_exit


class _HelpFormatter(RawDescriptionHelpFormatter, ArgumentDefaultsHelpFormatter):
    """The description as it is, and a default with every option."""


def build_parser() -> HfArgumentParser:
    """Return the parser of the command."""
    # By itself HfArgumentParser calls a mistyped option "not used", and does not name the nearest.
    parser = type("TrainParser", (NearestOptionParser, HfArgumentParser), {})
    return parser(
        (ModelArguments, DataArguments, TranslationTrainingArguments),
        usage="%(prog)s --option value ...",
        description=__doc__,
        formatter_class=_HelpFormatter,
    )


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Train, evaluate, and save model, tokenizer, `run_record.json` and the model card in the output folder."""
    model_args, data_args, args = build_parser().parse_args_into_dataclasses(argv)
    args.check_with(data_args)
    check_output_folder(Path(args.output_dir))
    started, environment = time.time(), Environment.here()
    tokenizer = load_tokenizer(*model_args.tokenizer())
    set_seed(args.seed)
    model = build_model(model_args, tokenizer)
    if args.resume_from_checkpoint is not None:
        check_same_model(args.resume_from_checkpoint, model)
    data = load_data(data_args, args, tokenizer, model.config)
    arguments = sys.argv[1:] if argv is None else argv
    recorder = RunRecorder(model_args, data_args, data.facts, arguments, started, environment)
    data_sets = {"train_dataset": data.train, "eval_dataset": data.validation}
    trainer = TranslationTrainer(model, args, recorder, processing_class=tokenizer, **data_sets)
    result = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    # `_internal_call` saves without pushing, which is done at the end, with the scores.
    trainer.save_model(_internal_call=True)
    trainer.save_state()
    metrics = {**result.metrics, **(trainer.evaluate() if data.validation is not None else {})}
    if trainer.is_world_process_zero():
        write(recorder.record(trainer, metrics), Path(args.output_dir) / "run_record.json")
    if args.push_to_hub:
        trainer.push_to_hub()
    else:
        trainer.create_model_card()
    leave_group_at_exit()


if __name__ == "__main__":
    main()
