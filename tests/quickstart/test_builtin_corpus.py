"""The built-in corpus, and the command `quickstart`, which goes from it to scores."""

import os
import signal
import subprocess
from functools import partial

import pytest
from transformers import AutoConfig

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


class CorpusWritten(Exception):
    """Raised instead of writing the corpus."""


@pytest.mark.parametrize("is_clone", [True, False])
def test_a_ready_model_translates_first(tmp_path, monkeypatch, capsys, is_clone):
    def write(folder):
        raise CorpusWritten

    monkeypatch.setattr(quickstart, "write_corpus", write)
    if not is_clone:
        monkeypatch.setattr(quickstart, "READY_MODEL", tmp_path / "checkpoints")
    with pytest.raises(CorpusWritten):
        quickstart.main(["--output_dir", str(tmp_path / "quickstart")])
    translated = "  Where did you buy that coat?\n  -> Wo hast du diesen Mantel gekauft?\n"
    assert (translated in capsys.readouterr().out) is is_clone


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
