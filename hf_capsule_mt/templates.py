"""Texts and pages from Jinja templates, which lie beside the modules that fill them, or are named by whoever asks."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, StrictUndefined, Template, TemplateError, TemplateSyntaxError


def render(path: Path, **values: Any) -> str:
    """Return the template in a file, filled; values in `.html` are escaped, and one that is missing is an error.

    The filter `thousands` writes a number with commas between its thousands, `median` gives that of a list, and
    `local` is a link to a file beside the page, or nothing where it leads elsewhere or would run something.

    Raises:
        ValueError: if the template cannot be filled; the message names it.
    """
    with _explained(path):
        return _load(path).render(**values)


def render_page(path: Path, **values: Any) -> str:
    """Return a template of Markdown that a user has written, filled likewise; a line with a block alone leaves none.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it cannot be filled; the message names it.
    """
    with _explained(path):
        environment = _environment(trim_blocks=True, keep_trailing_newline=True)
        return environment.from_string(path.read_text(encoding="utf-8")).render(**values)


def local_link(link: str) -> str:
    """Return a link to a file in the folder of a page or below it, as it is, and an empty string for every other one.

    A browser drops blanks and control characters from a link, so that one with any is none of a file's.
    """
    parts = urlsplit(link)
    is_below = not (parts.scheme or parts.netloc or link.startswith(("/", "\\")) or ".." in parts.path.split("/"))
    return link if is_below and not any(ord(letter) <= 32 or letter == ":" for letter in link) else ""


@cache
def _load(path: Path) -> Template:
    return _environment(autoescape=path.suffix == ".html").from_string(path.read_text(encoding="utf-8"))


def _environment(**options: Any) -> Environment:
    environment = Environment(undefined=StrictUndefined, **options)
    environment.filters["thousands"] = "{:,}".format
    environment.filters["median"] = median
    environment.filters["local"] = local_link
    return environment


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Make Jinja's errors name the template."""
    try:
        yield
    except TemplateError as error:
        line = f", line {error.lineno}," if isinstance(error, TemplateSyntaxError) else ""
        raise ValueError(f"the template {path}{line} cannot be filled: {error.message}; correct it") from error
    except TypeError as error:
        raise ValueError(f"the template {path} cannot be filled: {error}; correct it") from error
