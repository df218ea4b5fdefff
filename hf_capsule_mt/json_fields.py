"""Dataclasses to and from JSON, by the annotations of their fields, and fields that are given as `name=value`.

JSON may have more fields than a dataclass, if this has a dictionary `others` to keep them in.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

_JSON_NAMES = {
    **{str: "text", int: "a whole number", float: "a number", bool: "true or false"},
    **{list: "a list", dict: "an object"},
}
_LITERALS = {"True": True, "False": False, "None": None}
"""What Python writes for JSON's true, false and null. No field means a text by one of them."""
T = TypeVar("T")


def encode(value: Any) -> Any:
    """Return the JSON form of a dataclass, or a list or dictionary of them; entries of `others` become fields."""
    if is_dataclass(value):
        found = {each.name: encode(getattr(value, each.name)) for each in fields(value)}
        others = found.pop("others", {})
        return {**found, **others}
    if isinstance(value, dict):
        return {name: encode(each) for name, each in value.items()}
    return [encode(each) for each in value] if isinstance(value, list) else value


def decode(kind: type[T], value: Any, name: str = "") -> T:
    """Return the dataclass, or other annotated value, that [`encode`] made `value` of.

    Raises:
        ValueError: if a field is missing, unknown or of another type.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        optional = [argument for argument in arguments if argument is not NoneType]
        return None if value is None else decode(optional[0], value, name)
    if kind is Any:
        return value
    expected = dict if is_dataclass(kind) else origin or kind
    whole = isinstance(value, int) and expected is float
    if not (isinstance(value, expected) or whole) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"has {name} = {value!r:.80}, which must be {_JSON_NAMES[expected]}")
    if is_dataclass(kind):
        return kind(**_decode_fields(kind, value, name))
    if origin is list:
        return [decode(arguments[0], each, f"{name}[{index}]") for index, each in enumerate(value)]
    if origin is dict:
        return {each: decode(arguments[1], found, f"{name}.{each}") for each, found in value.items()}
    return value


def _decode_fields(kind: type, values: Mapping[str, Any], name: str) -> dict[str, Any]:
    prefix, hints = f"{name}." if name else "", get_type_hints(kind)
    known = {each.name: each for each in fields(kind)}
    is_open = known.pop("others", None) is not None
    required = [each.name for each in known.values() if each.default is each.default_factory is MISSING]
    if missing := [f"{prefix}{each}" for each in required if each not in values]:
        raise ValueError(f"lacks {', '.join(missing)}")
    others = {each: value for each, value in values.items() if each not in known}
    if others and not is_open:
        raise ValueError(f"has {', '.join(f'{prefix}{each}' for each in others)}, of which nothing is known")
    found = {each: decode(hints[each], values[each], f"{prefix}{each}") for each in known if each in values}
    return {**found, "others": others} if is_open else found


def parse_override(text: str) -> tuple[str, Any]:
    """Split `name=value`, where the value is JSON, one of Python's True, False and None, or plain text.

    Raises:
        ValueError: if there is no equals sign, or the value begins as a list or an object and is not JSON.
    """
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"config_overrides has {text!r}; write name=value")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError as error:
        if value.lstrip().startswith(("[", "{")):
            raise ValueError(
                f"config_overrides has {text!r}, whose value is not JSON; write texts in double quotes, and for the "
                f"""shell all in single ones: '{name}=["a", "b"]' or '{name}={{"a": 1}}'"""
            ) from error
        return name, _LITERALS.get(value, value)
