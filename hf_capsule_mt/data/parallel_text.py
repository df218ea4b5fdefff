"""Parallel text: files of lines, of pairs and of rows, data sets of the Hub, and how text is written.

A pair without use is dropped and counted: one side is empty, or its bytes are not UTF-8. A file whose pairs may be
misaligned is an error.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from hf_capsule_mt.errors import UserError, blamed_on_user
from hf_capsule_mt.files import replaced_files

from .translation_memory import memory_pairs

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    from hf_capsule_mt.data.language_codes import LanguageCodes

logger = logging.getLogger(__name__)

# One segment of each side, None where its bytes are not UTF-8.
RawPair = tuple[str | None, str | None]

_FORMATS = {".tsv": "tsv", ".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet", ".csv": "csv", ".tmx": "tmx"}
# Where str.splitlines breaks a line. Other tools that read our files do the same.
_LINE_BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


# Lines


def _open_zst(path: Path) -> BinaryIO:
    import pyarrow

    return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"))


def _open(path: Path) -> BinaryIO:
    if path.suffix in _COMPRESSIONS:
        return _COMPRESSIONS[path.suffix](path)
    # The name of a socket cannot be opened.
    if str(path) == "/dev/stdin" and stat.S_ISSOCK(os.fstat(0).st_mode):
        return open(os.dup(0), "rb")
    return open(path, "rb")


_COMPRESSIONS: dict[str, Callable[[Path], BinaryIO]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zst,
}


def byte_lines(path: Path, begin: int = 0, *, keep_returns: bool = False) -> Iterator[bytes]:
    """Yield the lines of a plain or compressed file, from the byte `begin` on.

    Only a line feed ends a line, with or without a carriage return before it. `datasets` and `str.splitlines` break
    lines at other characters too, which would shift the two sides of a corpus.
    """
    with _open(path) as file:
        # A pipe cannot seek.
        if begin:
            file.seek(begin)
        for number, line in enumerate(file):
            if not number and not begin:
                # UTF-16 of Latin letters is valid UTF-8 with NUL characters.
                if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise UserError(f"{path} is UTF-16. Convert it with: iconv -f utf-16 -t utf-8")
                line = line.removeprefix(codecs.BOM_UTF8)
            yield line.removesuffix(b"\n").removesuffix(b"" if keep_returns else b"\r")


def each_line(path: str | Path) -> Iterator[str]:
    """Yield the segments of a file of lines as they are read."""
    for number, line in enumerate(byte_lines(Path(path)), start=1):
        text = _decode(line)
        if text is None:
            raise UserError(f"{path}:{number} is not UTF-8. Convert the file, for example with iconv.")
        yield text


def read_lines(path: str | Path) -> list[str]:
    """Return the segments of a plain or compressed text file. Only a line feed ends one."""
    return list(each_line(path))


def unbroken(segments: Iterable[str], what: str) -> list[str]:
    """Replace every run of line breaks in `segments` by a space, and warn how many of `what` had any."""
    return list(_each_unbroken(segments, what))


def _each_unbroken(segments: Iterable[str], what: str) -> Iterator[str]:
    number = changed = first = 0
    for number, segment in enumerate(segments, start=1):
        line = _LINE_BREAKS.sub(" ", segment)
        if line != segment:
            changed, first = changed + 1, first or number
        yield line
    if changed:
        logger.warning("%d of %d %s had line breaks, now spaces (first: number %d)", changed, number, what, first)


def text_bytes(lines: Iterable[str]) -> bytes:
    """Return lines as the bytes of a file."""
    return "".join(f"{line}\n" for line in lines).encode()


# Files of pairs


@dataclass(frozen=True)
class Columns:
    """Names that tell the source from the target in a row.

    A row is {"translation": {"en": "...", "de": "..."}}, read by its languages, or {"en": "...", "de": "..."}, read by
    its columns. A column has the name of its language unless another is given.
    """

    source_lang: str | None = None
    target_lang: str | None = None
    source_column: str | None = None
    target_column: str | None = None

    @property
    def names(self) -> tuple[str | None, str | None]:
        """The columns of the source and of the target."""
        return self.source_column or self.source_lang, self.target_column or self.target_lang

    def check(self, where: str) -> None:
        """Raise a UserError unless both sides have a name, and not the same."""
        if None in self.names or self.names[0] == self.names[1]:
            raise UserError(
                f"{where} needs two different names: source_lang and target_lang, such as en and de, or source_column "
                "and target_column."
            )

    def pick(self, row: Any, where: str) -> RawPair:
        """Return both sides of a row. A side that is null is empty.

        Raises:
            UserError: if the row has no such side, or it is not text. The message begins with `where`.
        """
        names = self.names
        try:
            if isinstance(row.get("translation"), dict) and None in (self.source_column, self.target_column):
                row, names = row["translation"], (self.source_lang, self.target_lang)
            # JSON can spell half of a surrogate pair, which UTF-8 cannot.
            source, target = (_decode((row[name] or "").encode(errors="surrogatepass")) for name in names)
        except (KeyError, TypeError, AttributeError):
            raise UserError(f'{where} has no text for both "{names[0]}" and "{names[1]}": {row!r:.200}') from None
        return source, target

    def select(self, dataset: "Dataset | IterableDataset") -> "Dataset | IterableDataset":
        """Return only the columns of a data set that may hold the two sides, or all if its columns are not known."""
        names = {"translation", *self.names} & {*(dataset.column_names or ())}
        return dataset.select_columns(sorted(names)) if names else dataset


@dataclass(frozen=True)
class Shard:
    """A file of pairs, or a file of sources and the file of their translations."""

    format: str
    """text, tsv, jsonl, parquet, csv or tmx."""
    paths: tuple[Path, ...]
    """Two for text, one for any other format."""


@dataclass(frozen=True)
class Corpus:
    """Files that are read one after the other."""

    shards: tuple[Shard, ...]

    def __str__(self) -> str:
        more = f" and {len(self.shards) - 1} more" if len(self.shards) > 1 else ""
        return f"{', '.join(map(str, self.shards[0].paths))}{more}"


def find_corpora(files: Sequence[str | Path], columns: Columns, name: str = "training data") -> list[Corpus]:
    """Return the corpora that `files` name. Files of rows need `columns`. Error messages call the data `name`.

    A corpus is one word that names a .tsv, .jsonl, .csv, .parquet or .tmx file, or two words that name a text file of
    sources and the file of their translations. A word may be a pattern, such as `part-*.tsv`. The files that it matches
    are one corpus, in the order of their names. Two patterns, such as `part-*.en` and `part-*.de`, join the files in
    which `*` matched the same.

    Raises:
        UserError: if the files do not go together, or a pattern matches nothing.
    """
    corpora, words = [], iter(files)
    for word in words:
        paths = expand(word, name)
        kind = file_format(paths[0])
        if kind == "text":
            other = next(words, "nothing")
            others = expand(other, name)
            # Two files with one ending are sources, as a shell writes them for a pattern without quotes.
            endings = {without_compression(side[0]).suffix for side in (paths, others)}
            if other == "nothing" or file_format(others[0]) != "text" or (len(files) > 2 and len(endings) == 1):
                raise UserError(
                    f"{name}: {word} is followed by {other}. Name the file of its translations behind it, and put "
                    "patterns in quotes."
                )
            corpora.append(Corpus(_pairs((word, paths), (other, others), name)))
        else:
            corpora.append(Corpus(tuple(Shard(kind, (path,)) for path in paths)))
            if kind != "tsv":
                columns.check(f"{name}: {word}")
    if not corpora:
        raise UserError(f"{name}: there are no files.")
    return corpora


def expand(file: str | Path, name: str = "training data") -> tuple[Path, ...]:
    """Return the file, or those that a pattern matches. Raise a UserError, about `name`, if there are none."""
    if not glob.has_magic(str(file)) or Path(file).is_file():
        return (Path(file),)
    found = tuple(path for path in map(Path, sorted(glob.glob(str(file)))) if path.is_file())
    if len({file_format(path) for path in found}) != 1:
        raise UserError(f"{name}: {file} matches {'files of several formats' if found else 'no file'}.")
    return found


def _pairs(
    source: tuple[str | Path, tuple[Path, ...]], target: tuple[str | Path, tuple[Path, ...]], name: str
) -> tuple[Shard, ...]:
    """Pair the files of two words, each a pattern and the files that it matches."""
    left, right = ({_matched(pattern, path): path for path in paths} for pattern, paths in (source, target))
    if len(source[1]) == len(target[1]) == 1:
        right = dict(zip(left, target[1]))
    if left.keys() != right.keys() or (len(left), len(right)) != (len(source[1]), len(target[1])):
        raise UserError(f"{name}: each file of {source[0]} needs one of {target[0]} in which * matches the same.")
    for key, path in left.items():
        check_two_files(path, right[key], name)
    return tuple(Shard("text", (path, right[key])) for key, path in left.items())


def _matched(pattern: str | Path, path: Path) -> tuple[str, ...]:
    """Return what each `*` of a pattern has matched in a path, compression aside."""
    fixed = str(without_compression(Path(pattern))).split("*")
    found = re.fullmatch("([^/]*)".join(map(re.escape, fixed)), str(without_compression(path)), re.DOTALL)
    return found.groups() if found else (str(path),)


def check_two_files(source: Path, target: Path, name: str) -> None:
    """Raise a UserError, about `name`, if the sources and their translations are in the same file."""
    if source.is_file() and target.is_file() and source.samefile(target):
        raise UserError(f"{name}: {source} and {target} are the same file.")


def file_format(path: Path) -> str:
    """Return the format of a file by its name: text, tsv, jsonl, parquet, csv or tmx."""
    return _FORMATS.get(without_compression(path).suffix, "text")


def without_compression(path: Path) -> Path:
    """Return the path without the ending of its compression, if it has one."""
    return path.with_suffix("") if path.suffix in _COMPRESSIONS else path


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
                yield _decode(sides[0]), _decode(sides[1])
        case "jsonl":
            # `datasets` would make a date of a text that looks like one, and stop at bytes that are not UTF-8.
            for number, line in enumerate(map(_decode, byte_lines(path)), start=1):
                if not line or not line.strip():
                    yield line, line
                    continue
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise UserError(f"{path}:{number}: not JSON: {error}") from error
                yield columns.pick(row, f"{path}:{number}")
        case "tmx":
            with _open(path) as file:
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


def hub_pairs(dataset: "Dataset | IterableDataset", columns: Columns, where: str) -> Iterator[RawPair]:
    """Yield all pairs of a data set, also those without use."""
    return (columns.pick(row, where) for row in columns.select(dataset))


# Text in memory, and written


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


def each_checked(
    codes: "LanguageCodes", sources: Iterable[str], where: str, warn: Callable[[str], object]
) -> Iterator[str]:
    """Yield sources as they are, and `warn` of the first without a language code, if the tokenizer has codes.

    Raises:
        UserError: if a source of the corpus `where` begins with a code that the tokenizer lacks.
    """
    told = not codes
    for number, source in enumerate(sources, 1):
        try:
            code = codes.at_head(source) if codes else ""
        except ValueError as error:
            raise UserError(f"{where}, source {number}: {error}") from None
        if not (told or code) and source.strip():
            told = True
            warn(f"{where}, source {number}, {source!r:.60}: {codes.missing()}")
        yield source


def check_parallel_files(files: Sequence[str | Path], source_lang: str | None, target_lang: str | None) -> None:
    """Raise a UserError unless [`write_parallel_text`] can write to files of these names."""
    formats = [file_format(Path(file)) for file in files]
    if formats not in (["text", "text"], ["tsv"], ["jsonl"]):
        raise UserError(
            "Name a source and a target file of plain text, or one .tsv or .jsonl file, not "
            f"{', '.join(map(str, files)) or 'nothing'}."
        )
    if formats == ["jsonl"]:
        Columns(source_lang, target_lang).check(str(files[0]))


def write_parallel_text(
    files: Sequence[str | Path],
    sources: Iterable[str],
    targets: Iterable[str],
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> None:
    """Write pairs as they come, as [`read_parallel_text`] reads them. A name that ends in .gz is compressed.

    A line break in a segment becomes a space, with a warning that counts them. So does a tab in a .tsv file. An
    interruption leaves the old files, or the last is missing.
    """
    paths = [Path(file) for file in files]
    sources = _each_unbroken(sources, f"sources for {paths[0]}")
    targets = _each_unbroken(targets, f"targets for {paths[-1]}")
    kind = file_format(paths[0])
    with replaced_files(paths) as outputs:
        for pair in zip(sources, targets, strict=True):
            lines = pair
            if kind == "tsv":
                lines = ["\t".join(side.replace("\t", " ") for side in pair)]
            elif kind == "jsonl":
                lines = [json.dumps({"translation": dict(zip((source_lang, target_lang), pair))}, ensure_ascii=False)]
            for output, line in zip(outputs, lines, strict=True):
                output.write(text_bytes([line]))
