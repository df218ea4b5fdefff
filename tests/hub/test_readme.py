"""The README's section on sharing is followed word for word, against a Hub on loopback."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from elsewhere import run_elsewhere
from loopback_hub import TOKEN, serve
from tiny_run import arguments, files, write_corpus

ROOT = Path(__file__).parents[2]


def blocks(section, language):
    """The code of a section of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {section}\n(.*?)^## ", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(rf"^```{language}\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path):
    """What the reader has by then: a run, an average, and the commands."""
    from hf_capsule_mt.cli import average_checkpoints, evaluate, train

    corpus = write_corpus(tmp_path)
    options = {"validation_file": files(corpus, "validation"), "save_strategy": "steps", "save_steps": 1}
    train.main(arguments(corpus, tmp_path / "run", **options))
    average_checkpoints.main(
        ["--run_dir", str(tmp_path / "run"), "--last", "2", "--output_dir", str(tmp_path / "run" / "average")]
    )
    references = str(files(corpus, "validation")[1])
    scored = [
        "--hypotheses",
        references,
        "--references",
        references,
        "--output_file",
        str(tmp_path / "run" / "test.json"),
    ]
    evaluate.main(scored)
    return tmp_path


@pytest.mark.slow
def test_share_a_model(folder):
    (commands,) = blocks("Share a model", "bash")
    login, *commands = commands.splitlines()
    assert login == "hf auth login"
    with serve() as hub:
        settings = hub.environment(folder / "home")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, **settings, "PATH": path, "OMP_NUM_THREADS": "1"}
        printed = ""
        for command in commands:
            done = subprocess.run(
                ["bash", "-c", command], env=environment, cwd=folder, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            printed += done.stdout
        commit = hub.repositories["user/name"].branches["main"]
        assert commit in printed
        assert "value: 100.0" in hub.repositories["user/name"].files["README.md"].decode()
        assert "license: apache-2.0" in hub.repositories["user/name"].files["README.md"].decode()

        with_transformers, with_the_package = (
            code.replace('"COMMIT"', repr(commit)) for code in blocks("Share a model", "python")
        )
        assert commit in with_transformers
        assert commit in with_the_package
        (folder / "elsewhere").mkdir()
        run_elsewhere(with_transformers, folder / "elsewhere", hub.environment(folder / "elsewhere" / "home"))
        command = [sys.executable, "-c", with_the_package]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert json.loads((folder / "run" / "run_record.json").read_text())["updates"] == 2
    assert TOKEN not in printed
