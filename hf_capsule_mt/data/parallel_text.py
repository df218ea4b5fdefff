"""Parallel text from files and from the Hub, held in memory, and files of parallel text.

What a corpus is, and what is dropped or an error: [`hf_capsule_mt.data.pair_files`].
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hf_capsule_mt.data.segments import each_unbroken, write_lines
from hf_capsule_mt.records import ReadReport

from .columns import Columns, RawPair
from .pair_files import byte_lines, decode, file_format, find_corpora, is_only_read, read_shard, useful_pairs

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
    return _collect(_raw_pairs(files, source_lang, target_lang, name), f"{name} ({', '.join(map(str, files))})")


def each_source(
    files: Sequence[str | Path], source_lang: str | None = None, target_lang: str | None = None
) -> Iterator[str]:
    """Yield the sources of the pairs that [`read_parallel_text`] keeps of training data, as they are read.

    Raises:
        ValueError: see there, when the place in question is read.
        OSError: see there.
    """
    for source, _ in useful_pairs(_raw_pairs(files, source_lang, target_lang, "training data"), ReadReport()):
        yield source


def _raw_pairs(
    files: Sequence[str | Path], source_lang: str | None, target_lang: str | None, name: str
) -> Iterator[RawPair]:
    columns = Columns(source_lang, target_lang)
    corpora = find_corpora(files, columns, name)
    return (pair for corpus in corpora for shard in corpus.shards for pair in read_shard(shard, columns, name))


def check_parallel_files(files: Sequence[str | Path], source_lang: str | None, target_lang: str | None) -> None:
    """Raise a ValueError unless [`write_parallel_text`] can write to files of these names."""
    formats = [file_format(Path(file)) for file in files]
    only_read = any(is_only_read(Path(file)) for file in files)
    names = {Path(file).resolve() for file in files}
    if formats not in (["text", "text"], ["tsv"], ["jsonl"]) or len(names) < len(formats) or only_read:
        raise ValueError(
            "name a source and a target file of plain text, or one .tsv or .jsonl file (each may be .gz), not "
            f"{', '.join(map(str, files)) or 'nothing'}"
        )
    if formats == ["jsonl"] and not (source_lang and target_lang):
        raise ValueError(f"{files[0]} needs source_lang and target_lang, such as en and de")


def write_parallel_text(
    files: Sequence[str | Path],
    sources: Iterable[str],
    targets: Iterable[str],
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> None:
    """Write pairs as they come, as [`read_parallel_text`] reads them; an interruption leaves the old files, or
    the last is missing.

    A line break in a segment becomes a space, with a warning that counts them, and so does a tab in a .tsv file, which
    could not hold it otherwise.

    Raises:
        ValueError: see [`check_parallel_files`]; or a segment holds half of a surrogate pair. Nothing is written then.
        OSError: if a file cannot be written, or reads back as another number of segments.
    """
    check_parallel_files(files, source_lang, target_lang)
    paths = [Path(file) for file in files]
    sources = each_unbroken(sources, f"sources for {paths[0]}")
    targets = each_unbroken(targets, f"targets for {paths[-1]}")
    pairs = zip(sources, targets, strict=True)
    match file_format(paths[0]):
        case "tsv":
            contents = [(f"{_one_column(source)}\t{_one_column(target)}" for source, target in pairs)]
        case "jsonl":
            rows = ({"translation": {source_lang: source, target_lang: target}} for source, target in pairs)
            contents = [(json.dumps(row, ensure_ascii=False) for row in rows)]
        case _:
            contents = [sources, targets]
    write_lines(paths, contents)


def _one_column(text: str) -> str:
    return text.replace("\t", " ")


def check_corpus(files: Sequence[str] | None, dataset_name: str | None, dataset_config_name: str | None) -> None:
    """Raise a ValueError unless either files or a data set are named, and a configuration of the latter alone."""
    if bool(files) == (dataset_name is not None):
        raise ValueError("give either --train_file or --dataset_name")
    if dataset_config_name is not None and dataset_name is None:
        raise ValueError(
            f"dataset_config_name is {dataset_config_name!r}, and files have no configurations; name the data set as "
            "dataset_name, or leave it out"
        )


def load_hub_parallel_text(
    dataset_name: str,
    dataset_config_name: str | None,
    split: str,
    source_lang: str,
    target_lang: str,
) -> ParallelText:
    """Read all pairs of a data set of the Hub or of a local folder, by languages or columns of these names.

    Raises:
        ValueError: no such configuration, split, column or language, a damaged file, or no pair left.
        OSError: no such data set.
    """
    where = f"{dataset_name}, split {split}"
    return _collect(_of_hub(dataset_name, dataset_config_name, split, source_lang, target_lang), where)


def each_hub_source(
    dataset_name: str, dataset_config_name: str | None, split: str, source_lang: str, target_lang: str
) -> Iterator[str]:
    """Yield the sources of the pairs that [`load_hub_parallel_text`] keeps; it has the arguments, and raises, too."""
    pairs = _of_hub(dataset_name, dataset_config_name, split, source_lang, target_lang)
    for source, _ in useful_pairs(pairs, ReadReport()):
        yield source


def _of_hub(
    dataset_name: str, dataset_config_name: str | None, split: str, source_lang: str, target_lang: str
) -> Iterator[RawPair]:
    dataset = load_split(dataset_name, dataset_config_name, split)
    return hub_pairs(dataset, Columns(source_lang, target_lang), f"{dataset_name}, split {split}")


def load_split(
    dataset_name: str, dataset_config_name: str | None, split: str, *, streaming: bool = False
) -> "Dataset | IterableDataset":
    """Load a split of a data set of the Hub or of a local folder.

    Raises:
        ValueError: no such configuration or split, a damaged file, or a data set that a script reads.
        OSError: no such data set.
    """
    from datasets import load_dataset

    with explained_data(f"{dataset_name}, split {split}"):
        return load_dataset(dataset_name, dataset_config_name, split=split, streaming=streaming)


@contextmanager
def explained_data(where: str) -> Iterator[None]:
    """Make a ValueError that names the data at `where` of what `datasets` raises of a damaged file, or a script."""
    from datasets.exceptions import DatasetGenerationError
    from pyarrow import ArrowInvalid

    try:
        yield
    except (DatasetGenerationError, ArrowInvalid, UnicodeDecodeError, RuntimeError) as error:
        cause = (error.__cause__ or error) if isinstance(error, DatasetGenerationError) else error
        reason = " ".join(f"{type(cause).__name__}: {cause}".split())
        raise ValueError(f"{where} cannot be read: {reason:.500}; mend its files, or name other data") from error


def hub_pairs(dataset: "Dataset | IterableDataset", columns: Columns, where: str) -> Iterator[RawPair]:
    """Yield the pairs of a data set, those of no use among them.

    Raises:
        ValueError: about the data at `where`, if there are no such columns or languages, or a file is damaged.
    """
    # Of a stream they may not be known before it is read.
    if dataset.column_names is not None:
        dataset = dataset.select_columns(columns.wanted(dataset.column_names, where))
    # Of a stream a damaged file shows here.
    with explained_data(where):
        for row in dataset:
            yield columns.pick(row, where)


def read_lines(path: str | Path) -> list[str]:
    """Segments of a plain or compressed text file: only a line feed ends one, with or without a carriage return.

    Raises:
        ValueError: a line that is not UTF-8, or a damaged compressed file.
        OSError: a file that is missing or unreadable.
    """
    return list(each_line(path))


def each_line(path: str | Path, begin: int = 0) -> Iterator[str]:
    """Yield the segments of [`read_lines`] as they are read, from the byte `begin` on."""
    for number, line in enumerate(byte_lines(Path(path), begin), start=1):
        text = decode(line)
        if text is None:
            raise ValueError(f"{path}:{number}: not UTF-8. Convert the file, for example by iconv.")
        yield text


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
