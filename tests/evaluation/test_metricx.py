"""MetricX: the inputs that it was trained on, and one logit of mT5."""

import shutil

import pytest
import torch
from tiny_comet import REFERENCES, SOURCES, TRANSLATIONS, write_metricx
from transformers import AutoTokenizer, MT5Config, MT5ForConditionalGeneration

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.metricx import SCORE_TOKEN, MetricXScorer

SIZE = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_metricx(tmp_path_factory.mktemp("metricx-24-tiny"))


def score_alone(folder, text):
    """The logit for one text, without padding."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    model = MT5ForConditionalGeneration.from_pretrained(folder).eval()
    ids = torch.tensor([tokenizer(text)["input_ids"][:-1]])
    with torch.no_grad():
        return model(input_ids=ids, decoder_input_ids=torch.tensor([[0]])).logits[0, 0, SCORE_TOKEN].item()


@pytest.mark.parametrize(
    ("version", "references", "form"),
    [
        (24, REFERENCES, "source: {0} candidate: {1} reference: {2}"),
        (24, None, "source: {0} candidate: {1}"),
        (23, REFERENCES, "candidate: {1} reference: {2}"),
        (23, None, "candidate: {1} source: {0}"),
    ],
)
def test_the_score_is_the_logit_of_one_token(folder, version, references, form):
    scorer = MetricXScorer.from_pretrained(folder, version=version, tokenizer=folder / "tokenizer")
    scores = scorer.score(SOURCES, TRANSLATIONS, references, batch_size=3)
    logits = [score_alone(folder, form.format(*texts)) for texts in zip(SOURCES, TRANSLATIONS, REFERENCES)]
    assert scores == pytest.approx([min(max(logit, 0), 25) for logit in logits], abs=1e-4)
    assert len({*scores}) > 1


def test_the_name_says_the_version(folder):
    assert MetricXScorer.from_pretrained(folder, tokenizer=folder / "tokenizer")._version == 24
    with pytest.raises(UserError, match="Give the version, 23 or 24"):
        MetricXScorer.from_pretrained("google/mt5-small", tokenizer=folder / "tokenizer")


def test_a_model_without_an_output_of_its_own_is_refused(folder, tmp_path):
    torch.manual_seed(0)
    MT5ForConditionalGeneration(MT5Config(vocab_size=SCORE_TOKEN + 1, **SIZE)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="is no MetricX model"):
        MetricXScorer.from_pretrained(tmp_path, version=24, tokenizer=folder / "tokenizer")
    shutil.rmtree(tmp_path)


def test_segments_must_belong_together(folder):
    scorer = MetricXScorer.from_pretrained(folder, tokenizer=folder / "tokenizer")
    with pytest.raises(UserError, match="2 translations, but 1 references"):
        scorer.score(["a", "b"], ["a", "b"], ["a"])
