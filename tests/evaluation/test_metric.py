"""The metric of the `evaluate` library is `score_translations`, and its evaluator takes our pipeline."""

import pytest
from tiny_marian import save_tiny_marian
from transformers import pipeline

from hf_capsule_mt.evaluation.scores import score_translations

pytest.importorskip("evaluate")

import evaluate
from datasets import Dataset

from hf_capsule_mt.evaluation.metric import TranslationScores

HYPOTHESES = ["a cat sat on the mat", "he says no"]
FIRST = ["the cat sat on the mat", "He said no"]
SECOND = ["a cat was on the mat", "he says yes"]


@pytest.fixture
def metric(tmp_path):
    return TranslationScores(cache_dir=str(tmp_path))


def test_one_reference(metric):
    assert metric.compute(predictions=HYPOTHESES, references=FIRST) == score_translations(HYPOTHESES, [FIRST])


def test_several_references_and_options(metric):
    options = {"tokenize": "none", "lowercase": True, "metrics": ["bleu", "ter"]}
    for prediction, references in zip(HYPOTHESES, zip(FIRST, SECOND)):
        metric.add(prediction=prediction, reference=list(references))
    assert metric.compute(**options) == score_translations(HYPOTHESES, [FIRST, SECOND], **options)


def test_different_numbers(metric):
    with pytest.raises(ValueError, match=r"\(2\).*\(1\)"):
        metric.compute(predictions=HYPOTHESES, references=FIRST[:1])


def test_nothing_to_score(metric):
    with pytest.raises(ValueError, match="nothing to score"):
        metric._compute([], [])


def test_uneven_references(metric):
    with pytest.raises(ValueError, match="1 to 2 references"):
        metric.compute(predictions=HYPOTHESES, references=[FIRST, SECOND[:1]])


def test_no_bootstrap(metric):
    with pytest.raises(ValueError, match="TranslationScores has no single number"):
        evaluate.evaluator("translation").compute("never loaded", metric=metric, strategy="bootstrap")
    with pytest.raises(ValueError, match="TranslationScores has no single number"):
        evaluate.evaluator("translation").compute("never loaded", None, None, None, metric, None, "bootstrap")


@pytest.mark.parametrize("given", ["folder", "model", "pipeline"])
def test_translation_evaluator(metric, tmp_path, given):
    save_tiny_marian(tmp_path / "marian")
    translator = pipeline("translation", model=str(tmp_path / "marian"), device="cpu")
    data = Dataset.from_dict({"en": ["a b c", "d e"], "de": ["c b a", "e d"]})
    found = evaluate.evaluator("translation").compute(
        {"folder": str(tmp_path / "marian"), "model": translator.model, "pipeline": translator}[given],
        tokenizer=translator.tokenizer if given == "model" else None,
        data=data,
        metric=metric,
        input_column="en",
        label_column="de",
        generation_kwargs={"num_beams": 2, "max_new_tokens": 5},
        device=-1,
    )
    translations = [result["translation_text"] for result in translator(data["en"][:], num_beams=2, max_new_tokens=5)]
    expected = score_translations(translations, [data["de"][:]])
    assert {name: found[name] for name in expected} == expected
    assert found["samples_per_second"] > 0
