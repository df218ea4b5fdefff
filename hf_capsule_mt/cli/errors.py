"""How a command ends that cannot go on: one line about a mistake of its user, none if nobody reads, no traceback."""

import functools
import logging
import os
import sys
from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)


def report_user_errors(main: Callable[[Sequence[str] | None], None]) -> Callable[[Sequence[str] | None], None]:
    """Wrap a command's `main(argv)`: a ValueError or OSError ends it with `error: ...` and exit status 2.

    The traceback is logged at DEBUG level. If the reader of the output has gone, the command ends without a word.
    """

    @functools.wraps(main)
    def wrapper(argv: Sequence[str] | None = None) -> None:
        try:
            try:
                main(argv)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter writes what is left when it exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(1) from None
        except (ValueError, OSError) as error:
            logger.debug("traceback", exc_info=True)
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from error

    return wrapper
