"""YAML with checks: a double key, an unknown key, a missing one or a value of another type is an error."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

_NAMES = {dict: "a mapping", list: "a list", str: "text", int: "an integer", float: "a number"}


class _Loader(yaml.SafeLoader):
    """The safe loader, except that a key that comes twice in a mapping is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} comes twice", node.start_mark)
        return super().construct_mapping(node, deep)


def load_yaml(path: Path) -> Any:
    """Read a YAML file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds no YAML, or a mapping has a key twice.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} holds no YAML: {' '.join(str(error).split())}") from error


def check_mapping(value: Any, where: str, kinds: Mapping[str, type], required: Collection[str] = ()) -> dict[str, Any]:
    """Return `value`, a mapping whose keys are among those of `kinds` and whose values are of their types.

    An integer is a number too; nothing else passes for another type.

    Raises:
        ValueError: with `where`, the key, its value and what is allowed.
    """
    check_kind(value, where, dict)
    for key, item in value.items():
        if key not in kinds:
            raise ValueError(f"{where} has {key!r}; allowed are {', '.join(map(repr, kinds))}")
        check_kind(item, f"{where}.{key}", kinds[key])
    for key in required:
        if key not in value:
            raise ValueError(f"{where} lacks {key!r}, which must be {_NAMES[kinds[key]]}")
    return value


def check_list(value: Any, where: str, kind: type) -> list:
    """Return `value`, a list that is not empty, of items of one type.

    Raises:
        ValueError: with `where`, the value and what is allowed.
    """
    check_kind(value, where, list)
    if not value:
        raise ValueError(f"{where} is empty")
    for number, item in enumerate(value):
        check_kind(item, f"{where}[{number}]", kind)
    return value


def check_kind(value: Any, where: str, kind: type) -> None:
    """Raise a ValueError unless `value` is of type `kind`."""
    allowed = (int, float) if kind is float else kind
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{where} is {value!r}; it must be {_NAMES[kind]}")
