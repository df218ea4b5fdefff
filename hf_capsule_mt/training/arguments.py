"""The options of `hf-capsule-mt train`, in three classes: model, data, training."""

import argparse
import copy
import json
import math
import os
import sys
from dataclasses import dataclass
from typing import Any, Literal

import torch
from accelerate import PartialState
from transformers import Seq2SeqTrainingArguments
from transformers.hf_argparser import HfArg

from hf_capsule_mt.configuration import METHODS, SIZES
from hf_capsule_mt.data.corpus_files import Columns
from hf_capsule_mt.errors import UserError

_PYTHON_WORDS = {"True": True, "False": False, "None": None}


@dataclass
class ModelArguments:
    """The model to train, from scratch or from a checkpoint."""

    _argument_group_name = "model"

    method: Literal[tuple(METHODS)] | None = HfArg(
        default=None,
        metadata={"metavar": "METHOD"},
        help="Kind of model, such as transformer, em-routing or gdr. The error of a wrong one lists them all.",
    )
    size: Literal[tuple(SIZES)] | None = HfArg(default=None, help="Size of a new model (default: base).")
    model: str | None = HfArg(
        default=None, help="Checkpoint to start from: one of this package, Marian, M2M-100 or NLLB-200."
    )
    revision: str = HfArg(default="main", help="Branch, tag or commit of --model on the Hub.")
    tokenizer_name: str | None = HfArg(default=None, help="Name or folder of the tokenizer (default: that of --model).")
    config_overrides: list[str] = HfArg(
        default_factory=list,
        metadata={"metavar": "NAME=VALUE"},
        help="Fields of the model's configuration, as name=value. A value is JSON, such as [0, 1], or plain text.",
    )
    label_smoothing: float = HfArg(default=0.1, help="Label smoothing of the model's own loss.")
    lora_rank: int | None = HfArg(
        default=None, help="Train an adapter of this rank (LoRA) instead of all weights, and merge it at the end."
    )

    def __post_init__(self) -> None:
        if self.model is None and (self.method is None or self.tokenizer_name is None):
            raise UserError("Give --method and --tokenizer_name to train from scratch, or --model.")
        if self.model is not None and self.size is not None:
            raise UserError(f"{self.model} has a size already. Leave out --size.")
        if self.lora_rank is not None and (self.model is None or self.method not in (None, "transformer")):
            raise UserError("--lora_rank trains an adapter for --model, without --method.")

    def tokenizer(self) -> tuple[str, str]:
        """Return the name or folder of the tokenizer, and the revision."""
        if self.tokenizer_name is not None:
            return self.tokenizer_name, "main"
        return self.model, self.revision

    def config_fields(self) -> dict[str, Any]:
        """Return the fields of the model's configuration that the command line sets."""
        return {"label_smoothing": self.label_smoothing, **dict(parse_override(text) for text in self.config_overrides)}


def parse_override(text: str) -> tuple[str, Any]:
    """Split `name=value`, where the value is JSON, one of Python's True, False and None, or plain text.

    Raises:
        UserError: if there is no equals sign, or a list or an object is not JSON.
    """
    name, separator, value = text.partition("=")
    if not separator:
        raise UserError(f"config_overrides has {text!r}. Write name=value.")
    if value in _PYTHON_WORDS:
        return name, _PYTHON_WORDS[value]
    try:
        return name, json.loads(value)
    except json.JSONDecodeError as error:
        if value.lstrip().startswith(("[", "{")):
            raise UserError(f"""config_overrides has {text!r}. Write lists as JSON: '{name}=["a", "b"]'.""") from error
        # A word without quotes, such as em_routing.
        return name, value


