"""Segments of text in files, one a line: what would break a line becomes a space, and what is written is counted."""

import gzip
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hf_capsule_mt.files import replaced_files

logger = logging.getLogger(__name__)

# Where str.splitlines breaks, and so many a tool that reads the file.
_LINE_BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


def unbroken(segments: Iterable[str], what: str) -> list[str]:
    """Return segments with a space for every run of line breaks, and warn how many of `what` had any."""
    return list(each_unbroken(segments, what))


def each_unbroken(segments: Iterable[str], what: str) -> Iterator[str]:
    """Yield what [`unbroken`] returns, as the segments come; warn after the last."""
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


def text_bytes(lines: Sequence[str], where: object) -> bytes:
    """Return `lines` as the bytes of a file, `where` they go.

    Raises:
        ValueError: if a line has half of a surrogate pair, which no UTF-8 can hold.
    """
    return b"".join(_line_bytes(line, number, where) for number, line in enumerate(lines, start=1))


def _line_bytes(line: str, number: int, where: object) -> bytes:
    try:
        return f"{line}\n".encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"line {number} of {where} has half of a surrogate pair, which cannot be written") from error


def write_lines(files: Sequence[Path], contents: Sequence[Iterable[str]]) -> None:
    """Write the lines of each file as they come, as many of one as of another, and count them afterwards.

    A file is compressed if its name ends in .gz. An interruption leaves the old files, or the last is missing.

    Raises:
        ValueError: see [`text_bytes`]; nothing is written then.
        OSError: if a file cannot be written, or reads back as another number of lines.
    """
    number = 0
    with replaced_files(files) as outputs:
        for number, row in enumerate(zip(*contents, strict=True), start=1):
            for file, output, line in zip(files, outputs, row):
                output.write(_line_bytes(line, number, file))
    for file in files:
        found = _count_lines(file)
        if found != number:
            raise OSError(f"{file} holds {found} lines after {number} were written; check the disk, and write again")


def _count_lines(path: Path) -> int:
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        return sum(1 for _ in file)
