"""The page about faults of Transformers: each example shows its fault, or the page must change."""

import contextlib
import io

import pytest
import transformers
from code_blocks import blocks
from packaging.version import Version

PAGE = "docs/transformers_problems.md"


@pytest.mark.skipif(Version(transformers.__version__) < Version("5.24"), reason="the page is about Transformers 5.24")
@pytest.mark.filterwarnings("ignore")
def test_examples_print_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    expected = []
    printed = io.StringIO()
    for block in blocks(PAGE):
        for line in block.text.splitlines():
            if "print(" in line:
                # What follows a colon is an explanation.
                expected.append(line.partition("  # ")[2].partition(":")[0])
        with contextlib.redirect_stdout(printed):
            exec(compile(block.text, f"{PAGE}, line {block.line}", "exec"), names)
    assert printed.getvalue().splitlines() == expected
    assert len(expected) == 9
