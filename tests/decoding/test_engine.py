"""An engine is a snapshot; what it cannot do goes to Transformers."""

import copy
import gc
import logging
import re
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from aggregated_models import EOS, aggregated
from ending_models import VOCABULARY, ending, sources
from torch.nn.utils import parametrizations
from transformers import (
    AttentionInterface,
    LogitsProcessor,
    LogitsProcessorList,
    MarianConfig,
    MarianMTModel,
    MaxTimeCriteria,
    StoppingCriteriaList,
)
from transformers.generation import BaseStreamer, EosTokenCriteria, StopStringCriteria
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from hf_capsule_mt.data.tokenizer import train_joint_bpe
from hf_capsule_mt.decoding import Engine, Source, UnsupportedModelError, engine_of, generate, release, translate_stream
from hf_capsule_mt.decoding.folded_aggregation import layer_aggregation
from hf_capsule_mt.decoding.generation import _log_once
from hf_capsule_mt.decoding.precisions import Product
from hf_capsule_mt.decoding.search import _fill
from hf_capsule_mt.modeling.modeling_capsule_aggregated_marian import build_layer_aggregation

OPTIONS = {"num_beams": 3, "max_new_tokens": 8}


class _Odd(LogitsProcessor):
    def __call__(self, input_ids, scores):
        scores = scores.clone()
        scores[:, 1::2] = -torch.inf
        return scores


class _Largest(LogitsProcessor):
    """Leaves scores whose sum is not finite, though each is."""

    def __call__(self, input_ids, scores):
        scores = scores.clone()
        scores[:, 5] = torch.finfo(scores.dtype).max
        return scores


def _both(model, **options):
    """What Transformers writes, and what is written with `custom_generate`."""
    written = []
    for custom in ({}, {"custom_generate": generate}):
        torch.manual_seed(0)
        written.append(model.generate(**{**sources(6), **OPTIONS, **options, **custom}))
    return written


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": True, "num_beams": 1},
        {"do_sample": True},
        {"logits_processor": LogitsProcessorList([_Odd()])},
        {"logits_processor": LogitsProcessorList([_Largest()])},
        {"stopping_criteria": StoppingCriteriaList([MaxTimeCriteria(100)])},
        {"prefix_allowed_tokens_fn": lambda batch, words: list(range(2, 20))},
        {"decoder_input_ids": torch.full((6, 2), 4) * torch.tensor([0, 1])},
        {"encoder_no_repeat_ngram_size": 2},
        {"stopping_criteria": StoppingCriteriaList([EosTokenCriteria(275), EosTokenCriteria(EOS)])},
        {"attention_mask": sources(6)["attention_mask"] * torch.tensor([[1], [1], [0], [1], [1], [1]])},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_it_cannot_do_goes_to_transformers(options, engine_calls, caplog):
    _log_once.cache_clear()
    with caplog.at_level(logging.INFO, logger="hf_capsule_mt.decoding"):
        expected, found = _both(ending("marian/everything"), **options)
        _both(ending("marian/everything"), **options)
    assert torch.equal(expected, found)
    assert not engine_calls
    (record,) = [record for record in caplog.records if record.name.startswith("hf_capsule_mt")]
    assert "Transformers decodes" in record.getMessage()
    assert record.levelno == logging.INFO


@pytest.mark.parametrize(
    ("weights", "options", "reason"),
    [
        (torch.float16, {}, r"the weights are torch\.float16 on cpu; the engine needs those of dtype=torch\.float32"),
        (torch.float32, {"dtype": "int8", "do_sample": True}, "the mode of generation is beam_sample"),
    ],
    ids=["weights", "dtype"],
)
def test_who_gets_another_decoding_than_asked_for_is_warned(weights, options, reason, caplog):
    _log_once.cache_clear()
    for _ in range(2):
        model = copy.deepcopy(ending("marian/everything")).to(weights)
        model.generate(**sources(2), **OPTIONS, **options, custom_generate=generate)
    (record,) = [record for record in caplog.records if record.name.startswith("hf_capsule_mt")]
    assert record.levelno == logging.WARNING
    assert re.search(reason, record.getMessage())


