"""Pairs of segments from files, one after the other: what a corpus is, its formats, and errors by file and line.

A pair that is of no use is dropped and counted: one side is empty, or its bytes are not UTF-8. What puts the
alignment in doubt is an error: files of different length, a line of three columns, a missing language.
"""

import bz2
import codecs
import glob
import gzip
import io
import lzma
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, BinaryIO

from hf_capsule_mt.files import parse_json
from hf_capsule_mt.records import ReadReport

from .columns import Columns, RawPair

_FORMATS = {".tsv": "tsv", ".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
_NAMED = ("jsonl", "parquet")
# Hold both sides, so that the lines of two of them would pass for sources and translations.
_NOT_READ = (".csv", ".tmx", ".xlsx", ".arrow", ".zip")
_GLOB = frozenset("*?[")
_WILDCARD = re.compile(r"\*+|\?|\[(?:![^/]|[^!/])[^]/]*\]")
_ALLOWED = (
    "a source and a target file of plain text, or one .tsv or .jsonl file (each may be .gz, .bz2, .xz or .zst), or one "
    ".parquet file"
)


def _open_zst(path: Path) -> BinaryIO:
    # Without a package of its own until Python 3.14; pyarrow, unlike zstandard, finds files that are cut off.
    import pyarrow

    return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"))


_COMPRESSIONS: dict[str, Callable[[Path], BinaryIO]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zst,
}


@dataclass(frozen=True)
class Shard:
    """A file of pairs, or a file of sources and one of their translations.

    Attributes:
        format: text, tsv, jsonl or parquet.
        paths: two of text, one of any other.
    """

    format: str
    paths: tuple[Path, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.paths))


@dataclass(frozen=True)
class Corpus:
    """Files that are read one after the other."""

    shards: tuple[Shard, ...]

    def __str__(self) -> str:
        more = f" and {len(self.shards) - 1} more" if len(self.shards) > 1 else ""
        return f"{self.shards[0]}{more}"


def find_corpora(files: Sequence[str | Path], columns: Columns, name: str = "training data") -> list[Corpus]:
    """Return the corpora that `files` name.

    A corpus is a word that names a .tsv, .jsonl or .parquet file, or two words that name a text file of sources and one
    of their translations. Where there are more than two text files, the sources are those with the ending of the first,
    and the others are their translations in the same order. A word may be a pattern, such as `part-*.tsv`: the files it
    matches are the shards of one corpus, in the order of their names. Of two patterns, such as `part-*.en` and
    `part-*.de`, those files belong together whose names the wildcards matched alike.

    Args:
        files: words of the command line.
        columns: names that .jsonl and .parquet files need.
        name: what error messages call the data.

    Raises:
        ValueError: if the files do not go together, a pattern matches nothing, a file of one has no translation among
            those of another, or a file has a format that is not read.
    """
    words = [expand(file, name) for file in files]
    for path in chain(*words):
        if (ending := without_compression(path).suffix) in _NOT_READ:
            raise ValueError(f"{name}: {path} is a {ending} file, which is not read; make it {_ALLOWED}.")
    formats = [file_format(paths[0]) for paths in words]
    texts = [place for place, kind in enumerate(formats) if kind == "text"]
    translations = _translations(words, texts)
    if not words or len(texts) != 2 * len(translations):
        raise ValueError(f"{name}: give {_ALLOWED}, not {', '.join(map(str, files)) or 'nothing'}.")
    if any(other != place + 1 for place, other in translations.items()):
        _check_names([(Path(files[place]), Path(files[other])) for place, other in translations.items()], name)
    corpora = []
    for place, (file, paths, kind) in enumerate(zip(files, words, formats)):
        if kind in _NAMED:
            columns.check(f"{name}: {file}")
        if kind != "text":
            corpora.append(Corpus(tuple(Shard(kind, (path,)) for path in paths)))
        elif place in translations:
            translation = translations[place]
            targets = _in_order_of(paths, words[translation], (Path(file), Path(files[translation])), name)
            corpora.append(_text_corpus(paths, targets, name))
    return corpora


def expand(file: str | Path, name: str = "training data") -> tuple[Path, ...]:
    """Return the file, or those that a pattern matches; raise a ValueError, about `name`, if there are none."""
    if not _GLOB.intersection(str(file)) or Path(file).is_file():
        return (Path(file),)
    found = tuple(Path(each) for each in sorted(glob.glob(str(file))) if Path(each).is_file())
    if len({file_format(path) for path in found}) != 1:
        raise ValueError(f"{name}: {file} matches {'files of several formats' if found else 'no file'}; check it")
    return found


