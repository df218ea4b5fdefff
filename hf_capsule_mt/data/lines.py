"""Lines of text in plain and compressed files."""

import bz2
import codecs
import gzip
import io
import logging
import lzma
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from hf_capsule_mt.errors import UserError

logger = logging.getLogger(__name__)

# Where str.splitlines breaks a line. Other tools that read our files do the same.
_LINE_BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


def _open_zst(path: Path) -> BinaryIO:
    import pyarrow

    return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"))


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, decompressed if its name ends in .gz, .bz2, .xz or .zst."""
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
    with open_bytes(path) as file:
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


def decode(line: bytes) -> str | None:
    """Return the text, or None if it is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def without_compression(path: Path) -> Path:
    """Return the path without the ending of its compression, if it has one."""
    return path.with_suffix("") if path.suffix in _COMPRESSIONS else path
