"""The progress bar of files that are translated."""

import time

from tqdm import tqdm


class Progress(tqdm):
    """Shows lines and source tokens a second, and the time left."""

    def __init__(self, total: int | None, shown: bool = True) -> None:
        super().__init__(total=total, unit=" lines", disable=not shown)
        self._tokens = 0
        self._start = time.monotonic()

    def skip(self, lines: int) -> None:
        """Count lines that take no time: empty ones, and those that an earlier run has done."""
        if not self.disable:
            self.initial += lines
            self.update(lines)

    def add(self, lines: int, tokens: int) -> None:
        """Count lines that were done, and their source tokens."""
        self._tokens += tokens
        speed = self._tokens / max(time.monotonic() - self._start, 1e-9)
        self.set_postfix_str(f"{speed:.0f} tokens/s", refresh=False)
        self.update(lines)