def _translations(words: Sequence[tuple[Path, ...]], texts: Sequence[int]) -> dict[int, int]:
    """Return the place of each translation by that of its sources, of the places that `texts` have among the words."""
    if len(texts) == 2:
        return {texts[0]: texts[1]}
    endings = {place: without_compression(words[place][0]).suffix for place in texts}
    if len(set(endings.values())) != 2:
        return {}
    sources = [place for place in texts if endings[place] == endings[texts[0]]]
    return dict(zip(sources, (place for place in texts if place not in sources)))


def _check_names(pairs: Sequence[tuple[Path, Path]], name: str) -> None:
    """Raise a ValueError if a file's name, its ending apart, is that of the other side of another pair."""
    stems = [tuple(without_compression(path).stem for path in pair) for pair in pairs]
    sources, targets = ({stem[side] for stem in stems} for side in (0, 1))
    for (source, target), (stem, other) in zip(pairs, stems):
        if stem != other and (stem in targets or other in sources):
            raise ValueError(
                f"{name}: {source} would go with {target}, by their places; name the translations in the order of the "
                "sources, or each behind its source"
            )


def _in_order_of(
    sources: tuple[Path, ...], targets: tuple[Path, ...], words: tuple[Path, Path], name: str
) -> tuple[Path, ...]:
    """Return the translation of each of the files of sources, where `words` are the patterns that matched them."""
    if len(sources) != len(targets):
        raise ValueError(
            f"{name}: {len(sources)} files of sources, from {sources[0]} on, and {len(targets)} of translations, from "
            f"{targets[0]} on; each must have its translation."
        )
    # Names without wildcards go together as they are given.
    if sources == words[:1] or targets == words[1:]:
        return targets
    if len({len(_WILDCARD.findall(str(word))) for word in words}) > 1:
        raise ValueError(
            f"{name}: {words[0]} and {words[1]} have different numbers of wildcards, so that it is unknown which files "
            "go together; give both the same, or name the files."
        )
    left = {without_compression(target): target for target in targets}
    found = []
    for source in sources:
        wanted = without_compression(_filled(words[1], _matched(words[0], source)))
        if wanted not in left:
            other = next(iter(left.values()), targets[0])
            raise ValueError(
                f"{name}: {source} has no translation {wanted} of its own, and {other} is another's; add or leave out "
                "files until the wildcards match the same in both patterns, or name the files."
            )
        found.append(left.pop(wanted))
    return tuple(found)


def _matched(pattern: Path, path: Path) -> list[str]:
    """Return what each wildcard of a pattern has matched in a path."""
    wildcards = _WILDCARD.findall(str(pattern))
    groups = ["([^/]*)" if wildcard.startswith("*") else "([^/])" for wildcard in wildcards]
    literals = [re.escape(literal) for literal in _WILDCARD.split(str(pattern))]
    expression = "".join(literal + group for literal, group in zip_longest(literals, groups, fillvalue=""))
    return list(re.fullmatch(expression, str(path), re.DOTALL).groups())


def _filled(pattern: Path, texts: list[str]) -> Path:
    """Return the path that a pattern matches with `texts` in place of its wildcards."""
    literals = _WILDCARD.split(str(pattern))
    return Path("".join(literal + text for literal, text in zip_longest(literals, texts, fillvalue="")))


def _text_corpus(sources: tuple[Path, ...], targets: tuple[Path, ...], name: str) -> Corpus:
    for source, target in zip(sources, targets):
        check_two_files(source, target, name)
    return Corpus(tuple(Shard("text", both) for both in zip(sources, targets)))


def check_two_files(source: Path, target: Path, name: str) -> None:
    """Raise a ValueError, about `name`, if the sources and their translations are in the same file."""
    if source.is_file() and target.is_file() and source.samefile(target):
        raise ValueError(f"{name}: {source} and {target} are the same file; name the sources, and their translations.")


def file_format(path: Path) -> str:
    """Return the format of a file by its name: text, tsv, jsonl or parquet."""
    return _FORMATS.get(without_compression(path).suffix, "text")


def without_compression(path: Path) -> Path:
    """Return the path without the ending of its compression, if it has one."""
    return path.with_suffix("") if path.suffix in _COMPRESSIONS else path


def ending_of_pairs(path: Path) -> str | None:
    """Return the ending of a file, that of its compression aside, if it says that its lines are no plain segments."""
    ending = without_compression(path).suffix
    return ending if ending in (*_FORMATS, *_NOT_READ) else None


