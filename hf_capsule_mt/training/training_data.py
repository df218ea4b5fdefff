"""The text that a run is trained on and validated with, and its batches."""

import sys
from collections.abc import Callable, Sequence, Sized
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader
from transformers import PreTrainedConfig, PreTrainedTokenizerBase, Trainer
from transformers.utils import logging

from hf_capsule_mt.data.arrow_cache import TextCorpus, read_corpus, read_hub_corpus, tokenize_corpus
from hf_capsule_mt.data.batching import TokenBudgetBatchSampler, longest_sides
from hf_capsule_mt.data.bpe_dropout import BPEDropout, ResegmentedPairs
from hf_capsule_mt.data.corpus_files import Corpus, expand, find_corpora
from hf_capsule_mt.data.encoding import positions
from hf_capsule_mt.data.language_codes import LanguageCodes, each_checked
from hf_capsule_mt.data.parallel_text import ReadReport
from hf_capsule_mt.data.streaming import TokenBudgetStream, file_rows, hub_rows, state_file, stream_loader
from hf_capsule_mt.data.tokenizer import check_tokenizer
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import hash_file, hash_text

from .arguments import DataArguments, TranslationTrainingArguments

if TYPE_CHECKING:
    from datasets import Dataset

_LOOKED_AT = 1000  # pairs of a corpus, for codes of languages
logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class DataFacts:
    """Numbers and hashes for records. A stream, which is not read in full, has no numbers."""

    report: ReadReport | None = None
    pairs: dict[str, int] | None = None
    sha256: dict[str, str] = field(default_factory=dict)
    """Hashes of the lines that are kept, by side. Those of several corpora are hashed again."""
    validation: dict[str, int] | None = None
    """None if there is no validation text."""
    validation_sha256: dict[str, str] = field(default_factory=dict)
    """Hashes of the validation texts, by side."""


@dataclass(frozen=True)
class TrainingData:
    """Data sets for [`~hf_capsule_mt.training.trainer.TranslationTrainer`]."""

    train: "Dataset | ResegmentedPairs | TokenBudgetStream"
    validation: "Dataset | None"
    """None if there is no validation text."""
    facts: DataFacts = DataFacts()
    general: "Dataset | None" = None
    """Validation text of another kind, on which the model should not become worse."""


def load_data(
    data_args: DataArguments,
    args: TranslationTrainingArguments,
    tokenizer: PreTrainedTokenizerBase,
    config: PreTrainedConfig,
) -> TrainingData:
    """Read and tokenise training and validation text, for a model of `config` with `tokenizer`, or map the cache.

    Raises:
        UserError: if the tokenizer is another model's, a length exceeds the model's positions, there is no usable
            text, or a pair begins with the code of a language that a multilingual model does not write.
    """
    if data_args.streaming and args.max_steps < 1:
        raise UserError("A stream has no end. Give --max_steps.")
    if (data_args.streaming or data_args.bpe_dropout) and not args.max_tokens_per_batch:
        raise UserError("streaming and bpe_dropout need --max_tokens_per_batch.")
    check_tokenizer(tokenizer, config)
    _check_positions(config, data_args, args)
    loader = _Loader(data_args, args, tokenizer)
    # What is wrong with files shows when they are read, so read all of them before the work of tokenising.
    texts = None if data_args.streaming else loader.read("train")
    has_validation = data_args.validation_file or (data_args.dataset_name is not None and args.eval_strategy != "no")
    validation = loader.read("validation") if has_validation else None
    general = loader.read("general_validation") if data_args.general_validation_file else None
    train, facts = loader.stream() if texts is None else loader.training_pairs(texts)
    if validation is None:
        return TrainingData(train, None, facts)
    pairs, too_long = loader.tokenize(validation, "validation")
    counts, hashes = {"scored": len(pairs), "too_long": too_long}, _hashes(validation)
    general_pairs = None
    if general is not None:
        general_pairs, _ = loader.tokenize(general, "general validation")
        hashes = hashes | {f"general {side}": digest for side, digest in _hashes(general).items()}
    return TrainingData(train, pairs, replace(facts, validation=counts, validation_sha256=hashes), general_pairs)


