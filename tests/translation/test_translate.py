"""The translation command: files and pipes, several processes, continuing after an interruption, mistakes."""

import gzip
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from forked_commands import end, run, run_both, start
from interrupted_translation import interrupt_after
from tiny_marian import save_tiny_marian, tiny_model, tiny_tokenizer
from transformers import BertConfig

from hf_capsule_mt.cli import translate as command
from hf_capsule_mt.cli import translate as translate_command
from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.data.parallel_text import read_lines
from hf_capsule_mt.files import locked
from hf_capsule_mt.translation.partial_output import PartialOutput
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
    original = translate_command.translate_batches
    seen = []

    def counting(model, tokenizer, encoded, batches, **options):
        seen.extend(index for batch in batches for index in batch)
        return original(model, tokenizer, encoded, batches, **options)

    monkeypatch.setattr(translate_command, "translate_batches", counting)
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
    original = translate_command.translate_batches
    monkeypatch.setattr(
        translate_command, "translate_batches", lambda *a, **o: batches.append(len(read)) or original(*a, **o)
    )
    translate(checkpoint, source, tmp_path / name)
    assert read_lines(tmp_path / name) == expected
    # After those that are counted beforehand.
    assert [number - len(LINES) for number in batches] == [1, 5, 8]
    assert {file.name for file in tmp_path.iterdir()} == {"in.en", name}


def count_read_lines(monkeypatch):
    """The lines that the next runs read, as they do."""
    original, read = command.byte_lines, []
    monkeypatch.setattr(
        command, "byte_lines", lambda *a, **o: (read.append(line) or line for line in original(*a, **o))
    )
    return read


def test_windows_are_printed_when_they_are_done(checkpoint, source, expected, capfdbinary, small_windows, monkeypatch):
    undo = interrupt_after(monkeypatch, batches=1)
    with pytest.raises(KeyboardInterrupt):
        main(["--model", checkpoint, "--input_file", str(source), *OPTIONS])
    undo()
    assert capfdbinary.readouterr().out.decode() == f"{expected[0]}\n"


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
    for change in (
        {"--model": tmp_path / "absent"},
        {"--model": "runs/absent"},
        {"--model": tokenizer_only},
        {"--model": model_only},
        {"--model": encoder_only},
        {"--input_file": tmp_path / "absent.en"},
        {"--input_file": latin},
        {"--input_file": pairs},
        {"--input_file": packed},
        {"--output_file": tmp_path / "absent" / "out.de"},
        {"--output_file": tmp_path},
        {"--output_file": tmp_path / "out.de.xz"},
        {"--output_file": source},
        {"--output_file": tmp_path / "link.en"},
        {"--report": tmp_path / "model" / ".." / "in.en"},
        {"--report": tmp_path / "model" / ".." / "out.de"},
        {"--window": 0},
        {"--source_lang": "fr"},
        {"--documents": None},
        {"--documents": "eng"},
        {"--sentences": "eng"},
        {"--num_beams": 0},
        {"--length_penalty": "nan"},
        {"--max_tokens_per_batch": 9},
        {"--device": "cuda:99"},
    ):
        given = {**defaults, **change}
        arguments = [str(word) for item in given.items() for word in item if word is not None]
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        assert exit_.value.code == 2, change
        assert "error: " in capsys.readouterr().err
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


def stop_after_a_window(monkeypatch, command, *arguments):
    append = PartialOutput.append

    def stopped(*lines):
        append(*lines)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PartialOutput, "append", stopped)
        with pytest.raises(KeyboardInterrupt):
            command(*arguments)


@pytest.fixture
def interrupted(checkpoint, source, tmp_path, monkeypatch, small_windows):
    """An output whose first window of one line is done."""

    def interrupt(*options):
        undo = interrupt_after(monkeypatch, batches=1)
        with pytest.raises(KeyboardInterrupt):
            translate(checkpoint, source, tmp_path / "out.de", *options)
        undo()
        monkeypatch.setattr(command, "_FIRST_WINDOW", 1)
        return tmp_path / "out.de"

    return interrupt


@pytest.mark.parametrize("damage", ["none", "half a line more", "lines lost"])
def test_an_interrupted_run_continues(checkpoint, source, tmp_path, expected, monkeypatch, interrupted, damage):
    target = interrupted()
    lines = tmp_path / "out.de.unfinished" / "lines"
    assert lines.read_text() == f"{expected[0]}\n"
    if damage != "none":
        lines.write_text(f"{expected[0]}\nhalf" if damage.startswith("half") else "")
    seen = count_lines(monkeypatch)
    translate(checkpoint, source, target, "--max_tokens_per_batch", "30")
    assert len(seen) == 6 - (damage != "lines lost")
    assert lines_of(target) == expected
    assert {file.name for file in tmp_path.iterdir()} == {"in.en", "out.de"}


