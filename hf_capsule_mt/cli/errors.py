"""How a command reports a mistake of its user: one line, exit status 2, no traceback."""

import functools
import logging
import sys
from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)


def report_user_errors(main: Callable[[Sequence[str] | None], None]) -> Callable[[Sequence[str] | None], None]:
    """Wrap a command's `main(argv)`: a ValueError or OSError ends it with `error: ...` and exit status 2.

    The traceback is logged at DEBUG level.
    """

    @functools.wraps(main)
    def wrapper(argv: Sequence[str] | None = None) -> None:
        try:
            main(argv)
        except (ValueError, OSError) as error:
            logger.debug("traceback", exc_info=True)
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from error

    return wrapper
