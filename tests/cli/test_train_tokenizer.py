import json

import pytest
from transformers import AutoTokenizer

from hf_capsule_mt.cli.train_tokenizer import main

ENGLISH = ["the old house", "two dogs", "", "the green house"]
GERMAN = ["das alte Haus", "zwei Hunde", "nichts", "das grüne Haus"]


@pytest.fixture
def files(tmp_path):
    for name, lines in (("train.en", ENGLISH), ("train.de", GERMAN)):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = [{"translation": {"en": source, "de": target}} for source, target in zip(ENGLISH, GERMAN)]
    (tmp_path / "hub").mkdir()
    for name in ("train.jsonl", "hub/train.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return tmp_path


def run(*arguments):
    main([str(argument) for argument in arguments])


def error_of(capsys, *arguments):
    with pytest.raises(SystemExit) as failure:
        run(*arguments)
    assert failure.value.code == 2
    return capsys.readouterr().err


def test_trains_saves_and_reports(files, capsys):
    output = files / "new" / "tokenizer"
    run("--train_file", files / "train.en", files / "train.de", "--vocab_size", 280, "--output_dir", output)
    assert capsys.readouterr().out == (
        "4 pairs read, 3 kept, 1 dropped with an empty side, 0 dropped as invalid UTF-8\n"
        f"280 tokens saved in {output}\n"
    )
    tokenizer = AutoTokenizer.from_pretrained(output)
    assert len(tokenizer) == 280
    assert tokenizer.decode(tokenizer("grüne dogs")["input_ids"]) == "grüne dogs</s>"
    assert sorted(file.name for file in output.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]


def test_every_kind_of_data_gives_the_same_tokenizer(files):
    data = {
        "text": ["--train_file", files / "train.en", files / "train.de"],
        "jsonl": ["--train_file", files / "train.jsonl"],
        "hub": ["--dataset_name", files / "hub"],
    }
    for name, arguments in data.items():
        languages = ["--source_lang", "en", "--target_lang", "de"]
        run(*arguments, *languages, "--vocab_size", 280, "--output_dir", files / f"of_{name}")
    assert len({(files / f"of_{name}" / "tokenizer.json").read_text() for name in data}) == 1


def test_refuses_to_overwrite(files, capsys):
    arguments = ["--train_file", files / "train.en", files / "train.de", "--output_dir", files / "tokenizer"]
    run(*arguments, "--vocab_size", 280)
    before = (files / "tokenizer" / "tokenizer.json").read_text()
    error = error_of(capsys, *arguments, "--vocab_size", 270)
    assert f"--output_dir {files / 'tokenizer'} is not empty" in error
    assert "--overwrite_output_dir" in error
    assert (files / "tokenizer" / "tokenizer.json").read_text() == before
    (files / "tokenizer" / "model.safetensors").touch()
    run(*arguments, "--vocab_size", 270, "--overwrite_output_dir")
    assert len(AutoTokenizer.from_pretrained(files / "tokenizer")) == 270
    assert (files / "tokenizer" / "model.safetensors").exists()


MISTAKES = {
    "no such file": (["--train_file", "gone.en", "train.de"], "No such file or directory: 'gone.en'"),
    "no languages": (["--train_file", "train.jsonl"], "train.jsonl needs two different names"),
    "too small": (["--train_file", "train.en", "train.de", "--vocab_size", "100"], "vocab_size is 100"),
    "no languages of a data set": (["--dataset_name", "hub"], "--dataset_name hub needs two different names"),
    "no data": ([], "one of the arguments --train_file --dataset_name is required"),
}


@pytest.mark.parametrize(("arguments", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_one_line_and_leave_nothing(files, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(files)
    error = error_of(capsys, *arguments, "--output_dir", "tokenizer")
    assert words in error.splitlines()[-1]
    assert not (files / "tokenizer").exists()


def test_nothing_is_left_of_an_older_tokenizer(files):
    output = files / "tokenizer"
    output.mkdir()
    (output / "special_tokens_map.json").write_text('{"eos_token": "<eos>", "pad_token": "[PAD]"}')
    (output / "added_tokens.json").write_text('{"<eos>": 10000, "[PAD]": 10001}')
    data = ["--train_file", files / "train.en", files / "train.de", "--vocab_size", 280]
    run(*data, "--output_dir", output, "--overwrite_output_dir")
    assert AutoTokenizer.from_pretrained(output).eos_token == "</s>"
    assert sorted(file.name for file in output.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
