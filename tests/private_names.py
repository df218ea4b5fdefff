"""Which private names of other libraries the package uses: read, called or overridden."""

import ast
import re
from importlib import import_module
from pathlib import Path

import hf_capsule_mt

PACKAGE = Path(hf_capsule_mt.__file__).parent
DOCUMENTED = {"_replace"}
"""Names that are only private to keep them apart from the fields of a named tuple."""

ASKING = {"getattr", "hasattr", "attrgetter", "pop", "import_module"}
"""Functions that are given names of attributes or modules."""


def is_private(name):
    return re.fullmatch(r"_[a-zA-Z]\w*", name) is not None


def read_names(tree):
    """Yield the names that code reads as attributes, imports, or names in a dictionary of attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Compare):
            yield from strings([node.left])
        elif isinstance(node, ast.Dict):
            yield from strings(node.keys)


def asked_names(tree):
    """Yield the names that code gives to `getattr` and the like. All of them are names of other libraries."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node) in ASKING:
            yield from strings(node.args)


def called(call):
    """Return the name of the function or method that a call calls."""
    return getattr(call.func, "id", None) or getattr(call.func, "attr", None)


def strings(nodes):
    """Yield the parts between dots of those nodes that are strings."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from node.value.split(".")


def defined_names(tree):
    """Yield the names that code defines: functions, classes, variables, parameters, and attributes of `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def body_names(definition):
    """Return the names that the body of a class defines."""
    names = set()
    for node in definition.body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets)
    return names


def is_foreign(kind):
    return kind.__module__.split(".")[0] not in (PACKAGE.name, "builtins")


def overridden_names(trees):
    """Return the names in bodies of classes that a class of another library has too: their base, or one of a mixin."""
    bodies = {}
    for path, tree in trees.items():
        module = import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                bodies[getattr(module, node.name)] = body_names(node)
    names = set()
    for kind, body in bodies.items():
        for user in bodies:
            if kind in user.__mro__:
                for base in filter(is_foreign, user.__mro__):
                    names |= body & vars(base).keys()
    return names


def used_names():
    """Return the private names that the package uses and another library defines."""
    paths = [path for path in PACKAGE.rglob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    trees = {path: ast.parse(path.read_text()) for path in paths}
    read, asked, defined = set(), set(), set()
    for tree in trees.values():
        read |= set(read_names(tree))
        asked |= set(asked_names(tree))
        defined |= set(defined_names(tree))
    foreign = read - defined - DOCUMENTED
    return set(filter(is_private, foreign | asked | overridden_names(trees)))


if __name__ == "__main__":
    print(*sorted(used_names()), sep="\n")
