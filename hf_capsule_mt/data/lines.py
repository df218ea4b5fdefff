"""Lines of text in plain and compressed files, and pairs of lines.

A pair without use is dropped and counted: one side is empty, or its bytes are not UTF-8. A file whose pairs may be
misaligned is an error.
"""

import bz2
import codecs
import gzip
import io
import logging
import lzma
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

from hf_capsule_mt.errors import UserError

logger = logging.getLogger(__name__)

# One segment of each side, None where its bytes are not UTF-8.
RawPair = tuple[str | None, str | None]

# Where str.splitlines breaks a line. Other tools that read our files do the same.
_LINE_BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


def _open_zst(path: Path) -> BinaryIO:
    import pyarrow

    return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"))


_COMPRESSIONS: dict[str, Callable[[Path], BinaryIO]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zst,
}


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to read bytes from, decompressed if its name ends in .gz, .bz2, .xz or .zst.

    Raises:
        UserError: if it cannot be decompressed to its end.
    """
    try:
        with _open(path) as file:
            yield file
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise UserError(_damage(path, error)) from error
    except OSError as error:
        # The system gives a number. Libraries for compressed files give a sentence that does not name the file.
        if error.errno is not None or path.suffix not in _COMPRESSIONS:
            raise
        raise UserError(_damage(path, error)) from error


def _open(path: Path) -> BinaryIO:
    if path.suffix in _COMPRESSIONS:
        return _COMPRESSIONS[path.suffix](path)
    # The name of a socket cannot be opened.
    if str(path) == "/dev/stdin" and stat.S_ISSOCK(os.fstat(0).st_mode):
        return open(os.dup(0), "rb")
    return open(path, "rb")


def _damage(path: Path, error: Exception) -> str:
    return f"{path} cannot be decompressed: {error}. It is damaged or not complete."


def without_compression(path: Path) -> Path:
    """Return the path without the ending of its compression, if it has one."""
    if path.suffix in _COMPRESSIONS:
        return path.with_suffix("")
    return path


def byte_lines(path: Path, begin: int = 0, *, keep_returns: bool = False, keep_mark: bool = False) -> Iterator[bytes]:
    """Yield the lines of a plain or compressed file.

    Only a line feed ends a line, with or without a carriage return before it. `datasets` and `str.splitlines` break
    lines at other characters too, which would shift the two sides of a corpus.

    Args:
        path: the file.
        begin: the byte to begin at (default: the first).
        keep_returns: whether a carriage return before a line feed stays in the line.
        keep_mark: whether a byte order mark of UTF-8 stays in the first line.

    Raises:
        UserError: if the file is UTF-16, or cannot be decompressed to its end.
    """
    with opened(path) as file:
        # A pipe cannot seek.
        if begin:
            file.seek(begin)

        is_first = begin == 0
        for line in file:
            if is_first:
                _check_encoding(line, path)
                is_first = False
                if not keep_mark:
                    line = line.removeprefix(codecs.BOM_UTF8)
            line = line.removesuffix(b"\n")
            if not keep_returns:
                line = line.removesuffix(b"\r")
            yield line


def _check_encoding(line: bytes, path: Path) -> None:
    # UTF-16 of Latin letters is valid UTF-8 with NUL characters.
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserError(f"{path} is UTF-16. Convert it with: iconv -f utf-16 -t utf-8")


def decode(line: bytes) -> str | None:
    """Return the text, or None if it is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def each_line(path: str | Path) -> Iterator[str]:
    """Yield the segments of a file of lines as they are read. Raise a UserError for a line that is not UTF-8."""
    for number, line in enumerate(byte_lines(Path(path)), start=1):
        text = decode(line)
        if text is None:
            raise UserError(f"{path}:{number} is not UTF-8. Convert the file, for example with iconv.")
        yield text


def read_lines(path: str | Path) -> list[str]:
    """Return the segments of a plain or compressed text file. Only a line feed ends one."""
    return list(each_line(path))


def unbroken(segments: Iterable[str], what: str) -> list[str]:
    """Replace every run of line breaks in `segments` by a space, and warn how many of `what` had any."""
    return list(each_unbroken(segments, what))


def each_unbroken(segments: Iterable[str], what: str) -> Iterator[str]:
    """Yield `segments` as [`unbroken`] returns them."""
    number = 0
    broken = 0
    first_broken = 0
    for number, segment in enumerate(segments, start=1):
        line = _LINE_BREAKS.sub(" ", segment)
        if line != segment:
            broken += 1
            first_broken = first_broken or number
        yield line

    if broken:
        logger.warning("%d of %d %s had line breaks, now spaces (first: number %d)", broken, number, what, first_broken)


def text_bytes(lines: Iterable[str]) -> bytes:
    """Return lines as the bytes of a file."""
    return "".join(f"{line}\n" for line in lines).encode()


def aligned_pairs(source_file: Path, target_file: Path, name: str) -> Iterator[RawPair]:
    """Yield the pairs of a file of sources and the file of their translations.

    Raises:
        UserError: about `name`, if one has more lines than the other.
    """
    sources = byte_lines(source_file)
    targets = byte_lines(target_file)
    for number, (source, target) in enumerate(zip_longest(sources, targets)):
        if source is None or target is None:
            # One file has ended. Count the lines of the other, so that the message helps.
            source_count = number + (source is not None) + sum(1 for _ in sources)
            target_count = number + (target is not None) + sum(1 for _ in targets)
            raise UserError(
                f"{name}: {source_file} has {source_count} lines and {target_file} has {target_count}. Line i of one "
                "must translate line i of the other."
            )
        yield decode(source), decode(target)


def tsv_pairs(path: Path) -> Iterator[RawPair]:
    """Yield the pairs of a file with two columns. Raise a UserError for a line with another number of them."""
    for number, line in enumerate(byte_lines(path), start=1):
        if not line.strip():
            yield "", ""
            continue
        sides = line.split(b"\t")
        if len(sides) != 2:
            raise UserError(f"{path}:{number}: {len(sides)} columns. There must be 2, source and target.")
        source, target = sides
        yield decode(source), decode(target)


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
