"""What a teacher translates, and what counts as a failure."""

import pytest
from tiny_marian import tiny_model, tiny_tokenizer

from hf_capsule_mt.cli.distill import Distilled, distill
from hf_capsule_mt.translation.translation_report import sequence_scores
from hf_capsule_mt.translation.translator import translate_lines


def test_translations_are_those_of_translate_lines():
    model, tokenizer = tiny_model(), tiny_tokenizer()
    sources = ["a b c d e f", "g h", "i j k l m n o p", "q"]
    results = distill(model, tokenizer, sources, 100, num_beams=2, max_new_tokens=60)
    assert any(result.failure is None for result in results)
    assert any(result.failure is not None for result in results)
    assert [result.translation for result in results] == translate_lines(
        model, tokenizer, sources, num_beams=2, max_new_tokens=60
    )


def test_scores_are_those_of_reports():
    model, tokenizer = tiny_model(), tiny_tokenizer()
    [found, blank] = distill(model, tokenizer, ["a b c", ""], 100, scores=True)
    words = tokenizer(found.translation)["input_ids"]
    words = words if found.failure is None else words[:-1]
    [score] = sequence_scores(model, [tokenizer("a b c")["input_ids"]], [words])
    assert (found.score, blank.score) == (pytest.approx(score), None)
    assert distill(model, tokenizer, ["a b c"], 100)[0].score is None


def test_failures():
    model, tokenizer = tiny_model(), tiny_tokenizer(model_max_length=8)
    too_long = " ".join("abcdefgh")
    sources = ["a", too_long, "", "b"]
    # A limit too short to end in.
    model.final_logits_bias[:, 2] = -100
    results = distill(model, tokenizer, sources, 100, max_new_tokens=3)
    failures = ["no end within the limit", "more than 8 source tokens", "empty source", "no end within the limit"]
    assert [result.failure for result in results] == failures
    # A teacher that says nothing.
    model.final_logits_bias[:, 2] = 100
    results = distill(model, tokenizer, ["a"], 100)
    assert results == [Distilled("", "empty translation")]
