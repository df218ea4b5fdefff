"""Every block of code of the README and of the documentation runs, or says why it cannot."""

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from code_blocks import NEEDS, PAGES, ROOT, blocks, commands, run_command
from huggingface_hub import constants
from loopback_hub import TOKEN

from hf_capsule_mt.configuration import presets
from hf_capsule_mt.modeling import aggregation, routing, streams

RUN = {"bash", "python", "yaml"}
# Equations, references, settings of other programs, lines of a log, and code that needs packages of node.
NOT_RUN = {"math", "bibtex", "nginx", "ini", "text", "javascript"}
# Of the models of size "tiny" that pages make: what takes seconds, and has all that the pages look at.
LEAST = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 1}


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_known(page):
    for block in blocks(page):
        assert block.language in {*RUN, *NOT_RUN}, (
            f"{page}:{block.line} is neither code that runs nor one of the languages that are only shown"
        )
        assert block.needs is None or block.needs in NEEDS, f"{page}:{block.line}: {block.needs}"
        if block.language == "bash" and block.needs is None:
            assert all(
                words[0] in {"hf-capsule-mt", "python", "accelerate", "torchrun"} for words in commands(block.text)
            )


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if any(block.language in RUN for block in blocks(page))])
def test_blocks_run_in_order(page, prepared, tmp_path, hub, monkeypatch, capsys):
    folder = tmp_path / "reader"
    shutil.copytree(prepared, folder)
    (folder / "checkpoints").symlink_to(Path(__file__).parents[2] / "checkpoints")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "home"))
    for sizes in presets._SIZES.values():
        smaller = {name: value for name, value in LEAST.items() if name in sizes["tiny"]}
        monkeypatch.setitem(sizes, "tiny", sizes["tiny"] | smaller)
    # A tutorial adds modules with algorithms, which other tests do not know.
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setitem(routing.ROUTINGS, "cosine_routing", None)
    monkeypatch.setitem(aggregation.COMBINATIONS, "scaled_maximum", None)
    monkeypatch.setitem(streams.STREAMS, "kept", None)
    for module in ("my_routing", "my_aggregation", "my_stream"):
        monkeypatch.setitem(sys.modules, module, None)
        del sys.modules[module]
    # A study runs its commands in processes of their own, of which each would import everything anew.
    monkeypatch.setattr("benchmarks.studies.run.run_command", partial(_run_step, monkeypatch))
    # Other tests look at what is drawn.
    monkeypatch.setattr("hf_capsule_mt.analysis.routing_report.save_figure", lambda figure, path: path.touch())
    names = {"__name__": "__main__"}
    for block in blocks(page):
        if block.needs is None and block.language in RUN:
            _run(block, names, folder, hub, monkeypatch)
    if "user/name" in hub.repositories:
        card = hub.repositories["user/name"].files["README.md"].decode()
        assert "license: apache-2.0" in card or "license: cc-by-4.0" in card
    assert TOKEN not in "".join(capsys.readouterr())


def test_the_algorithm_of_the_contributors_guide():
    code = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("```python\n")[1].partition("```")[0]
    names = {**vars(routing), "ROUTINGS": {}}
    exec(dedent(code), names)
    routed = names["uniform_routing"](torch.ones(4, 2, 8, dtype=torch.bfloat16), return_all_coefficients=True)
    assert routed.capsules.dtype == torch.bfloat16
    assert routed.all_coefficients.shape == (3, 4, 2)


def test_the_notebook_has_the_code_of_its_page():
    cells = json.loads((ROOT / "docs" / "tutorials" / "translate.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [
        "".join(cell["source"]).replace("!hf-capsule-mt", "hf-capsule-mt")
        for cell in cells
        if cell["cell_type"] == "code"
    ]
    page = blocks("docs/tutorials/translate.md")
    assert [block.text.rstrip("\n") for block in page] == [text for text in code if "pip install" not in text]


def _run(block, names, folder, hub, monkeypatch):
    code = block.smaller
    if block.title is not None:
        # What has the name of a file above is appended to it.
        with (folder / block.title).open("a") as file:
            file.write(code)
    elif block.language == "bash":
        for words in commands(code):
            run_command(words, monkeypatch)
    else:
        if "user/name" in code:
            code = code.replace('"COMMIT"', repr(hub.repositories["user/name"].branches["main"]))
        # tests/hub/test_travelling.py loads models where there is no package.
        exec(compile(code, f"{block.page}, block at line {block.line}", "exec"), names)


def _run_step(monkeypatch, words, *others):
    if words[0] != "accelerate":
        words = ["torchrun", *words[1:]]
    run_command(words, monkeypatch)
    return 0
