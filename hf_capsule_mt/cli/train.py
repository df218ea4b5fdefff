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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import report_user_errors
from .output import check_output_folder, write_json
from .parser import NearestOptionParser
from .processes import leave_group_at_exit

if TYPE_CHECKING:
    import numpy as np
    from transformers import (
        EvalPrediction,
        HfArgumentParser,
        PreTrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
    )

    from hf_capsule_mt.data.parallel_text import ParallelText
    from hf_capsule_mt.data.tokenized import TokenizedPairs
    from hf_capsule_mt.training.arguments import DataArguments, TranslationTrainingArguments
    from hf_capsule_mt.training.run import Run
    from hf_capsule_mt.training.trainer import TranslationTrainer


class _HelpFormatter(RawDescriptionHelpFormatter, ArgumentDefaultsHelpFormatter):
    """The description as it is, and a default with every option."""


def build_parser() -> "HfArgumentParser":
    """The parser of the command line."""
    from transformers import HfArgumentParser

    from hf_capsule_mt.training.arguments import DataArguments, ModelArguments, TranslationTrainingArguments

    # HfArgumentParser calls what is left over "not used", and names no other option.
    parser = type("TrainParser", (NearestOptionParser, HfArgumentParser), {})
    return parser(
        (ModelArguments, DataArguments, TranslationTrainingArguments),
        usage="%(prog)s --option value ...",
        description=__doc__,
        formatter_class=_HelpFormatter,
    )


