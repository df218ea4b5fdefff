"""Messages in JSON, as i18next and many others have them: strings are translated, and keys and all else stay."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from hf_capsule_mt.errors import UserError

from .base import Document, FileFormat, decoded
from .messages import Message, PlacedMessages, without_halves
from .placeholders import is_code

_PART = re.compile(
    rb'(?P<begin>[{\[])|(?P<end>[}\]])|(?P<comma>,)|(?P<string>"(?:[^"\\]|\\.)*")(?P<is_key>\s*:)?', re.DOTALL
)


@dataclass
class _Container:
    """An object or an array around a value."""

    is_array: bool
    path: str  # Of itself.
    is_comment: bool  # Whether all of it is for programmers.
    key: str = ""  # Of the value that follows.
    number: int = 0  # Of the value that follows, from 0.

    def path_inside(self) -> str:
        """Return the path of the value that follows, such as "menu.items[0].title"."""
        if self.is_array:
            return f"{self.path}[{self.number}]"
        if self.path:
            return f"{self.path}.{self.key}"
        return self.key

    def has_comment(self) -> bool:
        """Return whether the value that follows is for programmers, as keys such as "@name" or "_comment" say."""
        return self.is_comment or self.key.startswith(("@", "_comment"))


class JsonMessages(FileFormat):
    """Messages of i18next, react-intl, Vue and so on."""

    name = "i18next"
    title = "JSON with messages"
    suffixes = (".json",)
    has_other_contents = True

    def read(self, data: bytes, target_lang: str | None = None) -> Document:
        """Read a file."""
        content = decoded(data)
        try:
            # Python refuses to read numbers of thousands of digits, which are no messages.
            json.loads(content, parse_int=str)
        except (json.JSONDecodeError, RecursionError) as error:
            raise UserError(f"The JSON is damaged: {error}") from error

        # Whoever writes references for some characters may not want others.
        is_ascii = content.isascii() and "\\u" in content
        write = partial(json.dumps, ensure_ascii=is_ascii)
        document = PlacedMessages(data)
        for start, end, string, path in _messages(data):
            document.add(start, end, Message(string), write, unit=path)
        return document


def _messages(data: bytes) -> Iterator[tuple[int, int, str, str]]:
    """Yield the places and characters of strings that are messages, with the paths of their keys."""
    # What is around the value that follows. The outermost one stands for the file.
    around = [_Container(is_array=False, path="", is_comment=False)]
    for match in _PART.finditer(data):
        container = around[-1]
        if match["begin"]:
            path = container.path_inside()
            around.append(_Container(match["begin"] == b"[", path, container.has_comment()))
        elif match["end"]:
            around.pop()
        elif match["comma"]:
            container.number += 1
        elif match["is_key"]:
            container.key = without_halves(json.loads(match["string"]))
        elif not container.has_comment():
            string = without_halves(json.loads(match["string"]))
            if not is_code(string):
                yield *match.span("string"), string, container.path_inside()
