"""A limit to the CPU seconds of a call, for programs of their own: a signal ends the call."""

import signal
import time
from collections.abc import Callable

LIMIT = 10
"""CPU seconds of a call."""


class TooLong(Exception):
    """Raised when the CPU seconds are over. Both libraries of expressions look for signals while they search."""


def _stop(*_: object) -> None:
    raise TooLong


def seconds(read: Callable[[], object]) -> float | None:
    """Return the CPU seconds of a call, or None if it took too long. Only a main thread can be stopped."""
    signal.signal(signal.SIGVTALRM, _stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    start = time.process_time()
    try:
        read()
        return time.process_time() - start
    except TooLong:
        return None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