def test_more_than_tokens_goes_to_transformers(engine_calls):
    asked = {"return_dict_in_generate": True, "output_scores": True, "output_attentions": True}
    expected, found = _both(ending("recurrent/rnmt"), **asked)
    assert not engine_calls
    assert torch.equal(expected.sequences_scores, found.sequences_scores)
    assert len(found.cross_attentions) == len(expected.cross_attentions)


def test_autocast_goes_to_transformers(engine_calls):
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = _both(ending("marian"))
    assert torch.equal(expected, found)
    assert not engine_calls


@pytest.mark.parametrize("name", ["marian", "marian/em_routing", "recurrent/capsule"])
def test_what_calls_the_engine_itself_has_no_autocast(name):
    """It would round what the products of the engine read."""
    model, given = ending(name), [Source([5 + index, 6, EOS], 6) for index in range(5)]
    expected = [found.sequences.tolist() for _, found in translate_stream(model, given, 6, num_beams=2)]
    stream = translate_stream(model, given, 6, num_beams=2)
    encoded = engine_of(model).encode(**sources(3))
    with torch.autocast("cpu", torch.bfloat16):
        assert [found.sequences.tolist() for _, found in stream] == expected
        again = Engine(model).encode(**sources(3))
    assert torch.equal(again.last_hidden_state, encoded.last_hidden_state)


def _hooked(model):
    model.model.decoder.layers[0].fc1.register_forward_hook(lambda module, args, output: 2 * output)


def _parametrized(model):
    parametrizations.weight_norm(model.model.decoder.layers[1].encoder_attn.q_proj)


def _replaced(model):
    class Doubled(torch.nn.Linear):
        def forward(self, inputs):
            return 2 * super().forward(inputs)

    replaced = Doubled(16, VOCABULARY, bias=False)
    replaced.weight = model.lm_head.weight
    model.lm_head = replaced


def _attending_otherwise(model):
    def backwards(module, query, key, value, mask, **options):
        return sdpa_attention_forward(module, query, key, -value, mask, **options)

    AttentionInterface.register("backwards", backwards)
    model.set_attn_implementation("backwards")


def _scaled(model):
    for layer in model.model.decoder.layers:
        layer.self_attn.scaling *= 50


@pytest.mark.parametrize(
    "change", [_hooked, _parametrized, _replaced, torch.nn.Module.double, _attending_otherwise, _scaled]
)
def test_a_model_that_is_not_what_its_class_says_goes_to_transformers(change, engine_calls):
    model = ending("marian")
    plain, _ = _both(model)
    engine_calls.clear()
    change(model)
    expected, found = _both(model)
    assert torch.equal(expected, found)
    assert not engine_calls
    assert change in (_parametrized, torch.nn.Module.double) or not torch.equal(expected, plain)
    with pytest.raises(UnsupportedModelError, match=r"Linear|float64|attention"):
        Engine(model)


def test_a_hook_on_routed_layers_goes_to_transformers(engine_calls):
    model = ending("marian/em_routing")
    aggregator = model.model.decoder.aggregation.aggregator
    aggregator.register_forward_hook(lambda module, args, output: (-output[0], output[1]))
    expected, found = _both(model)
    assert torch.equal(expected, found)
    assert not engine_calls


class _Factor:
    def __init__(self):
        self.value = 1.0

    def apply(self, module, args, output):
        return output * self.value


def test_a_hook_of_an_object_acts_by_that_object():
    model, factor, source = ending("marian"), _Factor(), sources(3)
    model.model.encoder.layers[0].fc1.register_forward_hook(factor.apply)
    engine = Engine(model)
    before = engine.encode(**source).last_hidden_state
    factor.value = -8.0
    after = engine.encode(**source).last_hidden_state
    assert not torch.allclose(after, before, atol=0.1)
    torch.testing.assert_close(after, model.get_encoder()(**source).last_hidden_state, atol=1e-4, rtol=1e-4)