def is_only_read(path: Path) -> bool:
    """Return whether a file is compressed, by its name, as this package reads files and does not write them."""
    return path.suffix in _COMPRESSIONS.keys() - {".gz"}


def read_shard(shard: Shard, columns: Columns, name: str = "training data") -> Iterator[RawPair]:
    """Yield the pairs of a shard, those of no use among them.

    Raises:
        ValueError: about the file and the line, if it is not what its format asks for.
        OSError: if a file is missing or unreadable.
    """
    match shard.format:
        case "text":
            return _aligned_pairs(*shard.paths, name)
        case "tsv":
            return _tsv_pairs(*shard.paths)
        case "jsonl":
            return _jsonl_pairs(*shard.paths, columns)
        case _:
            return _parquet_pairs(*shard.paths, columns)


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


def byte_lines(path: Path, begin: int = 0, *, keep_returns: bool = False) -> Iterator[bytes]:
    """Yield the lines of a plain or compressed file, from the byte `begin` on; only a line feed ends one, with or
    without a carriage return.

    Raises:
        ValueError: if a compressed file is damaged, or the text begins as UTF-16.
        OSError: if the file is missing or unreadable.
    """
    opener = _COMPRESSIONS.get(path.suffix)
    with open(path, "rb", opener=_open) if opener is None else opener(path) as file:
        try:
            # A pipe has no positions.
            if begin:
                file.seek(begin)
            for number, line in enumerate(file):
                line = line.removesuffix(b"\n").removesuffix(b"" if keep_returns else b"\r")
                yield line if number else _without_mark(line, path)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            if opener is None:
                raise
            raise ValueError(f"{path} is not a whole {path.suffix} file: {error}") from error


def _without_mark(first: bytes, path: Path) -> bytes:
    """Return the first line of a file without a byte order mark."""
    # UTF-16 of Latin letters is valid UTF-8, with a NUL between each two.
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{path} is UTF-16, and UTF-8 is read; convert it with: iconv -f utf-16 -t utf-8")
    return first.removeprefix(codecs.BOM_UTF8)


def _open(path: str, flags: int) -> int:
    # Of a socket, which other programs may connect, the name cannot be opened.
    if path == "/dev/stdin" and stat.S_ISSOCK(os.fstat(0).st_mode):
        return os.dup(0)
    return os.open(path, flags)


def decode(line: bytes) -> str | None:
    """Return the text, or None if it is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _aligned_pairs(source_file: Path, target_file: Path, name: str) -> Iterator[RawPair]:
    sides = byte_lines(source_file), byte_lines(target_file)
    for number, (source, target) in enumerate(zip_longest(*sides)):
        if source is None or target is None:
            lengths = [
                number + (line is not None) + sum(1 for _ in side) for line, side in zip((source, target), sides)
            ]
            raise ValueError(
                f"{name}: {source_file} has {lengths[0]} lines and {target_file} has {lengths[1]}; line i of "
                "one must translate line i of the other."
            )
        yield decode(source), decode(target)


def _tsv_pairs(path: Path) -> Iterator[RawPair]:
    for number, line in enumerate(byte_lines(path), start=1):
        columns = line.split(b"\t") if line.strip() else [b"", b""]
        if len(columns) != 2:
            raise ValueError(f"{path}:{number}: {len(columns)} columns; there must be 2, source and target.")
        yield decode(columns[0]), decode(columns[1])


def _jsonl_pairs(path: Path, columns: Columns) -> Iterator[RawPair]:
    for number, raw in enumerate(byte_lines(path), start=1):
        line = decode(raw)
        if line is None:
            yield None, None
        elif not line.strip():
            yield "", ""
        else:
            yield columns.pick(_json(line, f"{path}:{number}"), f"{path}:{number}")


def _json(line: str, where: str) -> Any:
    try:
        return parse_json(line)
    except ValueError as error:
        hint = "; each line must be an object of its own" if line.lstrip().startswith("[") else ""
        raise ValueError(f"{where}: not JSON: {error}{hint}") from error


def _parquet_pairs(path: Path, columns: Columns) -> Iterator[RawPair]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with open(path, "rb") as file:
        try:
            table = ParquetFile(file)
            rows = (
                row
                for batch in table.iter_batches(columns=columns.wanted(table.schema_arrow.names, str(path)))
                for row in batch.to_pylist()
            )
            for number, row in enumerate(rows, start=1):
                yield columns.pick(row, f"{path}:{number}")
        # A damaged page is an OSError.
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not a whole .parquet file: {error}") from error
