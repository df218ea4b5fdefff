"""Translation memories in TMX 1.4, read unit by unit, so that a file of any size needs little memory."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from hf_capsule_mt.errors import UserError

if TYPE_CHECKING:
    from lxml.etree import _Element

_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_SPACES = re.compile(r"[ \t\r\n]+")
# What they hold is mark-up of the document that was translated, such as <b>. <hi> and others hold text.
_NATIVE_CODES = ("bpt", "ept", "ph", "it", "ut")


def memory_pairs(file: BinaryIO, path: Path, languages: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Yield both sides of each unit that has both languages. "en" stands for "en-US" and "EN_gb", too.

    Entities are not expanded, and nothing is loaded from elsewhere. Errors name the `path`.

    Raises:
        UserError: if it is not XML, has an entity of its own, or no unit with both languages.
    """
    from lxml import etree

    source_language, target_language = languages
    all_languages = set()
    is_empty = True

    parser = etree.iterparse(
        file,
        tag="{*}tu",
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
    )

    try:
        for _, unit in parser:
            variants = [(_language(variant), variant) for variant in unit.iterfind("{*}tuv")]
            all_languages.update(language for language, _ in variants)
            source = _variant(variants, source_language)
            target = _variant(variants, target_language)
            if source is not None and target is not None:
                is_empty = False
                yield _segment(source, path), _segment(target, path)
            _forget(unit)
    except etree.XMLSyntaxError as error:
        raise UserError(f"{path}: {error}") from error

    if is_empty:
        languages_in_file = ", ".join(sorted(all_languages))
        raise UserError(f"{path} has no unit in {source_language} and {target_language}. It has {languages_in_file}.")


def _forget(unit: "_Element") -> None:
    """Free the memory of a unit and of those before it. The parser would keep all that it has read."""
    unit.clear()
    while unit.getprevious() is not None:
        del unit.getparent()[0]


def _language(variant: "_Element") -> str:
    # TMX 1.1 has no namespace.
    code = variant.get(_LANGUAGE) or variant.get("lang") or ""
    return _normalised(code)


def _normalised(code: str) -> str:
    """Return a language code in one spelling: "en-us" for "en_US"."""
    return code.lower().replace("_", "-")


def _variant(variants: list[tuple[str, "_Element"]], language: str) -> "_Element | None":
    """Return the variant of this language, else the first of a region of it, such as "en-us" for "en"."""
    wanted = _normalised(language)
    for variant_language, variant in variants:
        if variant_language == wanted:
            return variant
    for variant_language, variant in variants:
        if variant_language.startswith(f"{wanted}-"):
            return variant
    return None


def _segment(variant: "_Element", path: Path) -> str:
    """Return the text of a variant on one line."""
    text = _text(variant.find("{*}seg"), path)
    return _SPACES.sub(" ", text).strip(" ")


def _text(element: "_Element | None", path: Path) -> str:
    """Return the text in an element without native codes and comments."""
    if element is None:
        return ""

    parts = [element.text or ""]
    for child in element:
        # An entity has a name. Comments and instructions have neither a name nor a tag that is text.
        if getattr(child, "name", None):
            raise UserError(f"{path}: the entity &{child.name}; is not read.")
        if isinstance(child.tag, str) and _local_name(child) not in _NATIVE_CODES:
            parts.append(_text(child, path))
        parts.append(child.tail or "")
    return "".join(parts)


def _local_name(element: "_Element") -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]
