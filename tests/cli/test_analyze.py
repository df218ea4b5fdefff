"""The command that looks inside a model: its report, and its mistakes."""

import json
import re
from functools import partial

import numpy as np
import pytest
import torch
from aggregated_models import aggregated_m2m100
from opus_mt import save_opus_mt
from tiny_checkpoints import tiny_checkpoint
from tiny_marian import save_tiny_marian, tiny_tokenizer

from hf_capsule_mt import CapsuleAggregatedMarianConfig, CapsuleAggregatedMarianForConditionalGeneration
from hf_capsule_mt.cli import analyze


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "in").write_text("a b c d\n\ne f\ng h i j k\n")
    (tmp_path / "references").write_text("d c b a\n\nf e\nk j i h g\n")
    return tmp_path


def save_random(folder, **fields):
    """Write a checkpoint of a random model of two layers a side; returns `folder`."""
    shape = {f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    words = {"vocab_size": 29, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}
    config = CapsuleAggregatedMarianConfig(**{**shape, **words, "d_model": 8, "init_std": 0.5, **fields})
    torch.manual_seed(0)
    CapsuleAggregatedMarianForConditionalGeneration(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def guided(tmp_path_factory):
    """A checkpoint of a model with guided routing."""
    return save_random(tmp_path_factory.mktemp("guided"), guided_routing="gdr", guided_capsule_dim=4)


def options(model, folder, **named):
    given = {"model": model, "input_file": folder / "in", "output_dir": folder / "report", "device": "cpu", **named}
    return [word for name, value in given.items() for word in (f"--{name}", *str(value).split())]


def linked(folder):
    """The files that a page of a report names."""
    return set(re.findall(r'(?:href|src)="([^"]+)"', (folder / "index.html").read_text()))


def written(folder):
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_layers_and_heads(corpus, tmp_path_factory, capsys):
    everywhere = {"layer_aggregation": "em_routing", "layer_aggregation_sides": ["decoder"]}
    everywhere["head_aggregation"] = "simple_routing"
    everywhere |= {f"head_aggregation_{kind}_layers": [] for kind in ("encoder", "decoder")}
    everywhere |= {"head_aggregation_cross_layers": [0]}
    folder = save_random(tmp_path_factory.mktemp("model"), **everywhere, num_output_capsules=4)
    analyze.main(options(folder, corpus, lines="4", max_new_tokens=6))
    report = corpus / "report"
    record = json.loads((report / "routing.json").read_text())
    means = np.load(report / "mean_assignment.npz")
    assert set(means) == set(record["routing"])
    assert {"decoder layers", "heads cross.0"} <= set(means)
    for name, one in record["routing"].items():
        # Of uniform assignments the entropy is ln N, and all capsules are alike.
        assert one["entropy"][0] == pytest.approx(np.log(one["capsules"]), rel=1e-5)
        assert one["diversity"][0] == pytest.approx(0, abs=1e-6)
        assert one["entropy"][-1] < one["entropy"][0]
        assert means[name].shape == (3, one["inputs"], one["capsules"])
        np.testing.assert_allclose(means[name].sum(-1), 1, rtol=1e-5)
        assert one["capsules_led"] == np.bincount(means[name][-1].argmax(0), minlength=one["inputs"]).tolist()
    assert record["sentences"] == 3
    assert record["past_and_future"] is record["top_5_overlap"] is None
    files = written(report)
    assert linked(report) | {"index.html"} == files
    assert "figures/line-4-heads-cross-0.svg" in files
    assert not any("line-1" in file for file in files)
    shown = capsys.readouterr().out
    assert shown.startswith(f"The report: {report / 'index.html'}\n\n")
    assert (report / "report.md").read_text().split("\n\n", 1)[1].rstrip("\n") in shown
    assert "| heads cross.0 | 4 |" in shown


def test_sentence_capsules(corpus):
    (corpus / "in").write_text("a b c d\n" * 6)
    analyze.main(options(tiny_checkpoint("caps_nmt"), corpus, lines=""))
    report = corpus / "report"
    record = json.loads((report / "routing.json").read_text())
    assert [sum(shares) for shares in record["routing"]["sentence capsules"]["mean_assignment"]] == pytest.approx(
        [1] * 3
    )
    # Nothing is drawn of single sentences, and nothing but words is routed.
    assert linked(report) | {"index.html"} == written(report)
    assert "mean_assignment.npz" not in written(report)
    assert "Words that feed" in (report / "index.html").read_text()


def test_guided_routing(corpus, guided):
    analyze.main(options(guided, corpus, references=corpus / "references", lines="3"))
    record = json.loads((corpus / "report/routing.json").read_text())
    found = record["past_and_future"]
    assert found["words"] == 11
    assert found["before"]["assignments"] >= found["aligned_words"] > 0
    assert set(record["top_5_overlap"]) == {"past", "future"}
    assert record["guided_names"] == ["PAST 1", "PAST 2", "FUTURE 1", "FUTURE 2", "redundant 1", "redundant 2"]
    assert "line 3: PAST and FUTURE" in (corpus / "report/index.html").read_text()
    assert linked(corpus / "report") | {"index.html"} == written(corpus / "report")


def test_layers_that_decoder_layers_read(corpus, tmp_path_factory):
    """A learned mean of layers routes nothing, and still has a picture."""
    fields = {"layer_aggregation": "linear", "layer_aggregation_place": "source"}
    folder = save_random(tmp_path_factory.mktemp("model"), **fields)
    analyze.main(options(folder, corpus, lines="", max_new_tokens=6))
    report = corpus / "report"
    # Weights start at 0, so all layers and the embeddings count alike.
    record = json.loads((report / "routing.json").read_text())
    assert record["layers_read"]["source"] == [pytest.approx([1 / 3] * 3)] * 2
    assert "figures/encoder-layers-that-decoder-layers-read.png" in written(report)
    assert "| 1 | 0.333 | 0.333 | 0.333 |" in (report / "report.md").read_text()


def error_of(given, capsys):
    with pytest.raises(SystemExit) as exit_:
        analyze.main(given)
    assert exit_.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("save", [save_tiny_marian, partial(save_opus_mt, "2020")])
def test_a_model_without_routing(corpus, tmp_path, capsys, save):
    folder = tmp_path / "marian"
    save(folder)
    assert "no routing" in error_of(options(folder, corpus), capsys)
    assert not (corpus / "report").exists()


def test_hyper_connections_have_nothing_to_draw(corpus, tmp_path, capsys):
    aggregated_m2m100("hyper", vocab_size=29).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    assert "no layer with shares of other layers" in error_of(options(tmp_path, corpus), capsys)
    assert not (corpus / "report").exists()


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"references": "nowhere"}, "nowhere"),
        ({"output_dir": "{}"}, "not empty"),
        ({"references": "{}/short"}, "in has 4 lines, and --references"),
        ({"references": "{}/references", "dtype": "int8"}, "int8"),
    ],
)
def test_mistakes(corpus, guided, capsys, named, message):
    (corpus / "short").write_text("0-0\n")
    named = {name: value.format(corpus) for name, value in named.items()}
    before = set(corpus.iterdir())
    assert message in error_of(options(guided, corpus, **named), capsys)
    assert set(corpus.iterdir()) == before
