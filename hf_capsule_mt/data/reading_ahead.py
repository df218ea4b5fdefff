"""Making the next item in a thread, while the one before it is used."""

from collections.abc import Iterator
from queue import Queue
from threading import Event, Semaphore, Thread
from typing import Any, TypeVar

T = TypeVar("T")
_END = object()


def each_one_ahead(items: Iterator[T], ended: Event | None = None) -> Iterator[T]:
    """Yield items, while a thread already makes the next one.

    An error of `items` is raised after the items before it.

    Args:
        items: are made in the thread, one after the other.
        ended: is set when the caller needs no more, so that `items` may stop in the middle of an item. The thread is
            not waited for.
    """
    ended = ended or Event()
    # Without it the thread would be two items ahead, and a window of a corpus is large.
    wanted = Semaphore(1)
    made: Queue[tuple[Any, BaseException | None]] = Queue()

    def make() -> None:
        while wanted.acquire() and not ended.is_set():
            try:
                made.put((next(items, _END), None))
            # A panic inside the library tokenizers is no Exception.
            except BaseException as error:
                made.put((_END, error))

    # A thread that is no daemon would keep an interrupted command alive.
    Thread(target=make, daemon=True).start()

    try:
        while True:
            item, error = made.get()
            if error is not None:
                raise error
            if item is _END:
                return
            wanted.release()
            yield item
    finally:
        ended.set()
        wanted.release()
