"""What may come of an attack."""

import contextlib
import io
import logging
from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    """What came of one input. All but the first two must not happen."""

    REFUSED = "refused"
    RIGHT = "accepted and right"
    TRACEBACK = "traceback"
    HANG = "hang"
    SILENT_CHANGE = "silent change"
    WRONG_REFUSAL = "wrong refusal"


@dataclass(frozen=True)
class Finding:
    """The outcome of one attack, and what there is to know about it if it is a bad one."""

    outcome: Outcome
    about: str = ""


@contextlib.contextmanager
def quiet():
    """Show nothing of what is logged or written."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)
