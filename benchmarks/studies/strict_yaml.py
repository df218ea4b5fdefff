"""YAML with checks: a double key, an unknown key, a missing one or a value of another type is an error."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

_NAMES = {dict: "a mapping", list: "a list", str: "text", int: "an integer", float: "a number"}


_MOST_NODES = 100_000


class _Loader(yaml.SafeLoader):
    """The safe loader, but a key that comes twice in a mapping is an error, aliases are bounded, 1e-2 is a number."""

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _count_nodes(node, {})
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        # "<<" is no key; what it merges may be said otherwise beside it.
        own = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        keys = [self.construct_object(key, deep=True) for key in own]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r:.80} comes twice", node.start_mark)
        return super().construct_mapping(node, deep)


# As in YAML 1.2: by itself PyYAML, which reads 1.1, wants a point in the number and a sign in the exponent.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


def _count_nodes(node: yaml.Node, counted: dict[yaml.Node, int | None]) -> int:
    """Return the number of nodes that a node is with all aliases written out; `counted` has those under way as None."""
    if node in counted:
        if counted[node] is None:
            raise yaml.composer.ComposerError(None, None, "an alias stands for what it is in", node.start_mark)
        return counted[node]
    counted[node] = None
    children = node.value if isinstance(node, yaml.CollectionNode) else []
    inner = [each for child in children for each in (child if isinstance(child, tuple) else [child])]
    counted[node] = 1 + sum(_count_nodes(child, counted) for child in inner)
    if counted[node] > _MOST_NODES:
        message = f"with its aliases written out it has more than {_MOST_NODES} values"
        raise yaml.composer.ComposerError(None, None, message, node.start_mark)
    return counted[node]


def load_yaml(path: Path) -> Any:
    """Read a YAML file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds no YAML, a mapping has a key twice, or its aliases stand for very much.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except RecursionError as error:
        raise ValueError(f"{path} holds no YAML: brackets are nested too deeply in it") from error
    except (yaml.YAMLError, ValueError) as error:
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
            raise ValueError(f"{where} has {key!r:.200}; allowed are {', '.join(map(repr, kinds))}")
        check_kind(item, f"{where}.{key}", kinds[key])
    for key in required:
        if key not in value:
            raise ValueError(f"{where} lacks {key!r:.80}, which must be {_NAMES[kinds[key]]}")
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
    """Raise a ValueError unless `value` is of type `kind`, and the keys of a mapping are text."""
    allowed = (int, float) if kind is float else kind
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{where} is {value!r:.200}; it must be {_NAMES[kind]}")
    for key in value if kind is dict else ():
        if not isinstance(key, str):
            raise ValueError(f"{where} has the key {key!r:.80}; it must be text")
