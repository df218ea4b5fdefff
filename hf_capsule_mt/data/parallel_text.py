"""Parallel text: files of lines, of pairs and of rows, data sets of the Hub, and how text is written.

A pair of no use is dropped and counted: one side is empty, or its bytes are not UTF-8. Whatever puts the alignment
in doubt is an error: files of different length, a line of three columns, a missing language.
"""

import bz2
import codecs
import glob
import gzip
import io
import json
import logging
import lzma
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from hf_capsule_mt.files import replaced_files

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    from hf_capsule_mt.translation.language_codes import LanguageCodes

logger = logging.getLogger(__name__)

# One segment of each side, None where its bytes are not UTF-8.
RawPair = tuple[str | None, str | None]

_FORMATS = {".tsv": "tsv", ".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet", ".csv": "csv"}
# Their lines are no segments, so that two such files would pass for sources and translations.
_NOT_READ = (".tmx", ".xlsx", ".arrow", ".zip")
_WILDCARD = re.compile(r"(\*+|\?|\[(?:![^/]|[^!/])[^]/]*\])")
_ALLOWED = (
    "a source and a target file of plain text, or one .tsv, .jsonl or .csv file (each may be .gz, .bz2, .xz or .zst), "
    "or one .parquet file"
)
# Where str.splitlines breaks, and so many a tool that reads the file.
_LINE_BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


# Lines


def _open_zst(path: Path) -> BinaryIO:
    import pyarrow

    return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"))


_COMPRESSIONS: dict[str, Callable[[Path], BinaryIO]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zst,
}


def byte_lines(path: Path, begin: int = 0, *, keep_returns: bool = False) -> Iterator[bytes]:
    """Yield the lines of a plain or compressed file, from the byte `begin` on.

    Only a line feed ends a line, with or without a carriage return. (`datasets` and `str.splitlines` break lines at
    other characters too, which would shift the two sides of a corpus.)

    Raises:
        ValueError: if a compressed file is damaged, or the text begins as UTF-16.
    """
    opener = _COMPRESSIONS.get(path.suffix)
    with open(path, "rb", opener=_open) if opener is None else opener(path) as file:
        try:
            # A pipe has no positions.
            if begin:
                file.seek(begin)
            for number, line in enumerate(file):
                if not number:
                    # UTF-16 of Latin letters is valid UTF-8, with a NUL between each two.
                    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                        raise ValueError(f"{path} is UTF-16. Convert it with: iconv -f utf-16 -t utf-8")
                    line = line.removeprefix(codecs.BOM_UTF8)
                yield line.removesuffix(b"\n").removesuffix(b"" if keep_returns else b"\r")
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            if opener is None:
                raise
            raise ValueError(f"{path} is not a whole {path.suffix} file: {error}") from error


def _open(path: str, flags: int) -> int:
    # The name of a socket cannot be opened.
    if path == "/dev/stdin" and stat.S_ISSOCK(os.fstat(0).st_mode):
        return os.dup(0)
    return os.open(path, flags)


def each_line(path: str | Path, begin: int = 0) -> Iterator[str]:
    """Yield the segments of [`read_lines`] as they are read, from the byte `begin` on."""
    for number, line in enumerate(byte_lines(Path(path), begin), start=1):
        text = _decode(line)
        if text is None:
            raise ValueError(f"{path}:{number}: not UTF-8. Convert the file, for example with iconv.")
        yield text


def read_lines(path: str | Path) -> list[str]:
    """Return the segments of a plain or compressed text file: only a line feed ends one."""
    return list(each_line(path))


def unbroken(segments: Iterable[str], what: str) -> list[str]:
    """Return segments with a space for every run of line breaks, and warn how many of `what` had any."""
    return list(_each_unbroken(segments, what))


def _each_unbroken(segments: Iterable[str], what: str) -> Iterator[str]:
    number = changed = first = 0
    for number, segment in enumerate(segments, start=1):
        line = _LINE_BREAKS.sub(" ", segment)
        if line != segment:
            changed, first = changed + 1, first or number
        yield line
    if changed:
        logger.warning(
            "%d of %d %s had line breaks, which became spaces (the first is number %d)", changed, number, what, first
        )


