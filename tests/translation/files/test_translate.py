"""The translation command: files and pipes, several processes, continuing after an interruption, mistakes."""

import gzip
import json
import logging
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
from accelerate import PartialState
from forked_commands import end, run, run_both, start
from interrupted_translation import interrupt_after
from tiny_marian import save_tiny_marian, tiny_model, tiny_tokenizer
from transformers import GenerationConfig, GPT2Config
from translated_lines import translate_lines

from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.decoding.products import int8
from hf_capsule_mt.files import locked
from hf_capsule_mt.translation.files import crew as crew_module
from hf_capsule_mt.translation.files import run as run_module
from hf_capsule_mt.translation.files import sources as sources_module
from hf_capsule_mt.translation.files.crew import Crew, Task
from hf_capsule_mt.translation.files.job import LINES as LINES_OF_TEXT
from hf_capsule_mt.translation.files.job import Job
from hf_capsule_mt.translation.files.run import Progress
from hf_capsule_mt.translation.generation.model_options import DecodingOptions, changed_settings
from hf_capsule_mt.translation.terms.glossary import Glossary
from hf_capsule_mt.translation.text_translator import TextTranslator

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


def test_an_error_comes_before_any_bar(source, tmp_path, capsys):
    with pytest.raises(SystemExit):
        translate(str(tmp_path / "absent"), source, tmp_path / "out.de")
    assert " lines" not in capsys.readouterr().err


def test_loading_shows_no_bar(checkpoint, source, tmp_path, capsys):
    translate(checkpoint, source, tmp_path / "out.de")
    errors = capsys.readouterr().err
    assert "8/8" in errors
    assert "Loading weights" not in errors


def translate(checkpoint, source, target, *options):
    main(["--model", checkpoint, "--input_file", str(source), "--output_file", str(target), *OPTIONS, *options])


def lines_of(path):
    text = path.read_text()
    assert text.endswith("\n")
    return text.removesuffix("\n").split("\n")


def count_lines(monkeypatch):
    """The indices that the next runs show to the model."""
    original = TextTranslator.decode_batches
    seen = []

    def counting(translator, sentences, batches, **options):
        seen.extend(index for batch in batches for index in batch)
        return original(translator, sentences, batches, **options)

    monkeypatch.setattr(TextTranslator, "decode_batches", counting)
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


@pytest.mark.parametrize("name", ["out.de.gz", "out.de.zst"])
def test_windows_change_nothing(checkpoint, source, tmp_path, expected, monkeypatch, name):
    read, batches = count_read_lines(monkeypatch), []
    original = TextTranslator.decode_batches

    def counting(*args, **options):
        batches.append(len(read))
        return original(*args, **options)

    monkeypatch.setattr(TextTranslator, "decode_batches", counting)
    translate(checkpoint, source, tmp_path / name, "--chunk_size", "1")
    assert read_lines(tmp_path / name) == expected
    # After those that are counted beforehand. A thread makes the next two windows meanwhile.
    assert len(batches) == len(LINES)
    assert all(window <= number - len(LINES) <= window + 2 for window, number in enumerate(batches, start=1))
    assert {file.name for file in tmp_path.iterdir()} == {"in.en", name}