@dataclass
class DataArguments:
    """The parallel text to train on and to validate with."""

    _argument_group_name = "data"

    train_file: list[str] = HfArg(
        default_factory=list,
        help="Source file and target file, or a .tsv, .jsonl or .parquet file, or a translation memory (.tmx). Text "
        "may be compressed (.gz, .bz2, .xz, .zst). Name several corpora one after the other. 'part-*.tsv' in quotes is "
        "one corpus of several files.",
    )
    validation_file: list[str] = HfArg(
        default_factory=list, help="Validation data, in the same formats as --train_file."
    )
    general_validation_file: list[str] = HfArg(
        default_factory=list,
        help="Texts of another kind, on which a fine-tuned model should stay good. Each evaluation scores them too "
        "(eval_general_bleu). A checkpoint that loses more than --max_general_loss is never the best one.",
    )
    dataset_name: str | None = HfArg(default=None, help="Data set of the Hub, instead of files.")
    dataset_config_name: str | None = HfArg(default=None, help="Configuration of the data set.")
    source_lang: str | None = HfArg(
        default=None, help="Source language, as the data names it, such as en. NLLB needs its own name, eng_Latn."
    )
    target_lang: str | None = HfArg(
        default=None, help="Target language, as the data names it, such as de. NLLB needs its own name, deu_Latn."
    )
    source_column: str | None = HfArg(default=None, help="Name of the source column, if it is not the language code.")
    target_column: str | None = HfArg(default=None, help="Name of the target column, if it is not the language code.")
    train_file_weights: list[float] = HfArg(default_factory=list, help="Relative weight of each corpus in train_file.")
    max_source_length: int = HfArg(default=256, help="Leave out pairs with a longer source, in tokens.")
    max_target_length: int = HfArg(default=256, help="Leave out pairs with a longer target, in tokens.")
    preprocessing_num_workers: int | None = HfArg(
        default=None, help="Processes that tokenise. By default one, and a fast tokenizer then uses all cores."
    )
    bpe_dropout: float = HfArg(
        default=0.0, help="Probability to skip a merge, drawn in every epoch. Only for byte-level BPE."
    )
    streaming: bool = HfArg(
        default=False, help="Read and tokenise while training, and keep nothing. Needs --max_steps."
    )
    shuffle_buffer: int = HfArg(default=100_000, help="Pairs that a stream shuffles and sorts by length together.")

    def __post_init__(self) -> None:
        if bool(self.train_file) == (self.dataset_name is not None):
            raise UserError("Give either --train_file or --dataset_name.")

    @property
    def columns(self) -> Columns:
        """The names by which rows tell source from target."""
        return Columns(self.source_lang, self.target_lang, self.source_column, self.target_column)


@dataclass(kw_only=True)
class _TranslationArguments:
    """The training arguments that Transformers does not have: in front of its own in --help, and only by name."""

    max_tokens_per_batch: int | None = HfArg(
        default=None,
        help="Batch size of one device, in tokens of the longer side, with padding (default: 4096). 0: batches of "
        "--per_device_train_batch_size pairs.",
    )
    max_general_loss: float = HfArg(
        default=1.0, help="BLEU that the best checkpoint may lose on --general_validation_file since the start."
    )
    bleu_tokenize: str = HfArg(
        default="13a",
        help="BLEU's tokenizer in evaluation. Targets without spaces need another one: zh, ja-mecab, ko-mecab or char.",
    )
    rdrop_alpha: float = HfArg(
        default=0.0,
        help="R-Drop (Liang et al. 2021): weight of the divergence between two passes over each batch, about 5. With "
        "0 there is one pass.",
    )
    ema_decay: float = HfArg(
        default=0.0, help="Evaluate and save a moving average of the weights with this decay, such as 0.999."
    )
    added_learning_rate: float | None = HfArg(
        default=None,
        help="Learning rate of the layers that --method adds to --model. At 2e-5 they would stay switched off.",
    )
    early_stopping_patience: int | None = HfArg(
        default=None, help="Evaluations without a better metric_for_best_model before training stops."
    )
    overwrite_output_dir: bool = HfArg(
        default=False, help="Delete the checkpoints and results of another run in --output_dir."
    )