def text_bytes(lines: Iterable[str]) -> bytes:
    """Return lines as the bytes of a file."""
    return "".join(f"{line}\n" for line in lines).encode()


def write_lines(files: Sequence[Path], contents: Sequence[Iterable[str]]) -> None:
    """Write the lines of each file as they come, as many of one as of another; compressed if a name ends in .gz.

    An interruption leaves the old files, or the last is missing.
    """
    with replaced_files(files) as outputs:
        for row in zip(*contents, strict=True):
            for output, line in zip(outputs, row):
                output.write(text_bytes([line]))


# Files of pairs


@dataclass(frozen=True)
class Columns:
    """Names by which rows tell source from target.

    A row is {"translation": {"en": "...", "de": "..."}}, read by its languages, or {"en": "...", "de": "..."}, read by
    its columns. The columns have the names of the languages unless they are given.

    Args:
        source_lang: source language, as the data names it.
        target_lang: target language.
        source_column: column of the source.
        target_column: column of the target.
    """

    source_lang: str | None = None
    target_lang: str | None = None
    source_column: str | None = None
    target_column: str | None = None

    @property
    def source(self) -> str | None:
        """The column of the source, or None."""
        return self.source_column or self.source_lang

    @property
    def target(self) -> str | None:
        """The column of the target, or None."""
        return self.target_column or self.target_lang

    def check(self, where: str) -> None:
        """Raise a ValueError, about the data at `where`, unless each side has a name of its own."""
        if None in (self.source, self.target) or self.source == self.target:
            raise ValueError(
                f"{where} needs two different names: source_lang and target_lang, such as en and de, or source_column "
                "and target_column."
            )

    def pick(self, row: Any, where: str) -> RawPair:
        """Return both sides of a row; null is an empty side.

        Raises:
            ValueError: if the row has no such side, or it is no string; the message begins with `where`.
        """
        names = self.source, self.target
        if isinstance(row, dict) and "translation" in row and None in (self.source_column, self.target_column):
            if isinstance(row["translation"], dict):
                row, names = row["translation"], (self.source_lang, self.target_lang)
            elif row["translation"] is None and not {*names} <= row.keys():
                return "", ""
        if not isinstance(row, dict) or not {*names} <= row.keys():
            raise ValueError(f'{where} has no "{names[0]}" and "{names[1]}", only {", ".join(map(str, row))}.')
        sides = row[names[0]], row[names[1]]
        if not all(isinstance(side, str | None) for side in sides):
            raise ValueError(f"{where}: a side is no text, but {sides!r:.80}.")
        return _encodable(sides[0] or ""), _encodable(sides[1] or "")

    def select(self, dataset: "Dataset | IterableDataset") -> "Dataset | IterableDataset":
        """Return the columns of a data set that may hold the two sides; all where they are not known beforehand."""
        names = [name for name in ("translation", self.source, self.target) if name in (dataset.column_names or ())]
        return dataset.select_columns(list(dict.fromkeys(names))) if names else dataset


def _encodable(text: str) -> str | None:
    # JSON can spell half of a surrogate pair, which UTF-8 cannot.
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


@dataclass(frozen=True)
class Shard:
    """A file of pairs, or a file of sources and the file of their translations."""

    format: str
    """text, tsv, jsonl, parquet or csv."""
    paths: tuple[Path, ...]
    """Two for text, one for any other format."""

    def __str__(self) -> str:
        return ", ".join(map(str, self.paths))

    @property
    def has_names(self) -> bool:
        """Whether its rows tell source from target by names."""
        return self.format not in ("text", "tsv")


@dataclass(frozen=True)
class Corpus:
    """Files that are read one after the other."""

    shards: tuple[Shard, ...]

    def __str__(self) -> str:
        more = f" and {len(self.shards) - 1} more" if len(self.shards) > 1 else ""
        return f"{self.shards[0]}{more}"


