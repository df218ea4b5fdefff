"""Translation memories in TMX 1.4, read unit by unit, so that a file of any size needs little memory."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from hf_capsule_mt.errors import UserError

if TYPE_CHECKING:
    from lxml.etree import _Element

_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# What they hold is mark-up of the document that was translated, such as <b>. <hi> and others hold text.
_NATIVE_CODES = ("bpt", "ept", "ph", "it", "ut")


def memory_pairs(file: BinaryIO, path: Path, languages: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Yield both sides of each unit that has both languages. "en" stands for "en-US" and "EN_gb", too.

    Entities are not expanded, and nothing is loaded from elsewhere. Errors name the `path`.

    Raises:
        UserError: if it is not XML, has an entity of its own, or no unit with both languages.
    """
    from lxml import etree

    found, is_empty = set(), True
    try:
        for _, unit in etree.iterparse(file, tag="{*}tu", resolve_entities=False, load_dtd=False, no_network=True):
            variants = [(_language(variant), variant) for variant in unit.iterfind("{*}tuv")]
            found.update(language for language, _ in variants)
            sides = [_variant(variants, language.lower().replace("_", "-")) for language in languages]
            if None not in sides:
                is_empty = False
                yield tuple(re.sub(r"[ \t\r\n]+", " ", _text(side.find("{*}seg"), path)).strip(" ") for side in sides)
            # The parser keeps all that it has read.
            unit.clear()
            while unit.getprevious() is not None:
                del unit.getparent()[0]
    except etree.XMLSyntaxError as error:
        raise UserError(f"{path}: {error}") from error
    if is_empty:
        raise UserError(f"{path} has no unit in {languages[0]} and {languages[1]}. It has {', '.join(sorted(found))}.")


def _language(variant: "_Element") -> str:
    # TMX 1.1 has no namespace.
    return (variant.get(_LANGUAGE) or variant.get("lang") or "").lower().replace("_", "-")


def _variant(variants: list[tuple[str, "_Element"]], wanted: str) -> "_Element | None":
    exact = [variant for language, variant in variants if language == wanted]
    return next(iter(exact + [variant for language, variant in variants if language.startswith(f"{wanted}-")]), None)


def _text(element: "_Element | None", path: Path) -> str:
    """Return the text in an element without native codes and comments."""
    if element is None:
        return ""
    parts = [element.text or ""]
    for child in element:
        if isinstance(child.tag, str) and child.tag.rpartition("}")[2] not in _NATIVE_CODES:
            parts.append(_text(child, path))
        elif getattr(child, "name", None):
            raise UserError(f"{path}: the entity &{child.name}; is not read.")
        parts.append(child.tail or "")
    return "".join(parts)
