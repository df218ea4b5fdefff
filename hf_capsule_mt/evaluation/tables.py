"""Tables in Markdown, as reports have them."""

from collections.abc import Sequence


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown whose second row is its alignment."""
    return [f"| {' | '.join(row)} |" for row in rows]


def table_in_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown whose first row names the columns, and whose first column names the rows."""
    header, *body = rows
    alignment = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(markdown_table([header, alignment, *body]))
