"""In a version of Transformers that no test has seen, an engine must have the scores of its model."""

import logging
from functools import partial

import peft
import pytest
import torch
import transformers
from agreement import check_agreement
from ending_models import EVERY_KIND, LONGEST, PRE_NORM, T5, ending, sources
from transformers.models.m2m_100.modeling_m2m_100 import M2M100DecoderLayer
from transformers.models.marian.modeling_marian import MarianDecoderLayer
from transformers.models.mbart.modeling_mbart import MBartDecoderLayer
from transformers.models.mt5.modeling_mt5 import MT5Block
from transformers.models.t5.modeling_t5 import T5Block

from hf_capsule_mt.decoding import UnsupportedModelError, engine, engine_of, generate, precision, proof, release
from hf_capsule_mt.decoding.generation import logger
from hf_capsule_mt.decoding.models.transformer import MarianAdapter
from hf_capsule_mt.decoding.products.products import HalfProduct
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.generation.decoder import Decoder
from hf_capsule_mt.translation.generation.decoder import logger as decoder_logger

OPTIONS = {"num_beams": 2, "max_new_tokens": 6}
LAYERS = {
    "marian": MarianDecoderLayer,
    "pre_norm/m2m100": M2M100DecoderLayer,
    "pre_norm/mbart": MBartDecoderLayer,
    "t5/v1_0": T5Block,
    "t5/v1_1": T5Block,
    "t5/mt5": MT5Block,
}
IN_HALF = ("marian", *PRE_NORM, *T5)
HALVES = (torch.float16, torch.bfloat16)


@pytest.fixture
def unseen(monkeypatch):
    """Let the installed Transformers be newer than all tests."""
    monkeypatch.setattr(proof, "NEWEST_TRANSFORMERS", "5.0")


@pytest.fixture
def proofs(monkeypatch):
    """The scores that are compared, those of an engine and the model's own."""
    compared = []
    compute = proof._first_scores

    def recorded(*args):
        compared.append(compute(*args))
        return compared[-1]

    monkeypatch.setattr(proof, "_first_scores", recorded)
    return compared


def scale_layers(monkeypatch, layer, factor):
    """Let decoder layers compute something else, as those of another version of Transformers may."""
    forward = layer.forward

    def scaled(self, hidden_states, *args, **kwargs):
        return forward(self, factor * hidden_states, *args, **kwargs)

    monkeypatch.setattr(layer, "forward", scaled)


@pytest.mark.parametrize("name", EVERY_KIND)
def test_a_model_that_is_unchanged_is_decoded(name, unseen, proofs, engine_calls):
    model = ending(name)
    random_state = torch.get_rng_state()
    engine_of(model)
    assert torch.equal(torch.get_rng_state(), random_state)
    check_agreement(model, sources(6), engine_calls, num_beams=3, max_new_tokens=LONGEST)
    [(found, expected)] = proofs
    assert found.shape == expected.shape == (3, len(found[0]))
    # A small part of what is allowed.
    assert (found - expected).norm() < 5e-6 * (expected - expected.mean()).norm()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", IN_HALF)
def test_weights_in_16_bits(name, dtype, unseen, proofs, monkeypatch):
    monkeypatch.setattr(engine, "make_of", lambda *given: HalfProduct)
    engine_of(ending(name).to(dtype))
    assert len(proofs) == 1


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize("name", IN_HALF)
def test_on_cuda(name, dtype, unseen, proofs):
    engine_of(ending(name).to("cuda", dtype))
    assert len(proofs) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_products_in_fewer_bits(dtype, unseen, proofs, engine_calls):
    """Their rounding does not count: the proof is of float32."""
    model = ending("marian/em_routing")
    for _ in range(2):
        model.generate(**sources(6), **OPTIONS, custom_generate=partial(generate, dtype=dtype))
    assert len(engine_calls) == 2
    assert len(proofs) == 1


@pytest.mark.parametrize("name", LAYERS)
def test_a_model_that_computes_something_else_is_left_to_transformers(
    name, unseen, proofs, engine_calls, caplog, monkeypatch
):
    scale_layers(monkeypatch, LAYERS[name], 1.01)
    logger.warning_once.cache_clear()
    model = ending(name)
    expected = model.generate(**sources(6), **OPTIONS)
    for _ in range(3):
        assert torch.equal(model.generate(**sources(6), **OPTIONS, custom_generate=generate), expected)
    assert not engine_calls
    # It is not tried again for every batch, and said once.
    assert len(proofs) == 1
    (record,) = [record for record in caplog.records if record.name.startswith("hf_capsule_mt")]
    assert record.levelno == logging.WARNING
    assert f"in Transformers {transformers.__version__} the engine has other scores" in record.getMessage()
    assert "Install transformers==5.0.*" in record.getMessage()


@pytest.mark.parametrize("name", IN_HALF)
@pytest.mark.parametrize(("dtype", "factor"), [(torch.float16, 2.0), (torch.bfloat16, -1.0)])
def test_a_large_difference_is_seen_in_16_bits(name, dtype, factor, unseen, monkeypatch):
    monkeypatch.setattr(precision, "multiplies_as_they_are", lambda weights, device: True)
    scale_layers(monkeypatch, LAYERS[name], factor)
    with pytest.raises(UnsupportedModelError, match="other scores"):
        engine_of(ending(name).to(dtype))


def test_a_token_that_the_model_forbids(unseen, monkeypatch):
    model = ending("marian")
    model.final_logits_bias[:, 7] = -torch.inf
    engine_of(model)
    forward = type(model).forward

    def forbids(self, *args, **kwargs):
        output = forward(self, *args, **kwargs)
        output.logits[..., 8] = -torch.inf
        return output

    monkeypatch.setattr(type(model), "forward", forbids)
    release(model)
    with pytest.raises(UnsupportedModelError, match="other scores"):
        engine_of(model)


