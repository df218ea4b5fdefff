"""What formats of XML share: how their first element is recognised, and how they are read."""

import re

from lxml import etree

from hf_capsule_mt.errors import UserError


def first_element_is(name: str, beginning: str) -> bool:
    """Return whether a file begins with an element, after a declaration, comments and white space."""
    before = r"(?:<\?.*?\?>|<!--.*?-->|\s)*"
    return re.match(rf"{before}<{name}[\s>]", beginning, re.DOTALL) is not None


def read_xml(data: bytes) -> etree._Element:
    """Return the first element of a file.

    Raises:
        UserError: if the XML is damaged.
    """
    # An entity could read other files.
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    try:
        return etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise UserError(f"The XML is damaged: {error}") from error
