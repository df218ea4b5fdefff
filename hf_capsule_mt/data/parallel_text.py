"""Readers of parallel text: pairs of files and of data sets of the Hub.

A pair without use is dropped and counted: one side is empty, or its bytes are not UTF-8. A file whose pairs may be
misaligned is an error.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hf_capsule_mt.errors import UserError, blamed_on_user

from .corpus_files import Columns, RawPair, Shard, find_corpora
from .lines import byte_lines, decode, open_bytes
from .translation_memory import memory_pairs

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset


def read_shard(shard: Shard, columns: Columns, name: str = "training data") -> Iterator[RawPair]:
    """Yield all pairs of a shard, also those without use.

    Raises:
        UserError: if a line does not have its format, or two files have different numbers of lines.
    """
    path = shard.paths[0]
    match shard.format:
        case "text":
            yield from _aligned_pairs(*shard.paths, name)
        case "tsv":
            for number, line in enumerate(byte_lines(path), start=1):
                sides = line.split(b"\t") if line.strip() else [b"", b""]
                if len(sides) != 2:
                    raise UserError(f"{path}:{number}: {len(sides)} columns. There must be 2, source and target.")
                yield decode(sides[0]), decode(sides[1])
        case "jsonl":
            # `datasets` would make a date of a text that looks like one, and stop at bytes that are not UTF-8.
            for number, line in enumerate(map(decode, byte_lines(path)), start=1):
                if not line or not line.strip():
                    yield line, line
                    continue
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise UserError(f"{path}:{number}: not JSON: {error}") from error
                yield columns.pick(row, f"{path}:{number}")
        case "tmx":
            with open_bytes(path) as file:
                yield from memory_pairs(file, path, columns.names)
        case _:
            from datasets import load_dataset
            from datasets.exceptions import DatasetsError

            # "NA" and "null" are words in a CSV file.
            options = {"keep_default_na": False} if shard.format == "csv" else {}
            with blamed_on_user((ValueError, DatasetsError), about=f"{path} cannot be read"):
                rows = load_dataset(shard.format, data_files=str(path), split="train", streaming=True, **options)
                yield from hub_pairs(rows, columns, str(path))


def _aligned_pairs(source_file: Path, target_file: Path, name: str) -> Iterator[RawPair]:
    sides = byte_lines(source_file), byte_lines(target_file)
    for number, lines in enumerate(zip_longest(*sides)):
        if None in lines:
            lengths = [number + (line is not None) + sum(1 for _ in side) for line, side in zip(lines, sides)]
            raise UserError(
                f"{name}: {source_file} has {lengths[0]} lines and {target_file} has {lengths[1]}. Line i of one must "
                "translate line i of the other."
            )
        yield decode(lines[0]), decode(lines[1])


@dataclass
class ReadReport:
    """Numbers of pairs of sentences that were read, kept and dropped."""

    read: int = 0
    kept: int = 0
    empty: int = 0
    invalid_utf8: int = 0

    def __str__(self) -> str:
        return (
            f"{self.read} pairs read, {self.kept} kept, {self.empty} dropped with an empty side, "
            f"{self.invalid_utf8} dropped as invalid UTF-8"
        )


def useful_pairs(pairs: Iterable[RawPair], report: ReadReport) -> Iterator[tuple[str, str]]:
    """Yield the pairs with text on both sides, and count in `report` what was read, kept and dropped."""
    for source, target in pairs:
        report.read += 1
        if source is None or target is None:
            report.invalid_utf8 += 1
        elif not source.strip() or not target.strip():
            report.empty += 1
        else:
            report.kept += 1
            yield source, target


def hub_pairs(dataset: "Dataset | IterableDataset", columns: Columns, where: str) -> Iterator[RawPair]:
    """Yield all pairs of a data set, also those without use."""
    return (columns.pick(row, where) for row in columns.select(dataset))


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
    """Read all pairs of the files, which are named as for [`find_corpora`].

    Raises:
        UserError: see there and [`read_shard`], or no pair is left.
    """
    report, columns = ReadReport(), Columns(source_lang, target_lang)
    shards = chain.from_iterable(corpus.shards for corpus in find_corpora(files, columns, name))
    pairs = list(useful_pairs(chain.from_iterable(read_shard(shard, columns, name) for shard in shards), report))
    if not pairs:
        raise UserError(f"{name} ({', '.join(map(str, files))}) holds no usable pair: {report}.")
    return ParallelText(*map(list, zip(*pairs)), report)
