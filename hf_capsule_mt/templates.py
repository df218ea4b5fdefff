"""Texts and pages from Jinja templates, which lie beside the modules that fill them."""

from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, StrictUndefined, Template


def render(path: Path, **values: Any) -> str:
    """Return the template in a file, filled; values in `.html` are escaped, and one that is missing is an error.

    The filter `thousands` writes a number with commas between its thousands, `median` gives that of a list.
    """
    return _load(path).render(**values)


@cache
def _load(path: Path) -> Template:
    environment = Environment(autoescape=path.suffix == ".html", undefined=StrictUndefined)
    environment.filters["thousands"] = "{:,}".format
    environment.filters["median"] = median
    return environment.from_string(path.read_text(encoding="utf-8"))
