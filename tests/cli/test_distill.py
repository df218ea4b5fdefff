"""The distillation command: formats, several processes, interruptions, the manifest, mistakes."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest
from filelock import FileLock
from tiny_marian import save_tiny_teacher, tiny_model, tiny_teacher, tiny_tokenizer

from hf_capsule_mt.cli import distill
from hf_capsule_mt.cli.distill import main
from hf_capsule_mt.data.parallel_text import read_lines, read_parallel_text
from hf_capsule_mt.translation.translation_report import sequence_scores
from hf_capsule_mt.translation.translator import translate_lines

TOO_LONG = " ".join("a" * 40)
SOURCES = ["a b c d e f", "g h", TOO_LONG, "i j k l m n o p", "q", "r s t", "u v w x y z a b c"]
OPTIONS = ["--num_beams", "2", "--max_new_tokens", "20", "--chunk_size", "3"]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """The folder of a random model, some of whose translations have no end."""
    return save_tiny_teacher(tmp_path_factory.mktemp("teacher"))


@pytest.fixture(scope="module")
def expected():
    """The pairs that it makes of the sources, and the numbers of the others."""
    results = distill.distill(tiny_teacher(), tiny_tokenizer(), SOURCES, 100, num_beams=2, max_new_tokens=20)
    pairs = [(source, each.translation) for source, each in zip(SOURCES, results) if each.failure is None]
    assert 2 < len(pairs) < len(SOURCES)
    return pairs, [number for number, each in enumerate(results, start=1) if each.failure is not None]


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
    assert {"sentence": 3, "reason": "more than 32 source tokens"} in manifest["failed"]
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
    original = distill.distill

    def interrupted(model, tokenizer, sources, *arguments, **kwargs):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(sources)
        return original(model, tokenizer, sources, *arguments, **kwargs)

    monkeypatch.setattr(distill, "distill", interrupted)
    with pytest.raises(KeyboardInterrupt):
        main(options(teacher, corpus, output))
    assert not output[0].exists()
    with (tmp_path / "out.en.distilling").open("a") as file:
        file.write('{"transl')
    monkeypatch.setattr(distill, "distill", lambda *args, **kw: made.append(args[2]) or original(*args, **kw))
    main(options(teacher, corpus, output))
    assert read_lines(output[1]) == [target for _, target in expected[0]]
    assert [source for sources in made for source in sources] == SOURCES, "every sentence was translated once"


def test_unlikely_translations_are_left_out(teacher, expected, corpus, tmp_path, capsys):
    targets = [target for _, target in expected[0]]
    results = distill.distill(
        tiny_teacher(), tiny_tokenizer(), SOURCES, 100, scores=True, num_beams=2, max_new_tokens=20
    )
    limit = sorted(each.score for each in results if each.failure is None)[1]
    main(options(teacher, corpus, [tmp_path / "out.tsv"], f"--min_score={limit - 1e-6}"))
    manifest = manifest_of(tmp_path / "out.tsv")
    assert len(read_parallel_text([tmp_path / "out.tsv"]).targets) == manifest["kept"] == len(targets) - 1
    assert manifest["below_min_score"] == 1
    error_of(options(teacher, corpus, [tmp_path / "none.tsv"], "--min_score", "1"), capsys)


def test_not_with_other_settings(teacher, corpus, tmp_path, monkeypatch, capsys):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(distill, "distill", stop)
    output = [tmp_path / "out.tsv"]
    with pytest.raises(KeyboardInterrupt):
        main(options(teacher, corpus, output))
    assert "with other settings" in error_of(options(teacher, corpus, output, "--num_beams", 3), capsys)


def test_not_twice_at_once(teacher, corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("hf_capsule_mt.files.GRACE", 0)
    with FileLock(tmp_path / "out.tsv.lock"):
        assert "Another process writes" in error_of(options(teacher, corpus, [tmp_path / "out.tsv"]), capsys)


def error_of(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(list(map(str, arguments)))
    assert exit_.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        ["--train_file", "empty.en"],
        ["--train_file", "long.en"],
        ["--output_file", "a.en", "./a.en"],
        ["--output_file", "train.en", "train.de"],
    ],
)
def test_mistakes(teacher, corpus, tmp_path, monkeypatch, capsys, change):
    monkeypatch.chdir(tmp_path)
    before = corpus[0].read_bytes()
    Path("empty.en").touch()
    Path("long.en").write_text(f"{TOO_LONG}\n")
    error_of([*options(teacher, corpus, [tmp_path / "out.tsv"]), *change], capsys)
    assert corpus[0].read_bytes() == before
    assert not (tmp_path / "out.tsv").exists()


def test_translations_are_those_of_translate_lines():
    model, tokenizer = tiny_model(), tiny_tokenizer()
    sources = ["a b c d e f", "g h", "i j k l m n o p", "q"]
    results = distill.distill(model, tokenizer, sources, 100, num_beams=2, max_new_tokens=60)
    assert any(result.failure is None for result in results)
    assert any(result.failure is not None for result in results)
    assert [result.translation for result in results] == translate_lines(
        model, tokenizer, sources, num_beams=2, max_new_tokens=60
    )


def test_scores_are_those_of_reports():
    model, tokenizer = tiny_model(), tiny_tokenizer()
    [found, blank] = distill.distill(model, tokenizer, ["a b c", ""], 100, scores=True)
    words = tokenizer(found.translation)["input_ids"]
    words = words if found.failure is None else words[:-1]
    [score] = sequence_scores(model, [tokenizer("a b c")["input_ids"]], [words])
    assert (found.score, blank.score) == (pytest.approx(score), None)
    assert distill.distill(model, tokenizer, ["a b c"], 100)[0].score is None


def test_failures():
    model, tokenizer = tiny_model(), tiny_tokenizer(model_max_length=8)
    too_long = " ".join("abcdefgh")
    sources = ["a", too_long, "", "b"]
    # A limit too short to end in.
    model.final_logits_bias[:, 2] = -100
    results = distill.distill(model, tokenizer, sources, 100, max_new_tokens=3)
    failures = ["no end within the limit", "more than 8 source tokens", "empty source", "no end within the limit"]
    assert [result.failure for result in results] == failures
    # A teacher that says nothing.
    model.final_logits_bias[:, 2] = 100
    results = distill.distill(model, tokenizer, ["a"], 100)
    assert results == [distill.Distilled("", "empty translation")]
