"""Corpora that are larger than memory or disk: read, tokenised and batched as they come."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from operator import itemgetter
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import IterableDataset as TorchIterableDataset
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.errors import UserError, blamed_on_user

from .batching import TokenBudgetBatchSampler, tokenize_batch
from .bpe_dropout import BPEDropout
from .corpus_files import Columns, Corpus, Shard
from .lines import RawPair, ReadReport, useful_pairs
from .parallel_text import read_shard
from .reading_ahead import each_one_ahead

if TYPE_CHECKING:
    from datasets import IterableDataset


class Rows(NamedTuple):
    """Rows of text that can be read in passes."""

    of_pass: Callable[[int], "IterableDataset"]
    """Returns the rows of a pass, which is given by its number."""
    pair: Callable[[dict[str, Any]], RawPair]
    """Returns both sides of a row."""
    name: str
    """What error messages call the data."""
    text: str
    """Differs for rows of other data."""


def file_rows(
    corpora: Sequence[Corpus],
    columns: Columns,
    weights: Sequence[float] = (),
    *,
    seed: int = 0,
) -> Rows:
    """Return rows of files. Every pass has another order of the files.

    Args:
        corpora: the files.
        columns: how a row names its two sides.
        weights: how often each corpus is drawn from, in relation to the others. A pass ends when each has been read at
            least once. Without weights the files of all are read one after the other, each once.
        seed: decides the order of the files, and with weights the draws.
    """
    all_shards = []
    files = []
    for corpus in corpora:
        for shard in corpus.shards:
            all_shards.append(shard)
            # Without the folders, which may be others when a run is resumed.
            files += [f"{path.name} {path.stat().st_size}" for path in shard.paths]

    def of_pass(number: int) -> "IterableDataset":
        from datasets import interleave_datasets

        generator = np.random.default_rng([seed, number])
        if not weights:
            return _stream(all_shards, columns, generator)

        streams = [_stream(corpus.shards, columns, generator) for corpus in corpora]
        total = sum(weights)
        return interleave_datasets(
            streams,
            probabilities=[weight / total for weight in weights],
            seed=int(generator.integers(2**31)),
            stopping_strategy="all_exhausted",
        )

    text = f"{files} {list(weights)} {columns.names}"
    return Rows(of_pass, itemgetter("source", "target"), "training data", text)


def _stream(shards: Sequence[Shard], columns: Columns, generator: np.random.Generator) -> "IterableDataset":
    """Return the rows of files, in an order that the generator draws."""
    from datasets import Features, IterableDataset, Value

    order = generator.permutation(len(shards))
    drawn_shards = [shards[index] for index in order]
    return IterableDataset.from_generator(
        _generate,
        features=Features({"source": Value("string"), "target": Value("string")}),
        gen_kwargs={"shards": drawn_shards, "columns": columns},
    )


def _generate(shards: Sequence[Shard], columns: Columns) -> Iterator[dict[str, str | None]]:
    for shard in shards:
        for source, target in read_shard(shard, columns):
            yield {"source": source, "target": target}


def hub_rows(dataset_name: str, dataset_config_name: str | None, split: str, columns: Columns) -> Rows:
    """Return rows of a data set of the Hub, downloaded while they are read. Every pass has the same order.

    Args:
        dataset_name: the data set, or a local folder of one.
        dataset_config_name: its configuration, if it has several.
        split: such as "train".
        columns: how a row names its two sides.

    Raises:
        UserError: if the data set cannot be read.
    """
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    where = f"{dataset_name}, split {split}"
    with blamed_on_user((ValueError, DatasetsError), about=f"{where}, cannot be read"):
        dataset = load_dataset(dataset_name, dataset_config_name, split=split, streaming=True)
        stream = columns.select(dataset)

    def of_pass(number: int) -> "IterableDataset":
        return stream

    def pair(row: dict[str, Any]) -> RawPair:
        return columns.pick(row, where)

    text = f"{where} {dataset_config_name} {columns.names}"
    return Rows(of_pass, pair, where, text)


class StreamedBatch(NamedTuple):
    """Pairs of token ids, and the state of the stream behind them."""

    pairs: list[dict[str, list[int]]]
    state: str


class _Window(NamedTuple):
    """Pairs that are shuffled and cut into batches together."""

    number: int
    of_pass: int
    rows_before: dict[str, Any] | None
    """State of the pass's rows before the first of the window, None at their beginning."""
    pairs: list[tuple[np.ndarray, np.ndarray]]


