"""`translate --n_best` and `--alignments`: the answers of the pipeline, line by line, also after a stop."""

import json

import pytest
from interrupted_translation import interrupt_after
from tiny_marian import save_tiny_marian
from transformers import GenerationConfig

import hf_capsule_mt
from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.alignment import forced

LINES = ["a b c", "", "d", "1984 - 5", "e  f g h i j", "k l", "m n o p"]
BEAMS = {"num_beams": 3, "max_new_tokens": 6}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = save_tiny_marian(tmp_path_factory.mktemp("marian"))
    GenerationConfig.from_pretrained(folder, forced_eos_token_id=None).save_pretrained(folder)
    return folder


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.en"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


def translate(checkpoint, source, folder, *options):
    folder.mkdir(exist_ok=True)
    beams = ["--num_beams", "3", "--max_new_tokens", "6"]
    files = ["--input_file", str(source), "--output_file", str(folder / "out")]
    main(["--model", str(checkpoint), "--device", "cpu", *files, *beams, *map(str, options)])
    return folder / "out"


def test_the_best_translations_of_each_line(checkpoint, source, tmp_path):
    pipeline = hf_capsule_mt.pipeline(checkpoint, device="cpu")
    expected = []
    for number, line in enumerate(LINES):
        best = pipeline.translate(line, num_return_sequences=2, **BEAMS)
        # What is copied has no others.
        for each in (best, *best.alternatives)[: 1 if best.score is None else 2]:
            expected.append((number, each.text, each.score or 0.0))
    written = []
    for line in read_lines(translate(checkpoint, source, tmp_path, "--n_best", 2, "--chunk_size", 3)):
        number, text, feature, score = line.split(" ||| ")
        assert feature == f"score= {score}"
        written.append((int(number), text, float(score)))
    assert [row[:2] for row in written] == [row[:2] for row in expected]
    assert [row[2] for row in written] == pytest.approx([row[2] for row in expected], abs=1e-4)


def test_alignments_do_not_fill_the_memory(checkpoint, monkeypatch):
    """All translations of a batch may be too many for one pass that returns its attention."""
    pipeline = hf_capsule_mt.pipeline(checkpoint, device="cpu", batch_size=8)
    texts = [line for line in LINES if line]
    options = {**BEAMS, "num_return_sequences": 3, "return_alignments": True}
    expected = pipeline(texts, **options)
    passes = []

    teacher_force = forced.teacher_force

    def counted(model, sources, *arguments, **options):
        passes.append(len(sources))
        return teacher_force(model, sources, *arguments, **options)

    monkeypatch.setattr(forced, "teacher_force", counted)
    assert pipeline(texts, **options) == expected
    [translations] = passes
    assert translations > 8
    # Two heads of one layer, at most 7 tokens of a source, and 6 of a translation.
    monkeypatch.setattr(forced, "_MOST_SCORES", 4 * 6 * 2 * 13)
    passes.clear()
    assert pipeline(texts, **options) == expected
    assert sum(passes) == translations
    assert max(passes) == 4


def test_the_best_translations_of_lines_with_several_sentences(checkpoint, tmp_path):
    """Translation k of a line has translation k of each sentence. Its score is their mean, by their tokens."""
    lines = ["A b c? D e f g!", "12.", "H i."]
    (tmp_path / "in.en").write_text("".join(f"{line}\n" for line in lines))
    output = translate(checkpoint, tmp_path / "in.en", tmp_path, "--n_best", 2, "--sentences", "en", "--chunk_size", 2)
    pipeline = hf_capsule_mt.pipeline(checkpoint, device="cpu")
    expected = []
    for number, line in enumerate(lines):
        best = pipeline.translate(line, documents="en", num_return_sequences=2, **BEAMS)
        for each in (best, *best.alternatives)[: 1 if best.score is None else 2]:
            expected.append((str(number), each.text, f"{each.score or 0.0:.3f}"))
    found = [line.split(" ||| ") for line in read_lines(output)]
    assert [(number, text, f"{float(score):.3f}") for number, text, _, score in found] == expected


def test_a_report_judges_the_best_translation_of_each_line(checkpoint, source, tmp_path):
    for name, options in (("one", []), ("several", ["--n_best", 2])):
        translate(checkpoint, source, tmp_path, "--report_file", tmp_path / name, *options)
    assert (tmp_path / "several").read_text() == (tmp_path / "one").read_text()


def test_alignments_of_each_line(checkpoint, source, tmp_path):
    pipeline = hf_capsule_mt.pipeline(checkpoint, device="cpu", num_beams=3, max_new_tokens=6)
    answers = pipeline.translate(LINES, return_alignments=True)
    output = translate(checkpoint, source, tmp_path, "--alignments", tmp_path / "pharaoh", "--chunk_size", 3)
    assert read_lines(output) == [answer.text for answer in answers]
    pairs = [sorted({(link.source, link.target) for link in answer.links}) for answer in answers]
    # Each letter is a word for both.
    assert [line.split() for line in read_lines(tmp_path / "pharaoh")] == [[f"{i}-{j}" for i, j in of] for of in pairs]
    translate(checkpoint, source, tmp_path, "--alignments", tmp_path / "links.jsonl.gz", "--chunk_size", 3)
    records = [json.loads(line) for line in read_lines(tmp_path / "links.jsonl.gz")]
    assert [record["line"] for record in records] == [*range(1, 8)]
    for record, answer, line in zip(records, answers, LINES, strict=True):
        assert (record["source"], record["translation"]) == (line, answer.text)
        assert record["words"] == [[link.source, link.target] for link in answer.links]
        assert record["characters"] == [[[*link.source_span], [*link.target_span]] for link in answer.links]


