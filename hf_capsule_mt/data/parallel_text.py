"""Parallel text from files and from the Hub, held in memory, and files of parallel text.

What a corpus is, and what is dropped or an error: [`hf_capsule_mt.data.pair_files`].
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hf_capsule_mt.files import replace_bytes
from hf_capsule_mt.records import ReadReport

from .columns import Columns, RawPair
from .pair_files import byte_lines, decode, file_format, find_corpora, read_shard, useful_pairs

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset


@dataclass
class ParallelText:
    """Segment i of `sources` is translated by segment i of `targets`."""

    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    report: ReadReport = field(default_factory=ReadReport)


def read_parallel_text(
    files: Sequence[str | Path],
    source_lang: str | None = None,
    target_lang: str | None = None,
    *,
    name: str = "training data",
) -> ParallelText:
    """Read all pairs of the files, which are named as in [`~hf_capsule_mt.data.pair_files.find_corpora`].

    Args:
        files: source and target file, one segment a line; or a .tsv file of two columns, source and target; or a .jsonl
            (.json) or .parquet file with {"translation": {"en": "...", "de": "..."}} or {"en": "...", "de": "..."} in
            each row.
        source_lang: key of the source in rows that have names.
        target_lang: key of the target, likewise.
        name: what error messages call the data.

    Raises:
        ValueError: another number or kind of files, the same file twice, files of different length, a line that is
            not what its format asks for, or no pair left.
        OSError: a file that is missing or unreadable.
    """
    columns = Columns(source_lang, target_lang)
    corpora = find_corpora(files, columns, name)
    pairs = (pair for corpus in corpora for shard in corpus.shards for pair in read_shard(shard, columns, name))
    return _collect(pairs, f"{name} ({', '.join(map(str, files))})")


def check_parallel_files(files: Sequence[str | Path], source_lang: str | None, target_lang: str | None) -> None:
    """Raise a ValueError unless [`write_parallel_text`] can write to files of these names."""
    formats = [file_format(Path(file)) for file in files]
    only_read = [file for file in files if Path(file).suffix in (".bz2", ".xz", ".zst")]
    if formats not in (["text", "text"], ["tsv"], ["jsonl"]) or len(set(files)) < len(formats) or only_read:
        raise ValueError(
            "name a source and a target file of plain text, or one .tsv or .jsonl file (each may be .gz), not "
            f"{', '.join(map(str, files)) or 'nothing'}"
        )
    if formats == ["jsonl"] and not (source_lang and target_lang):
        raise ValueError(f"{files[0]} needs source_lang and target_lang, such as en and de")


def write_parallel_text(
    files: Sequence[str | Path],
    sources: Sequence[str],
    targets: Sequence[str],
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> None:
    """Write pairs that [`read_parallel_text`] reads from the same files; an interruption leaves old files, or none.

    A tab becomes a space in a .tsv file, which could not hold it otherwise.

    Raises:
        ValueError: see [`check_parallel_files`].
    """
    check_parallel_files(files, source_lang, target_lang)
    pairs = list(zip(sources, targets, strict=True))
    match file_format(Path(files[0])):
        case "tsv":
            texts = ["".join(f"{_one_column(source)}\t{_one_column(target)}\n" for source, target in pairs)]
        case "jsonl":
            rows = ({"translation": {source_lang: source, target_lang: target}} for source, target in pairs)
            texts = ["".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)]
        case _:
            texts = ["".join(f"{line}\n" for line in side) for side in (sources, targets)]
    for file, text in zip(files, texts, strict=True):
        _replace(Path(file), text)


def _one_column(text: str) -> str:
    return text.replace("\t", " ")


def _replace(path: Path, text: str) -> None:
    # No time in the .gz, so that the same pairs are the same bytes.
    replace_bytes(path, gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())


def load_hub_parallel_text(
    dataset_name: str,
    dataset_config_name: str | None,
    split: str,
    source_lang: str,
    target_lang: str,
) -> ParallelText:
    """Read all pairs of a data set of the Hub or of a local folder, by languages or columns of these names.

    Raises:
        ValueError: no such configuration, split, column or language, or no pair left.
        OSError: no such data set.
    """
    from datasets import load_dataset

    dataset = load_dataset(dataset_name, dataset_config_name, split=split)
    where = f"{dataset_name}, split {split}"
    return _collect(hub_pairs(dataset, Columns(source_lang, target_lang), where), where)


def hub_pairs(dataset: "Dataset | IterableDataset", columns: Columns, where: str) -> Iterator[RawPair]:
    """Yield the pairs of a data set, those of no use among them.

    Raises:
        ValueError: about the data at `where`, if there are no such columns or languages.
    """
    # Of a stream they may not be known before it is read.
    if dataset.column_names is not None:
        dataset = dataset.select_columns(columns.wanted(dataset.column_names, where))
    for row in dataset:
        yield columns.pick(row, where)


def read_lines(path: str | Path) -> list[str]:
    """Segments of a plain or compressed text file: only a line feed ends one, with or without a carriage return.

    Raises:
        ValueError: a line that is not UTF-8, or a damaged compressed file.
        OSError: a file that is missing or unreadable.
    """
    lines = [decode(line) for line in byte_lines(Path(path))]
    if None in lines:
        raise ValueError(f"{path}:{lines.index(None) + 1}: not UTF-8. Convert the file, for example by iconv.")
    return lines


def is_plain_text(file: str | Path) -> bool:
    """Return whether a file is, by its name, plain text with a segment a line."""
    return file_format(Path(file)) == "text"


def _collect(pairs: Iterable[RawPair], where: str) -> ParallelText:
    text = ParallelText()
    for source, target in useful_pairs(pairs, text.report):
        text.sources.append(source)
        text.targets.append(target)
    if not text.report.kept:
        raise ValueError(f"{where} holds no usable pair: {text.report}.")
    return text