_BEGINNING = {
    "pass": 0,
    "window": 0,
    # State of the pass's rows before the window.
    "rows": None,
    # Batches of the window that were already yielded.
    "batches": 0,
}
# Files are dealt by chance. There is no pair if a process has found none after so many shares for each process.
_EMPTY_SHARES = 8


class TokenBudgetStream(TorchIterableDataset):
    """Yields batches without end, pass after pass: each a [`StreamedBatch`] within the budget of tokens.

    Rows are read in windows of `window` pairs. A window is tokenised, while the batches of the one before are trained
    on, then shuffled by the seed, sorted by length and cut as [`TokenBudgetBatchSampler`] does with a whole corpus.
    Processes get rows of their own: whole files, where their number can be divided, and otherwise every n-th row. They
    are dealt again in every pass.

    Args:
        max_tokens: the budget of one batch on one process, see [`TokenBudgetBatchSampler`].
        limits: most tokens of a source and of a target. Longer pairs are left out.
        dropout: makes other token ids of the rows of a batch.
        rank: this process among `world_size`.
    """

    def __init__(
        self,
        rows: Rows,
        tokenizer: PreTrainedTokenizerBase,
        max_tokens: int,
        *,
        limits: tuple[int, int],
        window: int = 100_000,
        seed: int = 0,
        dropout: BPEDropout | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.rows = rows
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        self.limits = limits
        self.window = window
        self.seed = seed
        self.dropout = dropout
        self.rank = rank
        self.world_size = world_size
        self.load_state(None)

    def load_state(self, state: str | None) -> None:
        """Begin the next iteration behind the batch that came with `state`, or with None at the beginning."""
        self._start = _BEGINNING if state is None else json.loads(state)
        processes = self._start.get("world_size", self.world_size)
        if processes != self.world_size:
            raise UserError(
                f"The stream was read by {processes} processes, now there are {self.world_size}. Start {processes}, or "
                "begin the data again with --ignore_data_skip."
            )

    def begin_behind(self, states: Iterable[str]) -> None:
        """Begin the next iteration with the pass behind those of all `states`, from any number of processes, if any."""
        next_pass = 0
        next_window = 0
        for text in states:
            state = json.loads(text)
            next_pass = max(next_pass, state["pass"] + 1)
            next_window = max(next_window, state["window"] + 1)
        self._start = {**_BEGINNING, "pass": next_pass, "window": next_window}

    def cut(self) -> dict[str, Any]:
        """Return what decides which batches a window is cut into."""
        return {
            "max_tokens": self.max_tokens,
            "limits": list(self.limits),
            "window": self.window,
            "seed": self.seed,
            "bpe_dropout": None if self.dropout is None else self.dropout.probability,
            "text": self.rows.text,
        }

    def __iter__(self) -> Iterator[StreamedBatch]:
        skipped = self._start["batches"]
        # Making a window takes up to a minute. An interrupted run does not wait for it.
        ended = Event()
        for window in each_one_ahead(self._windows(ended), ended):
            yield from islice(self.batches(window), skipped, None)
            skipped = 0

    def batches(self, window: _Window) -> Iterator[StreamedBatch]:
        """Yield the batches of a window."""
        longest_sides = [max(len(ids), len(labels)) for ids, labels in window.pairs]
        lengths = np.array(longest_sides)
        if self.dropout is not None:
            lengths = self.dropout.lengths(lengths, self.max_tokens)
        sampler = TokenBudgetBatchSampler(lengths, self.max_tokens, seed=self.seed)
        sampler.set_epoch(window.number)

        for done, indices in enumerate(sampler, start=1):
            batch = []
            for index in indices:
                ids, labels = window.pairs[index]
                batch.append({"input_ids": ids.tolist(), "labels": labels.tolist()})
            if self.dropout is not None:
                batch = self.dropout(batch, self.max_tokens)

            state = {
                "pass": window.of_pass,
                "window": window.number,
                "rows": window.rows_before,
                "batches": done,
                "world_size": self.world_size,
            }
            yield StreamedBatch(batch, json.dumps(state))

    def _windows(self, ended: Event) -> Iterator[_Window]:
        """Yield the windows of this process in which there is a pair, until `ended` is set."""
        number = self._start["window"]
        before = self._start["rows"]
        passes_without_pair = 0

        for of_pass in count(self._start["pass"]):
            is_whole_pass = before is None
            report = ReadReport()
            kept = 0
            for rows, rows_before in self._chunks(of_pass, before):
                pairs = self._tokenize(rows, report, ended)
                if ended.is_set():
                    return
                if pairs:
                    kept += len(pairs)
                    yield _Window(number, of_pass, rows_before, pairs)
                number += 1

            # A resumed pass only counts its end, which may have no pair.
            if is_whole_pass:
                passes_without_pair = 0 if kept else passes_without_pair + 1
                self._report_pass(of_pass, report, kept, passes_without_pair)
            before = None

    def _report_pass(self, of_pass: int, report: ReadReport, kept: int, passes_without_pair: int) -> None:
        """Print what a pass had, or raise a UserError if this process waits for a pair in vain."""
        share = ""
        most_passes = 1
        if self.world_size > 1:
            share = f", its share of {self.world_size}"
            # A share of a few files may have no pair, and in another pass this process has another share.
            most_passes = _EMPTY_SHARES * self.world_size

        too_long = report.kept - kept
        summary = f"pass {of_pass + 1}{share}: {report}, {too_long} over the length limit left out"
        if passes_without_pair >= most_passes:
            raise UserError(f"{self.rows.name} holds no usable pair for process {self.rank}: {summary}")
        if self.rank == 0:
            print(f"{self.rows.name}, {summary}")

    def _chunks(
        self, of_pass: int, before: dict[str, Any] | None
    ) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any] | None]]:
        """Yield the rows of a window and the state before them, from that of `before` to the end of the pass."""
        from datasets.distributed import split_dataset_by_node

        # Processes take turns, because shares of whole files may differ in size.
        share = (self.rank + of_pass) % self.world_size
        rows = split_dataset_by_node(self.rows.of_pass(of_pass), share, self.world_size)
        if before is not None:
            rows.load_state_dict(before)

        # Unlike `iter(rows)` it is the same in the worker of a dataloader.
        for columns in rows.iter(self.window):
            after = rows.state_dict()
            window_rows = [dict(zip(columns, values)) for values in zip(*columns.values())]
            yield window_rows, before
            before = after

    def _tokenize(
        self, rows: list[dict[str, Any]], report: ReadReport, ended: Event
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        kept = useful_pairs(map(self.rows.pair, rows), report)
        pairs = []
        # In parts, since lists take many times the memory of arrays.
        while not ended.is_set() and (part := list(islice(kept, 1000))):
            sources, targets = zip(*part)
            encoded = tokenize_batch({"source": sources, "target": targets}, self.tokenizer, self.limits)
            for ids, labels in zip(encoded["input_ids"], encoded["labels"]):
                pairs.append((np.array(ids, np.int32), np.array(labels, np.int32)))
        return pairs


def stream_loader(
    stream: TokenBudgetStream, collator: Callable[..., Any], device: torch.device | None, **options: Any
) -> Iterable[Any]:
    """Return a dataloader for the batches of this process, on its `device`. `options` are those of `DataLoader`.

    A batch has the state of the stream behind it as text in "stream_state".

    Raises:
        UserError: for more than one worker, since each would read all that the others do.
    """
    from accelerate.data_loader import DataLoaderShard

    if options.get("num_workers", 0) > 1:
        raise UserError("A stream takes at most one worker: --dataloader_num_workers 1.")

    def collate(batch: StreamedBatch) -> Any:
        tensors = collator(batch.pairs)
        tensors["stream_state"] = batch.state
        return tensors

    return DataLoaderShard(
        stream,
        device=device,
        batch_size=None,
        collate_fn=collate,
        # Starting a worker draws a seed. A resumed run would draw it at another time from the generator of the run.
        generator=torch.Generator(),
        **options,
    )


def state_file(checkpoint: str | Path, rank: int) -> Path:
    """Return the file of a checkpoint with the state of a process's stream."""
    return Path(checkpoint) / f"stream_state_{rank}.json"
