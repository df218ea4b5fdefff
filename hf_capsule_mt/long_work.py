"""Long work in a thread, which ends at its next step when nobody waits for it any more.

Python cannot end a thread from outside. So loops over the parts of a text, which may be long, call [`next_step`].
"""

import threading
from collections.abc import Callable
from typing import Any

_current = threading.local()
"""Its attribute `work` is what the thread does now."""


class GivenUpError(Exception):
    """Nobody waits for this work any more."""


class LongWork:
    """Work that may be given up.

    Example:

        work = LongWork()
        future = pool.submit(work.run, read, path)
        ...
        work.give_up()
    """

    def __init__(self) -> None:
        self._is_given_up = threading.Event()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns. A step of other work may call it.

        Args:
            function: the work. It calls [`next_step`] in its loops.
            *arguments: of the function.

        Raises:
            GivenUpError: if the work is given up before its last step.
        """
        outer_work = getattr(_current, "work", None)
        _current.work = self
        try:
            return function(*arguments)
        finally:
            _current.work = outer_work

    def give_up(self) -> None:
        """End the work at its next step. Any thread may call it."""
        self._is_given_up.set()

    def check(self) -> None:
        """End the work if it is given up.

        Raises:
            GivenUpError: if it is.
        """
        if self._is_given_up.is_set():
            raise GivenUpError("Nobody waits for this work any more.")


def next_step() -> None:
    """End the work of this thread if nobody waits for it. Other threads and programs are not concerned.

    Raises:
        GivenUpError: if the work is given up.
    """
    work = getattr(_current, "work", None)
    if work is not None:
        work.check()
