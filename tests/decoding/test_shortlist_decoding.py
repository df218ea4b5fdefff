"""A shortlist in the engine: what `generate()` writes if all others are suppressed, normalised over the shortlist."""

from functools import partial

import pytest
import torch
from agreement import check_agreement
from ending_models import VOCABULARY, ending, pre_norm, sources, t5
from test_pre_norm import EOS, GERMAN, PAD, model_of, padded
from transformers import LogitsProcessorList

from hf_capsule_mt.decoding import ShortlistLogitsProcessor, engine_of, generate
from hf_capsule_mt.decoding.products import vocabulary as vocabulary_module
from hf_capsule_mt.errors import UserError

WORDS = sorted({PAD, EOS, GERMAN, *range(3, VOCABULARY, 7)})
OTHERS = sorted(set(range(VOCABULARY)) - set(WORDS))
SUPPRESSED = {"suppress_tokens": OTHERS, "renormalize_logits": True}


def only(token_ids=WORDS):
    return {"logits_processor": LogitsProcessorList([ShortlistLogitsProcessor(token_ids)])}


@pytest.mark.parametrize("forced", [None, GERMAN])
@pytest.mark.parametrize("num_beams", [1, 2, 4, 5])
@pytest.mark.parametrize("kind", ["m2m100", "mbart"])
def test_the_tokens_are_those_of_the_normalised_set(kind, num_beams, forced, engine_calls, monkeypatch):
    model = model_of(kind)
    options = {"max_new_tokens": 9, "num_beams": num_beams, "forced_bos_token_id": forced}
    options["num_return_sequences"] = num_beams
    # The definition, by the engine and by Transformers.
    check_agreement(model, padded("left"), engine_calls, **options, **SUPPRESSED)
    expected = model.generate(**padded("left"), **options, **SUPPRESSED)
    check_agreement(model, padded("left"), engine_calls, **options, **only())
    products = _count_products(model, monkeypatch)
    assert torch.equal(model.generate(**padded("left"), **options, **only(), custom_generate=generate), expected)
    assert not products
    # Alone in plain generate().
    assert torch.equal(model.generate(**padded("left"), **options, **only()), expected)
    assert set(expected.unique().tolist()) <= {*WORDS, model.config.decoder_start_token_id}


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("make", [lambda: t5("v1_0"), lambda: t5("v1_1"), lambda: ending("marian/none")])
def test_other_families(make, num_beams, engine_calls):
    """Some have a bias in the output, and others scale it."""
    model = make()
    check_agreement(model, sources(6), engine_calls, max_new_tokens=9, num_beams=num_beams, **only())


def _count_products(model, monkeypatch):
    """Record the products with the whole vocabulary."""
    products = []
    for block in engine_of(model).vocabulary._blocks:
        multiply = block.scores
        monkeypatch.setattr(block, "scores", lambda hidden, multiply=multiply: products.append(1) or multiply(hidden))
    return products


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize(
    "more",
    [
        {"suppress_tokens": [10, 17, 31, 38, 599], "begin_suppress_tokens": [24]},
        {"min_new_tokens": 6},
        {"repetition_penalty": 1.6, "no_repeat_ngram_size": 2},
        {"renormalize_logits": True},
    ],
    ids=str,
)
def test_with_other_constraints(more, num_beams, engine_calls):
    model = model_of("m2m100")
    options = {"max_new_tokens": 9, "num_beams": num_beams, **more}
    check_agreement(model, padded("right"), engine_calls, **options, **only())
    together = {**more, "suppress_tokens": sorted({*OTHERS, *more.get("suppress_tokens", ())})}
    options |= {**together, "renormalize_logits": True}
    expected = model.generate(**padded("right"), **options)
    options = {"max_new_tokens": 9, "num_beams": num_beams, **more, **only(), "custom_generate": generate}
    assert torch.equal(model.generate(**padded("right"), **options), expected)


@pytest.mark.parametrize("block", [40, 64])
def test_a_set_in_blocks(block, engine_calls, monkeypatch):
    monkeypatch.setattr(vocabulary_module, "_BLOCK", block)
    for options in ({}, {"num_beams": 4}):
        check_agreement(model_of("m2m100"), padded("left"), engine_calls, max_new_tokens=9, **options, **only())


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_precisions(dtype, engine_calls):
    """Those of the engine round the products of the set as they round all: the same words if they are all in it."""
    model = model_of("m2m100")
    options = {"max_new_tokens": 9, "num_beams": 2}
    found = engine_of(model, dtype)._adapter.vocabulary_of(WORDS)
    hidden = torch.randn(3, model.config.d_model)
    whole = found.scores(hidden).index_fill(1, torch.tensor(OTHERS), -torch.inf)
    assert torch.equal(found.best_token(hidden, None), whole.argmax(-1))

    model.generate(**padded("left"), **options, **only(), custom_generate=partial(generate, dtype=dtype))
    assert len(engine_calls) == 1


def test_what_is_an_error(engine_calls):
    model = model_of("m2m100")
    without = only([token for token in WORDS if token != GERMAN])
    for more in ({}, {"custom_generate": generate}):
        for num_beams in (1, 3):
            with pytest.raises(UserError, match="lacks the token that a translation must have"):
                model.generate(**padded("left"), forced_bos_token_id=GERMAN, num_beams=num_beams, **without, **more)
        with pytest.raises(UserError, match="has token 600, but the model has 600 tokens"):
            model.generate(**padded("left"), max_new_tokens=3, **only([2, 5, VOCABULARY]), **more)
    for token_ids in ([], [5, -1]):
        with pytest.raises(UserError, match="needs token ids"):
            ShortlistLogitsProcessor(token_ids)


def test_a_set_that_is_smaller_than_the_candidates(engine_calls):
    model = model_of("m2m100")
    options = {"max_new_tokens": 5, "num_beams": 3, **only([EOS, 5, 9, 12])}
    expected = model.generate(**padded("left"), **options)
    assert torch.equal(model.generate(**padded("left"), **options, custom_generate=generate), expected)
    assert not engine_calls


def test_a_set_that_is_as_large_as_the_candidates(engine_calls):
    options = {"max_new_tokens": 5, "num_beams": 3, **only([EOS, 5, 9, 12, 20, 33])}
    check_agreement(model_of("m2m100"), padded("left"), engine_calls, **options)


def test_sets_are_kept(engine_calls):
    model = model_of("m2m100")
    engine = engine_of(model)

    def kept_after(*lasts):
        for last in lasts:
            sets = only(range(last))
            model.generate(**padded("left", 2), max_new_tokens=2, **sets, custom_generate=generate)
        return [len(token_ids) for token_ids in engine._shortlists]

    assert kept_after(20, 30, 40, 50, 60, 20) == [40, 50, 60, 20]
    # The one that was used least lately goes.
    assert kept_after(40, 30) == [60, 20, 40, 30]


def test_scores_that_are_not_finite(engine_calls):
    model = pre_norm("m2m100")
    with torch.no_grad():
        model.model.decoder.layer_norm.weight.fill_(torch.inf)
    with pytest.raises(UserError, match="not finite"):
        model.generate(**padded("left"), max_new_tokens=3, num_beams=2, **only(), custom_generate=generate)
