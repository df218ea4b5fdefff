"""The options of `hf-capsule-mt train`, in three groups: model, data, training."""

import glob
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from huggingface_hub.utils import validate_repo_id
from transformers import Seq2SeqTrainingArguments
from transformers.hf_argparser import HfArg

from hf_capsule_mt.configuration import METHODS, SIZES
from hf_capsule_mt.data.columns import Columns
from hf_capsule_mt.data.parallel_text import check_corpus
from hf_capsule_mt.evaluation.scores import make_metrics
from hf_capsule_mt.json_fields import parse_override

from .availability import check_available
from .hyperparameters import LOWERING


@dataclass
class ModelArguments:
    """The model to train, from scratch or from a checkpoint."""

    _argument_group_name = "model"

    method: str | None = HfArg(default=None, help=f"System to train: {', '.join(METHODS)}.")
    size: str | None = HfArg(
        default=None, help=f"{', '.join(SIZES)}; from scratch only, where it is base unless given."
    )
    model_name_or_path: str | None = HfArg(
        default=None, help="Checkpoint to start from: one of this package, or any Marian model with safetensors."
    )
    model_revision: str = HfArg(
        default="main", help="Branch, tag or commit of that checkpoint on the Hub; pin a commit."
    )
    tokenizer_name: str | None = HfArg(
        default=None, help="Name or folder of the tokenizer; that of the checkpoint by default."
    )
    config_overrides: list[str] = HfArg(
        default_factory=list,
        help="Fields of the model's configuration, as name=value; a value is JSON, as true and [0, 1], or plain text.",
    )
    label_smoothing: float = HfArg(default=0.1, help="Label smoothing of the model's own loss.")
    lora_rank: int | None = HfArg(
        default=None,
        help="Train an adapter of this rank (LoRA) for model_name_or_path, which stays as it is, and merge it at the "
        "end.",
    )

    def __post_init__(self) -> None:
        if self.method is None and self.model_name_or_path is None:
            raise ValueError(
                "neither method nor model_name_or_path is given; give --method, --model_name_or_path or both"
            )
        if self.size is not None and self.model_name_or_path is not None:
            raise ValueError(f"size is {self.size!r}, but {self.model_name_or_path} has one already; leave out --size")
        if self.tokenizer_name is None and self.model_name_or_path is None:
            raise ValueError(
                "tokenizer_name is missing; make a tokenizer with hf-capsule-mt train_tokenizer and name its folder"
            )
        self._check_lora()
        if self.model_revision != "main" and os.path.isdir(self.model_name_or_path or ""):
            raise ValueError(
                f"model_revision is {self.model_revision!r}, but {self.model_name_or_path} is a folder, which has none"
            )

    def _check_lora(self) -> None:
        if self.lora_rank is None:
            return
        if self.lora_rank < 1:
            raise ValueError(f"lora_rank is {self.lora_rank}; it must be at least 1")
        if self.model_name_or_path is None or self.method not in (None, "transformer"):
            raise ValueError(
                f"lora_rank is {self.lora_rank} and method {self.method!r}: an adapter is trained for a model that has "
                "all of its weights; name it with --model_name_or_path, and leave out --method"
            )

    def tokenizer(self) -> tuple[str, str]:
        """Return the name or folder of the tokenizer, and the revision."""
        if self.tokenizer_name is not None:
            return self.tokenizer_name, "main"
        return self.model_name_or_path, self.model_revision

    def config_fields(self) -> dict[str, Any]:
        """Return the fields of the model's configuration that the command line sets."""
        return {"label_smoothing": self.label_smoothing, **dict(parse_override(text) for text in self.config_overrides)}


