"""The log of the server on its error output, as text or as JSON. It takes what libraries log, too.

A line whose arguments have names, such as "%(status)d", has them as fields of its own in JSON.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from transformers.utils.logging import disable_progress_bar

_LIBRARIES = ("transformers", "huggingface_hub")
"""Libraries that log with handlers of their own."""


class TextLines(logging.Formatter):
    """Writes the time with its time zone, the level and the message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Return the time of a record in ISO 8601, with the time zone of this computer."""
        return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


class JsonLines(TextLines):
    """Writes an object of JSON in each line, also of an error with its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        fields: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }

        if isinstance(record.args, Mapping):
            fields |= record.args
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


@contextmanager
def log_of_server(log_format: str) -> Iterator[None]:
    """Write the log within a block.

    Args:
        log_format: "text" or "json".
    """
    handler = logging.StreamHandler()
    handler.setFormatter(TextLines())
    if log_format == "json":
        handler.setFormatter(JsonLines())
        # A bar is no JSON.
        disable_progress_bar()

    for name in _LIBRARIES:
        library = logging.getLogger(name)
        for other in [*library.handlers]:
            library.removeHandler(other)
        library.propagate = True
    logging.getLogger("hf_capsule_mt.serving").setLevel(logging.INFO)

    root = logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
