"""Readers of parallel text: files of every format, and data sets of the Hub."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hf_capsule_mt.errors import UserError, blamed_on_user, sentence_of

from .corpus_files import Columns, Shard, find_corpora
from .lines import RawPair, ReadReport, aligned_pairs, byte_lines, decode, opened, tsv_pairs, useful_pairs
from .translation_memory import memory_pairs

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

_CSV_BLOCK = 1 << 26
"""Bytes that the reader of CSV holds at a time. A row must fit in them."""


# Files


def read_shard(shard: Shard, columns: Columns, name: str = "training data") -> Iterator[RawPair]:
    """Yield all pairs of a shard, also those without use.

    Args:
        shard: one file, or two files of lines.
        columns: how a row names its two sides, for files of rows.
        name: what an error message calls two files of lines.

    Raises:
        UserError: if a line does not have its format, or two files have different numbers of lines.
    """
    if shard.format == "text":
        return aligned_pairs(*shard.paths, name)
    if shard.format == "tsv":
        return tsv_pairs(shard.paths[0])
    reader = _READERS[shard.format]
    return reader(shard.paths[0], columns)


def _jsonl_pairs(path: Path, columns: Columns) -> Iterator[RawPair]:
    # `datasets` would make a date of a text that looks like one, and stop at bytes that are not UTF-8.
    for number, line in enumerate(byte_lines(path), start=1):
        text = decode(line)
        if text is None or not text.strip():
            yield text, text
            continue

        where = f"{path}:{number}"
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            # Brackets in brackets end in a RecursionError.
            raise UserError(f"{where}: not JSON: {sentence_of(error)}") from error
        yield columns.pick(row, where)


def _tmx_pairs(path: Path, columns: Columns) -> Iterator[RawPair]:
    with opened(path) as file:
        yield from memory_pairs(file, path, columns.names)


def _csv_pairs(path: Path, columns: Columns) -> Iterator[RawPair]:
    import pyarrow as pa
    from pyarrow import csv

    # As bytes: a column of numbers is text here, "NA" and "null" are words, and what is not UTF-8 is counted.
    types = {name: pa.binary() for name in columns.names}
    as_bytes = csv.ConvertOptions(include_columns=columns.names, column_types=types)
    # Only without threads an error names the row.
    reading = csv.ReadOptions(use_threads=False, block_size=_CSV_BLOCK)
    parsing = csv.ParseOptions(newlines_in_values=True)

    about = f"{path} cannot be read"
    with opened(path) as file, blamed_on_user((pa.ArrowInvalid, KeyError), about=about):
        batches = csv.open_csv(file, read_options=reading, parse_options=parsing, convert_options=as_bytes)
        source_name, target_name = columns.names
        for batch in batches:
            sources = batch.column(source_name).to_pylist()
            targets = batch.column(target_name).to_pylist()
            for source, target in zip(sources, targets):
                yield decode(source), decode(target)


def _parquet_pairs(path: Path, columns: Columns) -> Iterator[RawPair]:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    with blamed_on_user((ValueError, DatasetsError), about=f"{path} cannot be read"):
        rows = load_dataset("parquet", data_files=str(path), split="train", streaming=True)
        yield from hub_pairs(rows, columns, str(path))


_READERS: dict[str, Callable[[Path, Columns], Iterator[RawPair]]] = {
    "jsonl": _jsonl_pairs,
    "csv": _csv_pairs,
    "parquet": _parquet_pairs,
    "tmx": _tmx_pairs,
}


# Data sets of the Hub


def hub_pairs(dataset: "Dataset | IterableDataset", columns: Columns, where: str) -> Iterator[RawPair]:
    """Yield all pairs of a data set, also those without use."""
    for row in columns.select(dataset):
        yield columns.pick(row, where)


class ParallelText(NamedTuple):
    """Segment i of `sources` is translated by segment i of `targets`."""

    sources: list[str]
    targets: list[str]
    report: ReadReport


def read_parallel_text(
    files: Sequence[str | Path],
    source_lang: str | None = None,
    target_lang: str | None = None,
    *,
    name: str = "training data",
) -> ParallelText:
    """Read all pairs of files.

    Args:
        files: named as for [`~hf_capsule_mt.data.corpus_files.find_corpora`].
        source_lang: the source's name in files of rows, such as "en".
        target_lang: the target's name.
        name: what an error message calls the files.

    Returns:
        The pairs with text on both sides, and the numbers of those that were dropped.

    Raises:
        UserError: if the files do not go together, a line does not have its format, or no pair is left.
    """
    columns = Columns(source_lang, target_lang)
    report = ReadReport()
    sources = []
    targets = []
    for corpus in find_corpora(files, columns, name):
        for shard in corpus.shards:
            for source, target in useful_pairs(read_shard(shard, columns, name), report):
                sources.append(source)
                targets.append(target)

    if not sources:
        file_names = ", ".join(str(file) for file in files)
        raise UserError(f"{name} ({file_names}) holds no usable pair: {report}.")
    return ParallelText(sources, targets, report)
