"""Weights in 16 bits: the engine multiplies them as they are, and computes all else in float32."""

import gc
from functools import partial

import pytest
import torch
from agreement import TOLERANCE
from ending_models import LONGEST, PRE_NORM, T5, ending, sources
from tiny_marian import save_tiny_marian
from transformers import AutoModelForSeq2SeqLM, LogitsProcessorList, TemperatureLogitsWarper

from hf_capsule_mt.decoding import UnsupportedModelError, engine_of, generate, precision
from hf_capsule_mt.decoding import engine as engine_module
from hf_capsule_mt.decoding.products import int8, products
from hf_capsule_mt.decoding.products.products import HalfProduct
from hf_capsule_mt.translation.generation.model_options import DecodingOptions

KINDS = ("marian", "pre_norm/mbart_tied", *PRE_NORM, *T5)
HALVES = [torch.float16, torch.bfloat16]
CPU = torch.device("cpu")
needs_bfloat16 = pytest.mark.skipif(not products.multiplies_bfloat16(CPU), reason="no products in bfloat16")


@pytest.fixture
def stand_in(monkeypatch):
    """Let the CPU multiply as a GPU does, which multiplies weights in 16 bits as they are."""
    monkeypatch.setattr(engine_module, "make_of", lambda *given: HalfProduct)


def half(name, dtype):
    """A model whose weights are in 16 bits, and the same model in float32."""
    model = ending(name).to(dtype)
    exact = ending(name)
    exact.load_state_dict({key: weight.float() for key, weight in model.state_dict().items()})
    for buffer, rounded in zip(exact.buffers(), model.buffers()):
        buffer.copy_(rounded.float())
    return model, exact


def decode(model, source, engine=None, **options):
    """Translations and their scores. The encoder is the engine's, if there is one."""
    if engine is not None:
        source = {**source, "encoder_outputs": engine.encode(**source)}
        options["custom_generate"] = generate
    return model.generate(**source, **options)


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", KINDS)
def test_all_but_products_is_in_float32(name, dtype, num_beams, stand_in, engine_calls, monkeypatch):
    """Without the rounding of what is multiplied, the tokens are those of the same weights in float32."""
    model, exact = half(name, dtype)
    monkeypatch.setattr(HalfProduct, "__call__", _multiply_exactly)
    options = {"num_beams": num_beams, "num_return_sequences": num_beams, "max_new_tokens": LONGEST}
    found = decode(model, sources(12), engine_of(model), **options)
    expected = exact.generate(**sources(12), **options, return_dict_in_generate=True, output_scores=True)
    assert len(engine_calls) == 1
    assert torch.equal(found, expected.sequences)
    if num_beams > 1:
        scores = torch.cat([translation.scores for translation in engine_calls[-1]])
        torch.testing.assert_close(scores, expected.sequences_scores, atol=TOLERANCE, rtol=1e-6)


def _multiply_exactly(product, inputs):
    found = inputs @ product._weight.float()
    return found if product._bias is None else found + product._bias


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", KINDS)
def test_only_inputs_of_products_are_rounded(name, dtype, stand_in, engine_calls):
    """By a GPU, for which the CPU stands in."""
    model, exact = half(name, dtype)
    options = {"num_beams": 3, "max_new_tokens": 7}
    decode(model, sources(12), engine_of(model), **options)
    exact.generate(**sources(12), **options, custom_generate=generate)
    found, expected = (torch.stack([translation.scores[0] for translation in call]) for call in engine_calls)
    assert 0 < (found - expected).abs().median() < 0.05


@pytest.mark.parametrize("works", [True, False])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["marian", "pre_norm/mbart"])
def test_int8_is_that_of_the_same_weights(name, dtype, works, engine_calls, monkeypatch):
    """They become float32 one by one, also where no product in int8 works."""
    if not works:
        monkeypatch.setattr(int8, "_int8_backends", lambda: ())
        monkeypatch.setattr(int8, "_backend_without_quantized_tensors", lambda: "float32")
    options = {"num_beams": 3, "max_new_tokens": 7}
    for model in half(name, dtype):
        source = {**sources(6), "encoder_outputs": engine_of(model, "int8").encode(**sources(6))}
        model.generate(**source, **options, custom_generate=partial(generate, dtype="int8"))
    found, expected = engine_calls
    for translation, same in zip(found, expected):
        assert torch.equal(translation.sequences, same.sequences)
        torch.testing.assert_close(translation.scores, same.scores)


@pytest.mark.parametrize("dtype", HALVES)
def test_the_product(dtype):
    weight, bias, inputs = torch.randn(30, 50).to(dtype), torch.randn(50), torch.randn(9, 30)
    found = HalfProduct(weight, bias)(inputs)
    expected = inputs.to(dtype).double() @ weight.double() + bias.double()
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


def test_the_words_are_not_copied(stand_in):
    model = ending("marian").bfloat16()
    weights = [
        part for part in _tensors_of(engine_of(model).vocabulary) if part.numel() >= model.lm_head.weight.numel()
    ]
    assert {weight.data_ptr() for weight in weights} == {model.lm_head.weight.data_ptr()}