@dataclass
class TranslationTrainingArguments(Seq2SeqTrainingArguments, _TranslationArguments):
    """[`Seq2SeqTrainingArguments`] with token-budget batches and the defaults of machine translation.

    Raises:
        UserError: if a value is not allowed, or contradicts another.
    """

    _argument_group_name = "training"

    lr_scheduler_type: str = HfArg(default="inverse_sqrt", help="Learning rate schedule.")
    warmup_steps: float | None = HfArg(
        default=4000,
        help="Updates in which the learning rate rises. Below 1: their share of the run (default: %(default)s, with "
        "--model 500 or a tenth of the run).",
    )
    learning_rate: float = HfArg(
        default=7e-4, help="Peak learning rate (default: %(default)s, with --model 2e-5, with --lora_rank 1e-3)."
    )
    adam_beta2: float = HfArg(default=0.98, help="Adam's beta2 (Vaswani et al. 2017).")
    adam_epsilon: float = HfArg(default=1e-9, help="Adam's epsilon (Vaswani et al. 2017).")
    predict_with_generate: bool = HfArg(
        default=True, help="Translate the validation data and compute BLEU. Otherwise only the loss is computed."
    )
    per_device_train_batch_size: int | None = HfArg(
        default=None, help="Pairs in a batch. It counts only if --max_tokens_per_batch is 0."
    )
    gradient_accumulation_steps: int = HfArg(default=1, help="Batches per device in one update.")
    label_smoothing_factor: float = HfArg(default=0.0, help=argparse.SUPPRESS)
    generation_max_length: int | None = HfArg(default=128, help="Longest translation in evaluation.")
    generation_num_beams: int | None = HfArg(default=1, help="Beams in evaluation.")
    metric_for_best_model: str | None = HfArg(
        default=None, help="What decides which checkpoint is best: bleu or loss. By default bleu."
    )
    report_to: str = HfArg(default="tensorboard", help="Loggers, or none.")
    resume_from_checkpoint: str | None = HfArg(
        default=None,
        help="Continue a run: a checkpoint folder, or last, the newest complete checkpoint in --output_dir, or auto, "
        "which starts a new run if there is none.",
    )
    logging_nan_inf_filter: bool = HfArg(
        default=False, help="Log the mean of earlier losses instead of one that is not finite."
    )
    ddp_find_unused_parameters: bool | None = HfArg(
        default=False,
        help="Whether an update may leave out weights. It is set for models that need it, such as with LayerDrop.",
    )

    def __post_init__(self) -> None:
        self._set_defaults()
        self._hide_token()
        if self.use_cpu:
            # By itself the Trainer gives its time limit only to processes on GPUs.
            PartialState(cpu=True, backend=self.ddp_backend, timeout=self.ddp_timeout_delta)
        warmup_steps = self.warmup_steps
        if warmup_steps is None:
            # Transformers compares it with a number.
            self.warmup_steps = 0
        super().__post_init__()
        self.warmup_steps = warmup_steps
        self._check()
        # Pinned memory without an accelerator does nothing but warn.
        self.dataloader_pin_memory = self.dataloader_pin_memory and torch.accelerator.is_available()
        if self.dataloader_pin_memory:
            # Another copy would wait for all that the device is doing.
            self.accelerator_config.non_blocking = True

    def _set_defaults(self) -> None:
        """Give values to the options that have none, by those of others."""
        if self.max_tokens_per_batch is None:
            self.max_tokens_per_batch = 4096 if self.per_device_train_batch_size is None else 0
        if self.per_device_train_batch_size is None:
            self.per_device_train_batch_size = 8
        if self.metric_for_best_model is None:
            self.metric_for_best_model = "bleu" if self.predict_with_generate else "loss"
        self.metric_for_best_model = self.metric_for_best_model.removeprefix("eval_")

    def _hide_token(self) -> None:
        """Move the token of the Hub into the environment. `training_args.bin` would hold it."""
        if self.hub_token is not None:
            os.environ["HF_TOKEN"] = self.hub_token
            self.hub_token = None

    def _check(self) -> None:
        """Raise a UserError for values that would do something else than what they are for."""
        # A comparison with NaN is always False.
        if not 0 <= self.rdrop_alpha < math.inf:
            raise UserError(f"rdrop_alpha is {self.rdrop_alpha}. Give a number from 0 on, such as 5.")
        if not 0 <= self.ema_decay < 1:
            raise UserError(f"ema_decay is {self.ema_decay}. Give a number from 0 to below 1, such as 0.999.")
        if self.warmup_steps is None and self.optim.startswith("schedule_free"):
            raise UserError(
                f"optim {self.optim.value} warms up by itself, for a given number of updates. Give --warmup_steps."
            )
        if self.early_stopping_patience is not None and (self.eval_strategy == "no" or not self.load_best_model_at_end):
            raise UserError("early_stopping_patience needs an eval_strategy and load_best_model_at_end.")
        if self.push_to_hub and (self.bf16_full_eval or self.fp16_full_eval):
            raise UserError("Evaluation in 16 bits would round the weights that push_to_hub sends. Leave out one.")

    @property
    def seed_of_data(self) -> int:
        """What the order of the pairs follows from."""
        return self.seed if self.data_seed is None else self.data_seed

    @property
    def loader_options(self) -> dict[str, Any]:
        """Options of a loader for its worker processes."""
        context = None
        if self.dataloader_num_workers:
            context = self.dataloader_multiprocessing_context
            if context is None and sys.platform == "linux":
                # Other starts of workers than "fork" need a copy of all that workers use.
                context = "fork"
        return {
            "num_workers": self.dataloader_num_workers,
            "multiprocessing_context": context,
            "prefetch_factor": self.dataloader_prefetch_factor,
            "pin_memory": self.dataloader_pin_memory,
            "persistent_workers": self.dataloader_persistent_workers,
        }

    @property
    def needs_best(self) -> bool:
        """Whether a run cannot do without the values of `metric_for_best_model`."""
        return self.load_best_model_at_end or self.save_strategy == "best"

    def get_warmup_steps(self, num_training_steps: int) -> int:
        """Return the number of updates of linear warm-up in a run of `num_training_steps` updates.

        Without a value of `warmup_steps` it is 500, or a tenth of a shorter run.
        """
        if self.warmup_steps is None:
            return min(500, math.ceil(num_training_steps / 10))
        return super().get_warmup_steps(num_training_steps)

    def check_with(self, data_args: DataArguments) -> None:
        """Raise a UserError if evaluation lacks data or a purpose, or a stream is to have epochs."""
        if self.eval_strategy != "no" and not data_args.validation_file and data_args.dataset_name is None:
            raise UserError(f"eval_strategy is {self.eval_strategy.value}, and there is no --validation_file.")
        if data_args.general_validation_file and not (self.load_best_model_at_end and self.predict_with_generate):
            raise UserError(
                "--general_validation_file chooses the best checkpoint. Add --validation_file, "
                "--load_best_model_at_end, and --eval_strategy steps with equal --eval_steps and --save_steps."
            )
        if data_args.streaming and "epoch" in (self.logging_strategy, self.eval_strategy, self.save_strategy):
            raise UserError("A stream has no epochs. Log, evaluate and save by steps.")


def own_arguments(args: TranslationTrainingArguments | None) -> TranslationTrainingArguments:
    """Return a copy. The trainer changes some of them, and the caller may begin another run with the same ones."""
    if args is None:
        return TranslationTrainingArguments()
    if not isinstance(args, TranslationTrainingArguments):
        raise UserError(
            f"TranslationTrainer needs TranslationTrainingArguments, and args is a {type(args).__name__}. Its "
            "arguments have the same names there."
        )
    return copy.copy(args)
