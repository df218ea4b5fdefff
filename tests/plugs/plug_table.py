"""The table of docs/integrations.md: what is promised of each plug for each family."""

import re
from pathlib import Path

import pytest
from aggregated_models import aggregated, marian
from recurrent_models import recurrent

PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
FAMILIES = {
    "`MarianMTModel`": marian,
    "layer aggregation": lambda: aggregated("em_routing"),
    "head aggregation": lambda: aggregated("heads_em"),
    "guided": lambda: aggregated("gdr"),
    "RNMT": lambda: recurrent("rnmt"),
    "CapsNMT": lambda: recurrent("capsule"),
    "hybrid": lambda: recurrent("guided_hybrid"),
}
"""A tiny model of each column."""


def _rows():
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", PAGE, re.M)]
    [head, _, *rows] = lines[: next((i for i, cells in enumerate(lines) if len(cells) != len(lines[0])), len(lines))]
    assert head == ["plug", *FAMILIES]
    return {plug: dict(zip(FAMILIES, cells, strict=True)) for plug, *cells in rows}


TABLE = _rows()
"""The cells of each row, by column: "works", "limited (note)", "upstream (note)", or empty where there is nothing."""


def promised(plug, families=("guided", "CapsNMT", "hybrid")):
    """Mark a test to run with each of the `families`. Where a row says that the plug does not work, it must fail."""
    fails = pytest.mark.xfail(strict=True, reason="docs/integrations.md says so")
    cases = []
    for name, cell in TABLE[plug].items():
        marks = [] if cell == "works" else [fails]
        cases += [pytest.param(name, marks=marks)] if cell and name in families else []
    return pytest.mark.parametrize("family", cases)
