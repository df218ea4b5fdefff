"""Feeds long texts to what reads users' texts, and prints what takes longer than a small multiple of their length.

It runs as a program of its own, so that nothing of a run of tests is stopped. A quadratic search needs hours for such a
text, so the limit of CPU seconds need not be tight.
"""

import ast
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from itertools import islice
from pathlib import Path

# The parser of expressions has no public name. Without it nothing could be derived from them.
from re import _constants, _parser
from statistics import median
from types import ModuleType
from typing import Any, NamedTuple

import regex
from cpu_limit import seconds
from texts_without_end import LONG, SHORT, UNITS, filled

import hf_capsule_mt

_SUSPICIOUS = 8
"""Texts of `SHORT` characters that take so many times as long as the median are tried at full length, too."""
_PREFIXES = 16
"""The most beginnings that are derived from one expression."""
_ENDING = "\x7f"
"""Behind each text, for a search that fails at its end takes longest: `\\s+$` is linear for white space alone."""
_KEPT = ("KEEP", "ADDRESSES")
"""How the names of expressions end that stand in the package as strings."""
_SCANS = ("match", "fullmatch", "search", "finditer", "findall", "sub", "split")
NOT_COLLECTED = {
    ("analysis.routing_report", "_save_figures"): "titles of the report itself",
    ("cli.options.train_options", "_sort_into_groups"): "names of options",
    ("cli.options.translate_options", "_share"): "an option of a command",
    ("data.corpus_files", "_matched"): "names of files, which are short",
    ("data.shortlists", "shortlist_of_script"): "tokens of a vocabulary, against one class of characters",
    ("training.checkpoint_folders", "step_of"): "names of folders",
    ("translation.formats.placeholders", "_without_sign"): "one sign, in possessive repetitions",
    ("translation.formats.placeholders", "_without_signs"): "at most a hundred placeholders, without repetitions",
    ("translation.tags.writer", "_free_copies"): "one word, without repetitions",
    ("translation.tags.writer", "_is_across"): "one kept part, without repetitions",
    ("translation.text.words", "keep_pattern"): "what the user asks for",
    ("translation.text.words", "with_addresses"): "the same, and addresses, which placeholders have",
    ("translation.tags.markup", "_tag"): "the end of a script, which stops the reading if it is missing",
    ("translation.quality.signals", "_word_of"): "words between spaces",
    ("translation.quality.report_page", "_found"): "one part of a text, without repetitions",
}
"""Functions that write an expression into their code, and what they read. All others are at the top of a module."""
NOT_FED = {"hf_capsule_mt.translation.formats.json_messages._PART": "read as JSON before, so that each string ends"}
"""Expressions that are linear only for what comes to them. The readers are fed with it."""


class Expression(NamedTuple):
    """An expression of the package, where it is, and the methods that read texts with it."""

    name: str
    pattern: Any
    methods: list[str]


def modules() -> Iterator[ModuleType]:
    """Yield the modules of the package that can be imported here."""
    for module in pkgutil.walk_packages(hf_capsule_mt.__path__, "hf_capsule_mt."):
        if module.name.endswith("__main__"):
            continue
        try:
            # Some libraries print when they are imported.
            with redirect_stdout(sys.stderr):
                imported = importlib.import_module(module.name)
            yield imported
        except ImportError as error:
            # An extra is not installed.
            print(f"{module.name}: {error}", file=sys.stderr)


def expressions() -> Iterator[Expression]:
    """Yield the expressions at the top of all modules, in containers too, and those that formats keep parts with."""
    seen = set()
    for module in modules():
        source = Path(module.__file__).read_text()
        for name, value in vars(module).items():
            for pattern in _patterns(name, value):
                # Other modules import it, and it is fed once.
                known = {method for method in _SCANS if (pattern, method) in seen}
                methods = [method for method in _methods(name, source) if method not in known]
                if methods:
                    seen.update((pattern, method) for method in methods)
                    yield Expression(f"{module.__name__}.{name}", pattern, methods)


def _patterns(name: str, value: object) -> Iterator[Any]:
    if isinstance(value, re.Pattern | regex.Pattern):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _patterns(name, item)
    elif isinstance(value, dict):
        yield from _patterns(name, list(value.values()))
    elif isinstance(value, str) and name.endswith(_KEPT):
        # What is kept is compiled where a text is translated.
        yield regex.compile(value)


def _methods(name: str, source: str) -> list[str]:
    """Return the methods that a module calls on an expression. Parts to keep are found elsewhere."""
    if name.endswith(_KEPT):
        return ["finditer"]
    methods = [method for method in _SCANS if re.search(rf"\b{name}\.{method}\b", source)]
    if not methods and re.search(rf"\b{name}\b", source):
        # It is called through another name, or in another module.
        methods = ["match", "finditer"]
    return methods


def call(pattern: Any, method: str, text: Any) -> object:
    """Read a whole text with one method of an expression."""
    if isinstance(pattern.pattern, bytes):
        text = text.encode()
    if method == "finditer":
        return sum(1 for _ in pattern.finditer(text))
    if method == "sub":
        return pattern.sub(text[:0], text)
    return getattr(pattern, method)(text)


