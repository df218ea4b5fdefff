"""An engine is a snapshot; what it cannot do goes to Transformers."""

import copy
import gc
import logging
import math
import os
import re
import signal
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from threading import Event

import pytest
import torch
from aggregated_models import EOS, aggregated
from ending_models import ONE_OF_EACH_FAMILY, VOCABULARY, ending, sources
from torch.nn.utils import parametrizations
from transformers import (
    AttentionInterface,
    DynamicCache,
    EncoderDecoderCache,
    LogitsProcessor,
    LogitsProcessorList,
    MaxTimeCriteria,
    StoppingCriteriaList,
)
from transformers.generation import EosTokenCriteria, MaxLengthCriteria
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from hf_capsule_mt.decoding import Engine, UnsupportedModelError, engine_of, generate, generation, release
from hf_capsule_mt.decoding.fingerprint import Fingerprint, UnsupportedError, check_plain
from hf_capsule_mt.decoding.generation import logger
from hf_capsule_mt.decoding.models.aggregation import folded_aggregation
from hf_capsule_mt.decoding.products import int8
from hf_capsule_mt.decoding.products.products import plain_map
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.modeling.aggregation import LayerAggregation
from hf_capsule_mt.modeling.recurrent import RecurrentCache
from hf_capsule_mt.modeling.transformers_versions import CACHE

OPTIONS = {"num_beams": 3, "max_new_tokens": 8}
CUSTOM = ({}, {"custom_generate": generate})


class _Odd(LogitsProcessor):
    def __call__(self, input_ids, scores):
        scores = scores.clone()
        scores[:, 1::2] = -torch.inf
        return scores


def _both(model, **options):
    """What Transformers writes, and what is written with `custom_generate`."""
    written = []
    for custom in CUSTOM:
        torch.manual_seed(0)
        written.append(model.generate(**{**sources(6), **OPTIONS, **options, **custom}))
    return written


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": True, "num_beams": 1},
        {"do_sample": True},
        {"logits_processor": LogitsProcessorList([_Odd()])},
        {"stopping_criteria": StoppingCriteriaList([MaxTimeCriteria(100)])},
        {"stopping_criteria": StoppingCriteriaList([MaxLengthCriteria(5)])},
        {"length_penalty": -2.1},
        {"length_penalty": 10.1},
        {"prefix_allowed_tokens_fn": lambda batch, words: list(range(2, 20))},
        {"decoder_input_ids": torch.full((6, 2), 4) * torch.tensor([0, 1])},
        # Before others than the start token Transformers would write it.
        {"decoder_input_ids": torch.tensor([[0], [5], [0], [0], [6], [0]])},
        {"encoder_no_repeat_ngram_size": 2},
        {"stopping_criteria": StoppingCriteriaList([EosTokenCriteria(275), EosTokenCriteria(EOS)])},
        {"attention_mask": sources(6)["attention_mask"] * torch.tensor([[1], [1], [0], [1], [1], [1]])},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_it_cannot_do_goes_to_transformers(options, engine_calls, caplog):
    logger.info_once.cache_clear()
    with caplog.at_level(logging.INFO, logger="hf_capsule_mt.decoding"):
        expected, found = _both(ending("marian"), **options)
        # It is said once.
        ending("marian").generate(**{**sources(6), **OPTIONS, **options, "custom_generate": generate})
    assert torch.equal(expected, found)
    assert not engine_calls
    (record,) = [record for record in caplog.records if record.name.startswith("hf_capsule_mt")]
    assert "Transformers decodes" in record.getMessage()
    assert record.levelno == logging.INFO


@pytest.mark.parametrize("custom", CUSTOM, ids=["transformers", "engine"])
def test_a_bad_word_that_does_not_exist_is_refused(custom):
    """By Transformers, whoever decodes."""
    with pytest.raises(ValueError, match=r"bad_words_ids|vocabulary size|vocab_size"):
        ending("marian").generate(**sources(2), **OPTIONS, bad_words_ids=[[VOCABULARY]], **custom)


@pytest.mark.parametrize("eos", [None, []])
def test_a_model_without_an_end_goes_to_transformers(eos, engine_calls):
    model = ending("marian")
    model.generation_config.eos_token_id = eos
    with pytest.raises(UnsupportedError, match="there is no eos_token_id"):
        generation._check_asked_for(torch.zeros(1, 1), model.generation_config, {})


@pytest.mark.parametrize("penalty", [-2.0, 10.0])
def test_a_length_penalty_that_leaves_scores_in_their_range(penalty, engine_calls):
    expected, found = _both(ending("marian"), length_penalty=penalty)
    assert torch.equal(expected, found)
    assert engine_calls


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_autocast_goes_to_transformers(name, engine_calls):
    """The engine computes in float32, and other tokens are the best of bfloat16."""
    model = ending(name)
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = _both(model)
    assert torch.equal(expected, found)
    assert not engine_calls


