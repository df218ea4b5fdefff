"""The command that makes probing tasks: files, records, and what it refuses."""

import gzip
import hashlib
import json
import random

import pytest

from benchmarks.probing.data import find_tasks, read_probing_data
from benchmarks.probing.generate import main
from benchmarks.probing.generators import GENERATED

SIZES = ["--num_train", "60", "--num_validation", "12", "--num_test", "12", "--num_words", "3"]


@pytest.fixture
def text(tmp_path):
    """300 sentences of 3 to 14 words of four letters."""
    rng = random.Random(0)
    words = [f"{first}{second}xx" for first in "bcdfg" for second in "aeiou"]
    path = tmp_path / "text.en.gz"
    lines = (" ".join(rng.choices(words, k=rng.randint(3, 14))) for _ in range(300))
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return path


def generate(text, folder, *options):
    main(["--text_file", str(text), "--data_dir", str(folder), *SIZES, *options])


def test_files_and_records(text, tmp_path, capsys):
    folder = tmp_path / "new" / "probing"
    generate(text, folder, "--seed", "5")
    assert sorted(file.name for file in folder.iterdir()) == sorted(
        f"{name}.{ending}" for name in GENERATED for ending in ("txt", "json")
    )
    assert [task.name for task in find_tasks(folder)] == list(GENERATED)
    printed = capsys.readouterr().out.splitlines()
    for name, line in zip(GENERATED, printed, strict=True):
        data = read_probing_data(folder / f"{name}.txt")
        assert [len(split) for split in data.splits.values()] == [60, 12, 12]
        record = json.loads((folder / f"{name}.json").read_text())
        assert line == f"{folder}/{name}.txt: 60 + 12 + 12 sentences, {len(data.labels)} classes; {record['choice']}"
        assert record["settings"]["seed"] == 5
        assert record["text_sha256"] == hashlib.sha256(gzip.decompress(text.read_bytes())).hexdigest()
        assert record["environment"]["packages"]["hf-capsule-mt"]


def test_some_of_the_tasks(text, tmp_path):
    generate(text, tmp_path / "probing", "--tasks", "bigram_shift")
    assert {file.name for file in (tmp_path / "probing").iterdir()} == {"bigram_shift.txt", "bigram_shift.json"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tasks", "bigram_shift", "tree_depth"], "unknown task 'tree_depth'; from plain text there are"),
        (["--num_words", "1"], "num_words is 1; it must be at least 2"),
        (["--num_test", "0"], "num_test is 0; it must be at least 1"),
        (["--num_train", "6000"], "sentence_length: the text gives"),
        (["--text_file", "absent.en"], "--text_file names absent.en, which is not a file"),
    ],
)
def test_mistakes_leave_no_file(text, tmp_path, capsys, options, message):
    with pytest.raises(SystemExit) as exit_:
        generate(text, tmp_path / "probing", *options)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "probing").exists()


def test_a_file_is_not_replaced(text, tmp_path, capsys):
    file = tmp_path / "bigram_shift.txt"
    file.write_text("SentEval's own")
    with pytest.raises(SystemExit):
        generate(text, tmp_path)
    assert f"{file} is there already; delete it, or name another --data_dir" in capsys.readouterr().err
    assert file.read_text() == "SentEval's own"
    assert {path.name for path in tmp_path.iterdir()} == {text.name, file.name}
