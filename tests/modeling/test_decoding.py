"""Decoding: cached steps are one uncached pass, beam search is a hand-written one, batches change nothing."""

import pytest
import torch
from aggregated_models import EOS, aggregated, source_batch
from decoding import TARGET_MASK, TARGETS, alone, beam_search, cached, trimmed, uncached
from torch.nn import functional as F
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

# Chosen for sentences of different lengths; test_sentences_end_and_beams_differ checks.
SEED_AND_EOS_BIAS = {
    "none": (0, 5),
    "dynamic_routing": (0, 2),
    "em_routing": (0, 4),
    "heads_simple": (2, 4),
    "heads_and_layers_em": (0, 7),
    "gdr": (2, 4),
    "guided_classifier": (1, 2),
    "guided_attention": (0, 7),
    "everything": (0, 4),
}
every_kind = pytest.mark.parametrize("kind", SEED_AND_EOS_BIAS)


@pytest.fixture
def model(kind):
    # float64, so that equal means equal.
    seed, bias = SEED_AND_EOS_BIAS[kind]
    model = aggregated(kind, seed, forced_eos_token_id=None).double()
    model.final_logits_bias[:, EOS] += bias
    return model


def new_cache(model, kind):
    if kind == "dynamic":
        return EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache(config=model.config))
    lengths = (TARGETS.shape[1], source_batch()["input_ids"].shape[1])
    return EncoderDecoderCache(*(StaticCache(config=model.config, max_cache_len=length) for length in lengths))


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("cache_kind", ["dynamic", "static"])
@every_kind
def test_cached_steps_are_one_uncached_pass(model, cache_kind, chunk):
    source = source_batch()
    encoded = model.get_encoder()(**source)
    expected = uncached(model, source, TARGETS, TARGET_MASK)
    actual = cached(model, source, encoded, TARGETS, new_cache(model, cache_kind), TARGET_MASK, chunk=chunk)
    real = TARGET_MASK.bool()
    torch.testing.assert_close(actual[real], expected[real])
    assert not torch.equal(expected[real], uncached(model, source, TARGETS)[real]), "the mask does nothing"


@pytest.mark.parametrize("cache_kind", ["dynamic", "static"])
@every_kind
def test_reordered_cache_continues_the_chosen_beams(model, cache_kind):
    source, cache, order = source_batch(), new_cache(model, cache_kind), torch.tensor([2, 0, 0])
    cached(model, source, model.get_encoder()(**source), TARGETS, cache, stop=3)
    cache.reorder_cache(order)
    chosen = {name: value[order] for name, value in source.items()}
    targets = torch.cat([TARGETS[order, :3], TARGETS[:, 3:]], dim=1)
    actual = cached(model, chosen, model.get_encoder()(**chosen), targets, cache, start=3)
    torch.testing.assert_close(actual, uncached(model, chosen, targets)[:, 3:])


@pytest.mark.parametrize(("num_beams", "length_penalty"), [(2, 1.0), (3, 1.0), (5, 0.0), (4, 2.0)])
@every_kind
def test_beam_search_is_a_hand_written_one(model, num_beams, length_penalty):
    source = source_batch()
    outputs = model.generate(
        **source,
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
        for hypothesis in beam_search(model, alone(source, row), num_beams, 6, length_penalty)
    ]
    assert trimmed(outputs.sequences) == [words for _, words in expected]
    torch.testing.assert_close(outputs.sequences_scores, torch.tensor([score for score, _ in expected]))


@every_kind
def test_sentences_end_and_beams_differ(model):
    """The tests of this file compare something."""
    greedy, beam = (trimmed(model.generate(**source_batch(), num_beams=n, max_new_tokens=6)) for n in (1, 4))
    assert len({len(words) for words in greedy + beam}) > 1
    assert greedy != beam
    assert len({tuple(words) for words in beam}) > 1


@pytest.mark.parametrize("cache_implementation", ["dynamic", "static"])
@pytest.mark.parametrize("num_beams", [1, 4])
@every_kind
def test_batch_and_padding_change_nothing(model, num_beams, cache_implementation):
    source = source_batch()
    arguments = {"num_beams": num_beams, "max_new_tokens": 8, "cache_implementation": cache_implementation}
    padded = {name: F.pad(value, (0, 4)) for name, value in source.items()}
    together = trimmed(model.generate(**source, **arguments))
    assert trimmed(model.generate(**padded, **arguments)) == together
    assert [trimmed(model.generate(**alone(source, row), **arguments))[0] for row in range(3)] == together


@pytest.mark.parametrize(
    "arguments", [{"num_beams": 1}, {"num_beams": 4}, {"do_sample": True}, {"do_sample": True, "num_beams": 3}], ids=str
)
@every_kind
def test_caches_change_nothing(model, arguments):
    results = []
    for cache in ({"use_cache": False}, {"use_cache": True}, {"cache_implementation": "static"}):
        torch.manual_seed(3)
        results.append(model.generate(**source_batch(), **arguments, **cache, max_new_tokens=8).tolist())
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("num_beams", [1, 4])
@every_kind
def test_encoder_outputs_of_the_user(model, num_beams):
    source = source_batch()
    encoded = model.get_encoder()(**source)
    arguments = {"num_beams": num_beams, "max_new_tokens": 6}
    mask = source["attention_mask"]
    assert torch.equal(
        model.generate(encoder_outputs=encoded, attention_mask=mask, **arguments),
        model.generate(**source, **arguments),
    )


@pytest.mark.parametrize("output_routing", [True, "all"])
@pytest.mark.parametrize("num_beams", [1, 4])
@every_kind
def test_routing_is_carried_through_generate(model, kind, num_beams, output_routing):
    arguments = {**source_batch(), "num_beams": num_beams, "max_new_tokens": 6, "return_dict_in_generate": True}
    outputs = model.generate(**arguments, output_routing=output_routing)
    assert torch.equal(outputs.sequences, model.generate(**arguments).sequences)
    encoded = model.get_encoder()(**source_batch(), output_routing=output_routing)
    assert (encoded.layer_routing is None) == (model.config.layer_aggregation is None)
    assert (encoded.head_routing is None) == (model.config.head_aggregation is None)
    assert (encoded.guided_votes is None) == (model.config.guided_routing is None)


@pytest.mark.parametrize("help_from", [{"assistant_model": True}, {"prompt_lookup_num_tokens": 2}], ids=str)
@every_kind
def test_assisted_decoding(model, kind, help_from):
    if "assistant_model" in help_from:
        help_from = {"assistant_model": aggregated(kind, seed=9, forced_eos_token_id=None).double()}
    source = alone(source_batch(), 0)
    expected = model.generate(**source, max_new_tokens=8)
    assert torch.equal(model.generate(**source, **help_from, max_new_tokens=8), expected)
