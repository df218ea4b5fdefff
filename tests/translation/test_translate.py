"""The translation command: files and pipes, several processes, continuing after an interruption, mistakes."""

import gzip
import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock
from forked_commands import end, run, run_both, start
from interrupted_translation import interrupt_after
from tiny_marian import save_tiny_marian, tiny_model, tiny_tokenizer
from transformers import BertConfig

from hf_capsule_mt.cli import translate as command
from hf_capsule_mt.cli import translation_worker
from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.data.parallel_text import read_lines
from hf_capsule_mt.translation.translator import translate_lines

SCRIPT = Path(__file__).parents[2] / "scripts" / "translate.py"
LINES = ["a b c d e f", "", "g h", "i j k l m n o p", "q", "  ", "r s t", "u v w x y z a b c"]
OPTIONS = ["--num_beams", "3", "--max_tokens_per_batch", "12"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_tiny_marian(tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture(scope="module")
def expected():
    return translate_lines(tiny_model(), tiny_tokenizer(), LINES, num_beams=3)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.en"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


def translate(checkpoint, source, target, *options):
    main(["--model", checkpoint, "--input_file", str(source), "--output_file", str(target), *OPTIONS, *options])


def lines_of(path):
    text = path.read_text()
    assert text.endswith("\n")
    return text.removesuffix("\n").split("\n")


def count_lines(monkeypatch):
    """The indices that the next runs show to the model."""
    original = translation_worker.translate_batches
    seen = []

    def counting(model, tokenizer, encoded, batches, **options):
        seen.extend(index for batch in batches for index in batch)
        return original(model, tokenizer, encoded, batches, **options)

    monkeypatch.setattr(translation_worker, "translate_batches", counting)
    return seen


def test_file_to_file(checkpoint, source, tmp_path, expected):
    translate(checkpoint, source, tmp_path / "out.de")
    assert lines_of(tmp_path / "out.de") == expected
    assert {file.name for file in tmp_path.iterdir()} == {"in.en", "out.de"}


def test_compressed_input_and_options(checkpoint, source, tmp_path):
    compressed = tmp_path / "in.en.gz"
    compressed.write_bytes(gzip.compress(source.read_bytes()))
    options = ["--num_beams", "2", "--length_penalty", "-1", "--max_new_tokens", "5", "--dtype", "float32"]
    translate(checkpoint, compressed, tmp_path / "out.de", *options, "--device", "cpu")
    options = {"num_beams": 2, "length_penalty": -1.0, "max_new_tokens": 5}
    assert lines_of(tmp_path / "out.de") == translate_lines(tiny_model(), tiny_tokenizer(), LINES, **options)


def test_standard_input_to_standard_output(checkpoint, source, tmp_path, expected):
    log, target = tmp_path / "log", tmp_path / "out.de"
    assert run("translate", ["--model", checkpoint, *OPTIONS], log, pipe=(source, target)) == 0, log.read_text()
    assert lines_of(target) == expected
    assert "8/8" in log.read_text()
    assert "tokens/s" in log.read_text()


@pytest.mark.slow
def test_two_processes(checkpoint, source, tmp_path, expected):
    log, target = tmp_path / "log", tmp_path / "out.de"
    files = ["--input_file", source, "--output_file", target]
    statuses = run_both("translate", ["--model", checkpoint, "--device", "cpu", *OPTIONS, *files], log)
    assert statuses == [0, 0], (tmp_path / "log0").read_text()
    assert lines_of(target) == expected
    assert {file.name for file in tmp_path.iterdir()} == {"in.en", "out.de", "log0", "log1"}


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("piped", [True, False], ids=["pipes", "files"])
def test_two_processes_of_a_launcher(checkpoint, source, tmp_path, expected, piped):
    target = tmp_path / "out.de"
    # On CPUs it is --multi_gpu that starts the processes.
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    files = [] if piped else ["--input_file", str(source), "--output_file", str(target)]
    result = subprocess.run(
        [*launch, str(SCRIPT), "--model", checkpoint, "--device", "cpu", *OPTIONS, *files],
        input=source.read_bytes() if piped else b"",
        capture_output=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if piped:
        target.write_bytes(result.stdout)
    assert lines_of(target) == expected
    assert {file.name for file in tmp_path.iterdir()} == {"in.en", "out.de"}


@pytest.fixture
def small_windows(monkeypatch):
    """Windows of 1, 4 and 3 lines."""
    monkeypatch.setattr(command, "_FIRST_WINDOW", 1)


@pytest.mark.parametrize("name", ["out.de", "out.de.gz"])
def test_windows_change_nothing(checkpoint, source, tmp_path, expected, monkeypatch, small_windows, name):
    read, batches = count_read_lines(monkeypatch), []
    original = translation_worker.translate_batches
    monkeypatch.setattr(
        translation_worker, "translate_batches", lambda *a, **o: batches.append(len(read)) or original(*a, **o)
    )
    translate(checkpoint, source, tmp_path / name)
    assert read_lines(tmp_path / name) == expected
    # After those that are counted beforehand.
    assert [number - len(LINES) for number in batches] == [1, 5, 8]
    assert {file.name for file in tmp_path.iterdir()} == {"in.en", name}


def count_read_lines(monkeypatch):
    """The lines that the next runs read, as they do."""
    original, read = command.each_line, []
    monkeypatch.setattr(command, "each_line", lambda path: (read.append(line) or line for line in original(path)))
    return read


def test_windows_are_printed_when_they_are_done(checkpoint, source, expected, capfdbinary, small_windows, monkeypatch):
    undo = interrupt_after(monkeypatch, batches=1)
    with pytest.raises(KeyboardInterrupt):
        main(["--model", checkpoint, "--input_file", str(source), *OPTIONS])
    undo()
    assert capfdbinary.readouterr().out.decode() == f"{expected[0]}\n"


@pytest.mark.parametrize("damage", ["none", "text that the index does not tell of", "journals of a finished window"])
def test_a_run_interrupted_in_its_second_window_continues(
    checkpoint, source, tmp_path, expected, monkeypatch, small_windows, damage
):
    target = tmp_path / "out.de"
    original, shown = translation_worker.translate_batches, []

    def interrupted(model, tokenizer, encoded, batches, **options):
        for batch in original(model, tokenizer, encoded, batches, **options):
            if len(shown) == 2:
                raise KeyboardInterrupt
            shown.append(batch)
            yield batch

    monkeypatch.setattr(translation_worker, "translate_batches", interrupted)
    with pytest.raises(KeyboardInterrupt):
        translate(checkpoint, source, target)
    monkeypatch.setattr(translation_worker, "translate_batches", original)
    partial, journal = tmp_path / "out.de.partial", tmp_path / "out.de.partial.0.jsonl"
    assert partial.read_text() == f"{expected[0]}\n"
    if damage.startswith("text"):
        partial.write_text(f"{expected[0]}\n{expected[1]}")
    elif damage.startswith("journals"):
        content = journal.read_text().replace('"window": 1', '"window": 0').splitlines()
        journal.write_text(f'{content[1]}\n{{"0": {{"text": "wrong"}}}}\n')
        shown.pop()
    seen = count_lines(monkeypatch)
    translate(checkpoint, source, target)
    # Indices within their windows.
    assert len(seen) == 6 - sum(map(len, shown))
    assert lines_of(target) == expected
    assert {file.name for file in tmp_path.iterdir()} == {"in.en", target.name}


def test_a_finished_window_of_another_run_is_not_taken(
    checkpoint, source, tmp_path, capsys, monkeypatch, small_windows
):
    target = tmp_path / "out.de"
    undo = interrupt_after(monkeypatch, batches=1)
    with pytest.raises(KeyboardInterrupt):
        translate(checkpoint, source, target)
    undo()
    monkeypatch.setattr(command, "_FIRST_WINDOW", 1)
    for change, options in (
        ("input", []),
        ("num_beams", ["--num_beams", "4"]),
        ("lines of a window", ["--window", "9"]),
    ):
        if change == "input":
            source.write_text("x\n" + source.read_text())
        with pytest.raises(SystemExit):
            translate(checkpoint, source, target, *options)
        assert change in capsys.readouterr().err
        assert not target.exists()


@pytest.mark.parametrize("left", [5, 0])
def test_a_finished_window_that_the_input_lacks(
    checkpoint, source, tmp_path, expected, capsys, monkeypatch, small_windows, left
):
    """The input lost its last lines between an interrupted run and the next one."""

    def interrupted(*_):
        raise KeyboardInterrupt

    target, index, text = tmp_path / "out.de", tmp_path / "out.de.partial.json", source.read_text()
    with monkeypatch.context() as patched:
        patched.setattr(command.PartialOutput, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            translate(checkpoint, source, target)
    source.write_text("".join(text.splitlines(keepends=True)[:left]))
    with pytest.raises(SystemExit):
        translate(checkpoint, source, target)
    message = f"{index} is from an interrupted run with a longer input: it finished 3 windows, and now there are "
    assert f"{message}{2 if left else 0}; repeat that run to finish it, or delete it" in capsys.readouterr().err
    assert not target.exists()
    source.write_text(text)
    translate(checkpoint, source, target)
    assert lines_of(target) == expected


@contextmanager
def as_standard_input(number):
    """Let a descriptor be standard input."""
    before = os.dup(0)
    try:
        os.dup2(number, 0)
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


def test_what_is_left_of_a_file(checkpoint, source, tmp_path, expected):
    """Of standard input that the shell opened, from where the command before it stopped reading."""
    with source.open("rb", buffering=0) as file:
        file.seek(len(LINES[0].encode()) + 1)
        with as_standard_input(file.fileno()):
            main(["--model", checkpoint, "--output_file", str(tmp_path / "out.de"), *OPTIONS])
    assert lines_of(tmp_path / "out.de") == expected[1:]


def test_a_socket(checkpoint, source, tmp_path, expected):
    """As programs in some languages give to those that they start."""
    ours, theirs = socket.socketpair()
    with theirs, ours:
        ours.sendall(source.read_bytes())
        ours.shutdown(socket.SHUT_WR)
        with as_standard_input(theirs.fileno()):
            main(["--model", checkpoint, "--output_file", str(tmp_path / "out.de"), *OPTIONS])
    assert lines_of(tmp_path / "out.de") == expected


def test_an_empty_file(checkpoint, source, tmp_path):
    source.write_text("")
    translate(checkpoint, source, tmp_path / "out.de")
    assert (tmp_path / "out.de").read_bytes() == b""


def test_a_line_is_answered_at_once(checkpoint, expected, tmp_path):
    """While the stream is open, as somebody who types leaves it."""
    pipes = tmp_path / "in", tmp_path / "out"
    for pipe in pipes:
        os.mkfifo(pipe)
    arguments = ["--model", checkpoint, *OPTIONS, "--interactive"]
    process = start("translate", arguments, tmp_path / "log", pipe=pipes)
    with pipes[0].open("w", buffering=1) as typed, pipes[1].open() as printed:
        for line, translation in zip(LINES[:3], expected):
            typed.write(f"{line}\n")
            assert printed.readline() == f"{translation}\n"
        typed.write("".join(f"{line}\n" for line in LINES[3:]))
        assert [printed.readline() for _ in LINES[3:]] == [f"{line}\n" for line in expected[3:]]
        typed.write(f"{'a ' * 50}\n")
        assert printed.read() == ""
    assert end(process) == 2
    assert f"but line {len(LINES) + 1} has 32 tokens; raise it" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("half_a_line", [False, True])
def test_an_interrupted_run_continues(checkpoint, source, tmp_path, expected, monkeypatch, half_a_line):
    target = tmp_path / "out [1].de"
    undo = interrupt_after(monkeypatch, batches=2)
    with pytest.raises(KeyboardInterrupt):
        translate(checkpoint, source, target)
    undo()
    assert not target.exists()
    journal = tmp_path / "out [1].de.partial.0.jsonl"
    content = journal.read_text()
    done = [int(index) for line in content.splitlines()[2:] for index in json.loads(line)]
    assert done == [7, 3]
    if half_a_line:
        journal.write_text(content[:-5])
        done.pop()
    # As if another process had done a line.
    journal.with_name("out [1].de.partial.1.jsonl").write_text(
        content.splitlines()[1] + "\n" + json.dumps({4: {"text": expected[4]}}) + "\n"
    )
    # What is no translation is translated again.
    journal.with_name("out [1].de.partial.2.jsonl").write_text(
        content.splitlines()[1] + "\n" + json.dumps({2: "wrong"}) + "\n" + json.dumps({0: {"text": 5}}) + "\n"
    )
    seen = count_lines(monkeypatch)
    translate(checkpoint, source, target)
    assert sorted([*seen, *done, 4]) == [0, 2, 3, 4, 6, 7]
    assert lines_of(target) == expected
    assert {file.name for file in tmp_path.iterdir()} == {"in.en", target.name}


def test_a_twice_interrupted_run_continues_with_other_batches(checkpoint, source, tmp_path, expected, monkeypatch):
    target = tmp_path / "out.de"
    for options in ([], ["--max_tokens_per_batch", "30"]):
        undo = interrupt_after(monkeypatch, batches=1)
        with pytest.raises(KeyboardInterrupt):
            translate(checkpoint, source, target, *options)
        undo()
    seen = count_lines(monkeypatch)
    translate(checkpoint, source, target)
    assert 0 < len(seen) < 5
    assert lines_of(target) == expected


def test_another_run_does_not_continue_it(checkpoint, source, tmp_path, capsys, monkeypatch):
    target = tmp_path / "out.de"
    undo = interrupt_after(monkeypatch, batches=1)
    with pytest.raises(KeyboardInterrupt):
        translate(checkpoint, source, target)
    undo()
    journal = tmp_path / "out.de.partial.0.jsonl"
    before = journal.read_bytes()
    with pytest.raises(SystemExit):
        translate(checkpoint, source, target, "--num_beams", "4")
    assert f"{journal} is from an interrupted run with another num_beams; " in capsys.readouterr().err
    source.write_text("something else\n")
    with pytest.raises(SystemExit):
        translate(checkpoint, source, target)
    assert "with another input; " in capsys.readouterr().err
    assert journal.read_bytes() == before
    assert not target.exists()


def test_mistakes(checkpoint, source, tmp_path, capsys, monkeypatch):
    tokenizer_only, model_only, encoder_only = (tmp_path / name for name in ("tokenizer", "model", "encoder"))
    tiny_tokenizer().save_pretrained(tokenizer_only)
    tiny_model().save_pretrained(model_only)
    save_tiny_marian(encoder_only)
    BertConfig().save_pretrained(encoder_only)
    latin = tmp_path / "latin.en"
    latin.write_bytes("a\nä\n".encode("latin-1"))
    pairs, packed = tmp_path / "in.tsv", tmp_path / "in.jsonl.gz"
    for file in (pairs, packed):
        file.touch()
    (tmp_path / "link.en").symlink_to(source)
    capsys.readouterr()

    def fail(*_, **__):
        raise AssertionError("the weights were loaded")

    monkeypatch.setattr("transformers.AutoModelForSeq2SeqLM.from_pretrained", fail)
    defaults = {"--model": checkpoint, "--input_file": source, "--output_file": tmp_path / "out.de"}
    for change, message in (
        ({"--model": tmp_path / "absent"}, "absent is not a folder"),
        ({"--model": "runs/absent"}, "runs/absent is no folder here, and the Hub does not give it"),
        ({"--model": tokenizer_only}, "tokenizer holds no config (config.json)"),
        ({"--model": model_only}, "model holds no tokenizer (tokenizer_config.json or tokenizer.json)"),
        ({"--model": encoder_only}, "is of type bert, which is not an encoder-decoder"),
        ({"--input_file": tmp_path / "absent.en"}, "absent.en, which is not a file; check the path"),
        ({"--input_file": latin}, "latin.en:2"),
        ({"--input_file": pairs}, "/in.tsv, and a .tsv file holds more than the text to translate; give a text file, "),
        ({"--input_file": pairs, "--documents": "en"}, "one segment a line: cut -f1 in.tsv"),
        ({"--input_file": packed}, "/in.jsonl.gz, and a .jsonl file holds more than the text to translate; give a"),
        ({"--output_file": tmp_path / "absent" / "out.de"}, "create it first"),
        ({"--output_file": tmp_path}, "is a folder; name a file"),
        ({"--output_file": source}, "in.en, which is another file of this command, and would be lost; name another"),
        ({"--output_file": tmp_path / "link.en"}, "/link.en, which is another file of this command"),
        ({"--report": tmp_path / "model" / ".." / "in.en"}, "/in.en, which is another file of this command"),
        ({"--report": tmp_path / "model" / ".." / "out.de"}, "/out.de, which is another file of this command"),
        ({"--window": 0}, "argument --window: 0 is too small"),
        ({"--documents": None}, "--source_lang is None; give its code of two letters as --documents en"),
        ({"--documents": "eng"}, "documents is 'eng'; it must be the code of a language, of two letters"),
        ({"--num_beams": 0}, "argument --num_beams: 0 is too small"),
        ({"--length_penalty": "nan"}, "argument --length_penalty: nan is not from -10 to 10"),
        ({"--max_tokens_per_batch": 9}, "max_tokens_per_batch is 9, but line 8 has 10 tokens"),
        ({"--device": "cuda:99"}, "--device cuda:99 cannot be used"),
        ({"--device": "gpu"}, "--device gpu cannot be used"),
    ):
        given = {**defaults, **change}
        arguments = [str(word) for item in given.items() for word in item if word is not None]
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        assert exit_.value.code == 2
        error = capsys.readouterr().err
        assert message in error
        assert error[error.index("error: ") :].count("\n") == 1
    assert not list(tmp_path.glob("out.de*"))


PARAGRAPHS = ["A b c? D", "e f!", "", " G h i j k?  L m."]


@pytest.mark.parametrize("window", [1, 9])
def test_documents(checkpoint, tmp_path, window):
    pytest.importorskip("sentencex")
    texts = ["A b c?", "D e f!", "G h i j k?", "L m."]
    one, two, three, four = translate_lines(tiny_model(), tiny_tokenizer(), texts, num_beams=3)
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{line}\n" for line in PARAGRAPHS))
    translate(checkpoint, source, target, "--documents", "en", "--window", str(window))
    assert target.read_text() == f"{one} {two}\n\n {three}  {four}\n"
    assert {file.name for file in tmp_path.iterdir()} == {"in.txt", "out.txt"}


def test_a_document_goes_on_after_an_interruption(checkpoint, tmp_path, monkeypatch):
    pytest.importorskip("sentencex")
    source, whole, target = tmp_path / "in.txt", tmp_path / "whole.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{line}\n" for line in PARAGRAPHS))
    translate(checkpoint, source, whole, "--documents", "en")
    undo = interrupt_after(monkeypatch, batches=1)
    with pytest.raises(KeyboardInterrupt):
        translate(checkpoint, source, target, "--documents", "en")
    undo()
    seen = count_lines(monkeypatch)
    translate(checkpoint, source, target, "--documents", "en")
    assert target.read_text() == whole.read_text()
    assert 0 < len(seen) < 4


def test_not_twice_at_once(checkpoint, source, tmp_path, expected, capsys, monkeypatch):
    target = tmp_path / "out.de"
    monkeypatch.setattr("hf_capsule_mt.files.GRACE", 0)
    with FileLock(f"{target}.lock"), pytest.raises(SystemExit):
        translate(checkpoint, source, target)
    assert f"another process writes {target}; wait for it, or name another file" in capsys.readouterr().err
    translate(checkpoint, source, target)
    assert lines_of(target) == expected
    assert {file.name for file in tmp_path.iterdir()} == {"in.en", "out.de"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output_file", "out.de.xz"], "out.de.xz: of compressed files only .gz are written"),
        (["--source_lang", "fr"], "--source_lang is of use with --documents alone"),
    ],
)
def test_what_would_be_passed_by(checkpoint, source, tmp_path, capsys, options, message):
    with pytest.raises(SystemExit):
        translate(checkpoint, source, tmp_path / "out.de", *options)
    assert message in capsys.readouterr().err
