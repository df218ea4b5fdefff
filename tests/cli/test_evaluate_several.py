"""The evaluation command on several systems: significance, length, adequacy, and what it refuses."""

import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from tiny_marian import save_tiny_marian
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_capsule_mt import preset_config
from hf_capsule_mt.cli.evaluate import main
from hf_capsule_mt.evaluation.adequacy import measure_adequacy
from hf_capsule_mt.evaluation.alignment import align_by_attention
from hf_capsule_mt.evaluation.scores import score_translations
from hf_capsule_mt.evaluation.significance import compare_runs, compare_systems

TEXTS = {
    "source": ["a b c", "d e f g", "h i", "j k l m n o", "p q r", "s t u v w"],
    "reference": ["c b a", "g f e d", "i h", "o n m l k j", "r q p", "w v u t s"],
    "base": ["c b b", "g f d", "i h", "o n m l k k k", "r q", "w v u t x"],
    "good": ["c b a", "g f e d", "i h", "o n m l k x", "r q p", "w v u t s"],
    "bad": ["c c", "g", "i h", "o o o", "r r r", "w"],
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, lines in TEXTS.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def run(*options):
    main(["--references", "reference", *options])


def tables(capsys):
    """Cells of each Markdown table, and the lines under it."""
    parts = [part.splitlines() for part in capsys.readouterr().out.split("\n\n")]
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in part] if part[0].startswith("|") else part
        for part in parts
    ]


def test_significance(files, capsys):
    run("--compare", "base", "good", "bad", "--num_samples", "100", "--seed", "3", "--output_file", "record.json")
    table, caption = tables(capsys)
    options = {"num_samples": 100, "seed": 3}
    found = {
        name: compare_systems(TEXTS["base"], TEXTS[name], [TEXTS["reference"]], **options)["bleu"]
        for name in ("good", "bad")
    }
    assert table[0] == ["system", "bleu", "Δ", "95% interval", "p"]
    assert table[2] == ["base", f"{found['good']['baseline']:.2f}", "", "", ""]
    assert [row[0] for row in table[3:]] == ["good", "bad"]
    for row, one in zip(table[3:], found.values(), strict=True):
        assert row[1].rstrip("†‡") == f"{one['score']:.2f}"
        interval = f"{one['low']:+.2f} to {one['high']:+.2f}"
        assert row[2:] == [f"{one['score'] - one['baseline']:+.2f}", interval, f"{one['p_value']:.4f}"]
    assert "paired bootstrap resampling (Koehn 2004), one-sided, 100 samples, seed 3" in caption[0]
    assert caption[1].endswith("Another training run of the same model differs too.")
    assert "bs:100|seed:3" in caption[2]
    record = json.loads((files / "record.json").read_text())
    assert record["comparison"]["systems"]["bad"]["bleu"] == found["bad"]
    assert record["comparison"]["settings"] == {"test": "bootstrap", "two_sided": False, "num_samples": 100, "seed": 3}
    assert [entry["file"] for entry in record["systems"]] == ["base", "good", "bad"]
    assert record["settings"]["metrics"] == ["bleu"]