def test_words_of_pharaohs_format_stand_between_spaces(checkpoint, tmp_path):
    """Also where a line is cut into sentences, and a full stop is a word for the model."""
    (tmp_path / "in.en").write_text("See dog.  Go d e!\n12.\n")
    options = ["--sentences", "en", "--alignments"]
    output = translate(checkpoint, tmp_path / "in.en", tmp_path, *options, tmp_path / "pharaoh")
    first, second = read_lines(tmp_path / "pharaoh")
    source, target = ["See", "dog.", "Go", "d", "e!"], read_lines(output)[0].split()
    pairs = [tuple(map(int, pair.split("-"))) for pair in first.split()]
    assert {number for _, number in pairs} == {*range(len(target))}
    assert max(number for number, _ in pairs) < len(source)
    assert second == "0-0"
    translate(checkpoint, tmp_path / "in.en", tmp_path, *options, tmp_path / "links.jsonl")
    records = [json.loads(line) for line in read_lines(tmp_path / "links.jsonl")]
    places = [(record["line"], record["sentence"], record["source"]) for record in records]
    assert places == [(1, 1, "See dog."), (1, 2, "Go d e!"), (2, 1, "")]


@pytest.mark.parametrize("name", ["links.jsonl", "pharaoh"])
def test_a_run_that_was_stopped_ends_with_the_same_bytes(checkpoint, source, tmp_path, monkeypatch, capsys, name):
    def run(folder, n_best=2):
        files = ["--alignments", tmp_path / folder / name, "--report_file", tmp_path / folder / "report"]
        translate(checkpoint, source, tmp_path / folder, "--n_best", n_best, "--chunk_size", 2, *files)

    run("whole")
    undo = interrupt_after(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        run("stopped")
    undo()
    unfinished = tmp_path / "stopped" / "out.unfinished"
    assert {"lines", "alignments", "report"} < {file.name for file in unfinished.iterdir()}
    # A killed run has written more than its state says.
    for kept in ("lines", "alignments"):
        with open(unfinished / kept, "ab") as file:
            file.write(b"half a li")
    with pytest.raises(SystemExit):
        run("stopped", n_best=3)
    assert "interrupted run with another n_best" in capsys.readouterr().err
    shown = count_sentences(monkeypatch)
    run("stopped")
    assert 0 < len(shown) < 5
    for file in ("out", name, "report"):
        assert (tmp_path / "stopped" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert not unfinished.exists()


def count_sentences(monkeypatch):
    """The indices that the next runs show to the model."""
    from hf_capsule_mt.translation.text_translator import TextTranslator

    original = TextTranslator.decode_batches
    seen = []

    def counting(translator, sentences, batches, **options):
        seen.extend(index for batch in batches for index in batch)
        return original(translator, sentences, batches, **options)

    monkeypatch.setattr(TextTranslator, "decode_batches", counting)
    return seen


def test_without_an_output_file(checkpoint, source, tmp_path, capfdbinary):
    whole = translate(checkpoint, source, tmp_path, "--alignments", tmp_path / "once.jsonl")
    beams = ["--num_beams", "3", "--max_new_tokens", "6", "--device", "cpu"]
    alignments = ["--alignments", str(tmp_path / "twice.jsonl")]
    main(["--model", str(checkpoint), "--input_file", str(source), *beams, *alignments])
    assert (tmp_path / "twice.jsonl").read_bytes() == (tmp_path / "once.jsonl").read_bytes()
    assert whole.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--n_best", "2", "--documents", "en"], "--n_best is for lines"),
        (["--n_best", "4"], "--n_best 4 needs as many beams. Give --num_beams 4 or more"),
        (["--n_best", "2", "--glossary", "terms.tsv"], "--glossary gives one translation"),
        (["--alignments", "links", "--documents", "en"], "Pharaoh's format is for lines"),
        (["--alignments", "links.jsonl", "--tags"], "without tags and kept parts"),
        (["--alignments", "links.jsonl", "--keep", "a"], "without tags and kept parts"),
        (["--alignments", "in.en"], "in.en"),
    ],
)
def test_what_is_refused(checkpoint, source, tmp_path, monkeypatch, capsys, options, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "terms.tsv").write_text("a\tb\n")
    with pytest.raises(SystemExit):
        translate(checkpoint, "in.en", tmp_path, *options)
    assert words in capsys.readouterr().err


def test_files_with_a_format_have_neither(checkpoint, tmp_path, capsys):
    (tmp_path / "in.md").write_text("# A b\n")
    for option in (["--n_best", "2"], ["--alignments", tmp_path / "links"]):
        with pytest.raises(SystemExit):
            translate(checkpoint, tmp_path / "in.md", tmp_path, "--sentences", "en", *option)
        assert f"{option[0]} is for lines of text, and {tmp_path / 'in.md'} is Markdown" in capsys.readouterr().err


def test_more_translations_than_beams(checkpoint):
    translator = hf_capsule_mt.pipeline(checkpoint, device="cpu").texts
    sentences = translator.reader.prepare("a").sentences
    with pytest.raises(UserError, match="3 translations of a sentence need as many beams, and num_beams is 2"):
        translator.decode(sentences, num_beams=2, num_return_sequences=3)