def _by_optimizer(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    source = sources(6)
    model(**source, labels=source["input_ids"]).loss.backward()
    optimizer.step()


def _by_data(model):
    for parameter in model.parameters():
        parameter.data.mul_(1.5)


def _by_loading(model):
    torch.manual_seed(1)
    model.load_state_dict({name: value + 0.1 * torch.randn_like(value) for name, value in model.state_dict().items()})


def _by_replacing(model):
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.flip(1))


def _embedded_otherwise(model):
    model.model.decoder.embed_scale = 0.1


def _normed_otherwise(model):
    for layer in model.model.decoder.layers:
        layer.final_layer_norm.eps = 1e3


def _routed_once(model):
    for module in model.modules():
        if hasattr(module, "num_iterations"):
            module.num_iterations = 1


def _one_bias_by_data(model):
    model.final_logits_bias.data[0, 7] += 50


@pytest.mark.parametrize("change", [_by_optimizer, _by_data, _by_loading, _by_replacing])
@pytest.mark.parametrize("name", ["marian/em_routing", "recurrent/capsule"])
def test_changed_weights_are_noticed(name, change, engine_calls):
    model = ending(name)
    before, _ = _both(model)
    engine = engine_of(model)
    assert engine_of(model) is engine
    change(model)
    expected, found = _both(model)
    assert torch.equal(expected, found)
    assert not torch.equal(before, expected)
    assert len(engine_calls) == 2
    assert not engine.is_of(model)


@pytest.mark.parametrize("change", [_embedded_otherwise, _normed_otherwise, _one_bias_by_data])
def test_what_changes_what_is_written_is_noticed(change, engine_calls):
    model = ending("marian")
    before, _ = _both(model)
    engine = engine_of(model)
    change(model)
    expected, found = _both(model)
    assert torch.equal(expected, found)
    assert not torch.equal(before, expected)
    assert not engine.is_of(model)


@pytest.mark.parametrize("name", ["marian/gdr", "marian/em_routing", "marian/heads_simple", "recurrent/capsule"])
def test_changed_iterations_are_noticed(name):
    model = ending(name)
    engine = engine_of(model)
    _routed_once(model)
    assert not engine.is_of(model)


def test_what_changes_nothing_needs_no_new_engine():
    model = ending("marian/everything")
    engine = engine_of(model)
    _both(model)
    model.train()
    model.eval()
    model.set_attn_implementation("eager")
    assert engine_of(model) is engine