def test_a_model_that_the_engine_cannot_read_is_left_to_transformers(unseen, engine_calls, monkeypatch):
    def renamed(*args):
        raise AttributeError("there is no fc1")

    monkeypatch.setattr(MarianAdapter, "copy", renamed)
    model = ending("marian")
    expected = model.generate(**sources(6), **OPTIONS)
    assert torch.equal(model.generate(**sources(6), **OPTIONS, custom_generate=generate), expected)
    assert not engine_calls
    with pytest.raises(UnsupportedModelError, match=r"the engine cannot read the model .*there is no fc1"):
        engine_of(model)


def test_full_memory_is_no_proof(unseen, monkeypatch):
    """The caller halves the batch."""

    def full(*args):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(proof, "_first_scores", full)
    with pytest.raises(torch.OutOfMemoryError):
        engine_of(ending("marian"))


def test_terms_are_refused(unseen, monkeypatch):
    scale_layers(monkeypatch, MarianDecoderLayer, 1.01)
    options = {**OPTIONS, "custom_generate": partial(generate, terms=[[], []])}
    with pytest.raises(UserError, match=r"Only the engine writes terms.* other scores.* hf-capsule-mt\.$"):
        ending("marian").generate(**sources(2), **options)


def test_a_refusal_is_forgotten_with_the_weights(unseen, proofs, monkeypatch):
    model = ending("marian")
    with monkeypatch.context() as patch:
        scale_layers(patch, MarianDecoderLayer, 1.01)
        with pytest.raises(UnsupportedModelError):
            engine_of(model)
    with pytest.raises(UnsupportedModelError):
        engine_of(model)
    release(model)
    assert engine_of(model)
    assert len(proofs) == 2


@pytest.mark.parametrize("tested", [transformers.__version__.rpartition(".")[0], "99.0"])
def test_a_version_that_tests_have_seen_costs_nothing(tested, proofs, monkeypatch):
    monkeypatch.setattr(proof, "NEWEST_TRANSFORMERS", tested)
    engine_of(ending("marian"))
    assert not proofs


@pytest.mark.parametrize(
    ("installed", "is_seen"), [("5.9.7", True), ("5.10.0.dev0", False), ("6.0.0rc1", False), ("5.10rc1", False)]
)
def test_versions_that_tests_have_seen(installed, is_seen, proofs, monkeypatch):
    """Patches of a version are seen with it."""
    monkeypatch.setattr(proof, "NEWEST_TRANSFORMERS", "5.9")
    monkeypatch.setattr(transformers, "__version__", installed)
    engine_of(ending("marian"))
    assert len(proofs) == (not is_seen)


def test_the_decoder_of_all_commands_says_it_once(unseen, proofs, caplog, monkeypatch):
    scale_layers(monkeypatch, MarianDecoderLayer, 1.01)
    decoder_logger.warning_once.cache_clear()
    model = ending("marian")
    token_ids = [[5, 6, 7, 2], [8, 9, 2]]
    expected = Decoder(model, engine="transformers", **OPTIONS).decode(token_ids)
    decoder = Decoder(model, **OPTIONS)
    assert [decoder.decode(token_ids) for _ in range(2)] == [expected] * 2
    assert len(proofs) == 1
    [message] = [record.getMessage() for record in caplog.records if record.name.startswith("hf_capsule_mt")]
    assert "Install transformers==5.0.*" in message


@pytest.mark.parametrize("name", ["marian", "recurrent/guided_hybrid", "t5/v1_0"])
def test_hooks_of_the_encoder_run_once(name, unseen, proofs, engine_calls):
    """They may do something else when they run again, such as count or draw."""
    model = ending(name)
    factors = []

    def scale(module, args, output):
        factors.append(1 + len(factors))
        return type(output)(**{key: value * factors[-1] for key, value in output.items()})

    model.get_encoder().register_forward_hook(scale)
    engine_of(model)
    assert len(proofs) == len(factors) == 1


def test_an_encoder_with_adapters(unseen, proofs):
    config = peft.LoraConfig(target_modules=r".*encoder\.layers.*(q_proj|fc1)", init_lora_weights=False)
    model = ending("marian")
    peft.get_peft_model(model, config)
    engine_of(model.eval())
    assert len(proofs) == 1


def test_a_caller_in_another_mode(unseen, proofs):
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        engine_of(ending("marian"))
    assert len(proofs) == 1


def test_nothing_is_compiled(unseen, proofs):
    def compiled(*args):
        raise AssertionError("the proof has compiled the model")

    model = ending("marian")
    model.compile(backend=compiled)
    engine_of(model)
    assert len(proofs) == 1


def test_fewer_bits_of_float32(unseen, monkeypatch):
    """TF32 rounds more than float32, and the tokens are those of generate() with it."""
    precision = torch.get_float32_matmul_precision()
    scale_layers(monkeypatch, MarianDecoderLayer, 1.003)
    try:
        torch.set_float32_matmul_precision("high")
        engine_of(ending("marian"))
    finally:
        torch.set_float32_matmul_precision(precision)
    with pytest.raises(UnsupportedModelError):
        engine_of(ending("marian"))


def test_scores_that_are_not_finite_are_no_difference(unseen):
    """Decoding says what to do."""
    model = ending("marian")
    with torch.no_grad():
        model.model.decoder.layers[0].fc1.weight.fill_(torch.nan)
    with pytest.raises(UserError, match="not finite"):
        model.generate(**sources(2), **OPTIONS, custom_generate=generate)
