"""The built-in corpus, and the command `quickstart`, which goes from it to scores."""

import json
import os
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from hf_capsule_mt import METHODS, preset_config
from hf_capsule_mt.cli import quickstart
from hf_capsule_mt.quickstart import SIZE, read_corpus, write_corpus
from hf_capsule_mt.training.checkpoint_folders import checkpoints
from hf_capsule_mt.training.trainer import TranslationTrainer


def test_the_first_sentences():
    assert read_corpus(2) == [
        ("He tried to thank Maria.", "Er hat versucht, Maria zu danken."),
        ("Why did you stay in front of a museum?", "Warum bist du vor einem Museum geblieben?"),
    ]
    assert read_corpus(50) == read_corpus()[:50]


def test_english_is_distinct_and_sentences_are_written_like_sentences():
    corpus = read_corpus()
    assert len({english for english, _ in corpus}) == len(corpus) == SIZE
    for text in (text for pair in corpus for text in pair):
        assert text[0].isupper()
        assert text[-1] in ".?"
        assert "  " not in text
        assert " ," not in text
        assert 2 <= len(text.split()) <= 24


def test_written_parts_are_aligned_and_disjoint(tmp_path):
    folder = tmp_path / "new" / "corpus"
    write_corpus(folder, num_train=300, num_validation=20, num_test=30)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f"{part}.{language}" for part in ("train", "validation", "test") for language in ("en", "de")
    )
    lines = {path.name: path.read_text(encoding="utf-8").splitlines() for path in folder.iterdir()}
    parts = [list(zip(lines[f"{part}.en"], lines[f"{part}.de"])) for part in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [300, 20, 30]
    assert len(lines["test.de"]) == 30
    assert [pair for part in parts for pair in part] == read_corpus(350)


ROOT = Path(__file__).parents[2]
TRANSLATED = "  Where did you buy that coat?\n  -> Wo hast du diesen Mantel gekauft?\n"


class CorpusWritten(Exception):
    """Raised instead of writing the corpus."""


@pytest.fixture
def beginning(tmp_path, monkeypatch, capsys):
    """Return what the command prints before it writes the corpus."""

    def write(folder):
        raise CorpusWritten

    def printed():
        with pytest.raises(CorpusWritten):
            quickstart.main(["--output_dir", str(tmp_path / "quickstart")])
        return capsys.readouterr().out

    threads = torch.get_num_threads()
    monkeypatch.setattr(quickstart, "write_corpus", write)
    yield printed
    torch.set_num_threads(threads)


@pytest.fixture
def installed_as_a_wheel(tmp_path, monkeypatch):
    """Let the package lie in a folder without checkpoints."""
    module = tmp_path / "site-packages" / "hf_capsule_mt" / "cli" / "quickstart.py"
    monkeypatch.setattr(quickstart, "__file__", str(module))


@pytest.mark.parametrize("folder", ["clone", "elsewhere"])
def test_a_ready_model_of_the_clone_translates_first(beginning, tmp_path, monkeypatch, folder):
    monkeypatch.chdir(ROOT if folder == "clone" else tmp_path)
    assert TRANSLATED in beginning()


@pytest.mark.usefixtures("installed_as_a_wheel")
def test_a_wheel_finds_the_ready_model_in_the_folder_of_a_clone(beginning, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert TRANSLATED in beginning()

    monkeypatch.chdir(tmp_path)
    printed = beginning()
    assert TRANSLATED not in printed
    assert "no ready model" in printed


@pytest.mark.parametrize(("idle", "expected"), [(0.2, 1), (1.7, 2)])
def test_threads_for_the_processors_that_are_idle_now(beginning, monkeypatch, idle, expected):
    """Whatever the load of the last minute, in which an installation may have run."""
    torch.set_num_threads(2)
    monkeypatch.setattr(os, "getloadavg", lambda: (2.0, 2.0, 2.0) if expected > 1 else (0.0, 0.0, 0.0))
    monkeypatch.setattr(quickstart, "idle_processors", lambda: idle, raising=False)
    beginning()
    assert torch.get_num_threads() == expected


@pytest.mark.parametrize("option", [["--method", "nope"], ["--max_steps", "0"]])
def test_mistakes_leave_nothing(tmp_path, capsys, option):
    with pytest.raises(SystemExit) as exit_:
        quickstart.main(["--output_dir", str(tmp_path / "quickstart"), *option])
    assert exit_.value.code == 2
    assert f"argument {option[0]}: " in capsys.readouterr().err
    assert not (tmp_path / "quickstart").exists()


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """Run the command with a small corpus for so many updates."""
    few = partial(write_corpus, num_train=60, num_validation=4, num_test=4)
    monkeypatch.setattr(quickstart, "write_corpus", few)
    monkeypatch.setattr(quickstart, "VOCABULARY", 300)
    words = ["--output_dir", str(tmp_path), "--method", "capsnmt"]
    return lambda updates: quickstart.main([*words, "--max_steps", str(updates)])


@pytest.mark.slow
def test_the_whole_way(quick, tmp_path, capsys):
    quick(1)
    assert AutoConfig.from_pretrained(tmp_path / "model").model_type == "caps_nmt"
    output = capsys.readouterr().out
    assert "\n  -> " in output
    # The last line is typed as it is.
    command = output.rstrip().rpartition("\n")[2]
    assert quickstart.NEXT_SENTENCE in command
    next_step = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300)
    assert next_step.returncode == 0, next_step.stderr
    assert len(next_step.stdout.splitlines()) == 1


@pytest.mark.slow
def test_the_time_is_foretold(quick, monkeypatch, capsys):
    monkeypatch.setattr(quickstart, "TIMED", 1)
    quick(3)
    assert "1 updates are done. The other 2 take about " in capsys.readouterr().out


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_the_fields_that_are_overridden(method):
    fields = {}
    for override in quickstart.overrides(method):
        name, value = override.split("=")
        fields[name] = json.loads(value)
    config = preset_config(method, "tiny", **fields)
    assert config.dropout == 0.1


@pytest.mark.slow
@pytest.mark.parametrize("updates", [3, 2])
def test_sigterm(quick, tmp_path, monkeypatch, capsys, caplog, updates):
    """The same command continues. With another option it begins again."""
    training_step = TranslationTrainer.training_step

    def asked_to_end(self, *args, **kwargs):
        if self.state.global_step == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return training_step(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(TranslationTrainer, "training_step", asked_to_end)
        with pytest.raises(SystemExit, match="143"):
            quick(3)
    assert "Stopped by SIGTERM at update 1. The same command continues." in capsys.readouterr().err
    assert (tmp_path / "model" / "checkpoint-1").is_dir()
    quick(updates)
    assert (f"Resuming from {tmp_path}/model/checkpoint-1" in caplog.text) is (updates == 3)
    assert not checkpoints(tmp_path / "model")
    assert (tmp_path / "test.output.de").is_file()
