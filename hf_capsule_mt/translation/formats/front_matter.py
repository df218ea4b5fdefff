"""The front matter of a page of Markdown: its title and its description are translated, and all else stays."""

import json
import re
from collections.abc import Callable
from typing import NamedTuple

import yaml

from hf_capsule_mt.translation.text.words import has_letters

_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
# The text may go on in the next line, if that is indented.
_FIELD = re.compile(r"^(?:title|description):[ \t]++(?P<value>\S[^\n]*+)(?!\n[ \t])", re.MULTILINE)
_KEY = re.compile(r"^[ \t]*+(?:-[ \t]++)*+[\w.-]++:", re.MULTILINE)


class Field(NamedTuple):
    """A text in front matter."""

    start: int  # The place of its value in the page.
    end: int
    text: str
    line: int  # From 1.
    quote: str  # The sign around it, or nothing.

    def written(self, translation: str) -> str | None:
        """Return a value of YAML that is the translation, or None if it is empty, or has several lines."""
        if not translation.strip():
            return None
        ways: dict[str, Callable[[str], str]] = {
            "": str,
            "'": lambda text: "'{}'".format(text.replace("'", "''")),
            '"': lambda text: json.dumps(text, ensure_ascii=False),
        }
        # What is plain in one language may be a mapping in another.
        for way in (ways[self.quote], ways['"']):
            value = way(translation)
            if _loaded(value) == translation:
                return value
        return None


def find_front_matter(page: str) -> str:
    """Return the front matter of a page with the lines around it, or nothing."""
    match = _FRONT_MATTER.match(page)
    return "" if match is None else match[0]


def fields_of(front_matter: str) -> list[Field]:
    """Return the texts of front matter that are translated."""
    fields = []
    for match in _FIELD.finditer(front_matter):
        value = match["value"].rstrip()
        text = _text_of(value)
        if text is not None and has_letters(text):
            line = front_matter.count("\n", 0, match.start()) + 1
            quote = value[0] if value[0] in "'\"" else ""
            start = match.start("value")
            fields.append(Field(start, start + len(value), text, line, quote))
    return fields


def kept_words(front_matter: str) -> str:
    """Return what has words in front matter and is not translated. Names of fields are no words."""
    rest = front_matter
    for field in reversed(fields_of(front_matter)):
        rest = rest[: field.start] + rest[field.end :]
    return rest if has_letters(_KEY.sub("", rest)) else ""


def _text_of(value: str) -> str | None:
    """Return the text that a field has in one line, or None if there is more than a text."""
    quote = value[0] if value[0] in "'\"" else ""
    # Nothing may stand behind it, such as a comment, and no name in front of it.
    is_alone = value.endswith(quote) if quote else " #" not in value and value[0] not in "|>&*!"
    return _loaded(value) if is_alone else None


def _loaded(value: str) -> str | None:
    """Return the text that a value of YAML stands for, or None if it is another thing."""
    try:
        found = yaml.safe_load(f"field: {value}\n")
    except yaml.YAMLError:
        return None
    is_one = isinstance(found, dict) and len(found) == 1
    text = found.get("field") if is_one else None
    return text if isinstance(text, str) and "\n" not in text else None