@dataclass
class DataArguments:
    """The parallel text to train on and to validate with."""

    _argument_group_name = "data"

    train_file: list[str] = HfArg(
        default_factory=list,
        help="Source file and target file, or a .tsv, .jsonl or .parquet file; all but the last may be .gz, .bz2, .xz "
        "or .zst. Several corpora one after the other; 'part-*.tsv' in quotes is one of several files.",
    )
    validation_file: list[str] = HfArg(default_factory=list, help="The same for validation.")
    dataset_name: str | None = HfArg(default=None, help="Data set of the Hub, instead of files.")
    dataset_config_name: str | None = HfArg(default=None, help="Configuration of that data set.")
    source_lang: str | None = HfArg(default=None, help="Source language, as the data names it (en).")
    target_lang: str | None = HfArg(default=None, help="Target language, as the data names it (de).")
    source_column: str | None = HfArg(default=None, help="Column of the source, if it is not called as its language.")
    target_column: str | None = HfArg(default=None, help="Column of the target, likewise.")
    train_file_weights: list[float] = HfArg(
        default_factory=list, help="How often each corpus of train_file is drawn from, in relation to the others."
    )
    max_source_length: int = HfArg(default=256, help="Tokens; pairs with a longer source are left out.")
    max_target_length: int = HfArg(default=256, help="Tokens; pairs with a longer target are left out.")
    preprocessing_num_workers: int | None = HfArg(
        default=None,
        help="Processes that tokenise; by default one, whose tokenizer uses all cores if it is a fast one.",
    )
    bpe_dropout: float = HfArg(
        default=0.0, help="Probability with which merges are left out, anew in every epoch; byte-level BPE only."
    )
    streaming: bool = HfArg(
        default=False, help="Read, tokenise and batch as training goes, and hold nothing; needs --max_steps."
    )
    shuffle_buffer: int = HfArg(default=100_000, help="Pairs that a stream shuffles and sorts by length together.")

    def __post_init__(self) -> None:
        check_corpus(self.train_file, self.dataset_name, self.dataset_config_name)
        for name in ("train_file", "validation_file"):
            for file in getattr(self, name):
                # A pipe will do.
                if not any(Path(found).exists() and not Path(found).is_dir() for found in (file, *glob.glob(file))):
                    raise ValueError(f"{name} names {file}, which is not a file; check the path")
        if self.dataset_name is not None:
            self.columns.check(f"dataset_name {self.dataset_name!r}")
        if self.train_file_weights and not self.train_file:
            raise ValueError(
                f"train_file_weights is {self.train_file_weights}, but dataset_name {self.dataset_name!r} is one "
                "corpus; leave out --train_file_weights, or name files with --train_file"
            )
        self._check_numbers()

    def _check_numbers(self) -> None:
        for name in ("preprocessing_num_workers", "shuffle_buffer"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.bpe_dropout < 1:
            raise ValueError(f"bpe_dropout is {self.bpe_dropout}; it must be at least 0 and less than 1")
        for weight in self.train_file_weights:
            if not 0 < weight < math.inf:
                raise ValueError(f"train_file_weights has {weight}; weights must be more than 0")

    @property
    def columns(self) -> Columns:
        """The names by which rows tell source from target."""
        return Columns(self.source_lang, self.target_lang, self.source_column, self.target_column)


@dataclass(kw_only=True)
class _TranslationArguments:
    """The training arguments that Transformers does not have: in front of its own in --help, and only by name."""

    max_tokens_per_batch: int = HfArg(
        default=4096,
        help="Tokens in a training batch on one device: pairs times the longest side of any, padding included. "
        "0: batches of per_device_train_batch_size pairs.",
    )
    bleu_tokenize: str = HfArg(
        default="13a",
        help="BLEU's tokenizer in evaluation, as --tokenize of evaluate: zh, ja-mecab, ko-mecab, char, ... for targets "
        "without spaces, of which the default makes a word of each sentence.",
    )
    save_minutes: float | None = HfArg(
        default=None, help="Minutes after which a checkpoint is saved, beside those of save_strategy."
    )
    rdrop_alpha: float = HfArg(
        default=0.0,
        help="R-Drop (Liang et al. 2021): weight of the divergence between two passes over each batch, about 5; 0: one "
        "pass.",
    )
    ema_decay: float = HfArg(
        default=0.0,
        help="Evaluate and save an exponential moving average of the weights with this decay, about 0.999; 0: the "
        "weights themselves.",
    )
    added_learning_rate: float | None = HfArg(
        default=None,
        help="Learning rate of what a method adds to the model that training starts from, such as 1e-3 where "
        "learning_rate is 2e-5, at which routing would stay switched off.",
    )
    early_stopping_patience: int | None = HfArg(
        default=None, help="Evaluations without a better metric_for_best_model before training stops."
    )
    overwrite_output_dir: bool = HfArg(
        default=False, help="Delete the checkpoints and the results of another run in output_dir."
    )
    ignore_missing_state: bool = HfArg(
        default=False,
        help="Resume from a checkpoint that lacks its optimizer, schedule or random states.",
    )


@dataclass
class TranslationTrainingArguments(Seq2SeqTrainingArguments, _TranslationArguments):
    """[`Seq2SeqTrainingArguments`] with token-budget batches and the defaults of machine translation.

    Raises:
        ValueError: if a value is not allowed, or contradicts another.
    """

    _argument_group_name = "training"

    lr_scheduler_type: str = HfArg(default="inverse_sqrt", help="Learning rate schedule.")
    warmup_steps: float = HfArg(default=4000, help="Updates of linear warm-up; below 1, their share of the run.")
    learning_rate: float = HfArg(default=7e-4, help="Peak learning rate.")
    adam_beta2: float = HfArg(default=0.98, help="Adam's beta2 (Vaswani et al. 2017).")
    adam_epsilon: float = HfArg(default=1e-9, help="Adam's epsilon (Vaswani et al. 2017).")
    predict_with_generate: bool = HfArg(
        default=True, help="Translate the validation data and score BLEU; without, the loss is all that is evaluated."
    )
    per_device_train_batch_size: int = HfArg(default=8, help="Pairs in a batch, with --max_tokens_per_batch 0 alone.")
    gradient_accumulation_steps: int = HfArg(
        default=1, help="Batches of each device that an update adds up, each of max_tokens_per_batch tokens."
    )
    hub_token: str | None = HfArg(default=None, help="Refused: log in with hf auth login, or set HF_TOKEN.")
    label_smoothing_factor: float = HfArg(default=0.0, help="Refused: --label_smoothing is the model's own.")
    generation_max_length: int | None = HfArg(default=128, help="Longest translation in evaluation.")
    generation_num_beams: int | None = HfArg(default=1, help="Beams in evaluation.")
    metric_for_best_model: str | None = HfArg(
        default=None, help="What the best checkpoint is best in: bleu or loss; bleu if predict_with_generate."
    )
    report_to: str = HfArg(default="tensorboard", help="Loggers; 'none' for no logger.")
    resume_from_checkpoint: str | None = HfArg(
        default=None,
        help="Checkpoint of a run to go on from; or last, the newest whole one in output_dir; or auto, which is that, "
        "and the start of the run where there is none.",
    )
    logging_nan_inf_filter: bool = HfArg(
        default=False, help="Log the mean of earlier losses in place of one that is not finite."
    )
    ddp_find_unused_parameters: bool | None = HfArg(
        default=False,
        help="Whether an update may leave out parameters. It is set for models of which it does, as with LayerDrop.",
    )

    def __post_init__(self) -> None:
        if self.metric_for_best_model is None:
            self.metric_for_best_model = "bleu" if self.predict_with_generate else "loss"
        self.metric_for_best_model = self.metric_for_best_model.removeprefix("eval_")
        self._check_numbers()
        self._check_knows_best()
        self._check_hub()
        if self.label_smoothing_factor > 0:
            raise ValueError(
                f"label_smoothing_factor is {self.label_smoothing_factor}: with it the Trainer drops the model's own "
                "loss; set label_smoothing in the model's configuration instead (--label_smoothing)"
            )
        if self.use_cpu:
            # By itself the Trainer gives its limit to processes on GPUs alone.
            PartialState(cpu=True, backend=self.ddp_backend, timeout=self.ddp_timeout_delta)
        super().__post_init__()
        self._check_dealing()
        if self.lr_scheduler_type in LOWERING:
            # By itself the Trainer takes any metric for a loss, and would lower the rate as BLEU rises.
            mode = "max" if self.greater_is_better else "min"
            self.lr_scheduler_kwargs = {"mode": mode, **(self.lr_scheduler_kwargs or {})}
        if self.fp16 and self.device.type == "cpu":
            raise ValueError("fp16 is true, and there is no GPU; on a CPU it would change nothing: leave it out")
        # Pinned memory without an accelerator does nothing but warn, every time a loader is made.
        self.dataloader_pin_memory = self.dataloader_pin_memory and torch.accelerator.is_available()

    @property
    def seed_of_data(self) -> int:
        """What the order of the pairs follows from."""
        return self.seed if self.data_seed is None else self.data_seed

    def check_with(self, data_args: DataArguments) -> None:
        """Check these arguments together with those of the data.

        Raises:
            ValueError: if there is nothing to evaluate on, metric_for_best_model or BLEU cannot be computed, or a way
                to read data, a logger, the optimizer or the schedule lacks what it needs.
        """
        self.check_data(data_args)
        check_available(self)
        self._check_evaluation()
        if self.eval_strategy != "no" and not data_args.validation_file and data_args.dataset_name is None:
            raise ValueError(f"eval_strategy is {self.eval_strategy.value!r}, but there is no --validation_file")
        metrics = ("bleu", "loss") if self.predict_with_generate else ("loss",)
        if self.metric_for_best_model not in metrics:
            raise ValueError(
                f"metric_for_best_model is {self.metric_for_best_model!r}; with predict_with_generate "
                f"{self.predict_with_generate} there is {' and '.join(metrics)}"
            )

    def check_data(self, data_args: DataArguments) -> None:
        """Raise a ValueError where streaming or BPE-dropout lacks what it needs."""
        if data_args.streaming and self.max_steps < 1:
            raise ValueError(f"streaming is true and max_steps {self.max_steps}; a stream has no end: give --max_steps")
        if data_args.streaming and self.dataloader_num_workers > 1:
            raise ValueError(
                f"dataloader_num_workers is {self.dataloader_num_workers}; a stream has at most 1, and its tokenizer "
                "all cores"
            )
        for name in ("streaming", "bpe_dropout"):
            if getattr(data_args, name) and self.max_tokens_per_batch == 0:
                raise ValueError(f"{name} is {getattr(data_args, name)}; it needs --max_tokens_per_batch")
        for name in ("logging_strategy", "eval_strategy", "save_strategy"):
            if data_args.streaming and getattr(self, name) == "epoch":
                minutes = ", or no and --save_minutes" if name == "save_strategy" else ""
                raise ValueError(
                    f"{name} is 'epoch', but streaming true: a stream has no epochs; choose steps{minutes}"
                )
        for file in data_args.train_file if data_args.streaming else ():
            if Path(file).exists() and not Path(file).is_file():
                raise ValueError(
                    f"train_file names {file}, which is no file, and streaming is true: a stream is read again and "
                    "again; write it to a file, or leave out --streaming"
                )
        longest = max(data_args.max_source_length, data_args.max_target_length)
        if data_args.streaming and longest > self.max_tokens_per_batch:
            raise ValueError(
                f"max_tokens_per_batch is {self.max_tokens_per_batch}, but a streamed text may have {longest} tokens; "
                "raise it, or lower max_source_length and max_target_length"
            )

    def _check_numbers(self) -> None:
        for name in ("gradient_accumulation_steps", "generation_num_beams", "early_stopping_patience"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.max_steps == 0:
            raise ValueError("max_steps is 0; it must be at least 1, or left out, and --num_train_epochs counts")
        if self.save_minutes is not None and self.save_minutes <= 0:
            raise ValueError(f"save_minutes is {self.save_minutes}; it must be more than 0")
        if self.added_learning_rate is not None and not 0 < self.added_learning_rate < math.inf:
            raise ValueError(f"added_learning_rate is {self.added_learning_rate}; it must be more than 0")
        if not 0 <= self.rdrop_alpha < math.inf:
            raise ValueError(f"rdrop_alpha is {self.rdrop_alpha}; it must be at least 0")
        if not 0 <= self.ema_decay < 1:
            raise ValueError(f"ema_decay is {self.ema_decay}; it must be at least 0 and less than 1")
        if self.ema_decay and "schedule_free" in self.optim:
            raise ValueError(
                f"ema_decay is {self.ema_decay} and optim {str(self.optim)!r}, which averages the weights itself; "
                "leave out ema_decay"
            )
        if self.max_tokens_per_batch < 0:
            raise ValueError(f"max_tokens_per_batch is {self.max_tokens_per_batch}; it must be at least 0")
        if self.max_tokens_per_batch:
            self._check_budget()
        elif self.train_sampling_strategy == "group_by_length":
            raise ValueError(
                "train_sampling_strategy is 'group_by_length' and max_tokens_per_batch 0: a run of them cannot go on "
                "with the pairs that it has left; leave both out, for batches of so many tokens are of like lengths"
            )

    def _check_budget(self) -> None:
        """Raise a ValueError for an option that batches of a token budget do not follow."""
        remedies = {
            "per_device_train_batch_size": f"set that to 0 for batches of {self.per_device_train_batch_size} pairs",
            "train_sampling_strategy": "set that to 0 for batches of per_device_train_batch_size pairs in this order",
            "auto_find_batch_size": "leave it out, and lower that if memory does not suffice",
            "dataloader_drop_last": "leave it out: only validation would lose its last batch",
            "dataloader_in_order": "leave it out: a run that goes on counts the batches that it has had",
            "sortish_sampler": "leave it out: the sides of a batch are of like lengths",
        }
        for name, remedy in remedies.items():
            if getattr(self, name) != getattr(Seq2SeqTrainingArguments, name):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}, but batches are filled to "
                    f"max_tokens_per_batch={self.max_tokens_per_batch}; {remedy}"
                )

    def _check_dealing(self) -> None:
        """Raise a ValueError for options of accelerate that processes could not share batches by."""
        if not self.accelerator_config.even_batches:
            raise ValueError(
                "even_batches of accelerator_config is false: in validation, processes would gather from batches of "
                "different size; leave it out"
            )
        for name in ("split_batches", "dispatch_batches"):
            if self.max_tokens_per_batch and getattr(self.accelerator_config, name):
                raise ValueError(
                    f"{name} of accelerator_config is true, but batches are filled to "
                    f"max_tokens_per_batch={self.max_tokens_per_batch}, for each process by itself; leave it out"
                )

    def _check_evaluation(self) -> None:
        """Raise a ValueError for an option that scores of translations do not follow."""
        if not self.predict_with_generate:
            return
        make_metrics(["bleu"], self.bleu_tokenize)
        if self.prediction_loss_only:
            raise ValueError(
                "prediction_loss_only is true, and predict_with_generate too; for the loss alone set "
                "--predict_with_generate false"
            )
        if self.batch_eval_metrics or not self.eval_do_concat_batches:
            raise ValueError(
                f"batch_eval_metrics is {self.batch_eval_metrics} and eval_do_concat_batches "
                f"{self.eval_do_concat_batches}, but BLEU is that of all sentences together; leave both out"
            )

    def _check_knows_best(self) -> None:
        """Raise a ValueError for an option that needs to know what is best, where nothing tells."""
        if self.save_strategy == "best" and self.eval_strategy == "no":
            raise ValueError("save_strategy is 'best'; it needs an --eval_strategy, to know what is best")
        knows_best = self.eval_strategy != "no" and self.load_best_model_at_end
        if self.early_stopping_patience is not None and not knows_best:
            raise ValueError(
                f"early_stopping_patience is {self.early_stopping_patience}; it needs an --eval_strategy and "
                "--load_best_model_at_end true, to know what is best"
            )

    def _check_hub(self) -> None:
        if self.hub_token is not None:
            # Not shown: messages end up in logs.
            raise ValueError(
                "hub_token is given, and would be written to training_args.bin and to the history of the shell; log in "
                "with `hf auth login`, or set the environment variable HF_TOKEN"
            )
        if self.hub_model_id is not None:
            validate_repo_id(self.hub_model_id)
        for name in ("bf16_full_eval", "fp16_full_eval"):
            if self.push_to_hub and getattr(self, name):
                raise ValueError(
                    f"{name} is true, and push_to_hub too: the last evaluation would leave 16 bits of the weights that "
                    f"are pushed; leave out --{name}"
                )
