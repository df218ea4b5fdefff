"""The end of a command that cannot go on: one line about its user's mistake, and no traceback."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


class Interrupted(SystemExit, KeyboardInterrupt):
    """The end by Ctrl-C, for whoever catches a KeyboardInterrupt; the interpreter exits without a traceback."""


@contextmanager
def report_user_errors() -> Iterator[None]:
    """End a command on a ValueError or an OSError with `error: ...` and exit status 2.

    If another process of the command has died, the line says so, and the exit status is 1. The traceback is logged at
    DEBUG level. If the reader of the output has gone, the command ends without a message. Ctrl-C ends it with one line
    and exit status 130.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter writes what is left when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except Interrupted:
        # Said by the command in which it was pressed.
        raise
    except KeyboardInterrupt as error:
        print("interrupted", file=sys.stderr)
        raise Interrupted(130) from error
    except (ValueError, OSError) as error:
        _say(error)
        raise SystemExit(2) from error
    except RuntimeError as error:
        # It imports PyTorch, which whoever raises this error has done.
        from .processes import death_of_another

        message = death_of_another(error)
        if message is None:
            raise
        _say(message)
        raise SystemExit(1) from error


def _say(error: object) -> None:
    logger.debug("traceback", exc_info=True)
    text = str(error)
    if text.startswith("Caught ") and "Original Traceback" in text:
        # PyTorch raises errors of a loader's process again with their traceback as text.
        text = text.rstrip().rpartition("\n")[2].partition(": ")[2]
    print(f"error: {text}", file=sys.stderr)
