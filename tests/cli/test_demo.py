"""The command `demo`: mistakes, checkpoints that change, and the same page as a Space."""

import json
import runpy
import shutil
from functools import partial
from pathlib import Path

import pytest
from opus_mt import save_opus_mt

from hf_capsule_mt.cli import demo
from hf_capsule_mt.cli.demo import build_demo, main

ROOT = Path(__file__).parents[2]
CHECKPOINT = ROOT / "checkpoints" / "tatoeba-en-de-em-routing"


def test_who_can_choose_other_checkpoints(monkeypatch):
    seen = []
    monkeypatch.setattr(demo, "build_demo", lambda models, **options: seen.append(options["fixed_models"]))
    monkeypatch.setattr("hf_capsule_mt.analysis.demo_page.launch_page", lambda page, host, port: seen.append(host))
    for host in ("", "0.0.0.0"):
        monkeypatch.setenv("GRADIO_SERVER_NAME", host)
        main(["--models", str(CHECKPOINT)])
    assert seen == [False, "127.0.0.1", True, "0.0.0.0"]
    main(["--host", "localhost"])
    assert seen[4:] == [False, "localhost"]
    for words in (["--host", "example"], ["--fixed_models"]):
        monkeypatch.setattr(demo, "build_demo", build_demo)
        with pytest.raises(SystemExit, match="2"):
            main(words)


def test_a_broken_checkpoint_is_told_on_the_page(tmp_path, monkeypatch):
    from hf_capsule_mt.analysis import demo_page as page

    monkeypatch.setattr(page, "build_page", lambda models, load, *_, **__: load)
    cut, other = (shutil.copytree(CHECKPOINT, tmp_path / name) for name in ("cut", "other"))
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:-4])
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "vocab_size": config["vocab_size"] + 1}))
    load = build_demo([str(cut), str(other)], device="cpu")
    assert page.answer(load, str(cut), "a b").problem
    assert page.answer(load, str(other), "a b").problem


def test_a_checkpoint_that_is_saved_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("hf_capsule_mt.analysis.demo_page.build_page", lambda models, load, *_, **__: load)
    load = build_demo([run := str(shutil.copytree(CHECKPOINT, tmp_path / "run"))], device="cpu")
    model = load(run)[0]
    assert load(run)[0] is model
    model.save_pretrained(run)
    assert load(run)[0] is not model


@pytest.mark.parametrize("form", ["2020", "2022"])
def test_plain_opus_mt_in_pickled_weights(tmp_path, monkeypatch, form):
    from hf_capsule_mt.analysis import demo_page as page

    folder = str(save_opus_mt(form, tmp_path / form))
    build_demo([folder], device="cpu")
    updates = page._respond(partial(page.answer, demo._loader("cpu")), folder, ">>de<< a dog", None)
    assert not updates[0]["visible"], updates[0]["value"]
    assert "no routing" in updates[3]["value"]
    assert updates[3]["visible"]


def test_as_a_space(monkeypatch):
    pages = []
    monkeypatch.setattr("hf_capsule_mt.analysis.demo_page.launch_page", pages.append)
    monkeypatch.setenv("MODELS", str(CHECKPOINT))
    runpy.run_path(str(ROOT / "space" / "app.py"), run_name="__main__")
    assert len(pages) == 1
