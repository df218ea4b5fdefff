"""The source that a checkpoint carries: what its models and the pipeline need of this package, in one flat
folder.

Transformers loads remote code from a folder without subfolders, in which every import of a sibling is `from .name`.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ..version import __version__

IN_PACKAGE = True

_PACKAGE = Path(__file__).parents[1]
_PIPELINE = "translation/pipeline_translation.py"
_THIS = "configuration/source.py"
_RELATIVE_IMPORT = re.compile(r"^( *)from (\.+)([\w.]*) import", flags=re.MULTILINE)
_LICENCE = """\
# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
"""
_SOURCE_OF_A_CHECKPOINT = '''\
"""The source that this checkpoint carries, for saving it again."""

from pathlib import Path

IN_PACKAGE = False
FILES = (
{files}
)


def source_files(modules: frozenset[str]) -> dict[str, str]:
    """The text of every file of the source, by its name; `modules` are those it was written for."""
    return {{name: (Path(__file__).parent / name).read_text(encoding="utf-8") for name in FILES}}


def _never_called() -> None:
    # Transformers fetches what a file imports, and saving again needs every file.
{imports}
'''


@cache
def source_files(modules: frozenset[str]) -> dict[str, str]:
    """The text of every file that `modules` and the pipeline need; the same bytes for the same version.

    Args:
        modules: exported names of one family, such as `modeling_capsule_aggregated_marian`.

    Returns:
        The texts by the names of the files.
    """
    own = list(map(_path, modules))
    paths = sorted(_closure([_PIPELINE, *own]))
    files = {_flat_name(path): _flatten(path) for path in paths if path != _THIS}
    return {**files, _flat_name(_THIS): _source_of_a_checkpoint([_flat_name(path) for path in paths])}


def _closure(roots: list[str]) -> set[str]:
    """The roots, the files of the package that they import, those that these import, and so on."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            # What this file imports stays at home: another of its name travels.
            waiting += _imported(path) if path != _THIS else []
    return found


def _imported(path: str) -> Iterator[str]:
    for match in _RELATIVE_IMPORT.finditer(_read(path)):
        yield _target(path, *match.group(2, 3))


def _target(path: str, dots: str, name: str) -> str:
    """The file that `from <dots><name> import` means in the file at `path`."""
    folder = Path(path).parents[len(dots) - 1]
    return folder.joinpath(*name.split(".")).with_suffix(".py").as_posix()


def _flat_name(path: str) -> str:
    room, _, name = path.rpartition("/")
    return name if name.startswith(f"{room}_") else path.replace("/", "_")


def _path(module: str) -> str:
    """The file of an exported module: its room is what its name begins with."""
    own = f"{module.partition('_')[0]}/{module}.py"
    return own if (_PACKAGE / own).exists() else f"{module.replace('_', '/', 1)}.py"


def _flatten(path: str) -> str:
    def flat(match: re.Match) -> str:
        target = _target(path, *match.group(2, 3))
        return f"{match.group(1)}from .{_flat_name(target).removesuffix('.py')} import"

    return _header(path) + _RELATIVE_IMPORT.sub(flat, _read(path).removeprefix(_LICENCE))


def _source_of_a_checkpoint(names: list[str]) -> str:
    files = "\n".join(f'    "{name}",' for name in names)
    others = [name.removesuffix(".py") for name in names if name != _flat_name(_THIS)]
    imports = "\n".join(f"    from .{name} import __doc__ as _" for name in others)
    return _header(_THIS) + _SOURCE_OF_A_CHECKPOINT.format(files=files, imports=imports)


def _header(path: str) -> str:
    return f"{_LICENCE}# From hf-capsule-mt {__version__}, hf_capsule_mt/{path}.\n"


def _read(path: str) -> str:
    return (_PACKAGE / path).read_text(encoding="utf-8")
