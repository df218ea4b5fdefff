"""Tables in Markdown, as reports have them."""

from collections.abc import Sequence


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown whose second row is its alignment."""
    lines = []
    for row in rows:
        cells = " | ".join(row)
        lines.append(f"| {cells} |")
    return lines


def table_in_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown whose first row names the columns, and whose first column names the rows."""
    header, *body = rows
    # Names are on the left of their column, numbers on the right.
    alignment = ["---"]
    for _ in header[1:]:
        alignment.append("---:")
    lines = markdown_table([header, alignment, *body])
    return "\n".join(lines)