@pytest.mark.parametrize("change", ["input", "options", "shorter input", "model"])
def test_another_run_does_not_continue_it(checkpoint, source, tmp_path, capsys, interrupted, change):
    target = interrupted()
    options, model = [], checkpoint
    if change == "options":
        options = ["--num_beams", "4"]
    elif change == "input":
        source.write_text("x\n" + source.read_text())
    elif change == "shorter input":
        source.write_text("")
    else:
        model = str(save_tiny_marian(tmp_path / "other", seed=1))
    with pytest.raises(SystemExit):
        translate(model, source, target, *options)
    assert "interrupted run" in capsys.readouterr().err
    assert not target.exists()
    assert (tmp_path / "out.de.unfinished" / "lines").is_file()


def test_a_model_that_was_replaced_does_not_continue(source, tmp_path, capsys, monkeypatch):
    """Though the new files have the sizes and times of the old."""
    model, target = save_tiny_marian(tmp_path / "model"), tmp_path / "out.de"
    stop_after_a_window(monkeypatch, translate, str(model), source, target)
    weights = model / "model.safetensors"
    times, data = weights.stat(), bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(SystemExit):
        translate(str(model), source, target)
    assert "another model files" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["out.de.partial", "out.de.lock", "out.de.unfinished/notes"])
def test_files_of_a_user_stay(checkpoint, source, tmp_path, expected, name):
    own = tmp_path / name
    own.parent.mkdir(exist_ok=True)
    own.write_text("mine")
    with pytest.raises(SystemExit) if "unfinished" in name else nullcontext():
        translate(checkpoint, source, tmp_path / "out.de")
        assert lines_of(tmp_path / "out.de") == expected
    assert own.read_text() == "mine"


def test_a_document_continues(checkpoint, tmp_path, monkeypatch, small_windows):
    pytest.importorskip("sentencex")
    source, whole, target = tmp_path / "in.txt", tmp_path / "whole.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{line}\n" for line in PARAGRAPHS))
    translate(checkpoint, source, whole, "--documents", "en")
    stop_after_a_window(monkeypatch, translate, checkpoint, source, target, "--documents", "en")
    seen = count_lines(monkeypatch)
    translate(checkpoint, source, target, "--documents", "en")
    assert target.read_text() == whole.read_text()
    assert len(seen) == 2


def test_not_twice_at_once(checkpoint, source, tmp_path, expected, monkeypatch):
    target = tmp_path / "out.de"
    monkeypatch.setattr("hf_capsule_mt.files.GRACE", 0)
    with locked(tmp_path / "out.de.unfinished"), ThreadPoolExecutor() as threads, pytest.raises(SystemExit):
        threads.submit(translate, checkpoint, source, target).result()
    translate(checkpoint, source, target)
    assert lines_of(target) == expected
    assert {file.name for file in tmp_path.iterdir()} == {"in.en", "out.de"}


@pytest.mark.parametrize("options", [[], ["--tags"]])
def test_lines_with_several_sentences(checkpoint, source, tmp_path, options):
    pytest.importorskip("sentencex")
    source.write_text("A b c? D e f!\n\nL m.\n")
    one, two, three = translate_lines(tiny_model(), tiny_tokenizer(), ["A b c?", "D e f!", "L m."], num_beams=3)
    translate(checkpoint, source, tmp_path / "out.de", "--sentences", "en", *options)
    assert (tmp_path / "out.de").read_text() == f"{one} {two}\n\n{three}\n"


def test_carriage_returns_marks_and_damaged_bytes(checkpoint, source, tmp_path):
    pytest.importorskip("sentencex")
    source.write_bytes(b"\xef\xbb\xbfa b.\r\n\r\nc \xff\r\n")
    one, two = translate_lines(tiny_model(), tiny_tokenizer(), ["a b.", "c \ufffd"], num_beams=3)
    for options, ending in (([], "\n"), (["--documents", "en"], "\r\n"), (["--tags"], "\r\n")):
        translate(checkpoint, source, tmp_path / "out.de", "--errors", "replace", *options)
        assert (tmp_path / "out.de").read_bytes().decode() == f"{one}{ending}{ending}{two}{ending}"


def test_lines_without_letters_are_copied(checkpoint, source, tmp_path):
    source.write_text("---\n 1984 \na\n")
    translate(checkpoint, source, tmp_path / "out.de")
    assert lines_of(tmp_path / "out.de")[:2] == ["---", "1984"]