def test_runs_that_commas_join(files, capsys):
    (files / "good-2").write_text("".join(f"{line}\n" for line in [*TEXTS["good"][:-1], "w v u"]))
    (files / "bad,3").write_text("".join(f"{line}\n" for line in TEXTS["bad"]))
    options = {"metrics": ["bleu", "chrf"], "num_samples": 100, "seed": 3}
    shown = ["--metrics", "bleu", "chrf", "--num_samples", "100", "--seed", "3", "--output_file", "record.json"]
    lengths = ["--input_file", "source", "--length_edges", "3"]
    run("--compare", "base", "good,good-2", "bad,3", *shown, *lengths)
    table, caption, by_length, _ = tables(capsys)
    good_runs = [TEXTS["good"], (files / "good-2").read_text().splitlines()]
    found = compare_runs([TEXTS["base"]], good_runs, [TEXTS["reference"]], **options)
    columns = ["deviation", "Δ", "95% interval", "p"]
    assert table[0] == ["system", "runs", "bleu", *columns, "chrf", *columns]
    # The name of one file has a comma.
    assert [row[:2] for row in table[2:]] == [["base", "1"], ["good,good-2", "2"], ["bad,3", "1"]]
    bleu, chrf = found["bleu"], found["chrf"]
    cells = []
    for one in (bleu, chrf):
        mark = "‡" if one["p_value"] < 0.01 else "†" if one["p_value"] < 0.05 else ""
        cells += [f"{one['score']:.2f}{mark}", f"{one['deviation']:.2f}", f"{one['score'] - one['baseline']:+.2f}"]
        cells += [f"{one['low']:+.2f} to {one['high']:+.2f}", f"{one['p_value']:.4f}"]
    assert table[3][2:] == cells
    assert "bootstrap over runs and sentences (Sellam et al. 2022), two-sided, 100 samples, seed 3" in caption[0]
    assert "† means that p is below 0.05" in caption[0]
    assert caption[1] == "p and the interval do not know how much another training run differs from base, bad,3."
    assert caption[2].startswith("With two or three runs the interval is too narrow")
    assert by_length[0] == ["source words", "sentences"] + [
        cell for name in ("base", "good", "good-2", "bad,3") for cell in (f"{name}: BLEU", "words", "ratio")
    ]
    record = json.loads((files / "record.json").read_text())
    assert record["comparison"]["systems"]["good,good-2"] == found
    assert record["comparison"]["settings"]["two_sided"]
    assert [entry["file"] for entry in record["systems"]] == ["base", "good", "good-2", "bad,3"]


def test_sign_test_and_its_marks(files, capsys):
    for name in ("base", "good", "reference"):
        (files / name).write_text("".join(f"{line}\n" for line in TEXTS[name] * 4))
    run("--compare", "base", "good", "--significance", "sign")
    table, caption = tables(capsys)
    assert table[0] == ["system", "bleu", "Δ", "95% interval", "p", "+", "−"]
    assert table[3][1].endswith("‡")
    # Of six sentences one is the same; the others are better, four times.
    assert table[3][4:] == ["< 0.0001", "20", "0"]
    assert "sign test (Collins et al. 2005)" in caption[0]


def test_lengths(files, capsys):
    options = ["--input_file", "source", "--length_edges", "3", "9", "--figure_file", "lengths.svg"]
    run("--hypotheses", "base", *options, "--metrics", "bleu", "--output_file", "record.json")
    scores, table, caption = tables(capsys)
    assert scores[1].startswith("bleu ")
    assert table[0] == ["source words", "sentences", "base: BLEU", "words", "ratio"]
    short, long = (
        [[TEXTS[name][i] for i in members] for name in ("base", "reference")] for members in ([0, 2, 4], [1, 3, 5])
    )
    bleu = [score_translations(one, [other])["bleu"]["score"] for one, other in (short, long)]
    assert table[2:] == [
        ["≤ 3", "3", f"{bleu[0]:.2f}", "2.3", "0.875"],
        ["4–9", "3", f"{bleu[1]:.2f}", "5.0", "1.000"],
        ["> 9", "0", "–", "–", "–"],
    ]
    assert caption[0].startswith("By length of the source in words (13a)")
    assert (files / "lengths.svg").read_text().startswith("<?xml")
    record = json.loads((files / "record.json").read_text())
    assert [bucket["sentences"] for bucket in record["by_length"]["buckets"]] == [3, 3, 0]
    assert record["sources"]["file"] == "source"


def test_adequacy_by_attention(files, capsys):
    save_tiny_marian(files / "model")
    options = ["--input_file", "source", "--adequacy", "--model", "model", "--device", "cpu", "--num_samples", "9"]
    run("--compare", "base", "bad", *options, "--output_file", "record.json")
    table, caption = tables(capsys)[2:]
    model = AutoModelForSeq2SeqLM.from_pretrained(files / "model")
    streams = [TEXTS[name] for name in ("reference", "base", "bad")]
    reference, *systems = align_by_attention(
        model, AutoTokenizer.from_pretrained(files / "model"), TEXTS["source"], streams
    )
    for row, system in zip(table[2:], systems, strict=True):
        one = measure_adequacy(reference, system)
        under, over = (100 * count / 23 for count in (one["under_translated"], one["over_translated"]))
        assert one["source_words"] == 23
        assert row[1:] == [
            f"{one['cdr']:.3f}",
            f"{one['under_translated']} ({under:.2f}%)",
            f"{one['over_translated']} ({over:.2f}%)",
        ]
    assert caption[0].startswith("There are 23 source tokens, aligned by the cross-attention of model. The reference")
    record = json.loads((files / "record.json").read_text())
    assert record["adequacy"]["settings"]["aligner"] == "attention"
    assert record["adequacy"]["systems"]["bad"]["cdr"] == measure_adequacy(reference, systems[1])["cdr"]


