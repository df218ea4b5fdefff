"""Texts and pages from Jinja templates, which lie beside the modules that fill them."""

from functools import cache
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, StrictUndefined, Template


def render(path: Path, **values: Any) -> str:
    """Return the template in a file, filled; values in `.html` are escaped, and one that is missing is an error.

    The filter `thousands` writes a number with commas between its thousands, `median` gives that of a list, and
    `local` is a link to a file beside the page, or nothing where it leads elsewhere or would run something.
    """
    return _load(path).render(**values)


def local_link(link: str) -> str:
    """Return a link to a file in the folder of a page or below it, as it is, and an empty string for every other one.

    A browser drops blanks and control characters from a link, so that one with any is none of a file's.
    """
    parts = urlsplit(link)
    is_below = not (parts.scheme or parts.netloc or link.startswith(("/", "\\")) or ".." in parts.path.split("/"))
    return link if is_below and not any(ord(letter) <= 32 or letter == ":" for letter in link) else ""


@cache
def _load(path: Path) -> Template:
    environment = Environment(autoescape=path.suffix == ".html", undefined=StrictUndefined)
    environment.filters["thousands"] = "{:,}".format
    environment.filters["median"] = median
    environment.filters["local"] = local_link
    return environment.from_string(path.read_text(encoding="utf-8"))
