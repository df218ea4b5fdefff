"""The distillation command: formats, several processes, interruptions, the manifest, mistakes."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest
from filelock import FileLock
from tiny_marian import save_tiny_teacher

from hf_capsule_mt.cli import translate
from hf_capsule_mt.cli.distill import main
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.data.parallel_text import read_parallel_text
from hf_capsule_mt.files import LOCK
from hf_capsule_mt.translation.files.crew import Crew

TOO_LONG = " ".join("a" * 40)
SOURCES = ["a b c d e f", "g h", TOO_LONG, "i j k l m n o p", "q", "r s t", "u v w x y z a b c"]
OPTIONS = ["--num_beams", "2", "--max_new_tokens", "20", "--chunk_size", "3"]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """The folder of a random model, some of whose translations have no end."""
    return save_tiny_teacher(tmp_path_factory.mktemp("teacher"))


@pytest.fixture(scope="module")
def judged(teacher, tmp_path_factory):
    """What `translate` writes for the sources, and what its report says of each."""
    folder = tmp_path_factory.mktemp("judged")
    (folder / "in").write_text("".join(f"{line}\n" for line in SOURCES))
    files = ["--input_file", folder / "in", "--output_file", folder / "out", "--report_file", folder / "report"]
    translate.main(list(map(str, ["--model", teacher, *files, *OPTIONS])))
    return read_lines(folder / "out"), [json.loads(line) for line in read_lines(folder / "report")]


@pytest.fixture(scope="module")
def expected(judged):
    """The pairs that are kept, and the numbers of the others."""
    failed = [any(each[name] for name in ("source_cut", "limit_reached", "empty")) for each in judged[1]]
    pairs = [pair for *pair, bad in zip(SOURCES, judged[0], failed) if not bad]
    assert 2 < len(pairs) < len(SOURCES)
    return list(map(tuple, pairs)), [number for number, bad in enumerate(failed, start=1) if bad]


@pytest.fixture
def corpus(tmp_path):
    files = [tmp_path / "train.en", tmp_path / "train.de"]
    for file in files:
        file.write_text("".join(f"{line}\n" for line in SOURCES))
    return files


def options(teacher, corpus, output, *more):
    return list(map(str, ["--model", teacher, "--train_file", *corpus, "--output_file", *output, *OPTIONS, *more]))


def manifest_of(file):
    return json.loads(Path(f"{file}.manifest.json").read_text())


@pytest.mark.parametrize("names", [["out.en", "out.de"], ["out.jsonl.gz"]])
def test_training_reads_what_comes_out(teacher, expected, corpus, tmp_path, names):
    output = [tmp_path / name for name in names]
    main(options(teacher, corpus, output, "--source_lang", "en", "--target_lang", "de"))
    text = read_parallel_text(output, "en", "de")
    assert list(zip(text.sources, text.targets)) == expected[0]
    manifest = manifest_of(output[0])
    assert manifest["teacher"] == str(teacher)
    assert manifest["kept"] == len(expected[0])
    assert [failed["sentence"] for failed in manifest["failed"]] == expected[1]
    assert {"sentence": 3, "reason": "the source was cut"} in manifest["failed"]
    assert manifest["data"] == {"files": list(map(str, corpus)), "dataset_name": None, "sentences": 7}
    assert manifest["settings"]["num_beams"] == 2
    assert manifest["settings"]["data"] == hashlib.sha256(corpus[0].read_bytes()).hexdigest()
    for file in output:
        assert manifest["output"][str(file)] == hashlib.sha256(file.read_bytes()).hexdigest()
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {"train.en", "train.de", *names, f"{names[0]}.manifest.json"}


@pytest.mark.parametrize("name", ["train.tsv", "train.jsonl", "train.en.gz"])
def test_corpora(teacher, expected, tmp_path, name):
    text = {
        "train.tsv": "".join(f"{source}\tx\n" for source in SOURCES),
        "train.jsonl": "".join(json.dumps({"translation": {"en": source, "de": "x"}}) + "\n" for source in SOURCES),
        "train.en.gz": "".join(f"{source}\n" for source in SOURCES),
    }[name]
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    output = [tmp_path / "out.tsv"]
    main(options(teacher, [tmp_path / name], output, "--source_lang", "en", "--target_lang", "de"))
    assert read_parallel_text(output).targets == [target for _, target in expected[0]]


def test_goes_on_after_an_interruption(teacher, expected, corpus, tmp_path, monkeypatch):
    output, made = [tmp_path / "out.en", tmp_path / "out.de"], []
    original = Crew._share

    def noted(crew, task, *others):
        made.append([sentence.segment.text for sentence in task.sentences])
        return original(crew, task, *others)

    def interrupted(*arguments):
        if len(made) == 2:
            raise KeyboardInterrupt
        return noted(*arguments)

    monkeypatch.setattr(Crew, "_share", interrupted)
    with pytest.raises(KeyboardInterrupt):
        main(options(teacher, corpus, output))
    assert not output[0].exists()
    monkeypatch.setattr(Crew, "_share", noted)
    main(options(teacher, corpus, output))
    assert read_lines(output[1]) == [target for _, target in expected[0]]
    assert [source for sources in made for source in sources] == SOURCES, "every sentence was translated once"


def test_unlikely_translations_are_left_out(teacher, judged, expected, corpus, tmp_path, capsys, monkeypatch):
    good = [each["score"] for number, each in enumerate(judged[1], start=1) if number not in expected[1]]
    output = [tmp_path / "out.tsv"]
    assert "Lower --min_score" in error_of(options(teacher, corpus, output, "--min_score", "1"), capsys)
    # All is translated, and only the choice is made again.
    monkeypatch.setattr(Crew, "_share", None)
    assert "other settings" in error_of(options(teacher, corpus, output, "--num_beams", 3), capsys)
    main(options(teacher, corpus, output, f"--min_score={sorted(good)[1]}"))
    manifest = manifest_of(tmp_path / "out.tsv")
    assert len(read_parallel_text(output).targets) == manifest["kept"] == len(good) - 1
    assert manifest["below_min_score"] == 1


def test_what_is_copied_has_no_score_that_is_too_low(teacher, expected, tmp_path):
    (tmp_path / "in").write_text(f"1984\n{expected[0][0][0]}\n12:30\n")
    # A score over 0 leaves out all that has one.
    main(options(teacher, [tmp_path / "in"], [tmp_path / "out.tsv"], "--min_score", "1"))
    assert (tmp_path / "out.tsv").read_text() == "1984\t1984\n12:30\t12:30\n"
    manifest = manifest_of(tmp_path / "out.tsv")
    assert (manifest["kept"], manifest["below_min_score"], manifest["failed"]) == (2, 1, [])


def test_not_twice_at_once(teacher, corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("hf_capsule_mt.files.GRACE", 0)
    (tmp_path / "out.tsv.distilling").mkdir()
    with FileLock(tmp_path / "out.tsv.distilling" / LOCK):
        assert "Another process works in" in error_of(options(teacher, corpus, [tmp_path / "out.tsv"]), capsys)


def error_of(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(list(map(str, arguments)))
    assert exit_.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--train_file", "empty.en"], "empty.en holds no usable sentence"),
        (["--train_file", "long.en"], "The first reason: the source was cut"),
        (["--output_file", "a.en", "./a.en"], "--output_file names a.en, another file"),
        (["--output_file", "train.en", "train.de"], "--output_file names train.en, another file"),
        (["--vocabulary", "long.en", "--output_file", "long.en", "b.en"], "--output_file names long.en, another file"),
        (["--output_file", "out.csv"], "out.csv"),
    ],
)
def test_mistakes(teacher, corpus, tmp_path, monkeypatch, capsys, change, words):
    monkeypatch.chdir(tmp_path)
    before = corpus[0].read_bytes()
    Path("empty.en").touch()
    Path("long.en").write_text(f"{TOO_LONG}\n")
    assert words in error_of([*options(teacher, corpus, [tmp_path / "out.tsv"]), *change], capsys)
    assert corpus[0].read_bytes() == before
    assert not (tmp_path / "out.tsv").exists()


def test_failures(teacher, tmp_path, capsys):
    (tmp_path / "in").write_text("a b\n\n12:30\n")
    main(options(teacher, [tmp_path / "in"], [tmp_path / "out.tsv"], "--max_new_tokens", "1"))
    failed = [{"sentence": 1, "reason": "cut at the limit of its length"}, {"sentence": 2, "reason": "empty source"}]
    assert manifest_of(tmp_path / "out.tsv")["failed"] == failed
    assert (tmp_path / "out.tsv").read_text() == "12:30\t12:30\n"