@pytest.mark.parametrize("is_filled", [False, True])
@pytest.mark.parametrize("name", ["marian", "recurrent/rnmt"])
def test_a_cache_of_the_caller_is_filled(name, is_filled, engine_calls):
    """The caller may go on with it. It may also know tokens already."""
    model, source = ending(name), sources(6)
    tokens = torch.full((6, 1), model.config.decoder_start_token_id)
    written, lengths = [], []
    for custom in CUSTOM:
        cache = RecurrentCache(1) if name != "marian" else EncoderDecoderCache(DynamicCache(), DynamicCache())
        given = {CACHE: cache, "decoder_input_ids": tokens}
        if is_filled:
            with torch.no_grad():
                model(**source, **given, use_cache=True)
            given["decoder_input_ids"] = torch.cat([tokens, tokens + 5], dim=1)
        written.append(model.generate(**source, **given, num_beams=1, max_new_tokens=4, **custom))
        lengths.append(cache.get_seq_length())
    assert torch.equal(*written)
    assert lengths[0] == lengths[1] > 1
    assert not engine_calls


@pytest.mark.parametrize(
    ("weights", "options", "reason"),
    [
        (torch.float16, {}, "the weights are torch.float16 on cpu"),
        (torch.float32, {"dtype": "int8", "do_sample": True}, "the mode of generation is beam_sample"),
    ],
    ids=["weights", "dtype"],
)
def test_who_gets_another_decoding_than_asked_for_is_warned(weights, options, reason, caplog):
    logger.warning_once.cache_clear()
    for _ in range(2):
        model = copy.deepcopy(ending("marian/everything")).to(weights)
        model.generate(**sources(2), **OPTIONS, **options, custom_generate=generate)
    (record,) = [record for record in caplog.records if record.name.startswith("hf_capsule_mt")]
    assert record.levelno == logging.WARNING
    assert reason in record.getMessage()


@pytest.mark.parametrize("name", ["marian", "recurrent/guided_hybrid"])
def test_an_encoded_source_without_a_mask(name, engine_calls):
    model, words = ending(name), torch.tensor([[5, 6, 7, EOS], [8, 9, 10, EOS]])
    encoded = ({"encoder_outputs": model.get_encoder()(words)} for _ in CUSTOM)
    expected, found = (model.generate(**each, **OPTIONS, **custom) for each, custom in zip(encoded, CUSTOM))
    assert torch.equal(expected, found)
    assert engine_calls


def test_more_than_tokens_goes_to_transformers(engine_calls):
    asked = {"return_dict_in_generate": True, "output_scores": True, "output_attentions": True}
    expected, found = _both(ending("recurrent/rnmt"), **asked)
    assert not engine_calls
    assert torch.equal(expected.sequences_scores, found.sequences_scores)
    assert len(found.cross_attentions) == len(expected.cross_attentions)


@pytest.mark.parametrize("penalty", [math.nan, math.inf, -math.inf, 1e308, -1e308])
def test_a_length_penalty_that_is_no_exponent_is_refused(penalty):
    """`generate()` would choose any translation, or end in an OverflowError."""
    model, options = ending("marian"), {"length_penalty": penalty, "custom_generate": generate}
    with pytest.raises(UserError, match=re.escape(f"length_penalty is {penalty}. Give a number")):
        model.generate(**sources(2), **OPTIONS, **options)
    # Greedy search has no penalty.
    model.generate(**sources(2), max_new_tokens=3, num_beams=1, **options)


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


@pytest.mark.parametrize("change", [_hooked, _parametrized, _replaced, torch.nn.Module.double, _attending_otherwise])
def test_a_model_that_is_not_what_its_class_says_goes_to_transformers(change, engine_calls):
    model = ending("marian")
    plain, _ = _both(model)
    engine_calls.clear()
    change(model)
    expected, found = _both(model)
    assert torch.equal(expected, found)
    assert not engine_calls
    assert change in (_parametrized, torch.nn.Module.double) or not torch.equal(expected, plain)
    with pytest.raises(UnsupportedModelError):
        Engine(model)


def _by_optimizer(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    source = sources(6)
    model(**source, labels=source["input_ids"]).loss.backward()
    optimizer.step()


def _by_loading(model):
    torch.manual_seed(1)
    model.load_state_dict({name: value + 0.1 * torch.randn_like(value) for name, value in model.state_dict().items()})


def _by_replacing(model):
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.flip(1))


def _by_replacing_a_module(model):
    replaced = model.lm_head
    model.lm_head = torch.nn.Linear(replaced.in_features, replaced.out_features).eval()
    model.lm_head.weight = torch.nn.Parameter(replaced.weight.flip(1))


def _by_a_hook(model):
    def halves(module, inputs, output):
        return type(output)(**{name: states / 2 for name, states in output.items()})

    model.base_model.encoder.register_forward_hook(halves)


def _by_setting(model):
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 3.0


@pytest.mark.parametrize(
    "change", [_by_optimizer, _by_loading, _by_replacing, _by_replacing_a_module, _by_a_hook, _by_setting]
)
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


