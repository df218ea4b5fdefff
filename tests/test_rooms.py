"""The rooms of the package know only lower rooms: also where a module is named in a string."""

import ast
from pathlib import Path

import pytest

import hf_capsule_mt

PACKAGE = Path(hf_capsule_mt.__file__).parent
NAME = PACKAGE.name
# From the lowest to the highest. Rooms of one line do not know each other.
ORDER = [
    {"configuration"},
    {"modeling"},
    {"decoding"},
    {"data"},
    {"translation"},
    {"evaluation"},
    # A run writes a card.
    {"hub"},
    {"training", "analysis", "serving"},
    {"cli"},
]
LEVELS = {room: level for level, rooms in enumerate(ORDER) for room in rooms}


def imported_modules(path):
    """Return the absolute names of all modules that a file imports, at the top or inside functions, or as a string."""
    folder = [NAME, *path.relative_to(PACKAGE).parts[:-1]]
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = folder[: len(folder) + 1 - node.level] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            names |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names


def imported_rooms(path):
    parts = [name.split(".") for name in imported_modules(path) if name.startswith(f"{NAME}.")]
    return {part[1] for part in parts if part[1] in LEVELS}


@pytest.mark.parametrize("room", sorted(LEVELS))
def test_a_room_knows_only_lower_rooms(room):
    wrong = []
    for path in sorted((PACKAGE / room).rglob("*.py")):
        for other in sorted(imported_rooms(path) - {room}):
            if LEVELS[other] >= LEVELS[room]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {other}")
    assert not wrong


def test_a_module_in_a_string_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    (tmp_path / "file.py").write_text(f"import_module('{NAME}.hub.source')\nfrom .data import reading\n")
    assert imported_rooms(tmp_path / "file.py") == {"hub", "data"}


def test_no_two_classes_share_a_name():
    """Whoever searches for a class finds one."""
    places = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert not {name: files for name, files in places.items() if len(files) > 1}