def _tensors_of(*owners):
    """All tensors that objects hold, as far as Python can see. Tensors themselves are not looked into."""
    tensors, seen, waiting = [], set(), list(owners)
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, type) or type(part).__name__ in ("module", "dict_keys"):
            continue
        seen.add(id(part))
        if isinstance(part, torch.Tensor):
            tensors.append(part)
        elif callable(part) and hasattr(part, "__closure__"):
            waiting += [cell.cell_contents for cell in part.__closure__ or ()]
        elif isinstance(part, partial):
            waiting += [*part.args, *part.keywords.values()]
        elif isinstance(part, dict | list | tuple) or type(part).__module__.startswith(("hf_capsule_mt", "torch.nn")):
            waiting += gc.get_referents(part)
    return tensors


@needs_bfloat16
@pytest.mark.parametrize("name", ["marian", *PRE_NORM, "t5/v1_1"])
def test_bfloat16_on_a_cpu_has_no_copy_in_float32(name, engine_calls):
    model, exact = half(name, torch.bfloat16)
    engine = engine_of(model)
    options = {"num_beams": 3, "max_new_tokens": 7}
    decode(model, sources(12), engine, **options)
    assert len(engine_calls) == 1
    size = 16 * 24
    tensors = _tensors_of(engine._adapter, engine._encoder)
    large = [part for part in tensors if part.numel() >= size and part.shape[-1] != 0]
    assert len(large) > 10
    in_float32 = [part for part in large if part.dtype == torch.float32]
    # Positions are few in comparison.
    assert all(len(part) <= 42 for part in in_float32)
    exact.generate(**sources(12), **options, custom_generate=generate)
    found, expected = (torch.stack([translation.scores[0] for translation in call]) for call in engine_calls)
    assert 0 < (found - expected).abs().median() < 0.05


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("marian", torch.float16), ("marian/em_routing", torch.bfloat16), ("recurrent/capsule", torch.bfloat16)],
)
def test_what_goes_to_transformers(name, dtype, num_beams, engine_calls):
    """Products in float16 are slow on a CPU, and routing needs weights in float32."""
    model = ending(name).to(dtype)
    options = {"max_new_tokens": 6, "num_beams": num_beams}
    expected = model.generate(**sources(6), **options)
    assert torch.equal(model.generate(**sources(6), **options, custom_generate=generate), expected)
    assert not engine_calls


def test_bfloat16_goes_to_transformers_where_it_is_slow(monkeypatch):
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda device: False)
    with pytest.raises(UnsupportedModelError, match="bfloat16 are slow on cpu"):
        engine_of(ending("marian").bfloat16())


@pytest.mark.parametrize("name", ["marian", "t5/v1_0"])
def test_transformers_reads_the_states_of_the_engines_encoder(name, stand_in, engine_calls):
    """If the engine does not know an option, it has already encoded."""
    model, source = ending(name).bfloat16(), sources(6)
    options = {"max_new_tokens": 6, "num_beams": 2}
    options["logits_processor"] = LogitsProcessorList([TemperatureLogitsWarper(0.5)])
    found = decode(model, source, engine_of(model), **options)
    assert not engine_calls
    encoded = engine_of(model).encode(**source)
    encoded.last_hidden_state = encoded.last_hidden_state.bfloat16()
    assert torch.equal(found, model.generate(**source, encoder_outputs=encoded, **options))


@pytest.mark.parametrize("saved", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float32"])
def test_a_file_in_16_bits_is_loaded_as_it_is(dtype, saved, tmp_path, monkeypatch):
    """Only where its products are fast."""
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda device: True)
    save_tiny_marian(tmp_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    model.to(saved).save_pretrained(tmp_path)
    loaded, _ = DecodingOptions(model=str(tmp_path), dtype=dtype).load(CPU)
    keeps = saved == torch.bfloat16 and dtype != "float32"
    assert loaded.dtype == (torch.bfloat16 if keeps else torch.float32)


def test_a_model_that_does_not_decode_is_loaded_in_its_precision(tmp_path):
    """The engine has nothing to make."""
    options = DecodingOptions(model=str(save_tiny_marian(tmp_path)), dtype="bfloat16")
    dtypes = [options.load(CPU, decodes=decodes)[0].dtype for decodes in (True, False)]
    assert dtypes == [torch.float32, torch.bfloat16]


@pytest.mark.cuda
@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", KINDS)
def test_on_cuda(name, dtype, num_beams, engine_calls):
    model, exact = half(name, dtype)
    options = {"num_beams": num_beams, "max_new_tokens": LONGEST}
    source = {key: value.to("cuda") for key, value in sources(24).items()}
    found = decode(model.to("cuda"), source, engine_of(model), **options)
    assert len(engine_calls) == 1
    expected = decode(exact.to("cuda"), source, **options)
    width = min(found.shape[1], expected.shape[1])
    agreeing = (found[:, :width] == expected[:, :width]).all(1).float().mean().item()
    print(f"{name} in {dtype}: {agreeing:.0%} of translations as in float32")
    # Weights are random, so scores are closer than those of trained models.
    assert agreeing > 0.5


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", HALVES)
def test_the_product_on_cuda(dtype):
    weight, bias, inputs = torch.randn(30, 50).to(dtype), torch.randn(50), torch.randn(9, 30)
    expected = HalfProduct(weight, bias)(inputs)
    found = HalfProduct(weight.to("cuda"), bias.to("cuda"))(inputs.to("cuda"))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)
