"""Messages in JSON, as i18next and many others have them: strings are translated, and keys and all else stay."""

import json
import re
from collections.abc import Iterator
from functools import partial

from hf_capsule_mt.errors import UserError

from .base import Document, FileFormat, decoded
from .messages import Message
from .placed_messages import PlacedMessage, PlacedMessages
from .placeholders import is_code

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"(?P<is_key>\s*:)?', re.DOTALL)


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
            json.loads(content)
        except (json.JSONDecodeError, RecursionError) as error:
            raise UserError(f"The JSON is damaged: {error}") from error
        # Whoever writes references for some characters may not want others.
        is_ascii = content.isascii() and "\\u" in content
        return PlacedMessages(data, list(_messages(data, partial(json.dumps, ensure_ascii=is_ascii))))


def _messages(data: bytes, write: partial[str]) -> Iterator[PlacedMessage]:
    """Yield the strings that are messages. Those of keys such as "@name" or "_comment" are for programmers."""
    key = b""
    for match in _STRING.finditer(data):
        if match["is_key"]:
            key = match[0]
            continue
        string = json.loads(match[0])
        if not is_code(string) and not key.startswith((b'"@', b'"_comment')):
            yield PlacedMessage(match.start(), match.end(), Message(string), write)