def find_corpora(files: Sequence[str | Path], columns: Columns, name: str = "training data") -> list[Corpus]:
    """Return the corpora that `files` name.

    A corpus is a word that names a .tsv, .jsonl, .csv or .parquet file, or two words that name a text file of sources
    and the file of their translations. A word may be a pattern, such as `part-*.tsv`: the files it matches are one
    corpus, in the order of their names. Two patterns, such as `part-*.en` and `part-*.de`, join the files whose names
    the wildcards matched alike. If there are more than two text files, the sources are those with the ending of the
    first, and the others are their translations in the same order.

    Args:
        files: words of the command line.
        columns: names that files of rows need.
        name: what error messages call the data.

    Raises:
        ValueError: if the files do not go together, a pattern matches nothing, or a format is not read.
    """
    words = [expand(file, name) for file in files]
    kinds = [file_format(paths[0]) for paths in words]
    texts = [place for place, kind in enumerate(kinds) if kind == "text"]
    endings = [without_compression(paths[0]).suffix for paths in words]
    sources = texts[:1] if len(texts) == 2 else [place for place in texts if endings[place] == endings[texts[0]]]
    targets = [place for place in texts if place not in sources]
    unread = any(without_compression(path).suffix in _NOT_READ for paths in words for path in paths)
    if not words or unread or len(sources) != len(targets) or len({endings[place] for place in targets}) > 1:
        raise ValueError(f"{name}: give {_ALLOWED}, not {', '.join(map(str, files)) or 'nothing'}.")
    if any(target != source + 1 for source, target in zip(sources, targets)):
        _check_order([(words[source][0], words[target][0]) for source, target in zip(sources, targets)], name)
    translations, corpora = dict(zip(sources, targets)), []
    for place, (kind, paths) in enumerate(zip(kinds, words)):
        if place in translations:
            other = translations[place]
            pairs = _pairs((str(files[place]), paths), (str(files[other]), words[other]), name)
            corpora.append(Corpus(tuple(Shard("text", pair) for pair in pairs)))
        elif kind != "text":
            corpora.append(Corpus(tuple(Shard(kind, (path,)) for path in paths)))
            if corpora[-1].shards[0].has_names:
                columns.check(f"{name}: {files[place]}")
    return corpora


def expand(file: str | Path, name: str = "training data") -> tuple[Path, ...]:
    """Return the file, or those that a pattern matches; raise a ValueError, about `name`, if there are none."""
    if not _WILDCARD.search(str(file)) or Path(file).is_file():
        return (Path(file),)
    found = tuple(Path(each) for each in sorted(glob.glob(str(file))) if Path(each).is_file())
    if len({file_format(path) for path in found}) != 1:
        raise ValueError(f"{name}: {file} matches {'files of several formats' if found else 'no file'}.")
    return found


def _check_order(pairs: Sequence[tuple[Path, Path]], name: str) -> None:
    """Raise a ValueError if a file's name, without its ending, is that of the other side of another pair."""
    stems = [tuple(without_compression(path).stem for path in pair) for pair in pairs]
    sources, targets = ({stem[side] for stem in stems} for side in (0, 1))
    for (source, target), (stem, other) in zip(pairs, stems):
        if len(pairs) > 1 and stem != other and (stem in targets or other in sources):
            raise ValueError(f"{name}: {source} would go with {target}. Name each translation behind its source.")


def _pairs(
    source: tuple[str, tuple[Path, ...]], target: tuple[str, tuple[Path, ...]], name: str
) -> list[tuple[Path, Path]]:
    """Return the files of two words that belong together: those in which the wildcards matched the same.

    Raises:
        ValueError: if a file has no partner, or a pair is one file.
    """
    if len(source[1]) == len(target[1]) == 1:
        pairs = [(source[1][0], target[1][0])]
    else:
        left, right = ({_matched(pattern, path): path for path in paths} for pattern, paths in (source, target))
        alone = [
            path for side, other in ((left, right), (right, left)) for key, path in side.items() if key not in other
        ]
        if alone or len(left) < len(source[1]) or len(right) < len(target[1]):
            raise ValueError(
                f"{name}: {source[0]} and {target[0]} match different files"
                f"{f', such as {alone[0]}' if alone else ''}. Every file needs one of the other side."
            )
        pairs = [(path, right[key]) for key, path in left.items()]
    for both in pairs:
        check_two_files(*both, name)
    return pairs


