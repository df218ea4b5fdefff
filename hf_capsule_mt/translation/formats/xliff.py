"""XLIFF 1.2 and 2: units without a target get one, which is marked for review. Codes in a text come back in it."""

import re
from collections.abc import Sequence

from lxml import etree

from hf_capsule_mt.errors import UserError

from .base import Document, FileFormat, decoded, text_with_tags
from .placeholders import PLACEHOLDERS
from .xml_files import first_element_is, read_xml

# Elements whose contents are codes of another format.
_CODE = re.compile(r"<(ph|bpt|ept|it)(?=[\s>])")
_STAYS = ' translate="no"'
_NAMESPACE = re.compile(r'\sxmlns(?::[\w.-]+)?="[^"]*"')


class Xliff(FileFormat):
    """XLIFF of version 1.2 or 2."""

    name = "xliff"
    title = "XLIFF"
    suffixes = (".xlf", ".xliff")

    def is_begun_by(self, beginning: str) -> bool:
        """Return whether the first element is that of XLIFF."""
        return first_element_is("xliff", beginning)

    def read(self, data: bytes, target_lang: str | None = None) -> "_Units":
        """Read a file."""
        source = decoded(data)
        root = read_xml(data)
        if etree.QName(root).localname != "xliff":
            raise UserError("The first element is not <xliff>.")
        return _Units(root, source, target_lang)


class _Units(Document):
    def __init__(self, root: etree._Element, source: str, target_lang: str | None) -> None:
        self._root = root
        # The declaration and comments are written as they are.
        self._before = source[: source.index("<xliff")]
        self._end = "\n" if source.endswith("\n") else ""
        self._has_returns = "\r\n" in source
        self._is_old = root.get("version", "1.2").startswith("1")
        name = "trans-unit" if self._is_old else "segment"
        self._units = [unit for unit in root.iter(f"{{*}}{name}") if _is_open(unit)]
        self.texts = [text_with_tags(_inner(unit.find("{*}source")), PLACEHOLDERS) for unit in self._units]
        if target_lang is not None:
            self._name_language(target_lang)

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the file with its translations."""
        for unit, translation in zip(self._units, translations, strict=True):
            source = unit.find("{*}source")
            target = _element(source, translation.replace(_STAYS, ""))
            empty = unit.find("{*}target")
            if empty is not None:
                unit.remove(empty)
            if self._is_old:
                target.set("state", "needs-review-translation")
            else:
                unit.set("state", "translated")
            target.tail = source.tail
            source.addnext(target)
        written = f"{self._before}{etree.tostring(self._root, encoding='unicode')}{self._end}"
        if self._has_returns:
            # Whatever reads XML makes them "\n".
            written = re.sub(r"\r?\n", "\r\n", written)
        return written.encode()

    def _name_language(self, target_lang: str) -> None:
        """Name the language of the targets, if the file does not."""
        elements = self._root.findall("{*}file") if self._is_old else [self._root]
        attribute = "target-language" if self._is_old else "trgLang"
        for element in elements:
            if element.get(attribute) is None:
                element.set(attribute, target_lang)


def _is_open(unit: etree._Element) -> bool:
    """Return whether a unit is translated, and has no target yet."""
    source = unit.find("{*}source")
    target = unit.find("{*}target")
    if source is None or _stays(unit):
        return False
    if target is not None and (len(target) or (target.text or "").strip()):
        return False
    return any(map(str.isalpha, "".join(source.itertext())))


def _stays(unit: etree._Element) -> bool:
    """Return whether a unit, or something around it, says that it is not translated."""
    return any(element.get("translate") == "no" for element in (unit, *unit.iterancestors()))


def _inner(source: etree._Element) -> str:
    """Return what is in an element, in which codes say that they are not translated."""
    whole = _NAMESPACE.sub("", etree.tostring(source, encoding="unicode", with_tail=False))
    inner = whole[whole.index(">") + 1 : whole.rindex("</")]
    return _CODE.sub(rf"<\1{_STAYS}", inner)


def _element(source: etree._Element, inner: str) -> etree._Element:
    """Return a target with these contents, in the namespaces of its source."""
    namespaces = []
    for prefix, uri in source.nsmap.items():
        name = "xmlns" if prefix is None else f"xmlns:{prefix}"
        namespaces.append(f' {name}="{uri}"')
    return etree.fromstring(f"<target{''.join(namespaces)}>{inner}</target>")
