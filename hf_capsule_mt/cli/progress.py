"""The progress of a command that goes through lines."""

import time
from types import TracebackType

from tqdm import tqdm


class Progress:
    """Shows lines and source tokens a second, and the time left.

    Args:
        total: number of lines, if it is known.
        shown: whether anything is shown.
    """

    def __init__(self, total: int | None, shown: bool = True) -> None:
        self._bar = tqdm(total=total, unit=" lines", disable=not shown)
        self._tokens, self._start = 0, time.monotonic()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._bar.close()

    def skip(self, lines: int) -> None:
        """Count lines that take no time: empty ones, and those that an earlier run has done."""
        self._bar.initial += lines
        self._bar.update(lines)

    def add(self, lines: int, tokens: int) -> None:
        """Count lines that were done, and their source tokens."""
        self._tokens += tokens
        speed = self._tokens / max(time.monotonic() - self._start, 1e-9)
        self._bar.set_postfix_str(f"{speed:.0f} tokens/s", refresh=False)
        self._bar.update(lines)