def beginnings(pattern: Any) -> list[str]:
    """Return the beginnings of texts that an expression matches, which it waits to be ended."""
    expression = pattern.pattern
    if isinstance(expression, bytes):
        expression = expression.decode("latin-1")
    # What only the other library has.
    expression = re.sub(r"\\p\{(?:M|P)\}", "!", re.sub(r"\\[pP]\{[^{}]*\}", r"\\w", expression))
    flags = pattern.flags & (re.VERBOSE | re.DOTALL | re.IGNORECASE)
    parsed = _parser.parse(expression, flags)
    found: dict[str, None] = {}
    for example in islice(_examples(parsed), 30):
        for end in range(1, len(example) + 1):
            found.setdefault(example[:end])
    step = max(1, len(found) // _PREFIXES)
    return list(found)[::step]


def _examples(parsed: Any) -> Iterator[str]:
    """Yield texts that an expression matches, one for each of its alternatives."""
    yield from _joined(list(parsed))


def _joined(items: list) -> Iterator[str]:
    """Yield the texts of items one behind the other. All ways of one item go with the first way of the others."""
    ways = [list(islice(_of_item(item), 12)) or [""] for item in items]
    first = [way[0] for way in ways]
    yield "".join(first)
    for number, way in enumerate(ways):
        for other in way[1:]:
            yield "".join([*first[:number], other, *first[number + 1 :]])


def _of_item(item: tuple) -> Iterator[str]:
    operation, value = item
    if operation is _constants.LITERAL:
        yield chr(value)
    elif operation is _constants.NOT_LITERAL:
        yield "b" if value == ord("a") else "a"
    elif operation is _constants.ANY:
        yield "a"
    elif operation is _constants.IN:
        yield from _of_class(value)
    elif operation is _constants.BRANCH:
        for branch in value[1]:
            yield from _joined(list(branch))
    elif operation is _constants.SUBPATTERN:
        yield from _joined(list(value[-1]))
    elif operation is _constants.ATOMIC_GROUP:
        yield from _joined(list(value))
    elif operation in (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT):
        least, _, repeated = value
        for text in _joined(list(repeated)):
            yield text * max(1, min(least, 9))
    # Of what is only looked at, and of places, nothing stays.


def _of_class(members: list) -> Iterator[str]:
    is_without = members[0][0] is _constants.NEGATE
    if is_without:
        excluded = regex.compile("[" + "".join(_written(member) for member in members[1:]) + "]")
        yield next((character for character in "a1 <_.é" if not excluded.match(character)), "")
        return
    for kind, value in members:
        if kind is _constants.LITERAL:
            yield chr(value)
        elif kind is _constants.RANGE:
            yield chr(value[0])
        elif kind is _constants.CATEGORY:
            yield {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " "}.get(str(value), "a")


def _written(member: tuple) -> str:
    kind, value = member
    if kind is _constants.LITERAL:
        return re.escape(chr(value))
    if kind is _constants.RANGE:
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    names = {"DIGIT": r"\d", "NOT_DIGIT": r"\D", "SPACE": r"\s", "NOT_SPACE": r"\S", "WORD": r"\w", "NOT_WORD": r"\W"}
    return names[str(value).removeprefix("CATEGORY_").removeprefix("UNI_")]


def written_in_functions() -> set[tuple[str, str]]:
    """Return the modules and functions that write an expression into their code."""
    found = set()
    root = Path(hf_capsule_mt.__file__).parent
    for path in root.rglob("*.py"):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
                if any(map(_reads_with_expression, calls)):
                    found.add((module, function.name))
    return found


def _reads_with_expression(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return False
    return function.value.id in ("re", "regex") and function.attr in (*_SCANS, "compile", "subn")


def texts_for(pattern: Any) -> Iterator[tuple[str, str]]:
    """Yield beginnings and what is repeated behind them, for texts that may take an expression long."""
    seen = set()
    for unit in UNITS:
        seen.add(("", unit))
    for beginning in beginnings(pattern):
        seen.add(("", beginning))
        for length in (1, 2):
            seen.add((beginning, beginning[-length:]))
    yield from sorted(seen)


def check_expressions() -> None:
    """Print the expressions that take too long for a text."""
    for name, pattern, methods in expressions():
        if name in NOT_FED:
            continue
        for method in methods:
            _check_expression(f"{name}.{method}", pattern, method)


def _check_expression(name: str, pattern: Any, method: str) -> None:
    times: dict[tuple[str, str], float] = {}
    for beginning, unit in texts_for(pattern):
        text = filled(beginning, unit, SHORT) + _ENDING
        taken = seconds(partial(call, pattern, method, text))
        if taken is None:
            print(f"{name} {beginning!r} + {unit!r} * n, {SHORT} characters", flush=True)
            return
        times[beginning, unit] = taken
    slowest = sorted(times, key=times.__getitem__, reverse=True)
    usual = max(median(times.values()), 3e-3)
    for number, (beginning, unit) in enumerate(slowest):
        if number and times[beginning, unit] < _SUSPICIOUS * usual:
            break
        text = filled(beginning, unit, LONG) + _ENDING
        taken = seconds(partial(call, pattern, method, text))
        if taken is None:
            print(f"{name} {beginning!r} + {unit!r} * n", flush=True)
            return


if __name__ == "__main__":
    check_expressions()