@report_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Train, evaluate, and save model, tokenizer, `run_record.json` and the model card in the output folder."""
    model_args, data_args, args = build_parser().parse_args_into_dataclasses(argv)
    _check_arguments(data_args, args)

    from transformers import set_seed

    from hf_capsule_mt.data.tokenizer import check_tokenizer, load_tokenizer
    from hf_capsule_mt.training.build import build_model
    from hf_capsule_mt.training.record import environment
    from hf_capsule_mt.training.run import Run

    started, made_by = time.time(), environment()
    if model_args.tokenizer_name is not None:
        tokenizer = load_tokenizer(model_args.tokenizer_name)
    else:
        tokenizer = load_tokenizer(model_args.model_name_or_path, model_args.model_revision)
    set_seed(args.seed)
    model = build_model(model_args, tokenizer)
    check_tokenizer(tokenizer, model.config)
    _check_positions(model.config, data_args, args)
    train_text = _read(data_args, "train", args)
    validation_text = _read(data_args, "validation", args)
    train_pairs = _tokenize(train_text, tokenizer, data_args, args, "training")
    validation_pairs = _tokenize(validation_text, tokenizer, data_args, args, "validation")
    _check_budget(train_pairs, args)
    arguments = sys.argv[1:] if argv is None else argv
    run = Run(model_args, data_args, train_text, train_pairs, arguments, started, made_by)
    trainer = _build_trainer(model, args, tokenizer, train_pairs, validation_pairs, run)
    result = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    # What Transformers calls internal is to save without pushing: that comes last, with the scores.
    trainer.save_model(_internal_call=True)
    trainer.save_state()
    metrics = {**result.metrics, **(trainer.evaluate() if validation_pairs is not None else {})}
    if trainer.is_world_process_zero():
        write_json(Path(args.output_dir) / "run_record.json", run.record(trainer, metrics))
    if args.push_to_hub:
        trainer.push_to_hub()
    else:
        trainer.create_model_card()
    leave_group_at_exit()


def _check_arguments(data_args: "DataArguments", args: "TranslationTrainingArguments") -> None:
    """What can be wrong with arguments together, and with folders."""
    folder = args.resume_from_checkpoint
    if folder is not None and not (Path(folder) / "trainer_state.json").is_file():
        raise ValueError(
            f"resume_from_checkpoint is {folder!r}, which holds no trainer_state.json; name a checkpoint folder"
        )
    check_output_folder(Path(args.output_dir), "--output_dir")
    if args.eval_strategy != "no" and not data_args.validation_file and data_args.dataset_name is None:
        raise ValueError(f"eval_strategy is {args.eval_strategy.value!r}, but there is no --validation_file")
    metrics = ("bleu", "loss") if args.predict_with_generate else ("loss",)
    if args.metric_for_best_model.removeprefix("eval_") not in metrics:
        raise ValueError(
            f"metric_for_best_model is {args.metric_for_best_model!r}; with predict_with_generate "
            f"{args.predict_with_generate} there is {' and '.join(metrics)}"
        )


def _check_positions(
    config: "PreTrainedConfig", data_args: "DataArguments", args: "TranslationTrainingArguments"
) -> None:
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None:
        return
    lengths = {
        "max_source_length": data_args.max_source_length,
        "max_target_length": data_args.max_target_length,
        "generation_max_length": args.generation_max_length or 0,
    }
    for name, length in lengths.items():
        if length > positions:
            raise ValueError(f"{name} is {length}, but the model has {positions} positions; lower it to that")


def _check_budget(pairs: "TokenizedPairs", args: "TranslationTrainingArguments") -> None:
    longest = max(map(max, pairs.lengths))
    if 0 < args.max_tokens_per_batch < longest:
        raise ValueError(
            f"max_tokens_per_batch is {args.max_tokens_per_batch}, but the longest training text has {longest} tokens; "
            "raise it, or lower max_source_length and max_target_length"
        )


def _read(data_args: "DataArguments", split: str, args: "TranslationTrainingArguments") -> "ParallelText | None":
    from hf_capsule_mt.data.parallel_text import load_hub_parallel_text, read_parallel_text

    languages = data_args.source_lang, data_args.target_lang
    files = getattr(data_args, f"{split}_file")
    if files:
        text = read_parallel_text(files, *languages, name=f"{split} data")
    elif data_args.dataset_name is not None and (split == "train" or args.eval_strategy != "no"):
        text = load_hub_parallel_text(data_args.dataset_name, data_args.dataset_config_name, split, *languages)
    else:
        return None
    if args.process_index == 0:
        print(f"{split}: {text.report}")
    return text


def _tokenize(
    text: "ParallelText | None",
    tokenizer: "PreTrainedTokenizerBase",
    data_args: "DataArguments",
    args: "TranslationTrainingArguments",
    name: str,
) -> "TokenizedPairs | None":
    from hf_capsule_mt.data.tokenized import tokenize_pairs

    if text is None:
        return None
    pairs = tokenize_pairs(text, tokenizer, data_args.max_source_length, data_args.max_target_length)
    if args.process_index == 0:
        print(f"{name}: {len(pairs)} pairs tokenised, {pairs.too_long} over the length limit left out")
    return pairs


def _build_trainer(
    model: "PreTrainedModel",
    args: "TranslationTrainingArguments",
    tokenizer: "PreTrainedTokenizerBase",
    train_pairs: "TokenizedPairs",
    validation_pairs: "TokenizedPairs | None",
    run: "Run",
) -> "TranslationTrainer":
    from transformers import DataCollatorForSeq2Seq

    from hf_capsule_mt.training.trainer import TranslationTrainer

    return TranslationTrainer(
        model=model,
        args=args,
        train_dataset=train_pairs,
        eval_dataset=validation_pairs,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
        compute_metrics=_bleu(tokenizer) if args.predict_with_generate else None,
        run=run,
    )


def _bleu(tokenizer: "PreTrainedTokenizerBase") -> "Callable[[EvalPrediction], dict[str, float]]":
    """BLEU of the decoded text, with sacreBLEU's default tokenizer."""
    import numpy as np

    from hf_capsule_mt.evaluation.scores import score_translations

    def decode(ids: "np.ndarray") -> list[str]:
        return tokenizer.batch_decode(np.where(ids == -100, tokenizer.pad_token_id, ids), skip_special_tokens=True)

    def compute(prediction: "EvalPrediction") -> dict[str, float]:
        scores = score_translations(decode(prediction.predictions), [decode(prediction.label_ids)], metrics=("bleu",))
        return {"bleu": scores["bleu"]["score"]}

    return compute


if __name__ == "__main__":
    main()
