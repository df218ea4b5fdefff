"""COMET's scores, next to those that COMET itself gave."""

import json
import pickle
from pathlib import Path

import pytest
import torch
import yaml
from tiny_comet import KINDS, REFERENCES, SOURCES, TRANSLATIONS, write_checkpoint

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.comet import CometScorer, ErrorSpan, span_score
from hf_capsule_mt.evaluation.comet_networks import sparsemax

OF_COMET = json.loads(Path(__file__).with_name("tiny_comet_scores.json").read_text())


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comet")

    def written(kind):
        return write_checkpoint(folder / kind, kind) if not (folder / kind).exists() else folder / kind

    return written


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_comet(checkpoint, kind):
    scorer = CometScorer.from_pretrained(checkpoint(kind))
    for name, references in (("with references", REFERENCES), ("without", None)):
        expected = OF_COMET[kind].get(name)
        if expected is None:
            assert scorer.needs_references
            with pytest.raises(UserError, match="compares with references"):
                scorer.score(SOURCES, TRANSLATIONS, references)
            continue
        scored = scorer.score(SOURCES, TRANSLATIONS, references, batch_size=3)
        assert scored.scores == pytest.approx(expected["scores"], abs=1e-5)
        assert scored.mean == pytest.approx(sum(expected["scores"]) / len(SOURCES), abs=1e-5)
        for translation, spans, expected_spans in zip(
            TRANSLATIONS, scored.spans or [[]] * 4, expected.get("spans", [[]] * 4), strict=True
        ):
            assert_spans(translation, spans, expected_spans)


def assert_spans(translation, spans, expected_spans):
    assert len(spans) == len(expected_spans)
    for span, expected in zip(spans, expected_spans, strict=True):
        assert (span.text, span.severity) == (expected["text"], expected["severity"])
        assert span.confidence == pytest.approx(expected["confidence"], abs=1e-5)
        # Older tokenizers count the space in front of a word to the word.
        expected_words = translation[expected["start"] : expected["end"]].strip()
        assert translation[span.start : span.end].strip() == expected_words


def test_the_fixture_tells_the_kinds_apart(checkpoint):
    """Otherwise equal scores would show little."""
    scores = {kind: tuple(OF_COMET[kind]["with references"]["scores"]) for kind in KINDS}
    # COMET reads the patch of sparsemax as softmax.
    assert scores.pop("unified-patch") == scores["unified-source"]
    assert len({*scores.values()}) == len(scores)
    assert any(OF_COMET["xcomet"]["with references"]["spans"])
    assert any(OF_COMET["xcomet-xl"]["without"]["spans"])
    tokens = CometScorer.from_pretrained(checkpoint("regression"))._encode(SOURCES)
    assert max(map(len, tokens)) == 34


def test_many_errors_cost_all(checkpoint):
    minor, critical = (ErrorSpan("x", 0, 1, severity, 1.0) for severity in ("minor", "critical"))
    assert span_score([]) == 1
    assert span_score([minor, critical]) == pytest.approx(1 - 11 / 25)
    assert span_score([critical] * 3) == 0


def test_sparsemax_is_the_nearest_distribution():
    torch.manual_seed(0)
    scores = torch.randn(6, dtype=torch.float64)
    nearest = sparsemax(scores)
    assert nearest.sum().item() == pytest.approx(1)
    assert (nearest >= 0).all()
    assert (nearest == 0).any()
    for other in torch.distributions.Dirichlet(torch.ones(6, dtype=torch.float64)).sample((2000,)):
        assert (other - scores).norm() >= (nearest - scores).norm()


def damaged(folder, change):
    file = folder / "checkpoints" / "model.ckpt"
    checkpoint = torch.load(file, weights_only=True)
    change(checkpoint)
    torch.save(checkpoint, file)


def test_a_checkpoint_that_cannot_be_trusted_is_refused(tmp_path):
    folder = write_checkpoint(tmp_path / "model", "unified-source")

    class Code:
        def __reduce__(self):
            return (Path(tmp_path / "ran").touch, ())

    torch.save({"state_dict": {}, "hyper_parameters": Code()}, folder / "checkpoints" / "model.ckpt", pickle)
    with pytest.raises(UserError, match="cannot be read as a COMET model"):
        CometScorer.from_pretrained(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda checkpoint: checkpoint["state_dict"].pop("estimator.ff.3.bias"), "estimator.ff.3.bias"),
        (lambda checkpoint: checkpoint["state_dict"].update(extra=torch.zeros(1)), "other weights.*extra"),
        (lambda checkpoint: checkpoint["hyper_parameters"].update(hidden_sizes=[5]), "do not fit its settings"),
        (lambda checkpoint: checkpoint["hyper_parameters"].update(encoder_model="RemBERT"), "reads texts with RemBERT"),
    ],
)
def test_other_weights_than_the_settings_say_are_refused(tmp_path, change, message):
    folder = write_checkpoint(tmp_path / "model", "unified-source")
    damaged(folder, change)
    with pytest.raises(UserError, match=message):
        CometScorer.from_pretrained(folder)


def test_an_unknown_network_is_refused(tmp_path):
    folder = write_checkpoint(tmp_path / "model", "unified-source")
    settings = yaml.safe_load((folder / "hparams.yaml").read_text())
    (folder / "hparams.yaml").write_text(yaml.safe_dump({**settings, "class_identifier": "ranking_metric"}))
    with pytest.raises(UserError, match="is a ranking_metric"):
        CometScorer.from_pretrained(folder)
    with pytest.raises(UserError, match="it has no hparams"):
        CometScorer.from_pretrained(tmp_path)


def test_segments_must_belong_together(checkpoint):
    scorer = CometScorer.from_pretrained(checkpoint("unified-source"))
    with pytest.raises(UserError, match="2 translations, but 1 sources"):
        scorer.score(["a"], ["a", "b"])
    with pytest.raises(UserError, match="there are no translations"):
        scorer.score([], [])
