"""The distillation command: formats, several processes, interruptions, the manifest, mistakes."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest
from filelock import FileLock
from forked_commands import run_both
from tiny_checkpoints import tiny_checkpoint

from hf_capsule_mt.cli import distill
from hf_capsule_mt.cli.distill import main
from hf_capsule_mt.data.parallel_text import read_lines, read_parallel_text

TOO_LONG = " ".join("a" * 40)
SOURCES = ["a b c d e f", "g h", TOO_LONG, "i j k l m n o p", "q", "r s t", "u v w x y z a b c"]
KEPT = [source for source in SOURCES if source != TOO_LONG]
OPTIONS = ["--num_beams", "2", "--shard_size", "3"]
# It learned to reverse.
CHECKPOINT = str(tiny_checkpoint("capsule_aggregated_marian"))
EXPECTED = [source[::-1] for source in KEPT]


@pytest.fixture
def corpus(tmp_path):
    files = [tmp_path / "train.en", tmp_path / "train.de"]
    for file in files:
        file.write_text("".join(f"{line}\n" for line in SOURCES))
    return files


def options(corpus, output, *more):
    return list(map(str, ["--model", CHECKPOINT, "--train_file", *corpus, "--output_file", *output, *OPTIONS, *more]))


def manifest_of(file):
    return json.loads(Path(f"{file}.manifest.json").read_text())


@pytest.mark.parametrize("names", [["out.en", "out.de"], ["out.en.gz", "out.de.gz"], ["out.tsv"], ["out.jsonl.gz"]])
def test_training_reads_what_comes_out(corpus, tmp_path, names):
    output = [tmp_path / name for name in names]
    main(options(corpus, output, "--source_lang", "en", "--target_lang", "de"))
    text = read_parallel_text(output, "en", "de")
    assert (text.sources, text.targets) == (KEPT, EXPECTED)
    manifest = manifest_of(output[0])
    assert manifest["teacher"] == CHECKPOINT
    assert manifest["kept"] == 6
    assert manifest["failed"] == [{"sentence": 3, "reason": "more than 32 source tokens"}]
    assert manifest["data"] == {"files": list(map(str, corpus)), "dataset_name": None, "sentences": 7}
    assert manifest["settings"]["num_beams"] == 2
    assert manifest["settings"]["data"] == hashlib.sha256(corpus[0].read_bytes()).hexdigest()
    for file in output:
        assert manifest["output"][str(file)] == hashlib.sha256(file.read_bytes()).hexdigest()
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {"train.en", "train.de", *names, f"{names[0]}.manifest.json"}


@pytest.mark.parametrize("name", ["train.en", "train.tsv", "train.jsonl", "train.en.gz"])
def test_corpora(corpus, tmp_path, name):
    text = {
        "train.en": "".join(f"{source}\n" for source in SOURCES),
        "train.tsv": "".join(f"{source}\tx\n" for source in SOURCES),
        "train.jsonl": "".join(json.dumps({"translation": {"en": source, "de": "x"}}) + "\n" for source in SOURCES),
        "train.en.gz": "".join(f"{source}\n" for source in SOURCES),
    }[name]
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    output = [tmp_path / "out.tsv"]
    main(options([tmp_path / name], output, "--source_lang", "en", "--target_lang", "de"))
    assert read_parallel_text(output).targets == EXPECTED


def test_goes_on_after_an_interruption(corpus, tmp_path, monkeypatch):
    output, made = [tmp_path / "out.en", tmp_path / "out.de"], []
    original = distill.distill

    def interrupted(model, tokenizer, sources, *arguments, **kwargs):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(sources)
        return original(model, tokenizer, sources, *arguments, **kwargs)

    monkeypatch.setattr(distill, "distill", interrupted)
    with pytest.raises(KeyboardInterrupt):
        main(options(corpus, output))
    assert not output[0].exists()
    with (tmp_path / "out.en.distilling").open("a") as file:
        file.write('{"transl')
    monkeypatch.setattr(distill, "distill", lambda *args, **kw: made.append(args[2]) or original(*args, **kw))
    main(options(corpus, output))
    assert read_lines(output[1]) == EXPECTED
    assert [source for sources in made for source in sources] == SOURCES, "every sentence was translated once"


def test_unlikely_translations_are_left_out(corpus, tmp_path, capsys):
    main(options(corpus, [tmp_path / "out.tsv"], "--min_score", "-0.139"))
    kept = read_parallel_text([tmp_path / "out.tsv"]).targets
    manifest = manifest_of(tmp_path / "out.tsv")
    assert 0 < len(kept) < len(EXPECTED)
    assert set(kept) < set(EXPECTED)
    assert (manifest["min_score"], manifest["below_min_score"]) == (-0.139, len(EXPECTED) - len(kept))
    assert manifest["kept"] == len(kept)
    left_out = len(SOURCES) - len(kept)
    below = len(EXPECTED) - len(kept)
    assert f"{left_out} left out, {below} of them with a score below -0.139" in capsys.readouterr().out
    error = error_of(options(corpus, [tmp_path / "none.tsv"], "--min_score", "1"), capsys)
    assert "Lower --min_score" in error


def test_not_with_other_settings(corpus, tmp_path, monkeypatch, capsys):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(distill, "distill", stop)
    output = [tmp_path / "out.tsv"]
    with pytest.raises(KeyboardInterrupt):
        main(options(corpus, output))
    assert "with other settings" in error_of(options(corpus, output, "--num_beams", 3), capsys)


def test_not_twice_at_once(corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("hf_capsule_mt.files.GRACE", 0)
    with FileLock(tmp_path / "out.tsv.lock"):
        assert "another process writes" in error_of(options(corpus, [tmp_path / "out.tsv"]), capsys)
    main(options(corpus, [tmp_path / "out.tsv"]))
    assert {file.name for file in tmp_path.iterdir()} == {"train.en", "train.de", "out.tsv", "out.tsv.manifest.json"}


@pytest.mark.slow
def test_two_processes(corpus, tmp_path):
    output = [tmp_path / "out.en", tmp_path / "out.de"]
    statuses = run_both("distill", options(corpus, output, "--device", "cpu"), tmp_path / "log")
    assert statuses == [0, 0], (tmp_path / "log0").read_text()
    assert read_lines(output[0]) == KEPT
    assert read_lines(output[1]) == EXPECTED
    assert manifest_of(output[0])["processes"] == 2


def error_of(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(list(map(str, arguments)))
    assert exit_.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        ["--shard_size", "0"],
        ["--dataset_name", "data"],
        ["--train_file", "nowhere.en"],
        ["--train_file", "empty.en"],
        ["--train_file", "long.en"],
        ["--output_file", "a.en", "./a.en"],
        ["--output_file", "nowhere/out.tsv"],
        ["--output_file", "train.en", "train.de"],
        ["--model", "/nowhere"],
    ],
)
def test_mistakes(corpus, tmp_path, monkeypatch, capsys, change):
    monkeypatch.chdir(tmp_path)
    before = corpus[0].read_bytes()
    Path("empty.en").touch()
    Path("long.en").write_text(f"{TOO_LONG}\n")
    error_of([*options(corpus, [tmp_path / "out.tsv"]), *change], capsys)
    assert corpus[0].read_bytes() == before
    assert not (tmp_path / "out.tsv").exists()


@pytest.mark.parametrize("change", [SOURCES[:-1], [*SOURCES, "a"], ["x", *SOURCES[1:]]], ids=["less", "more", "other"])
def test_a_corpus_that_changes_meanwhile(corpus, tmp_path, capsys, monkeypatch, change):
    original = distill._finish

    def finish(*arguments):
        for file in corpus:
            file.write_text("".join(f"{line}\n" for line in change))
        return original(*arguments)

    monkeypatch.setattr(distill, "_finish", finish)
    error = error_of(options(corpus, [tmp_path / "out.tsv"]), capsys)
    assert "has changed since" in error
    assert not (tmp_path / "out.tsv").exists()


@pytest.mark.parametrize("patterns", [["tr*.en", "tr*.de"], ["tr*.en"]])
def test_patterns(corpus, tmp_path, patterns):
    main(options([corpus[0].parent / pattern for pattern in patterns], [tmp_path / "out.tsv"]))
    assert read_parallel_text([tmp_path / "out.tsv"]).sources == KEPT