@pytest.mark.parametrize("name", ["marian", "recurrent/capsule"])
def test_an_engine_made_in_inference_mode(name):
    model = ending(name)
    with torch.inference_mode():
        expected, found = _both(model)
        assert torch.equal(expected, found)
    assert torch.equal(_both(model)[1], expected)
    assert list(translate_stream(model, [Source([5, 6, EOS], 4)], num_beams=2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_default_dtype_changes_nothing(dtype, engine_calls):
    model, options = ending("marian"), {"num_beams": 4, "max_new_tokens": 16, "early_stopping": True}
    expected = model.generate(**sources(24, seed=3), **options)
    torch.set_default_dtype(dtype)
    try:
        found = model.generate(**sources(24, seed=3), **options, custom_generate=generate)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(expected, found)
    assert engine_calls


def test_an_engine_refuses_to_go_on_after_a_change():
    model = ending("marian")
    engine = Engine(model)
    engine.encode(**sources(2))
    _by_data(model)
    with pytest.raises(RuntimeError, match="make a new one"):
        engine.encode(**sources(2))


def test_training_mode(engine_calls):
    model = ending("marian")
    engine = Engine(model)
    model.train()
    with pytest.raises(ValueError, match="eval"):
        engine.encode(**sources(2))
    expected, found = _both(model)
    assert torch.equal(expected, found)
    model.eval()
    model.model.decoder.train()
    expected, found = _both(model)
    assert torch.equal(expected, found)
    assert not engine_calls


@pytest.mark.parametrize("limit", [9, 10])
def test_translations_longer_than_the_positions(limit, engine_calls):
    model = aggregated("none", max_position_embeddings=9)
    model.generation_config.eos_token_id = model.config.vocab_size - 1
    source = sources(2, longest=6)
    with nullcontext() if limit == 9 else pytest.raises(ValueError, match="a text has 10 tokens, and the model 9 pos"):
        model.generate(**source, max_new_tokens=limit, custom_generate=generate)
    assert len(engine_calls) == (limit == 9)
    with (
        nullcontext() if limit == 9 else pytest.raises(ValueError, match=r"may have 10 tokens, and .* has 9 positions")
    ):
        list(translate_stream(model, [Source([5, 6, 2], limit)]))


def test_a_model_is_freed_with_its_engine():
    model = ending("recurrent/rnmt")
    engine_of(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_results_are_plain_tensors():
    found = ending("marian").generate(**sources(3), **OPTIONS, custom_generate=generate)
    assert not found.is_inference()


def test_other_models_are_refused():
    with pytest.raises(UnsupportedModelError, match="Linear"):
        Engine(torch.nn.Linear(2, 2))


def test_other_modes_are_refused():
    with pytest.raises(ValueError, match="assisted"):
        ending("marian").generate(**sources(1), max_new_tokens=5, prompt_lookup_num_tokens=2, custom_generate=generate)


@pytest.mark.parametrize("name", ["marian/none", "recurrent/rnmt", "recurrent/capsule"])
@pytest.mark.parametrize("custom", [generate, partial(generate, dtype="bfloat16")], ids=["plain", "partial"])
def test_what_would_not_be_heard_is_refused(name, custom):
    """Transformers hands neither on; of plain Marian's it cannot be told."""
    model = ending(name)
    for option in ({"streamer": BaseStreamer()}, {"assistant_model": model}):
        with pytest.raises(ValueError, match=f"{next(iter(option))} is given beside a custom_generate.*leave one of"):
            model.generate(**sources(1), max_new_tokens=5, **option, custom_generate=custom)


def test_stop_strings_as_a_criterion():
    """Beside `custom_generate`, Transformers has no other way to give a tokenizer."""
    tokenizer = train_joint_bpe(["a b c"], 300)
    torch.manual_seed(0)
    model = MarianMTModel(MarianConfig(**{**ending("marian").config.to_dict(), "vocab_size": len(tokenizer)})).eval()
    given = {**sources(1), "max_new_tokens": 8}
    stop = tokenizer.decode(model.generate(**given)[0, 2])
    criteria = [StopStringCriteria(tokenizer, [stop])]
    found = model.generate(**given, stopping_criteria=criteria, custom_generate=generate)
    assert torch.equal(found, model.generate(**given, stop_strings=[stop], tokenizer=tokenizer))
    assert found.shape[1] < 9


@pytest.mark.parametrize("parameterization", ["factored", "joint"])
@pytest.mark.parametrize("context", ["all", "own"])
@pytest.mark.parametrize("kind", ["em_routing", "dynamic_routing"])
def test_folded_aggregation(kind, context, parameterization):
    fields = {"layer_aggregation_context": context, "layer_aggregation_parameterization": parameterization}
    config = aggregated(kind, **fields).config
    model = aggregated(kind, **fields)
    aggregation = model.model.decoder.aggregation
    assert type(aggregation) is type(build_layer_aggregation(config, config.decoder_layers))
    layers = list(torch.randn(config.decoder_layers, 7, config.d_model))
    with torch.no_grad():
        torch.testing.assert_close(
            layer_aggregation(aggregation, Product)(layers), aggregation(layers)[0], atol=2e-5, rtol=1e-4
        )


def test_the_last_rows_take_the_places_of_those_that_leave():
    assert _fill({1, 4}, 6) == ([0, 5, 2, 3], [1])
    assert _fill({5}, 6) == ([0, 1, 2, 3, 4], [])
    assert _fill({0, 1, 2}, 3) == ([], [])


def test_threads_make_one_engine(often_switched):
    """In each precision, also while another thread frees them."""
    model = ending("marian/everything")

    def decoded(number):
        if number % 50 == 0:
            release(model)
        return type(engine_of(model, ("float32", "bfloat16")[number % 2]))

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(decoded, range(200))) == {Engine}
    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(lambda _: engine_of(model), range(20)))) == 1
