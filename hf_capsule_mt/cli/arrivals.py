"""Lines of a stream that somebody may be typing."""

from collections.abc import Iterable, Iterator
from queue import Queue
from threading import Thread


def arrivals(lines: Iterable[str], most: int) -> Iterator[list[str]]:
    """Yield what has arrived of `lines` whenever the last is dealt with: at least one line, and at most `most`.

    An error in reading is raised here, after the lines before it.
    """
    # Text, and at the end None or an error.
    waiting: Queue[str | Exception | None] = Queue(most)
    Thread(target=_read, args=(lines, waiting), daemon=True).start()
    last: str | Exception | None = ""
    while isinstance(last, str):
        found = []
        while isinstance(last := waiting.get(), str):
            found.append(last)
            if len(found) == most or waiting.empty():
                break
        if found:
            yield found
    if last is not None:
        raise last


def _read(lines: Iterable[str], waiting: Queue) -> None:
    try:
        for line in lines:
            waiting.put(line)
    except Exception as error:
        waiting.put(error)
    else:
        waiting.put(None)
