"""Damage to files: to their bytes, and to the values in JSON and YAML."""

import json
import random

# A value in the place of another: numbers at the ends of their ranges, other types, empty and endless ones.
STRANGE = [
    *(0, 1, -1, 2, 3, 7, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 1e308, -1e308, 5e-324),
    *(0.5, -0.5, float("inf"), float("-inf"), float("nan"), True, False, None, "", "0", "1", "a", "ä\u2028\x00"),
    *("None", "../../x", "a" * 5000, "\ud800", [], [[]], [0], ["a"], [None], [-1], [2**63], {}, {"a": 1}, {"": None}),
]


def byte_damage(rng: random.Random, data: bytes) -> bytes:
    """One of the kinds of damage that a disk, a network or a careless editor does to a file."""
    place = rng.randrange(len(data)) if data else 0
    kind = rng.choice(["flip", "flip", "flip", "cut", "empty", "drop", "double", "noise", "zeros"])
    if kind == "flip" and data:
        return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
    if kind == "cut":
        return data[:place]
    if kind == "empty":
        return b""
    length = rng.randrange(1, 40)
    if kind == "drop":
        return data[:place] + data[place + length :]
    if kind == "double":
        return data[: place + length] + data[place:]
    filling = bytes(length) if kind == "zeros" else rng.randbytes(length)
    return data[:place] + filling + data[place + length :]


def json_damage(rng: random.Random, data: bytes) -> bytes:
    """Another value, or another name, somewhere in a file of JSON; now and then something that no value is."""
    if rng.random() < 0.05:
        return rng.choice([b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5000, b"[]", b"null", b"{}", b'"a"', data * 2])
    root = json.loads(data)
    holder, key = rng.choice(list(_places(root)))
    kind = rng.random()
    if kind < 0.7:
        holder[key] = strange_value(rng, holder[key])
    elif kind < 0.85 and isinstance(holder, dict):
        holder[_misspelt(rng, key)] = holder.pop(key)
    else:
        del holder[key]
    text = json.dumps(root, indent=2)
    # A number that is longer than Python reads.
    return (text.replace("1000000000000000000000000000000", "1" * 5000) if rng.random() < 0.2 else text).encode()


def strange_value(rng: random.Random, old: object) -> object:
    """A value that may or may not be allowed in the place of `old`."""
    near = []
    if isinstance(old, (int, float)) and not isinstance(old, bool):
        near = [-old, old + 1, old - 1, old * 2, str(old), float(old), [old], 10 * old]
    elif isinstance(old, str):
        near = [old.upper(), old[:-1], old + " ", [old]]
    elif isinstance(old, (list, dict)):
        near = [old and None, {"0": old}, [old]]
    return rng.choice(STRANGE + 4 * near)


def _places(node: object) -> list[tuple[object, object]]:
    """Every place of a value: the mapping or list that holds it, and its key there."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []
    # Of a long list or mapping, such as a vocabulary, the first and the last.
    keys = [*keys][:60] + [*keys][60:][-5:]
    for key in keys:
        yield node, key
        yield from _places(node[key])


def _misspelt(rng: random.Random, name: str) -> str:
    if not name:
        return "a"
    place = rng.randrange(len(name))
    return name[:place] + rng.choice(["", "x", name[place] * 2, name[place].upper()]) + name[place + 1 :]