def _matched(pattern: str, path: Path) -> tuple[str, ...]:
    """Return what each wildcard of a pattern has matched in a path, compression aside."""
    parts = _WILDCARD.split(str(without_compression(Path(pattern))))
    kinds = [
        re.escape(part) if not place % 2 else "([^/]*)" if part[0] == "*" else "([^/])"
        for place, part in enumerate(parts)
    ]
    found = re.fullmatch("".join(kinds), str(without_compression(path)), re.DOTALL)
    return found.groups() if found else (str(path),)


def check_two_files(source: Path, target: Path, name: str) -> None:
    """Raise a ValueError, about `name`, if the sources and their translations are in the same file."""
    if source.is_file() and target.is_file() and source.samefile(target):
        raise ValueError(f"{name}: {source} and {target} are the same file.")


def file_format(path: Path) -> str:
    """Return the format of a file by its name: text, tsv, jsonl, parquet or csv."""
    return _FORMATS.get(without_compression(path).suffix, "text")


def is_plain_text(file: str | Path) -> bool:
    """Return whether a file is, by its name, plain text with a segment a line."""
    return file_format(Path(file)) == "text"


def without_compression(path: Path) -> Path:
    """Return the path without the ending of its compression, if it has one."""
    return path.with_suffix("") if path.suffix in _COMPRESSIONS else path


def ending_of_pairs(path: Path) -> str | None:
    """Return the ending of a file if it says that its lines are no plain segments."""
    ending = without_compression(path).suffix
    return ending if ending in (*_FORMATS, *_NOT_READ) else None


def is_only_read(path: Path) -> bool:
    """Return whether a file has a compression that this package reads and does not write."""
    return path.suffix in _COMPRESSIONS.keys() - {".gz"}


def read_shard(shard: Shard, columns: Columns, name: str = "training data") -> Iterator[RawPair]:
    """Yield the pairs of a shard, those of no use among them.

    Raises:
        ValueError: about the file and the line, if it is not what its format asks for.
    """
    path = shard.paths[0]
    match shard.format:
        case "text":
            yield from _aligned_pairs(*shard.paths, name)
        case "tsv":
            for number, line in enumerate(byte_lines(path), start=1):
                sides = line.split(b"\t") if line.strip() else [b"", b""]
                if len(sides) != 2:
                    raise ValueError(f"{path}:{number}: {len(sides)} columns; there must be 2, source and target.")
                yield _decode(sides[0]), _decode(sides[1])
        case "jsonl":
            # Not by `datasets`: it makes a date of a text that looks like one, and ends at bytes that are not UTF-8.
            for number, line in enumerate(map(_decode, byte_lines(path)), start=1):
                if not line or not line.strip():
                    yield line, line
                else:
                    try:
                        row = json.loads(line)
                    except ValueError as error:
                        raise ValueError(f"{path}:{number}: not JSON: {error}") from error
                    yield columns.pick(row, f"{path}:{number}")
        case _:
            yield from hub_pairs(_load_file(shard.format, path), columns, str(path))


def _load_file(kind: str, path: Path) -> "IterableDataset":
    from datasets import load_dataset

    # "NA" and "null" are words in a CSV file.
    options = {"keep_default_na": False} if kind == "csv" else {}
    return load_dataset(kind, data_files=str(path), split="train", streaming=True, **options)


def _aligned_pairs(source_file: Path, target_file: Path, name: str) -> Iterator[RawPair]:
    sides = byte_lines(source_file), byte_lines(target_file)
    for number, lines in enumerate(zip_longest(*sides)):
        if None in lines:
            lengths = [number + (line is not None) + sum(1 for _ in side) for line, side in zip(lines, sides)]
            raise ValueError(
                f"{name}: {source_file} has {lengths[0]} lines and {target_file} has {lengths[1]}; line i of one must "
                "translate line i of the other."
            )
        yield _decode(lines[0]), _decode(lines[1])