class _Loader:
    def __init__(
        self, data_args: DataArguments, args: TranslationTrainingArguments, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        self.data_args, self.args, self.tokenizer = data_args, args, tokenizer
        self.limits, dropout = (data_args.max_source_length, data_args.max_target_length), data_args.bpe_dropout
        self.dropout = BPEDropout(tokenizer, dropout, self.limits) if dropout else None

    def read(self, split: str) -> list[TextCorpus]:
        """Return the corpora of a split."""
        data_args, name = self.data_args, f"{split.replace('_', ' ')} data"
        if getattr(data_args, f"{split}_file"):
            corpora = self._corpora(split)
            texts = [read_corpus(corpus, data_args.columns, name) for corpus in corpora]
        else:
            names = data_args.dataset_name, data_args.dataset_config_name, split
            texts = [read_hub_corpus(*names, data_args.columns, streaming=data_args.streaming)]
        codes = LanguageCodes(self.tokenizer)
        for text in texts:
            self._say(f"{split if len(texts) == 1 else text.name}: {text.report}")
            for _ in each_checked(codes, text.dataset[:_LOOKED_AT]["source"], text.name, self._warn):
                pass
        return texts

    def tokenize(self, texts: Sequence[TextCorpus], name: str) -> tuple["Dataset", int]:
        """Return the pairs of several corpora, and how many were left out for their length."""
        from datasets import concatenate_datasets, interleave_datasets

        workers = self.data_args.preprocessing_num_workers
        parts = [tokenize_corpus(text, self.tokenizer, *self.limits, num_proc=workers) for text in texts]
        too_long = sum(len(text.dataset) for text in texts) - sum(map(len, parts))
        weights = self.data_args.train_file_weights if name == "training" else []
        if weights:
            shares = [weight / sum(weights) for weight in weights]
            pairs = interleave_datasets(parts, shares, seed=self.args.seed_of_data, stopping_strategy="all_exhausted")
        else:
            pairs = parts[0] if len(parts) == 1 else concatenate_datasets(parts)
        self._say(f"{name}: {len(pairs)} pairs tokenised, {too_long} over the length limit left out")
        return pairs, too_long

    def training_pairs(self, texts: Sequence[TextCorpus]) -> tuple["Dataset | ResegmentedPairs", DataFacts]:
        """Return the pairs to train on, and the facts about them."""
        pairs, too_long = self.tokenize(texts, "training")
        report = ReadReport(*map(sum, zip(*(astuple(text.report) for text in texts))))
        facts = DataFacts(report, {"trained_on": len(pairs), "too_long": too_long}, _hashes(texts))
        if self.dropout is not None:
            pairs = ResegmentedPairs(pairs, self.dropout, self.args.max_tokens_per_batch)
        return pairs, facts

    def stream(self) -> tuple[TokenBudgetStream, DataFacts]:
        """Return the training text as batches that are made as training goes, and the hash of its files."""
        data_args, sha256 = self.data_args, {}
        if data_args.dataset_name is not None:
            rows = hub_rows(data_args.dataset_name, data_args.dataset_config_name, "train", data_args.columns)
        else:
            weights = data_args.train_file_weights
            rows = file_rows(self._corpora("train"), data_args.columns, weights, seed=self.args.seed_of_data)
            sha256 = {"files": hash_text(hash_file(path) for word in data_args.train_file for path in expand(word))}
        stream = TokenBudgetStream(
            rows,
            self.tokenizer,
            self.args.max_tokens_per_batch,
            limits=self.limits,
            window=data_args.shuffle_buffer,
            seed=self.args.seed_of_data,
            dropout=self.dropout,
            rank=self.args.process_index,
            world_size=self.args.world_size,
        )
        return stream, DataFacts(sha256=sha256)

    def _corpora(self, split: str) -> list[Corpus]:
        files = getattr(self.data_args, f"{split}_file")
        corpora = find_corpora(files, self.data_args.columns, f"{split.replace('_', ' ')} data")
        weights = self.data_args.train_file_weights
        if split == "train" and weights and len(weights) != len(corpora):
            raise UserError(f"There are {len(corpora)} corpora, and train_file_weights has {len(weights)} weights.")
        return corpora

    def _warn(self, line: str) -> None:
        if self.args.process_index == 0:
            logger.warning("%s", line)

    def _say(self, line: str) -> None:
        if self.args.process_index == 0:
            print(line)


def _hashes(texts: Sequence[TextCorpus]) -> dict[str, str]:
    if len(texts) == 1:
        return texts[0].sha256
    return {side: hash_text(text.sha256[side] for text in texts) for side in ("source", "target")}


def _check_positions(config: PreTrainedConfig, data_args: DataArguments, args: TranslationTrainingArguments) -> None:
    most = positions(config)
    lengths = {
        "max_source_length": data_args.max_source_length,
        "max_target_length": data_args.max_target_length,
        "generation_max_length": args.generation_max_length or 0,
    }
    for name, length in lengths.items():
        if most is not None and length > most:
            raise UserError(f"{name} is {length}, and the model has {most} positions.")


def token_budget_loader(pairs: Any, collate: Callable, args: TranslationTrainingArguments, dealt_to: int) -> DataLoader:
    """Return the loader of `pairs` in batches of `args.max_tokens_per_batch`, cut for `dealt_to` processes."""
    max_tokens, options = args.max_tokens_per_batch, {"num_replicas": dealt_to, "seed": args.seed_of_data}
    if not isinstance(pairs, Sized):
        raise TypeError(f"train_dataset is a {type(pairs).__name__} without a length. Stream files with load_data.")
    lengths = pairs.lengths() if isinstance(pairs, ResegmentedPairs) else longest_sides(pairs)
    sampler = TokenBudgetBatchSampler(lengths, max_tokens, **options)
    if len(sampler) % args.world_size:
        raise UserError(
            f"The {len(sampler)} batches of an epoch were cut for {dealt_to} processes, and cannot be dealt to "
            f"{args.world_size}. Start {dealt_to} processes or a divisor of it."
        )
    # With its own generator: starting workers draws a seed, in a resumed run at other times.
    generator = torch.Generator()
    return DataLoader(pairs, batch_sampler=sampler, collate_fn=collate, generator=generator, **_loader_options(args))


def stream_batches(trainer: Trainer, checkpoint: str | None, begins_again: bool) -> Any:
    """Return the loader of a trainer's stream, from where a `checkpoint` left it, or behind that if it begins again."""
    stream, args = trainer.train_dataset, trainer.args
    if begins_again:
        stream.begin_behind(file.read_text() for file in Path(checkpoint).glob("stream_state_*.json"))
    else:
        stream.load_state(checkpoint and state_file(checkpoint, args.process_index).read_text())
    device = args.device if trainer.accelerator.device_placement else None
    options = {**_loader_options(args), "_non_blocking": args.accelerator_config.non_blocking}
    return stream_loader(stream, trainer.data_collator, device, **options)


def _loader_options(args: TranslationTrainingArguments) -> dict[str, Any]:
    # Other starts of workers than "fork" need a copy of all that workers use.
    start = args.dataloader_multiprocessing_context or ("fork" if sys.platform == "linux" else None)
    return {
        "num_workers": args.dataloader_num_workers,
        "multiprocessing_context": start if args.dataloader_num_workers else None,
        "prefetch_factor": args.dataloader_prefetch_factor,
        "pin_memory": args.dataloader_pin_memory,
        "persistent_workers": args.dataloader_persistent_workers,
    }
