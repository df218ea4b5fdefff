"""Decoding of every family: cached steps are one pass, beam search is a hand-written one, batches change nothing."""

from contextlib import nullcontext

import pytest
import torch
from aggregated_models import EOS, aggregated, source_batch
from decoding import TARGET_MASK, TARGETS, alone, beam_search, cached, trimmed, uncached
from families import names
from recurrent_models import ONE_OF_EACH_FAMILY, prefer_eos, recurrent
from torch.nn import functional as F
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

from hf_capsule_mt.modeling.recurrent import RecurrentCache
from hf_capsule_mt.modeling.transformers_versions import CACHE

# Chosen for sentences of different lengths; test_sentences_end_and_beams_differ checks.
MARIAN = {"heads_and_layers_em": (0, 7), "everything": (0, 4), "source_em_routing": (0, 7)}
MARIAN["each_layer"] = (0, 7)
RECURRENT = {"capsule": (4, 1), "pooling": (3, 2), "rnmt": (6, 2), "guided_attention": (0, 2), "guided_hybrid": (9, 2)}
MARIANS, RECURRENTS = names("marian", MARIAN), names("recurrent", RECURRENT)
every_kind = pytest.mark.parametrize("name", MARIANS + RECURRENTS)
every_recurrent = pytest.mark.parametrize("name", RECURRENTS)
every_cache = pytest.mark.parametrize(
    ("name", "cache_kind"),
    [(name, kind) for name in MARIANS for kind in ("dynamic", "static")] + [(name, "states") for name in RECURRENTS],
)
each_recurrent_family = pytest.mark.parametrize("kind", ONE_OF_EACH_FAMILY)
few_or_many_beams = pytest.mark.parametrize("num_beams", [1, 4])


@pytest.fixture
def model(name):
    # float64, so that equal means equal.
    family, _, kind = name.partition("-")
    if family == "marian":
        seed, bias = MARIAN[kind]
        model = aggregated(kind, seed, forced_eos_token_id=None).double()
        model.final_logits_bias[:, EOS] += bias
        return model
    seed, bias = RECURRENT[kind]
    model = recurrent(kind, seed, tie_word_embeddings=False).double()
    prefer_eos(model, bias)
    return model


def new_cache(model, kind):
    if kind == "states":
        return RecurrentCache(model.config.decoder_layers if model.config.model_type == "caps_nmt" else 1)
    if kind == "dynamic":
        return EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache(config=model.config))
    lengths = (TARGETS.shape[1], source_batch()["input_ids"].shape[1])
    return EncoderDecoderCache(*(StaticCache(config=model.config, max_cache_len=length) for length in lengths))


@pytest.mark.parametrize("chunk", [1, 3])
@every_cache
def test_cached_steps_are_one_uncached_pass(model, cache_kind, chunk):
    source = source_batch()
    encoded = model.get_encoder()(**source)
    for mask in (None, TARGET_MASK):
        expected = uncached(model, source, TARGETS, mask)
        actual = cached(model, source, encoded, TARGETS, new_cache(model, cache_kind), mask, chunk=chunk)
        real = torch.ones_like(TARGETS).bool() if mask is None else mask.bool()
        torch.testing.assert_close(actual[real], expected[real])
    assert not torch.allclose(expected[1, 1:], uncached(model, source, TARGETS)[1, 1:]), "the mask does nothing"


@pytest.mark.parametrize(
    ("make", "kind", "cache_kind"),
    [(aggregated, "heads_and_layers_em", "dynamic"), (aggregated, "none", "static"), (recurrent, "capsule", "states")],
)
def test_cached_steps_of_three_layers(make, kind, cache_kind):
    """Of two layers each would be the first or the last."""
    model = make(kind, decoder_layers=3).double()
    source = source_batch()
    order = torch.tensor([2, 0, 0])
    targets = torch.cat([TARGETS[order, :3], TARGETS[:, 3:]], dim=1)
    chosen = {name: value[order] for name, value in source.items()}
    cache = new_cache(model, cache_kind)
    first = cached(model, source, model.get_encoder()(**source), TARGETS, cache, stop=3)
    torch.testing.assert_close(first, uncached(model, source, TARGETS)[:, :3])
    cache.reorder_cache(order)
    others = cached(model, chosen, model.get_encoder()(**chosen), targets, cache, start=3)
    torch.testing.assert_close(others, uncached(model, chosen, targets)[:, 3:])


