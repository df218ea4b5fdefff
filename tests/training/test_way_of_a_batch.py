"""Which files of the package a batch crosses, from its line of text to its loss."""

import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from tiny_run import arguments

import hf_capsule_mt
from hf_capsule_mt.cli.train import main
from hf_capsule_mt.training.trainer import TranslationTrainer

PACKAGE = f"{Path(hf_capsule_mt.__file__).parent}/"
LINE = "q w e r t y"
# Its words are letters, which begin at 3, and a sentence ends with 2.
TOKEN_IDS = [*(3 + ord(letter) - ord("a") for letter in LINE.split()), 2]


class Way:
    """The files whose functions return or yield the line, its token ids, or tensors made of them, in order."""

    def __init__(self):
        self.files = []
        self.ended = False

    def __call__(self, frame, event, value):
        path = frame.f_code.co_filename
        if event != "return" or self.ended or not path.startswith(PACKAGE):
            return
        file = path.removeprefix(PACKAGE)
        name = "modeling" if file.startswith("modeling") else file
        # Weights are tensors too, which are there before the line is read.
        is_batch = carries_text(value) or (bool(self.files) and carries_tensor(value))
        if is_batch and name not in self.files:
            self.files.append(name)
        self.ended = frame.f_code is TranslationTrainer.training_step.__code__


def carries_text(value):
    """Return whether a value holds the line or its token ids."""
    if isinstance(value, bytes):
        return LINE.encode() in value
    if isinstance(value, str):
        return LINE in value
    if isinstance(value, list | tuple):
        return list(value) == TOKEN_IDS or any(map(carries_text, value))
    return isinstance(value, Mapping) and any(map(carries_text, value.values()))


def carries_tensor(value):
    """Return whether a value is a tensor, or holds one."""
    if isinstance(value, list | tuple):
        return any(map(carries_tensor, value))
    if isinstance(value, Mapping):
        return any(map(carries_tensor, value.values()))
    return isinstance(value, torch.Tensor)


@pytest.fixture
def way():
    way = Way()
    before = sys.getprofile()
    # A stream is read in a thread.
    threading.setprofile(way)
    sys.setprofile(way)
    yield way
    sys.setprofile(before)
    threading.setprofile(before)


FILES = ["data/lines.py", "data/arrow_cache.py", "data/batching.py", "training/trainer.py", "modeling"]
FILES_OF_STREAM = ["data/lines.py", "data/streaming.py", "data/batching.py", "training/trainer.py", "modeling"]
STREAM = {"streaming": True, "max_source_length": 30, "max_target_length": 30}


@pytest.mark.parametrize(
    ("method", "options", "expected"),
    [("transformer", {}, FILES), ("em-routing", {}, FILES), ("em-routing", STREAM, FILES_OF_STREAM)],
    ids=["baseline", "routed", "stream"],
)
def test_a_batch_crosses_five_files(corpus, tmp_path, way, method, options, expected):
    texts = [tmp_path / "source", tmp_path / "target"]
    for file in texts:
        file.write_text(f"{LINE}\n" * 8)
    main(arguments(corpus, tmp_path / "run", method=method, train_file=texts, max_steps=1, **options))
    assert way.ended
    assert sorted(way.files) == sorted(expected)