def test_adequacy_by_words(files, capsys, monkeypatch):
    seen = []

    class Aligner:
        def __init__(self, model):
            pass

        def align(self, sources, targets, links_filename_fwd):
            seen.extend(zip(sources, targets))
            words = [(source.split(), target.split()) for source, target in zip(sources, targets)]
            links = [[f"{a.index(word)}-{at}" for at, word in enumerate(b) if word in a] for a, b in words]
            Path(links_filename_fwd).write_text("".join(f"{' '.join(each)}\n" for each in links))

    eflomal = ModuleType("eflomal")
    eflomal.Aligner, eflomal.__spec__ = Aligner, ModuleSpec("eflomal", None)
    monkeypatch.setitem(sys.modules, "eflomal", eflomal)
    (files / "more.source").write_text("x y.\n")
    (files / "more.target").write_text("Y x.\n")
    options = ["--input_file", "source", "--alignment_data", "more.source", "more.target", "--metrics", "bleu"]
    run("--hypotheses", "base", "--adequacy", *options)
    table, caption = tables(capsys)[1:]
    # Lost: a, e, j, p, s. Repeated: b and k.
    assert table[2] == ["base", f"{1 - 5 / 23:.3f}", "5 (21.74%)", "2 (8.70%)"]
    assert caption[0].startswith("There are 23 source words (13a), aligned by eflomal (HMM)")
    assert ("x y .", "y x .") in seen


BASE = ["--hypotheses", "base"]
LENGTHS = [*BASE, "--length_edges", "3"]
ADEQUACY = [*BASE, "--adequacy", "--input_file", "source"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([*BASE, "--references", "absent"], "absent"),
        ([*BASE, "--references", "short"], "--references short has 1"),
        ([*BASE, "--metrics", "rouge"], "rouge"),
        ([*BASE, "--tokenize", "moses"], "moses"),
        ([*BASE, "--output_file", "no/such/folder/record.json"], "The folder of no/such/folder/record.json does not"),
        (["--compare", "base"], "--compare needs a baseline and at least one other system"),
        (["--compare", "base,good"], "--compare needs a baseline and at least one other system"),
        (["--compare", "base", "base"], "--compare names base twice"),
        (["--compare", "base,good", "bad,./good"], "--compare names good twice"),
        (["--compare", "base,", "good"], "base, has an empty name"),
        (["--compare", "base,,bad", "good"], "base,,bad has an empty name"),
        (["--compare", "base", "good,absent"], "absent"),
        (["--compare", "base", "good,short"], "base has 6 lines, and short has 1"),
        (["--compare", "base,bad", "good", "--significance", "sign"], "--significance sign compares one run of each"),
        (["--compare", "base", "good", "--significance", "sign", "--metrics", "ter"], "The sign test is only for bleu"),
        (LENGTHS, "--length_buckets and --length_edges need --input_file"),
        ([*LENGTHS, "2", "--input_file", "source"], "--length_edges 3 2 must rise"),
        ([*LENGTHS, "--input_file", "source", "--figure_file", "lengths.jpg"], "lengths.jpg"),
        (["--input_file", "source"], "or --model and --input_file to translate"),
        ([*ADEQUACY, "--references", "reference", "good"], "--adequacy compares with one reference"),
        (ADEQUACY, "--aligner attention needs --model"),
        ([*ADEQUACY, "--aligner", "eflomal"], "eflomal"),
        ([*ADEQUACY, "--model", "capsnmt"], "CapsNMT has no attention to align words by"),
    ],
)
def test_mistakes(files, monkeypatch, capsys, options, words):
    monkeypatch.setitem(sys.modules, "eflomal", None)
    preset_config("capsnmt", "tiny").save_pretrained("capsnmt")
    (files / "short").write_text("a\n")
    with pytest.raises(SystemExit, match="2"):
        run(*options)
    assert words in capsys.readouterr().err.rpartition("error: ")[2]