def count_read_lines(monkeypatch):
    """The lines that the next runs read, as they do."""
    original = sources_module.byte_lines
    read = []

    def counting(*args, **options):
        for line in original(*args, **options):
            read.append(line)
            yield line

    monkeypatch.setattr(sources_module, "byte_lines", counting)
    return read


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
    assert f"Line {len(LINES) + 1} has 32 tokens" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"--model": "absent"}, "There is no folder absent, and no model of this name on the Hub"),
        ({"--model": "gpt2"}, "gpt2 is of type gpt2, which is not an encoder-decoder"),
        ({"--input_file": "absent.en"}, "--input_file: there is no file absent.en"),
        ({"--input_file": "latin.en"}, "latin.en:2: not UTF-8"),
        ({"--input_file": "pairs.tsv"}, "A tsv file holds pairs"),
        ({"--input_file": "tag.en", "--tags": None}, "line 1 of the input"),
        ({"--engine": "transformers", "--dtype": "int8"}, "dtype int8 needs a CPU, engine fast"),
        ({"--output_file": "absent/out.de"}, "The folder of absent/out.de does not exist"),
        ({"--output_file": "out.xz"}, "only .gz and .zst are written compressed"),
        ({"--output_file": "link.en"}, "--output_file names link.en, another file of this command"),
        ({"--report_file": "./out.de"}, "--report_file names out.de, another file of this command"),
        ({"--glossary": "pairs.tsv", "--output_file": "pairs.tsv"}, "--output_file names pairs.tsv, another file"),
        ({"--vocabulary": "tag.en", "--report_file": "tag.en"}, "--report_file names tag.en, another file"),
        ({"--chunk_size": 0}, "0 is too small. It must be at least 1"),
        ({"--documents": None}, "argument --documents: expected one argument"),
        ({"--sentences": "xx"}, "'xx' is no language"),
        ({"--max_tokens_per_batch": 9}, "Line 8 has 10 tokens. Raise max_tokens_per_batch (9)"),
        ({"--keep": "("}, "keep is '(', which is not a regular expression"),
    ],
    ids=[
        *("no model", "no encoder-decoder", "no input", "no UTF-8", "pairs", "tag", "int8", "no folder", "xz", "link"),
        *("report", "glossary", "vocabulary", "chunk", "no language", "language", "budget", "expression"),
    ],
)
def test_mistakes(checkpoint, source, tmp_path, capsys, monkeypatch, change, words):
    """Each is found before the weights are loaded, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    Path("latin.en").write_bytes("a\nä\n".encode("latin-1"))
    Path("link.en").symlink_to(source)
    Path("tag.en").write_text("<b>a\n")
    Path("pairs.tsv").write_text("a\tb\n")
    GPT2Config().save_pretrained("gpt2")
    monkeypatch.setattr("transformers.AutoModelForSeq2SeqLM.from_pretrained", lambda *_, **__: pytest.fail("loaded"))
    given = {"--model": checkpoint, "--input_file": source, "--output_file": "out.de", **change}
    with pytest.raises(SystemExit) as exit_:
        main([str(word) for item in given.items() for word in item if word is not None])
    assert exit_.value.code == 2
    [message] = re.findall("error: (.*)", capsys.readouterr().err)
    assert words in message
    assert not [*Path().glob("out.de*")]


@pytest.mark.parametrize(("line", "window"), [(2, 9), (3, 2), (4, 2)])
def test_a_wrong_tag_names_its_line(checkpoint, source, tmp_path, capsys, line, window):
    """In any window, and at any place of it."""
    source.write_text("a\n" * (line - 1) + "<b>a\na\n")
    with pytest.raises(SystemExit, match="2"):
        translate(checkpoint, source, tmp_path / "out.de", "--tags", "--chunk_size", str(window))
    assert f"line {line} of the input: <b>" in capsys.readouterr().err


PARAGRAPHS = ["A b c? D", "e f!", "", " G h i j k?  L m."]


@pytest.mark.parametrize("window", [1, 9])
def test_documents(checkpoint, tmp_path, window):
    texts = ["A b c?", "D e f!", "G h i j k?", "L m."]
    one, two, three, four = translate_lines(tiny_model(), tiny_tokenizer(), texts, num_beams=3)
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{line}\n" for line in PARAGRAPHS))
    translate(checkpoint, source, target, "--documents", "en", "--chunk_size", str(window))
    assert target.read_text() == f"{one} {two}\n\n {three}  {four}\n"
    assert {file.name for file in tmp_path.iterdir()} == {"in.txt", "out.txt"}


def test_a_paragraph_is_not_divided(checkpoint, tmp_path):
    """Its last sentence goes over two lines, behind the end of the window."""
    one, two, three = translate_lines(tiny_model(), tiny_tokenizer(), ["A b c?", "D e f!", "G h."], num_beams=3)
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("A b c?\nD e\nf!\n\nG h.")
    translate(checkpoint, source, target, "--documents", "en", "--chunk_size", "1")
    assert target.read_text() == f"{one}\n{two}\n\n{three}\n"


@pytest.fixture
def interrupted(checkpoint, source, tmp_path, monkeypatch):
    """An output whose first line and the empty one after it are done."""

    def interrupt(*options):
        undo = interrupt_after(monkeypatch, batches=1)
        with pytest.raises(KeyboardInterrupt):
            translate(checkpoint, source, tmp_path / "out.de", "--chunk_size", "1", *options)
        undo()
        return tmp_path / "out.de"

    return interrupt


@pytest.mark.parametrize("damage", ["none", "half a line more", "lines lost"])
def test_an_interrupted_run_continues(checkpoint, source, tmp_path, expected, monkeypatch, capsys, interrupted, damage):
    target = interrupted()
    lines = tmp_path / "out.de.unfinished" / "lines"
    assert lines.read_text() == f"{expected[0]}\n\n"
    if damage != "none":
        lines.write_text(f"{expected[0]}\n\nhalf" if damage.startswith("half") else "")
    seen = count_lines(monkeypatch)
    capsys.readouterr()
    translate(checkpoint, source, target, "--max_tokens_per_batch", "30")
    assert len(seen) == 6 - (damage != "lines lost")
    # Those of the earlier run count too.
    assert "8/8" in capsys.readouterr().err
    assert lines_of(target) == expected
    assert {file.name for file in tmp_path.iterdir()} == {"in.en", "out.de"}


def test_what_a_killed_run_wrote_too_much_is_left_out(source, interrupted, checkpoint, expected):
    """The input has no more lines, so nothing is written after it."""
    target = interrupted()
    with Path(f"{target}.unfinished", "lines").open("a") as lines:
        lines.write("half a line")
    source.write_text("".join(f"{line}\n" for line in LINES[:2]))
    translate(checkpoint, source, target, "--chunk_size", "1")
    assert lines_of(target) == expected[:2]


def test_options_that_are_zero_count():
    """They are not those of the model."""
    options = DecodingOptions("x", num_beams=2, length_penalty=0.0, max_new_tokens=3, engine="fast")
    expected = {"num_beams": 2, "length_penalty": 0.0, "max_new_tokens": 3, "engine": "fast"}
    assert options.generate_options() == expected
    assert DecodingOptions("x").generate_options() == {}
    assert DecodingOptions("x", dtype="int8").generate_options() == {"dtype": "int8"}
    assert DecodingOptions("x", dtype="float16").generate_options() == {}


OF_DECODING = {
    "revision": "abc",
    "num_beams": 2,
    "length_penalty": 0.0,
    "max_new_tokens": 3,
    "dtype": "bfloat16",
    "engine": "transformers",
}
OF_TEXTS = {
    "documents": "en",
    "sentences": "en",
    "tags": True,
    "keep": "a",
    "source_lang": "en",
    "target_lang": "de",
    "n_best": 2,
    "report_file": Path("report"),
    "alignments": Path("links"),
}


def test_an_output_depends_on_its_options(checkpoint, tmp_path):
    """A run with others does not continue it. The size of batches, windows and the device change only the rounding."""
    decoding = DecodingOptions(checkpoint)
    plain = Job(decoding, translate_addresses=True)

    def changed(**changes):
        return changed_settings(settings(plain), settings(replace(plain, **changes)))

    def settings(job):
        return job.settings(LINES_OF_TEXT)

    for name, value in OF_DECODING.items():
        assert changed(decoding=replace(decoding, **{name: value})) == [name]
    for name, value in OF_TEXTS.items():
        assert changed(**{name: value}) == [name]
    terms = tmp_path / "terms.tsv"
    hashes = set()
    for text in ("a\tb\n", "a\tc\n", "a|d\tc\n", "# The same terms.\na|d\tc\n"):
        terms.write_text(text)
        glossary = Glossary.read(terms)
        assert changed(glossary=glossary) == ["glossary"]
        hashes.add(settings(replace(plain, glossary=glossary))["glossary"])
    assert len(hashes) == 3
    assert changed(decoding=replace(decoding, max_tokens_per_batch=9), chunk_size=3, device="cpu") == []


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "source.spm", "merges.txt", "a.model", "b.bin"])
def test_an_output_depends_on_the_files_of_its_model(tmp_path, monkeypatch, name):
    folder = save_tiny_marian(tmp_path)
    before = DecodingOptions(str(folder)).settings()
    # Not on how its folder is called.
    monkeypatch.chdir(folder)
    assert DecodingOptions(".").settings() == before
    (folder / "README.md").write_text("a")
    assert DecodingOptions(str(folder)).settings() == before
    with (folder / name).open("ab") as file:
        file.write(b" ")
    assert changed_settings(before, DecodingOptions(str(folder)).settings()) == ["model files"]


def test_lines_that_take_no_time_are_shown(capsys, monkeypatch):
    """Blank ones, and those of an earlier run, do not count for the speed."""
    with Progress(10) as progress:
        progress.skip(3)
        progress.add(4, tokens=100)
        assert (progress.n, progress.initial) == (7, 3)
        assert progress.postfix.endswith(" tokens/s")
        assert float(progress.postfix.removesuffix(" tokens/s")) > 0
    times = iter([10.0, 12.0, 14.0])
    monkeypatch.setattr(run_module, "time", SimpleNamespace(monotonic=lambda: next(times)))
    speeds = []
    with Progress(10, shown=False) as hidden:
        for _ in range(2):
            hidden.add(1, tokens=100)
            speeds.append(hidden.postfix)
    assert speeds == ["50 tokens/s"] * 2
    monkeypatch.undo()
    with Progress(10, shown=False) as hidden:
        hidden.skip(3)
        hidden.add(4, tokens=100)
    assert capsys.readouterr().err.count("7/10") == 1


def test_all_processes_load_the_commit_of_the_first(checkpoint, monkeypatch):
    """A branch of the Hub may have moved since."""
    loaded = []

    def load(options, device):
        loaded.append(options.revision)
        return tiny_model(), tiny_tokenizer()

    monkeypatch.setattr(DecodingOptions, "load", load)
    decoding = DecodingOptions(checkpoint, revision="main")
    crew = Crew(decoding, "cpu", PartialState(cpu=True))
    task = Task([], [], {}, {}, False, {}, replace(decoding, revision="abc"))
    assert crew._together(task) == {}
    assert loaded == ["abc"]


def test_a_process_translates_its_share_of_the_batches(checkpoint, monkeypatch):
    """It counts the lines of the others, whose shares have the same size."""
    decoding = DecodingOptions(checkpoint)
    counted = []
    progress = SimpleNamespace(add=lambda lines, tokens: counted.append((lines, tokens)))
    state = SimpleNamespace(device="cpu", num_processes=3, process_index=1)
    crew = Crew(decoding, "cpu", state)
    sentences = [sentence for text in "abcdef" for sentence in crew.reader.prepare(text).sentences]
    batches = [[4], [0, 5], [1], [2], [3]]
    task = Task(sentences, batches, {index: [index] for index in range(6)}, {}, False, {}, decoding)
    assert sorted(crew._share(task, progress)) == [0, 3, 5]
    # A letter and its end are two tokens.
    assert counted == [(6, 12), (3, 6)]


def test_a_model_without_settings_of_its_own(tmp_path):
    assert DecodingOptions(str(tmp_path)).generation_config().num_beams == GenerationConfig().num_beams


@pytest.mark.skipif(not int8._int8_backends(), reason="this machine has no product in int8")
def test_a_continued_run_has_the_int8_products_of_the_first(checkpoint, source, monkeypatch, interrupted, int8_choices):
    """Even if another backend is the fastest now."""
    backends = int8._int8_backends()
    monkeypatch.setattr(int8, "_fastest_backend", lambda wide, many: backends[0])
    target = interrupted("--dtype", "int8")
    monkeypatch.setattr(int8, "_fastest_backend", lambda wide, many: backends[-1])
    translate(checkpoint, source, target, "--dtype", "int8", "--chunk_size", "2")
    assert {choice.few_rows for choice in int8_choices} == {backends[0]}
    assert len(lines_of(target)) == len(lines_of(source))


@pytest.mark.parametrize("change", ["input", "options", "model"])
def test_another_run_does_not_continue_it(checkpoint, source, tmp_path, capsys, interrupted, change):
    target = interrupted()
    options, model = [], checkpoint
    if change == "options":
        options = ["--num_beams", "4"]
    elif change == "input":
        source.write_text("x\n" + source.read_text())
    else:
        model = str(save_tiny_marian(tmp_path / "other", seed=1))
    with pytest.raises(SystemExit):
        translate(model, source, target, *options)
    words = {"input": "another input", "options": "another num_beams", "model": "another model, model files"}[change]
    assert f"interrupted run with {words}. Repeat that run" in capsys.readouterr().err
    assert not target.exists()
    assert (tmp_path / "out.de.unfinished" / "lines").is_file()


@pytest.mark.parametrize(
    "change", [{"input_lines": "2"}, {"lines": -1}, {"lines": None}, {"settings": ["a"]}, {"input_lines": None}]
)
def test_a_damaged_state_is_refused(checkpoint, source, tmp_path, capsys, interrupted, change):
    target = interrupted()
    state = tmp_path / "out.de.unfinished" / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), **change}))
    with pytest.raises(SystemExit, match="2"):
        translate(checkpoint, source, target)
    assert "state.json is damaged. Delete its folder to start again" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["out.de.lock", "out.de.partial", "out.de.unfinished/notes"])
def test_files_of_a_user_stay(checkpoint, source, tmp_path, expected, capsys, name):
    own = tmp_path / name
    own.parent.mkdir(exist_ok=True)
    own.write_text("mine")
    if "unfinished" in name:
        with pytest.raises(SystemExit):
            translate(checkpoint, source, tmp_path / "out.de")
        assert "out.de.unfinished holds other files" in capsys.readouterr().err
    else:
        translate(checkpoint, source, tmp_path / "out.de")
        assert lines_of(tmp_path / "out.de") == expected
    assert own.read_text() == "mine"


def test_not_twice_at_once(checkpoint, source, tmp_path, expected, capsys, monkeypatch):
    target = tmp_path / "out.de"
    monkeypatch.setattr("hf_capsule_mt.files.GRACE", 0)
    with locked(tmp_path / "out.de.unfinished"), ThreadPoolExecutor() as threads, pytest.raises(SystemExit):
        threads.submit(translate, checkpoint, source, target).result()
    assert "Another process works in" in capsys.readouterr().err
    translate(checkpoint, source, target)
    assert lines_of(target) == expected
    assert {file.name for file in tmp_path.iterdir()} == {"in.en", "out.de"}


def test_a_process_that_waits_long_says_so(checkpoint, source, tmp_path, monkeypatch):
    """Another one may be stopped, which no error tells."""
    told = Event()

    class Listener(logging.Handler):
        def emit(self, record):
            if "waited 0 seconds for the other processes" in record.getMessage():
                told.set()

    def gather(shares):
        assert told.wait(60)
        return shares

    monkeypatch.setattr(crew_module, "PATIENCE", 0)
    monkeypatch.setattr(crew_module, "gather_object", gather)
    listener = Listener()
    crew_module.logger.addHandler(listener)
    try:
        translate(checkpoint, source, tmp_path / "out.de")
    finally:
        crew_module.logger.removeHandler(listener)


@pytest.mark.parametrize("options", [[], ["--tags"]])
def test_lines_with_several_sentences(checkpoint, source, tmp_path, options):
    source.write_text("A b c? D e f!\n\nL m.\n")
    one, two, three = translate_lines(tiny_model(), tiny_tokenizer(), ["A b c?", "D e f!", "L m."], num_beams=3)
    translate(checkpoint, source, tmp_path / "out.de", "--sentences", "en", *options)
    assert (tmp_path / "out.de").read_text() == f"{one} {two}\n\n{three}\n"


@pytest.mark.parametrize(
    ("option", "texts"), [("--sentences", ["H e", "A b", "D g."]), ("--documents", ["H e A b D g."])]
)
def test_lines_that_belong_apart_and_lines_that_belong_together(checkpoint, source, tmp_path, option, texts):
    source.write_text("H e\nA b\nD g.\n")
    translations = translate_lines(tiny_model(), tiny_tokenizer(), texts, num_beams=3)
    translate(checkpoint, source, tmp_path / "out.de", option, "en")
    assert lines_of(tmp_path / "out.de") == translations


def test_carriage_returns_marks_and_damaged_bytes(checkpoint, source, tmp_path):
    source.write_bytes(b"\xef\xbb\xbfa b.\r\n\r\nc \xff\r\n")
    one, two = translate_lines(tiny_model(), tiny_tokenizer(), ["a b.", "c \ufffd"], num_beams=3)
    for options, ending in (([], "\n"), (["--documents", "en"], "\r\n"), (["--tags"], "\r\n")):
        translate(checkpoint, source, tmp_path / "out.de", "--errors", "replace", *options)
        assert (tmp_path / "out.de").read_bytes().decode() == f"{one}{ending}{ending}{two}{ending}"


@pytest.mark.parametrize(("limit", "lines"), [(-1, ["a b", "c " * 63]), (0, ["a b"]), (1, None)])
def test_odd_limits_of_a_tokenizer(source, tmp_path, capsys, limit, lines):
    """-1 stands for no limit, as with some tokenizers of the Hub. 1 leaves no room for a word."""
    checkpoint = str(save_tiny_marian(tmp_path / "checkpoint"))
    file = Path(checkpoint, "tokenizer_config.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_max_length": limit}))
    source.write_text("".join(f"{line}\n" for line in lines or ["a b"]))
    options = ["--max_tokens_per_batch", "99"]
    if lines is None:
        with pytest.raises(SystemExit, match="2"):
            translate(checkpoint, source, tmp_path / "out.de", *options)
        assert "reads 1 token at most" in capsys.readouterr().err
        return
    translate(checkpoint, source, tmp_path / "out.de", *options)
    tokenizer = tiny_tokenizer(model_max_length=64)
    assert lines_of(tmp_path / "out.de") == translate_lines(tiny_model(), tokenizer, lines, num_beams=3)


def test_lines_without_letters_are_copied(checkpoint, source, tmp_path):
    source.write_text("---\n 1984 \na\n")
    translate(checkpoint, source, tmp_path / "out.de")
    assert lines_of(tmp_path / "out.de")[:2] == ["---", "1984"]
