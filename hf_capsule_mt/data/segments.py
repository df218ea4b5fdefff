"""Segments of text in files, one a line: what would break a line becomes a space, and what is written is counted."""

import gzip
import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from hf_capsule_mt.files import replace_bytes

logger = logging.getLogger(__name__)

# Where str.splitlines breaks, and so many a tool that reads the file.
_LINE_BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


def unbroken(segments: Iterable[str], what: str) -> list[str]:
    """Return segments with a space for every run of line breaks, and warn how many of `what` had any."""
    segments = list(segments)
    lines = [_LINE_BREAKS.sub(" ", segment) for segment in segments]
    changed = [index for index, (line, segment) in enumerate(zip(lines, segments)) if line != segment]
    if changed:
        logger.warning(
            "%d of %d %s had line breaks, which became spaces (the first is number %d)",
            len(changed),
            len(lines),
            what,
            changed[0] + 1,
        )
    return lines


def text_bytes(lines: Sequence[str], where: object) -> bytes:
    """Return `lines` as the bytes of a file, `where` they go.

    Raises:
        ValueError: if a line has half of a surrogate pair, which no UTF-8 can hold.
    """
    try:
        return "".join(f"{line}\n" for line in lines).encode()
    except UnicodeEncodeError as error:
        number = error.object.count("\n", 0, error.start) + 1
        raise ValueError(f"line {number} of {where} has half of a surrogate pair, which cannot be written") from error


def write_lines(files: Sequence[Path], contents: Sequence[Sequence[str]]) -> None:
    """Write the lines of each file, compressed if its name ends in .gz, and count what is in it afterwards.

    Raises:
        ValueError: see [`text_bytes`]; nothing is written then.
        OSError: if a file cannot be written, or reads back as another number of lines.
    """
    texts = [text_bytes(lines, file) for file, lines in zip(files, contents, strict=True)]
    for file, text in zip(files, texts):
        # No time in the .gz, so that the same lines are the same bytes.
        replace_bytes(file, gzip.compress(text, mtime=0) if file.suffix == ".gz" else text)
    for file, lines in zip(files, contents):
        found = _count_lines(file)
        if found != len(lines):
            raise OSError(
                f"{file} holds {found} lines after {len(lines)} were written; check the disk, and write again"
            )


def _count_lines(path: Path) -> int:
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        return sum(1 for _ in file)
