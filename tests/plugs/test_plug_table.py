"""The table of docs/integrations.md is well-formed, and every row of it has a test."""

import re
from pathlib import Path

import pytest
from plug_table import PAGE, TABLE

NOTES = dict(re.findall(r"^(\d)\. (.*(?:\n   .*)*)", PAGE, re.M))


def test_every_row_has_a_test():
    sources = [path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].glob("*/test_*.py")]
    tested = re.findall(r"@promised\((['\"])(.+?)\1[,)]", "\n".join(sources))
    assert {plug for _, plug in tested} == {plug for plug, cells in TABLE.items() if any(cells.values())}


@pytest.mark.parametrize("plug", TABLE)
def test_what_does_not_work_has_its_reason(plug):
    for cell in TABLE[plug].values():
        kind, note = re.fullmatch(r"(works|limited|upstream|)(?: \((\d)\))?", cell).groups()
        assert (note is not None) == (kind in ("limited", "upstream")), cell
        assert kind != "upstream" or "](https://" in NOTES[note]
        assert kind != "limited" or NOTES[note]