def test_a_write_to_one_number_of_a_weight_is_noticed():
    """PyTorch counts writes, but not those through `.data`. After them `release` makes a new engine."""
    model = ending("marian")
    engine = engine_of(model)
    with torch.no_grad():
        model.lm_head.weight[301, 0] += 1
    assert not engine.is_of(model)
    engine = engine_of(model)
    model.lm_head.weight.data[301, 0] += 1
    assert engine_of(model) is engine
    release(model)
    assert engine_of(model) is not engine


def test_a_weight_with_other_numbers_in_its_place_is_noticed():
    """Its version does not tell, but its address does."""
    model = ending("marian")
    engine = engine_of(model)
    model.lm_head.weight.data = model.lm_head.weight.data.flip(1)
    assert not engine.is_of(model)


def test_a_forward_of_a_module_of_its_own_is_noticed():
    model = ending("marian")
    engine = engine_of(model)
    layer = model.model.encoder.layers[1]
    layer.forward = layer.forward
    assert not engine.is_of(model)
    del layer.forward
    assert engine.is_of(model)


@pytest.mark.parametrize(
    ("name", "part", "setting", "value"),
    [
        ("marian", "model.decoder", "embed_scale", 9.0),
        ("marian/em_routing", "model.decoder.aggregation.aggregator.routing", "num_iterations", 1),
    ],
    ids=["scale", "iterations"],
)
def test_a_changed_setting_of_a_module_is_noticed(name, part, setting, value, engine_calls):
    model = ending(name)
    before, _ = _both(model)
    module = model.get_submodule(part)
    assert getattr(module, setting) != value
    setattr(module, setting, value)
    expected, found = _both(model)
    assert torch.equal(expected, found)
    assert not torch.equal(before, expected)
    assert len(engine_calls) == 2


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_weights_without_numbers_or_versions_have_fingerprints():
    """Those on disk, empty ones, and those of inference mode."""
    on_disk = torch.nn.Linear(2, 3, device="meta")
    with torch.inference_mode():
        of_inference = torch.nn.Linear(2, 2)
    for module in (on_disk, torch.nn.Linear(0, 3), of_inference):
        assert Fingerprint(module).is_of(module)
    with pytest.raises(UnsupportedModelError, match="a Linear has a weight that is not a plain tensor"):
        check_plain(on_disk)


def test_training_mode(engine_calls):
    model = ending("marian")
    model.train()
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
    with nullcontext() if limit == 9 else pytest.raises(ValueError, match="A text has 10 tokens, and the model 9 pos"):
        model.generate(**source, max_new_tokens=limit, custom_generate=generate)
    assert len(engine_calls) == (limit == 9)


def test_a_model_is_freed_with_its_engine():
    model = ending("recurrent/rnmt")
    engine_of(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("parameterization", ["factored", "joint"])
@pytest.mark.parametrize("context", ["all", "own"])
@pytest.mark.parametrize("kind", ["em_routing", "dynamic_routing"])
def test_folded_aggregation(kind, context, parameterization):
    fields = {"layer_aggregation_context": context, "layer_aggregation_parameterization": parameterization}
    config = aggregated(kind, **fields).config
    model = aggregated(kind, **fields)
    aggregation = model.model.decoder.aggregation
    assert type(aggregation) is LayerAggregation
    layers = list(torch.randn(config.decoder_layers, 7, config.d_model))
    with torch.no_grad():
        torch.testing.assert_close(
            folded_aggregation(aggregation, plain_map)(layers), aggregation(layers)[0], atol=2e-5, rtol=1e-4
        )


@pytest.mark.parametrize(("owner", "name"), [(Engine, "__init__"), (int8, "_pack")], ids=["engines", "packing"])
def test_a_process_that_is_forked_meanwhile(owner, name, monkeypatch):
    """A thread that makes an engine, or packs its weights, does not exist in the child. Its locks must not be held."""
    model, source = ending("marian"), sources(2)
    options = {**OPTIONS, "custom_generate": generate, "dtype": "int8"}
    method, is_waiting, goes_on = getattr(owner, name), Event(), Event()

    def waits(*args):
        is_waiting.set()
        goes_on.wait(60)
        return method(*args)

    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as threads:
        patch.setattr(owner, name, waits)
        translated = threads.submit(model.generate, **source, **options)
        assert is_waiting.wait(60)
        patch.undo()
        child = os.fork()
        if child == 0:
            # Without an end of its own it would run the other tests too.
            signal.alarm(60)
            with suppress(BaseException):
                ending("marian").generate(**source, **options)
                os._exit(0)
            os._exit(1)
        goes_on.set()
        translated.result()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_threads_make_one_engine(often_switched):
    """In each precision, also while another thread frees them."""
    model = ending("marian/everything")

    def decoded(number):
        if number % 20 == 0:
            release(model)
        return type(engine_of(model, ("float32", "bfloat16")[number % 2]))

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(decoded, range(60))) == {Engine}
    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(lambda _: engine_of(model), range(20)))) == 1


def test_no_engine_is_kept_while_a_model_trains():
    """Whoever trains it may write to weights in a way that leaves no trace."""
    model = ending("marian")
    engine = engine_of(model)
    model.train()
    with pytest.raises(UnsupportedModelError, match="training mode"):
        engine_of(model)
    model.eval()
    assert engine_of(model) is not engine
