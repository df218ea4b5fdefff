"""What `scripts/train.py` can be told, in three groups: model, data, training."""

import json
from dataclasses import dataclass, field
from typing import Any

from transformers import Seq2SeqTrainingArguments


@dataclass
class ModelArguments:
    """Which model to train, from scratch or from a checkpoint."""

    method: str | None = field(
        default=None,
        metadata={"help": "System to train: transformer, em-routing, ... (wrong names list them all)."},
    )
    size: str | None = field(
        default=None,
        metadata={"help": "tiny, base or big; from scratch only, where it is 'base' unless given."},
    )
    model_name_or_path: str | None = field(
        default=None,
        metadata={
            "help": "Checkpoint to start from: one of this package, or any Marian model (then with --method)."
        },
    )
    tokenizer_name: str | None = field(
        default=None, metadata={"help": "Name or folder of the tokenizer; that of the checkpoint by default."}
    )
    config_overrides: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Fields of the model's configuration, as name=value with a JSON value or plain text."
        },
    )
    label_smoothing: float = field(default=0.1, metadata={"help": "Label smoothing of the model's own loss."})

    def __post_init__(self) -> None:
        if self.method is None and self.model_name_or_path is None:
            raise ValueError(
                "neither method nor model_name_or_path is given; give --method, --model_name_or_path or both"
            )
        if self.size is not None and self.model_name_or_path is not None:
            raise ValueError(
                f"size is {self.size!r}, but {self.model_name_or_path} has one already; leave out --size"
            )
        if self.tokenizer_name is None and self.model_name_or_path is None:
            raise ValueError(
                "tokenizer_name is missing; make a tokenizer with scripts/train_tokenizer.py and name its folder"
            )

    def config_fields(self) -> dict[str, Any]:
        """The fields that the command line sets in the model's configuration."""
        return {
            "label_smoothing": self.label_smoothing,
            **dict(_parse_override(text) for text in self.config_overrides),
        }


def _parse_override(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"config_overrides has {text!r}; write name=value")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


@dataclass
class DataArguments:
    """Which parallel text to train on and to validate with."""

    train_file: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Source file and target file, or one .tsv or .jsonl file; each may be gzipped (.gz)."
        },
    )
    validation_file: list[str] = field(default_factory=list, metadata={"help": "The same for validation."})
    dataset_name: str | None = field(
        default=None, metadata={"help": "Data set of the Hub, instead of files."}
    )
    dataset_config_name: str | None = field(
        default=None, metadata={"help": "Configuration of that data set."}
    )
    source_lang: str | None = field(
        default=None, metadata={"help": "Source language, as the data names it (en)."}
    )
    target_lang: str | None = field(
        default=None, metadata={"help": "Target language, as the data names it (de)."}
    )
    max_source_length: int = field(
        default=256, metadata={"help": "Tokens; pairs with a longer source are left out."}
    )
    max_target_length: int = field(
        default=256, metadata={"help": "Tokens; pairs with a longer target are left out."}
    )

    def __post_init__(self) -> None:
        if bool(self.train_file) == (self.dataset_name is not None):
            raise ValueError("give either --train_file or --dataset_name")
        if self.dataset_name is not None and not (self.source_lang and self.target_lang):
            raise ValueError(
                f"dataset_name is {self.dataset_name!r}; it needs --source_lang and --target_lang"
            )


@dataclass
class TranslationTrainingArguments(Seq2SeqTrainingArguments):
    """[`Seq2SeqTrainingArguments`] with token-budget batches and the defaults of machine translation."""

    max_tokens_per_batch: int | None = field(
        default=4096,
        metadata={
            "help": "Tokens in a training batch on one device: pairs times the longest side of any, padding included. "
            "None: per_device_train_batch_size pairs."
        },
    )
    early_stopping_patience: int | None = field(
        default=None,
        metadata={"help": "Evaluations without a better metric_for_best_model before training stops."},
    )
    lr_scheduler_type: str = field(default="inverse_sqrt", metadata={"help": "Learning rate schedule."})
    warmup_steps: float = field(default=4000, metadata={"help": "Updates of linear warm-up."})
    learning_rate: float = field(default=7e-4, metadata={"help": "Peak learning rate."})
    adam_beta2: float = field(default=0.98, metadata={"help": "Adam's beta2 (Vaswani et al. 2017)."})
    adam_epsilon: float = field(default=1e-9, metadata={"help": "Adam's epsilon (Vaswani et al. 2017)."})
    predict_with_generate: bool = field(default=True, metadata={"help": "Evaluate with generate() and BLEU."})
    generation_max_length: int | None = field(
        default=128, metadata={"help": "Longest translation in evaluation."}
    )
    generation_num_beams: int | None = field(default=1, metadata={"help": "Beams in evaluation."})
    metric_for_best_model: str | None = field(
        default="bleu", metadata={"help": "What the best checkpoint is best in."}
    )
    report_to: str | list[str] = field(
        default="tensorboard", metadata={"help": "Loggers; 'none' for no logger."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tokens_per_batch is not None and self.max_tokens_per_batch < 1:
            raise ValueError(f"max_tokens_per_batch is {self.max_tokens_per_batch}; it must be at least 1")
        if self.early_stopping_patience is not None and not self.load_best_model_at_end:
            raise ValueError(
                "early_stopping_patience needs --load_best_model_at_end true, to know what is best"
            )
