"""What commands that measure have in common: quiet libraries, tables in Markdown, and what it was measured on."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


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
    """Today, and what the work was done with: see [`~hf_capsule_mt.training.record.environment`]."""
    from datetime import date

    from hf_capsule_mt.training.record import environment

    return {"date": date.today().isoformat(), **environment(device_type)}


def describe_environment(made_by: Mapping[str, Any]) -> str:
    """A [`dated_environment`] in a line."""
    packages = made_by["packages"]
    return (
        f"{made_by['device']}, {made_by['cpu_threads']} thread(s), torch {packages['torch']}, "
        f"transformers {packages['transformers']}, {made_by['date']}"
    )


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose second row is its alignment."""
    return [f"| {' | '.join(row)} |" for row in rows]


def table_in_markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table whose first row names the columns, and whose first column names the rows."""
    columns, *others = rows
    return "\n".join(markdown_table([columns, ["---", *["---:"] * (len(columns) - 1)], *others]))