@every_cache
def test_reordered_cache_continues_the_chosen_beams(model, cache_kind):
    source, order = source_batch(), torch.tensor([2, 0, 0])
    chosen = {name: value[order] for name, value in source.items()}
    targets = torch.cat([TARGETS[order, :3], TARGETS[:, 3:]], dim=1)
    continued = []
    for reorder in (True, False):
        cache = new_cache(model, cache_kind)
        cached(model, source, model.get_encoder()(**source), TARGETS, cache, stop=3)
        if reorder:
            cache.reorder_cache(order)
        continued.append(cached(model, chosen, model.get_encoder()(**chosen), targets, cache, start=3))
    torch.testing.assert_close(continued[0], uncached(model, chosen, targets)[:, 3:])
    assert not torch.allclose(*continued), "the order does nothing"


@pytest.mark.parametrize(
    ("name", "num_beams", "length_penalty"),
    [(name, 4, 2.0) for name in MARIANS + RECURRENTS] + [(name, 5, 0.0) for name in (MARIANS[0], RECURRENTS[0])],
)
def test_beam_search_is_a_hand_written_one(model, num_beams, length_penalty):
    outputs = model.generate(
        **source_batch(),
        num_beams=num_beams,
        num_return_sequences=num_beams,
        max_new_tokens=6,
        length_penalty=length_penalty,
        # Search on while a longer sentence could still win.
        early_stopping="never",
        return_dict_in_generate=True,
        output_scores=True,
    )
    expected = [
        hypothesis
        for row in range(3)
        for hypothesis in beam_search(model, alone(source_batch(), row), num_beams, 6, length_penalty)
    ]
    assert trimmed(outputs.sequences) == [words for _, words in expected]
    torch.testing.assert_close(outputs.sequences_scores, torch.tensor([score for score, _ in expected]))


@every_cache
def test_batch_and_padding_change_nothing(model, cache_kind):
    source, arguments = source_batch(), {"num_beams": 4, "max_new_tokens": 6}
    # Marian counts positions from the left.
    paddings = [(0, 4), (4, 0)] if cache_kind == "states" else [(0, 4)]
    if cache_kind != "states":
        arguments["cache_implementation"] = cache_kind
    together = trimmed(model.generate(**source, **arguments))
    for padding in paddings:
        padded = {name: F.pad(value, padding) for name, value in source.items()}
        assert trimmed(model.generate(**padded, **arguments)) == together
    assert [trimmed(model.generate(**alone(source, row), **arguments))[0] for row in range(3)] == together


@few_or_many_beams
@every_cache
def test_caches_change_nothing(model, cache_kind, num_beams):
    results = []
    for cache in ({"use_cache": False}, {} if cache_kind == "states" else {"cache_implementation": cache_kind}):
        torch.manual_seed(3)
        results.append(model.generate(**source_batch(), num_beams=num_beams, **cache, max_new_tokens=6).tolist())
    assert results[0] == results[1]


@few_or_many_beams
@every_recurrent
def test_a_prompt_with_padding(model, num_beams):
    """Left-padded prompts go on as each does alone."""
    prompts, mask = TARGETS[:, :3], TARGET_MASK[:, :3]
    source, arguments = source_batch(), {"num_beams": num_beams, "max_new_tokens": 5}
    together = model.generate(**source, decoder_input_ids=prompts, decoder_attention_mask=mask, **arguments)
    for row in range(3):
        words = prompts[row : row + 1, mask[row].bool()]
        single = model.generate(**alone(source, row), decoder_input_ids=words, **arguments)
        assert trimmed(together[row : row + 1, 3 - words.shape[1] :]) == trimmed(single)


