"""What commands that measure have in common: quiet libraries, tables in Markdown, and what it was measured on."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hf_capsule_mt.markdown import markdown_table, table_in_markdown

__all__ = ["dated_environment", "describe_environment", "markdown_table", "quiet_transformers", "table_in_markdown"]


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Let Transformers tell of nothing but errors, until the end of the block."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def dated_environment(device_type: str) -> dict[str, Any]:
    """An [`~hf_capsule_mt.records.Environment`] as a dictionary."""
    from hf_capsule_mt.records import Environment, encode

    return encode(Environment.here(device_type))


def describe_environment(made_by: Mapping[str, Any]) -> str:
    """A [`dated_environment`] in a line."""
    from hf_capsule_mt.records import Environment

    return str(Environment(**made_by))