def _decode(line: bytes) -> str | None:
    """Return the text, or None if it is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


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


# Data sets of the Hub


def load_split(
    dataset_name: str, dataset_config_name: str | None, split: str, *, streaming: bool = False
) -> "Dataset | IterableDataset":
    """Load a split of a data set of the Hub or of a local folder."""
    from datasets import load_dataset

    return load_dataset(dataset_name, dataset_config_name, split=split, streaming=streaming)


def hub_pairs(dataset: "Dataset | IterableDataset", columns: Columns, where: str) -> Iterator[RawPair]:
    """Yield the pairs of a data set, those of no use among them."""
    for row in columns.select(dataset):
        yield columns.pick(row, where)


def check_corpus(files: Sequence[str] | None, dataset_name: str | None, dataset_config_name: str | None) -> None:
    """Raise a ValueError unless either files or a data set are named, and a configuration only for a data set."""
    if bool(files) == (dataset_name is not None):
        raise ValueError("give either --train_file or --dataset_name")
    if dataset_config_name is not None and dataset_name is None:
        raise ValueError("--dataset_config_name needs --dataset_name")


# Text in memory, and written


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
    """Read all pairs of the files, which are named as for [`find_corpora`].

    Raises:
        ValueError: see there and [`read_shard`]; or no pair is left.
    """
    text = ParallelText()
    for source, target in useful_pairs(_pairs_of_files(files, Columns(source_lang, target_lang), name), text.report):
        text.sources.append(source)
        text.targets.append(target)
    if not text.report.kept:
        raise ValueError(f"{name} ({', '.join(map(str, files))}) holds no usable pair: {text.report}.")
    return text


def each_source(
    files: Sequence[str | Path],
    source_lang: str | None = None,
    target_lang: str | None = None,
    *,
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
) -> Iterator[str]:
    """Yield the sources of useful pairs as they are read, from files or from the training split of a data set."""
    columns = Columns(source_lang, target_lang)
    if dataset_name is None:
        pairs = _pairs_of_files(files, columns, "training data")
    else:
        columns.check(dataset_name)
        pairs = hub_pairs(load_split(dataset_name, dataset_config_name, "train"), columns, dataset_name)
    return (source for source, _ in useful_pairs(pairs, ReadReport()))


def _pairs_of_files(files: Sequence[str | Path], columns: Columns, name: str) -> Iterator[RawPair]:
    corpora = find_corpora(files, columns, name)
    return (pair for corpus in corpora for shard in corpus.shards for pair in read_shard(shard, columns, name))


def each_checked(
    codes: "LanguageCodes", sources: Iterable[str], where: str, warn: Callable[[str], object]
) -> Iterator[str]:
    """Yield sources as they are, and `warn` of the first without a language code, if the tokenizer has codes.

    Raises:
        ValueError: if a source of the corpus `where` begins with a code that the tokenizer lacks.
    """
    told = not codes
    for number, source in enumerate(sources, 1):
        try:
            code = codes.at_head(source) if codes else ""
        except ValueError as error:
            raise ValueError(f"{where}, source {number}: {error}") from None
        if not (told or code) and source.strip():
            told = True
            warn(f"{where}, source {number}, {source!r:.60}: {codes.missing()}")
        yield source


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
    """Write pairs as they come, as [`read_parallel_text`] reads them.

    A line break in a segment becomes a space, with a warning that counts them, and so does a tab in a .tsv file. An
    interruption leaves the old files, or the last is missing.

    Raises:
        ValueError: see [`check_parallel_files`]; or a segment holds half a character. Nothing is written then.
    """
    check_parallel_files(files, source_lang, target_lang)
    paths = [Path(file) for file in files]
    sources = _each_unbroken(sources, f"sources for {paths[0]}")
    targets = _each_unbroken(targets, f"targets for {paths[-1]}")
    pairs = zip(sources, targets, strict=True)
    match file_format(paths[0]):
        case "tsv":
            contents = [("\t".join(side.replace("\t", " ") for side in pair) for pair in pairs)]
        case "jsonl":
            rows = ({"translation": {source_lang: source, target_lang: target}} for source, target in pairs)
            contents = [(json.dumps(row, ensure_ascii=False) for row in rows)]
        case _:
            contents = [sources, targets]
    write_lines(paths, contents)
