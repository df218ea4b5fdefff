"""Elements of XML with their places in the file, so that everything outside of translated texts stays byte for byte."""

import re
from dataclasses import dataclass, field
from xml.parsers import expat

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.long_work import next_step

_FIRST_TAG = re.compile(rb"""<(?:"[^"]*"|'[^']*'|[^"'>])*>""")
# What may stand in front of the first element.
_BEFORE_ELEMENTS = re.compile(r"\s+|<\?.*?\?>|<!--.*?-->|<!DOCTYPE\s[^<>\[]*(?:\[.*?\]\s*)?>", re.DOTALL)


@dataclass
class Element:
    """An element, its parent and the elements in it. Places count bytes."""

    data: bytes  # The whole file.
    name: str
    attributes: dict[str, str]
    parent: "Element | None"
    stays: bool  # Whether it, or something around it, says that it is not translated.
    start: int  # Of its first tag.
    inner_start: int  # Of what is in it.
    inner_end: int = 0
    end: int = 0
    children: list["Element"] = field(default_factory=list)

    @property
    def local_name(self) -> str:
        """The name without the prefix of a namespace."""
        return self.name.rpartition(":")[2]

    @property
    def first_tag(self) -> str:
        """The tag that begins it."""
        return self.data[self.start : self.inner_start].decode()

    @property
    def inner(self) -> str:
        """What stands in it."""
        return self.data[self.inner_start : self.inner_end].decode()

    def child(self, local_name: str) -> "Element | None":
        """Return the first element in it with this name."""
        return next((child for child in self.children if child.local_name == local_name), None)


def first_element_is(name: str, beginning: str) -> bool:
    """Return whether a file begins with an element, after declarations, comments and white space."""
    place = 0
    # One after the other: as a repetition in one expression, each could also end at every later "-->".
    while (match := _BEFORE_ELEMENTS.match(beginning, place)) is not None:
        place = match.end()
    end = place + len(f"<{name}")
    behind = beginning[end : end + 1]
    return beginning[place:end] == f"<{name}" and (behind == ">" or behind.isspace())


def read_elements(data: bytes) -> list[Element]:
    """Return the elements of a file in their order. The first one is around all others.

    Raises:
        UserError: if the XML is damaged, or not in UTF-8.
    """
    parser = expat.ParserCreate()
    elements: list[Element] = []
    open_elements: list[Element] = []

    def declare(version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.lower() != "utf-8":
            raise UserError(f"Its first line says {encoding}. Convert the file to UTF-8, and write UTF-8 there.")

    def start(name: str, attributes: dict[str, str]) -> None:
        next_step()
        place = parser.CurrentByteIndex
        parent = None
        if open_elements:
            parent = open_elements[-1]

        stays = attributes.get("translate") == "no" or attributes.get("translatable") == "false"
        if parent is not None and parent.stays:
            # An element may be translated in one that is not.
            stays = attributes.get("translate") != "yes"

        element = Element(data, name, attributes, parent, stays, place, _FIRST_TAG.match(data, place).end())
        elements.append(element)
        open_elements.append(element)
        if parent is not None:
            parent.children.append(element)

    def end(name: str) -> None:
        element = open_elements.pop()
        if data[element.inner_start - 2 : element.inner_start] == b"/>":
            element.inner_end = element.inner_start
            element.end = element.inner_start
        else:
            element.inner_end = parser.CurrentByteIndex
            element.end = data.index(b">", element.inner_end) + 1

    parser.XmlDeclHandler = declare
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    # With it entities stay as they are. Elements in them would have no place in the file.
    parser.DefaultHandler = lambda part: None

    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise UserError(f"The XML is damaged: {error}.") from error
    return elements
