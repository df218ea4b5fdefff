"""Reading and tokenising of the text that a run is trained on and validated with."""

from dataclasses import dataclass

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from hf_capsule_mt.data.parallel_text import ParallelText, load_hub_parallel_text, read_parallel_text
from hf_capsule_mt.data.tokenized import TokenizedPairs, tokenize_pairs
from hf_capsule_mt.data.tokenizer import check_tokenizer

from .arguments import DataArguments, TranslationTrainingArguments


@dataclass(frozen=True)
class TrainingData:
    """Data sets for [`~hf_capsule_mt.training.trainer.TranslationTrainer`]."""

    text: ParallelText
    """The training text as it was read."""
    train: TokenizedPairs
    validation: TokenizedPairs | None
    """None if there is no validation text."""


def load_data(
    data_args: DataArguments,
    args: TranslationTrainingArguments,
    tokenizer: PreTrainedTokenizerBase,
    config: PreTrainedConfig,
) -> TrainingData:
    """Read and tokenise training and validation text, for a model of `config` with `tokenizer`.

    Raises:
        ValueError: if the tokenizer is another model's, a length exceeds the model's positions, or there is no usable
            text, or a training text is longer than a batch.
    """
    check_tokenizer(tokenizer, config)
    _check_positions(config, data_args, args)
    train_text, validation_text = (_read(data_args, split, args) for split in ("train", "validation"))
    train = _tokenize(train_text, tokenizer, data_args, args, "training")
    _check_budget(train, args.max_tokens_per_batch)
    validation = None
    if validation_text is not None:
        validation = _tokenize(validation_text, tokenizer, data_args, args, "validation")
    return TrainingData(train_text, train, validation)


def _check_budget(pairs: TokenizedPairs, max_tokens: int) -> None:
    """Raise ValueError if a batch of `max_tokens`, which is 0 for no limit, cannot hold the longest of the pairs."""
    longest = max(map(max, pairs.lengths))
    if 0 < max_tokens < longest:
        raise ValueError(
            f"max_tokens_per_batch is {max_tokens}, but the longest training text has {longest} tokens; raise it, or "
            "lower max_source_length and max_target_length"
        )


def _check_positions(config: PreTrainedConfig, data_args: DataArguments, args: TranslationTrainingArguments) -> None:
    positions = getattr(config, "max_position_embeddings", None)
    lengths = {
        "max_source_length": data_args.max_source_length,
        "max_target_length": data_args.max_target_length,
        "generation_max_length": args.generation_max_length or 0,
    }
    for name, length in lengths.items():
        if positions is not None and length > positions:
            raise ValueError(f"{name} is {length}, but the model has {positions} positions; lower it to that")


def _read(data_args: DataArguments, split: str, args: TranslationTrainingArguments) -> ParallelText | None:
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
    text: ParallelText,
    tokenizer: PreTrainedTokenizerBase,
    data_args: DataArguments,
    args: TranslationTrainingArguments,
    name: str,
) -> TokenizedPairs:
    pairs = tokenize_pairs(text, tokenizer, data_args.max_source_length, data_args.max_target_length)
    if args.process_index == 0:
        print(f"{name}: {len(pairs)} pairs tokenised, {pairs.too_long} over the length limit left out")
    return pairs