@every_recurrent
def test_what_the_decoder_needs_once_a_sentence_is_computed_once(model):
    calls, encoder = [], model.get_encoder()
    once = [getattr(encoder, name, None) for name in ("aggregation", "projection", "key_projection")]
    once = [module for module in once if module is not None]
    for module in once:
        module.register_forward_hook(lambda *_: calls.append(1))
    model.generate(**source_batch(), num_beams=4, max_new_tokens=6)
    assert len(calls) == len(once) > 0


@each_recurrent_family
def test_going_on_with_returned_states(kind):
    """States of the first words, and the words after them, give what all words at once do."""
    model, source = recurrent(kind), alone(source_batch(), 0)
    options = {**source, "return_dict_in_generate": True, "output_logits": True}
    whole = model.generate(**options, max_new_tokens=8)
    half = model.generate(**options, max_new_tokens=4)
    # By this mask Transformers knows that all words are given, of which the cache has all but the last.
    words = {"decoder_input_ids": half.sequences, "decoder_attention_mask": torch.ones_like(half.sequences)}
    rest = model.generate(**options, **words, **{CACHE: half[CACHE]}, max_new_tokens=4)
    assert torch.equal(rest.sequences, whole.sequences)
    torch.testing.assert_close(rest.logits, whole.logits[4:])


@every_kind
def test_a_cache_under_either_name(model):
    """As Transformers has called it, before 5.24 and since."""
    source, first, second = source_batch(), TARGETS[:, :1], TARGETS[:, 1:2]
    found = []
    with torch.no_grad():
        for name in ("cache", "past_key_values"):
            cache = model(**source, decoder_input_ids=first, use_cache=True)[CACHE]
            old = CACHE == "cache" != name
            with pytest.warns(FutureWarning, match="`past_key_values` is deprecated") if old else nullcontext():
                found.append(model(**source, decoder_input_ids=second, **{name: cache}).logits)
        assert torch.equal(*found)
        assert not torch.equal(found[0], model(**source, decoder_input_ids=second).logits)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recurrent-guided_hybrid"])
def test_compiled_step_is_compiled_once(model):
    torch.compiler.reset()
    source = source_batch()
    encoded = model.get_encoder()(**source)
    expected = uncached(model, source, TARGETS)
    steps, cache = [], new_cache(model, "states")
    with torch.no_grad():
        step = torch.compile(model, fullgraph=True, backend="eager")
        for place in range(TARGETS.shape[1]):
            one = step if place else model
            # After the first word, whose states do not exist yet, nothing changes its shape.
            with torch._dynamo.config.patch(error_on_recompile=place > 1):
                read = {"attention_mask": source["attention_mask"], "encoder_outputs": encoded}
                read["decoder_input_ids"] = TARGETS[:, place : place + 1]
                steps.append(one(**read, cache=cache, use_cache=True).logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), expected)
    assert cache.get_seq_length() == TARGETS.shape[1]


@pytest.mark.parametrize("name", ["recurrent-rnmt", "recurrent-guided_hybrid"])
@pytest.mark.parametrize("num_beams", [1, 3])
def test_attention_of_what_is_generated(model, num_beams):
    """One row of weights a word, as of one head, which are those of an uncached pass."""
    source = alone(source_batch(), 1)
    outputs = model.generate(
        **source, num_beams=num_beams, max_new_tokens=5, return_dict_in_generate=True, output_attentions=True
    )
    words = outputs.sequences[:, :-1]
    with torch.no_grad():
        (expected,) = model(**source, decoder_input_ids=words, output_attentions=True).cross_attentions
    assert expected.shape == (1, 1, words.shape[1], source["input_ids"].shape[1])
    torch.testing.assert_close(expected.sum(-1), torch.ones_like(expected[..., 0]))
    steps = [attention for (attention,) in outputs.cross_attentions]
    assert {step.shape[1:] for step in steps} == {(1, 1, source["input_ids"].shape[1])}
    if num_beams == 1:
        torch.testing.assert_close(torch.cat(steps, dim=2), expected)
