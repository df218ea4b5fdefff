"""The options of `hf-capsule-mt train`, in three classes: model, data, and those of training that people use.

Nothing here imports torch or Transformers, so that the command answers a wrong option at once.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import KW_ONLY, MISSING, dataclass, field
from typing import Any, Literal

from hf_capsule_mt.data.corpus_files import Columns
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.methods import METHODS, SIZES

_PYTHON_WORDS = {"True": True, "False": False, "None": None}


def option(
    *, default: Any = MISSING, default_factory: Callable[[], Any] = MISSING, help: str, metavar: str | None = None
) -> Any:
    """Return a field of a class of options, as `HfArg` of Transformers does.

    Args:
        default: its value without the option.
        default_factory: makes a default that can change, such as a list.
        help: what `--help` says.
        metavar: what stands for the value there.
    """
    metadata = {"help": help}
    if metavar is not None:
        metadata["metavar"] = metavar
    return field(default=default, default_factory=default_factory, metadata=metadata)


@dataclass
class ModelArguments:
    """The model to train, from scratch or from a checkpoint."""

    _argument_group_name = "model"

    method: Literal[tuple(METHODS)] | None = option(
        default=None,
        metavar="METHOD",
        help="Kind of model, such as transformer, em-routing or gdr. The error of a wrong one lists them all.",
    )
    size: Literal[tuple(SIZES)] | None = option(default=None, help="Size of a new model (default: base).")
    model: str | None = option(
        default=None, help="Checkpoint to start from: one of this package, Marian, M2M-100, NLLB-200 or mBART-50."
    )
    revision: str = option(default="main", help="Branch, tag or commit of --model on the Hub.")
    tokenizer_name: str | None = option(
        default=None, help="Name or folder of the tokenizer (default: that of --model)."
    )
    config_overrides: list[str] = option(
        default_factory=list,
        metavar="NAME=VALUE",
        help="Fields of the model's configuration, as name=value. A value is JSON, such as [0, 1], or plain text.",
    )
    new_language: list[str] = option(
        default_factory=list,
        metavar="LANG",
        help="Languages to add to NLLB, M2M-100 or mBART, written like the model's own, such as dsb_Latn.",
    )
    like: list[str] = option(
        default_factory=list,
        metavar="LANG",
        help="For each of --new_language the language of the model that it begins as, such as deu_Latn.",
    )
    label_smoothing: float = option(default=0.1, help="Label smoothing.")
    lora_rank: int | None = option(
        default=None, help="Train an adapter of this rank (LoRA) instead of all weights, and merge it at the end."
    )

    def __post_init__(self) -> None:
        if self.model is None and (self.method is None or self.tokenizer_name is None):
            raise UserError("Give --method and --tokenizer_name to train from scratch, or --model.")
        if self.model is not None and self.size is not None:
            raise UserError(f"{self.model} has a size already. Leave out --size.")
        if self.lora_rank is not None and (self.model is None or self.method not in (None, "transformer")):
            raise UserError("--lora_rank trains an adapter for --model, without --method.")
        if self.new_language and self.model is None:
            raise UserError("--new_language adds a language to a model. Give --model.")
        if len(self.new_language) != len(self.like):
            raise UserError(
                f"--new_language names {len(self.new_language)} and --like {len(self.like)} languages. Give as many, "
                "in the same order: --new_language dsb_Latn hsb_Latn --like deu_Latn ces_Latn."
            )
        if len(set(self.new_language)) < len(self.new_language):
            raise UserError("--new_language names a language twice. Leave out one.")

    def tokenizer(self) -> tuple[str, str]:
        """Return the name or folder of the tokenizer, and the revision."""
        if self.tokenizer_name is not None:
            return self.tokenizer_name, "main"
        return self.model, self.revision

    def new_languages(self) -> dict[str, str]:
        """Return for each language to add the one that it begins as."""
        return dict(zip(self.new_language, self.like, strict=True))

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

    train_file: list[str] = option(
        default_factory=list,
        help="Source file and target file, or a file of .tsv, .jsonl, .parquet or .tmx. Text may be .gz, .bz2, .xz or "
        ".zst. Several corpora stand one after the other. 'part-*.tsv' in quotes is one corpus.",
    )
    validation_file: list[str] = option(
        default_factory=list, help="Validation data, in the same formats as --train_file."
    )
    general_validation_file: list[str] = option(
        default_factory=list,
        help="Texts of another kind, on which a model should stay good (eval_general_bleu). A checkpoint that loses "
        "more than --max_general_loss there is never the best one.",
    )
    dataset_name: str | None = option(default=None, help="Data set of the Hub, instead of files.")
    dataset_config_name: str | None = option(default=None, help="Configuration of the data set.")
    source_lang: str | None = option(
        default=None, help="Source language, as the data names it, such as en. NLLB needs its own name, eng_Latn."
    )
    target_lang: str | None = option(
        default=None, help="Target language, as the data names it, such as de. NLLB needs its own name, deu_Latn."
    )
    source_column: str | None = option(default=None, help="Name of the source column, if it is not the language code.")
    target_column: str | None = option(default=None, help="Name of the target column, if it is not the language code.")
    train_file_weights: list[float] = option(default_factory=list, help="Relative weight of each corpus in train_file.")
    max_source_length: int = option(default=256, help="Leave out pairs with a longer source, in tokens.")
    max_target_length: int = option(default=256, help="Leave out pairs with a longer target, in tokens.")
    preprocessing_num_workers: int | None = option(
        default=None, help="Processes that tokenise. By default one, and a fast tokenizer then uses all cores."
    )
    bpe_dropout: float = option(
        default=0.0, help="Probability to skip a merge, drawn in every epoch. Only for byte-level BPE."
    )
    streaming: bool = option(
        default=False, help="Read and tokenise while training, and keep nothing. Needs --max_steps."
    )
    shuffle_buffer: int = option(default=100_000, help="Pairs that a stream shuffles and sorts by length together.")

    def __post_init__(self) -> None:
        if bool(self.train_file) == (self.dataset_name is not None):
            raise UserError("Give either --train_file or --dataset_name.")

    @property
    def columns(self) -> Columns:
        """The names by which rows tell source from target."""
        return Columns(self.source_lang, self.target_lang, self.source_column, self.target_column)


@dataclass
class TrainingOptions:
    """The training arguments whose defaults differ from Transformers', those that people use, and new ones.

    The new ones are given by name.
    """

    _argument_group_name = "training"

    output_dir: str | None = option(
        default=None, help="Folder for the model, its checkpoints and its records (default: trainer_output)."
    )
    max_steps: int = option(default=-1, help="Updates of the run. Above 0, it counts instead of --num_train_epochs.")
    num_train_epochs: float = option(default=3.0, help="How often the run reads the training data.")
    eval_strategy: Literal["no", "steps", "epoch"] = option(
        default="no", help="When to evaluate: never, every --eval_steps updates, or after each epoch."
    )
    eval_steps: float | None = option(
        default=None,
        help="Updates between evaluations (default: --logging_steps). Below 1: their share of the run.",
    )
    save_strategy: Literal["no", "steps", "epoch", "best"] = option(
        default="steps",
        help="When to save a checkpoint: never, every --save_steps updates, after each epoch, or when an evaluation is "
        "the best so far.",
    )
    save_steps: float = option(default=500, help="Updates between checkpoints. Below 1: their share of the run.")
    bf16: bool = option(default=False, help="Compute in bfloat16 with weights in float32.")
    use_cpu: bool = option(default=False, help="Train on the CPU, also where there is a GPU.")
    push_to_hub: bool = option(default=False, help="Send the model to the Hub when it is saved.")
    hub_model_id: str | None = option(
        default=None, help="Repository on the Hub, such as user/name (default: the name of --output_dir)."
    )
    lr_scheduler_type: str = option(default="inverse_sqrt", help="Learning rate schedule.")
    warmup_steps: float | None = option(
        default=4000,
        help="Updates in which the learning rate rises. Below 1: their share of the run (default: %(default)s, with "
        "--model 500 or a tenth of the run).",
    )
    learning_rate: float = option(
        default=7e-4, help="Peak learning rate (default: %(default)s, with --model 2e-5, with --lora_rank 1e-3)."
    )
    adam_beta2: float = option(default=0.98, help="Adam's beta2 (Vaswani et al. 2017).")
    adam_epsilon: float = option(default=1e-9, help="Adam's epsilon (Vaswani et al. 2017).")
    predict_with_generate: bool = option(
        default=True, help="Translate the validation data and compute BLEU. Otherwise only the loss is computed."
    )
    per_device_train_batch_size: int | None = option(
        default=None, help="Pairs in a batch. It counts only if --max_tokens_per_batch is 0."
    )
    gradient_accumulation_steps: int = option(default=1, help="Batches per device in one update.")
    label_smoothing_factor: float = option(default=0.0, help=argparse.SUPPRESS)
    generation_max_length: int | None = option(default=128, help="Longest translation in evaluation.")
    generation_num_beams: int | None = option(default=1, help="Beams in evaluation.")
    metric_for_best_model: str | None = option(
        default=None, help="What decides which checkpoint is best: bleu or loss. By default bleu."
    )
    report_to: str = option(default="tensorboard", help="Loggers, or none.")
    resume_from_checkpoint: str | None = option(
        default=None,
        help="Continue a run: a checkpoint folder, or last, the newest complete checkpoint in --output_dir, or auto, "
        "which starts a new run if there is none.",
    )
    logging_nan_inf_filter: bool = option(
        default=False, help="Log the mean of earlier losses instead of one that is not finite."
    )
    ddp_find_unused_parameters: bool | None = option(
        default=False,
        help="Whether an update may leave out weights. It is set for models that need it, such as with LayerDrop.",
    )
    _: KW_ONLY
    max_tokens_per_batch: int | None = option(
        default=None,
        help="Batch size of one device, in tokens of the longer side, with padding (default: 4096). 0: batches of "
        "--per_device_train_batch_size pairs.",
    )
    max_general_loss: float = option(
        default=1.0, help="BLEU that the best checkpoint may lose on --general_validation_file since the start."
    )
    bleu_tokenize: str = option(
        default="13a",
        help="BLEU's tokenizer in evaluation. Targets without spaces need another one: zh, ja-mecab, ko-mecab or char.",
    )
    rdrop_alpha: float = option(
        default=0.0,
        help="R-Drop (Liang et al. 2021): weight of the divergence between two passes over each batch, about 5. With "
        "0 there is one pass.",
    )
    ema_decay: float = option(
        default=0.0, help="Evaluate and save a moving average of the weights with this decay, such as 0.999."
    )
    added_learning_rate: float | None = option(
        default=None,
        help="Learning rate of the layers that --method adds to --model. At 2e-5 they would stay switched off.",
    )
    early_stopping_patience: int | None = option(
        default=None, help="Evaluations without a better metric_for_best_model before training stops."
    )
    overwrite_output_dir: bool = option(
        default=False, help="Delete the checkpoints and results of another run in --output_dir."
    )
