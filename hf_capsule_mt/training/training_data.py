"""The text that a run is trained on and validated with."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from hf_capsule_mt.data.arrow_cache import TextCorpus, read_corpus, read_hub_corpus, tokenize_corpus
from hf_capsule_mt.data.bpe_dropout import BPEDropout, ResegmentedPairs
from hf_capsule_mt.data.corpus_files import Corpus, expand, find_corpora
from hf_capsule_mt.data.encoding import positions
from hf_capsule_mt.data.languages import LanguageCodes, each_checked, set_languages
from hf_capsule_mt.data.lines import ReadReport
from hf_capsule_mt.data.streaming import Rows, TokenBudgetStream, file_rows, hub_rows
from hf_capsule_mt.data.tokenizer import check_tokenizer
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import hash_file, hash_text

from .arguments import TranslationTrainingArguments
from .options import DataArguments

if TYPE_CHECKING:
    from datasets import Dataset

_CHECKED_FOR_CODES = 1000  # pairs of a corpus
logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class DataFacts:
    """Numbers and hashes for records. A stream, which is not read in full, has no numbers."""

    report: ReadReport | None = None
    pairs: dict[str, int] | None = None
    """`trained_on`, each pair once, and `too_long`. With weights of corpora also `in_an_epoch`, with repetitions."""
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
    """Read and tokenise training and validation text, or map the files of an earlier call.

    Args:
        data_args: the files or the data set, and the limits of length.
        args: the arguments of the run. They say how batches are made.
        tokenizer: makes the token ids. One with languages is set to those of the data.
        config: the configuration of the model.

    Raises:
        UserError: if the tokenizer is another model's or lacks a language, a length exceeds the model's positions,
            there is no usable text, or a pair begins with the code of a language that a multilingual model does not
            write.
    """
    _check_stream(data_args, args)
    set_languages(tokenizer, data_args.source_lang, data_args.target_lang)
    check_tokenizer(tokenizer, config)
    _check_positions(config, data_args, args)

    loader = _Loader(data_args, args, tokenizer)
    # What is wrong with files shows when they are read, so read all of them before the work of tokenising.
    training_texts = None if data_args.streaming else loader.read("train")
    validation_texts = loader.read("validation") if _has_validation(data_args, args) else None
    general_texts = loader.read("general_validation") if data_args.general_validation_file else None

    if training_texts is None:
        train, facts = loader.stream()
    else:
        train, facts = loader.training_pairs(training_texts)

    if validation_texts is None:
        return TrainingData(train, None, facts)
    validation = loader.tokenized(validation_texts)
    loader.report("validation", validation)
    hashes = _hashes(validation_texts)

    general_pairs = None
    if general_texts is not None:
        general = loader.tokenized(general_texts)
        loader.report("general validation", general)
        general_pairs = general.joined()
        hashes |= {f"general {side}": digest for side, digest in _hashes(general_texts).items()}

    counts = {"scored": validation.kept, "too_long": validation.too_long}
    facts = replace(facts, validation=counts, validation_sha256=hashes)
    return TrainingData(train, validation.joined(), facts, general_pairs)


def _has_validation(data_args: DataArguments, args: TranslationTrainingArguments) -> bool:
    """Return whether there is validation text. A data set of the Hub has it, but it is only read to evaluate."""
    return bool(data_args.validation_file) or (data_args.dataset_name is not None and args.eval_strategy != "no")


def _check_stream(data_args: DataArguments, args: TranslationTrainingArguments) -> None:
    """Raise a UserError if a stream would have no end, or batches are to be made that only a token budget makes."""
    if data_args.streaming and args.max_steps < 1:
        raise UserError("A stream has no end. Give --max_steps.")
    if (data_args.streaming or data_args.bpe_dropout) and not args.max_tokens_per_batch:
        raise UserError("streaming and bpe_dropout need --max_tokens_per_batch.")


def _check_positions(config: PreTrainedConfig, data_args: DataArguments, args: TranslationTrainingArguments) -> None:
    """Raise a UserError if a text may be longer than the model has positions for."""
    limit = positions(config)
    if limit is None:
        return

    lengths = {
        "max_source_length": data_args.max_source_length,
        "max_target_length": data_args.max_target_length,
        "generation_max_length": args.generation_max_length or 0,
    }
    for name, length in lengths.items():
        if length > limit:
            raise UserError(f"{name} is {length}, and the model has {limit} positions.")


@dataclass(frozen=True)
class _TokenizedTexts:
    """The pairs of token ids of several corpora."""

    parts: "list[Dataset]"
    too_long: int
    """How many pairs were left out for their length."""

    @property
    def kept(self) -> int:
        """How many pairs there are."""
        return sum(len(part) for part in self.parts)

    def joined(self) -> "Dataset":
        """Return the corpora one after the other."""
        from datasets import concatenate_datasets

        return self.parts[0] if len(self.parts) == 1 else concatenate_datasets(self.parts)

    def mixed(self, weights: Sequence[float], seed: int) -> "Dataset":
        """Return pairs drawn from the corpora by relative weights, until each pair was drawn. Some come repeatedly."""
        from datasets import interleave_datasets

        shares = [weight / sum(weights) for weight in weights]
        return interleave_datasets(self.parts, shares, seed=seed, stopping_strategy="all_exhausted")


class _Loader:
    """Reads and tokenises the text of a run."""

    def __init__(
        self, data_args: DataArguments, args: TranslationTrainingArguments, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        self._data_args = data_args
        self._args = args
        self._tokenizer = tokenizer
        self._limits = (data_args.max_source_length, data_args.max_target_length)
        self._dropout = None
        if data_args.bpe_dropout:
            self._dropout = BPEDropout(tokenizer, data_args.bpe_dropout, self._limits)

    def read(self, split: str) -> list[TextCorpus]:
        """Return the corpora of "train", "validation" or "general_validation"."""
        data_args = self._data_args
        if getattr(data_args, f"{split}_file"):
            name = _name_of_split(split)
            texts = [read_corpus(corpus, data_args.columns, name) for corpus in self._corpora(split)]
        else:
            text = read_hub_corpus(
                data_args.dataset_name,
                data_args.dataset_config_name,
                split,
                data_args.columns,
                streaming=data_args.streaming,
            )
            texts = [text]

        for text in texts:
            self._print(f"{split if len(texts) == 1 else text.name}: {text.report}")
            self._check_codes(text)
        return texts

    def _check_codes(self, text: TextCorpus) -> None:
        """Warn of sources without a language code that the tokenizer wants, and refuse a code that it lacks."""
        codes = LanguageCodes(self._tokenizer)
        if not codes:
            return
        sources = text.dataset[:_CHECKED_FOR_CODES]["source"]
        for _ in each_checked(codes, sources, text.name, self._warn):
            pass

    def tokenized(self, texts: Sequence[TextCorpus]) -> _TokenizedTexts:
        """Return the pairs of token ids of corpora, without those over the limits of length."""
        processes = self._data_args.preprocessing_num_workers
        parts = [tokenize_corpus(text, self._tokenizer, *self._limits, num_proc=processes) for text in texts]
        read = sum(len(text.dataset) for text in texts)
        return _TokenizedTexts(parts, too_long=read - sum(len(part) for part in parts))

    def report(self, name: str, texts: _TokenizedTexts) -> None:
        """Print how many pairs were tokenised."""
        self._print(f"{name}: {texts.kept} pairs tokenised, {texts.too_long} over the length limit left out")

    def training_pairs(self, texts: Sequence[TextCorpus]) -> tuple["Dataset | ResegmentedPairs", DataFacts]:
        """Return the pairs to train on, and the facts about them."""
        tokenized = self.tokenized(texts)
        self.report("training", tokenized)
        counts = {"trained_on": tokenized.kept, "too_long": tokenized.too_long}

        weights = self._data_args.train_file_weights
        if weights:
            pairs = tokenized.mixed(weights, self._args.seed_of_data)
            counts["in_an_epoch"] = len(pairs)
            self._print(f"training: {len(pairs)} pairs in an epoch, because corpora with a larger weight are repeated")
        else:
            pairs = tokenized.joined()

        if self._dropout is not None:
            pairs = ResegmentedPairs(pairs, self._dropout, self._args.max_tokens_per_batch)
        return pairs, DataFacts(_total(texts), counts, _hashes(texts))

    def stream(self) -> tuple[TokenBudgetStream, DataFacts]:
        """Return the training text as batches that are made as training goes, and the hash of its files."""
        stream = TokenBudgetStream(
            self._rows(),
            self._tokenizer,
            self._args.max_tokens_per_batch,
            limits=self._limits,
            window=self._data_args.shuffle_buffer,
            seed=self._args.seed_of_data,
            dropout=self._dropout,
            rank=self._args.process_index,
            world_size=self._args.world_size,
        )

        sha256 = {}
        if self._data_args.dataset_name is None:
            files = [path for name in self._data_args.train_file for path in expand(name)]
            sha256["files"] = hash_text(hash_file(path) for path in files)
        return stream, DataFacts(sha256=sha256)

    def _rows(self) -> Rows:
        """Return the rows of a stream."""
        data_args = self._data_args
        if data_args.dataset_name is not None:
            return hub_rows(data_args.dataset_name, data_args.dataset_config_name, "train", data_args.columns)
        corpora = self._corpora("train")
        return file_rows(corpora, data_args.columns, data_args.train_file_weights, seed=self._args.seed_of_data)

    def _corpora(self, split: str) -> list[Corpus]:
        """Return the corpora that the files of a split are."""
        files = getattr(self._data_args, f"{split}_file")
        corpora = find_corpora(files, self._data_args.columns, _name_of_split(split))
        weights = self._data_args.train_file_weights
        if split == "train" and weights and len(weights) != len(corpora):
            raise UserError(f"There are {len(corpora)} corpora, and train_file_weights has {len(weights)} weights.")
        return corpora

    def _warn(self, line: str) -> None:
        if self._args.process_index == 0:
            logger.warning("%s", line)

    def _print(self, line: str) -> None:
        if self._args.process_index == 0:
            print(line)


def _name_of_split(split: str) -> str:
    """Return what messages call a split."""
    return f"{split.replace('_', ' ')} data"


def _total(texts: Sequence[TextCorpus]) -> ReadReport:
    """Return the numbers of all corpora together."""
    return ReadReport(
        read=sum(text.report.read for text in texts),
        kept=sum(text.report.kept for text in texts),
        empty=sum(text.report.empty for text in texts),
        invalid_utf8=sum(text.report.invalid_utf8 for text in texts),
    )


def _hashes(texts: Sequence[TextCorpus]) -> dict[str, str]:
    """Return the hash of each side: a corpus has its own, and several have the hash of theirs."""
    if len(texts) == 1:
        return dict(texts[0].sha256)
    hashes = {}
    for side in ("source", "target"):
        hashes[side] = hash_text(text.sha256[side] for text in texts)
    return hashes
