"""Messages in JSON, as i18next and many others have them: strings are translated, and keys and all else stay."""

import json
import re
from collections.abc import Iterator
from functools import partial

from hf_capsule_mt.errors import UserError

from .base import Document, FileFormat, decoded
from .messages import Message, PlacedMessages, without_halves
from .placeholders import is_code

_PART = re.compile(rb'(?P<begin>\{)|(?P<end>\})|"(?:[^"\\]|\\.)*"(?P<is_key>\s*:)?', re.DOTALL)


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
        for start, end, string in _messages(data):
            document.add(start, end, Message(string), write)
        return document


def _messages(data: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield the places and characters of strings that are messages.

    What keys such as "@name" or "_comment" have is for programmers.
    """
    # Of the value that follows, and of the objects around it.
    is_comment = False
    outer: list[bool] = []
    for match in _PART.finditer(data):
        if match["begin"]:
            outer.append(is_comment)
        elif match["end"]:
            is_comment = outer.pop()
        elif match["is_key"]:
            is_comment = outer[-1] or match[0].startswith((b'"@', b'"_comment'))
        elif not is_comment:
            string = without_halves(json.loads(match[0]))
            if not is_code(string):
                yield match.start(), match.end(), string
