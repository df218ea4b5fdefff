"""Products in bfloat16 and int8 against their definitions, and engines that are made of them."""

import gc
import logging
import weakref
from dataclasses import asdict, replace
from functools import cache, partial

import pytest
import torch
from ending_models import EVERY_KIND, ONE_OF_EACH_FAMILY, ending, sources

from hf_capsule_mt.decoding import engine_of, generate
from hf_capsule_mt.decoding.precision import PRECISIONS
from hf_capsule_mt.decoding.products import int8, products
from hf_capsule_mt.decoding.products.products import bfloat16_map, int8_map, plain_map
from hf_capsule_mt.decoding.products.vocabulary import Vocabulary
from hf_capsule_mt.errors import UserError

needs_int8 = pytest.mark.skipif(not int8._int8_backends(), reason="this machine has no product in int8")
needs_rows = pytest.mark.skipif(not int8._multiplies_by_rows(), reason="oneDNN has no exact product in int8 here")


def choice_of(few_rows, many_rows):
    """The choice of these backends, for narrow weights and for wide ones."""
    return int8.Int8Choice(few_rows, many_rows, few_rows, many_rows, int8._reduces_range())


def _by_definition(inputs, weight, bias):
    """The product of weights with a scale a row and activations with one scale and one zero point, in float64."""
    integers, scales = int8.quantized(weight.t())
    low, high = min(inputs.min().item(), 0.0), max(inputs.max().item(), 0.0)
    scale = (high - low) / (127 if int8._reduces_range() else 255)
    zero = round(-low / scale)
    levels = (inputs.double() / scale).round() + zero
    product = ((levels - zero) * scale) @ (integers.double() * scales.double().unsqueeze(1)).t()
    return product if bias is None else product + bias.double(), scale


@needs_int8
@pytest.mark.parametrize("engine", int8._int8_backends())
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shape", [(7, 5), (64, 96), (300, 700)])
def test_int8_products(shape, with_bias, engine):
    # Of some draws several numbers of a row lie between two levels.
    torch.manual_seed(0)
    weight, bias = torch.randn(shape), torch.randn(shape[1]) if with_bias else None
    weight[:, 0], weight[:, 1] = 0, 100 * weight[:, 1]
    product = int8_map(weight, bias, choice_of(engine, engine))
    for rows in (1, 4, 40):
        inputs = torch.randn(rows, shape[0])
        expected, scale = _by_definition(inputs, weight, bias)
        # A level apart at most, where a number lies between two of them.
        largest = scale * weight.abs().amax(0).double()
        assert ((product(inputs) - expected).abs() <= 2 * largest + 1e-4).all()
        assert (product(inputs) - expected).abs().mean() < 0.1 * largest.mean()


@needs_int8
@pytest.mark.parametrize("rows", [(23, 24), (24, 23)])
def test_int8_keeps_one_byte_for_each_number_of_a_weight(rows, monkeypatch):
    """For few rows and for many it packs the weight when they come, if they have backends of their own."""
    backends = int8._int8_backends()
    weight, bias = torch.randn(64, 96), torch.randn(96)
    kept = weakref.ref(weight)
    product = int8_map(weight, bias, choice_of(backends[0], backends[-1]))
    expected = [_by_definition(inputs, weight, bias)[0] for inputs in (torch.ones(count, 64) for count in rows)]
    del weight
    assert kept() is None
    packed = []
    pack = int8._pack
    monkeypatch.setattr(int8, "_pack", lambda *given: packed.append(given[2]) or pack(*given))
    for count, result in zip(rows * 2, expected * 2):
        torch.testing.assert_close(product(torch.ones(count, 64)).double(), result, rtol=1e-4, atol=1e-4)
    assert packed == [backends[-1] if count == 24 else backends[0] for count in rows][: len(backends)]
    assert not _float32_tensors_of(product, 64 * 96)


@needs_int8
@pytest.mark.parametrize(
    ("shape", "most_rows", "fewest_rows"),
    # Weights of many numbers only with fewer rows: 262,144 multiplications at most.
    [((64, 96), 8, 9), ((100, 800), 3, 4), ((256, 512), 0, 1)],
)
def test_small_weights_are_multiplied_in_float32_for_the_fewest_rows(shape, most_rows, fewest_rows):
    """It takes less time, as long as it is a cheap product."""
    for bias in (None, torch.randn(shape[1])):
        weight = torch.randn(shape)
        product = int8_map(weight, bias)
        for rows in range(1, most_rows + 1):
            inputs = torch.randn(rows, shape[0])
            assert torch.equal(product(inputs), product_in_float32(inputs, weight, bias))
        inputs = torch.randn(fewest_rows, shape[0])
        error = (product(inputs) - product_in_float32(inputs, weight, bias)).abs().max()
        assert 1e-3 < error < 2
        assert len(_float32_tensors_of(product, weight.numel())) == (most_rows > 0)


def product_in_float32(inputs, weight, bias):
    return inputs @ weight if bias is None else torch.addmm(bias, inputs, weight)


@needs_int8
def test_a_choice_says_up_to_how_many_rows_small_weights_are_float32(monkeypatch):
    """Otherwise an output would be continued with other products. That of an earlier version does not say it."""
    choice = int8.int8_choice()
    weight, inputs = torch.randn(64, 96), torch.randn(3, 64)
    expected = int8_map(weight)(inputs)
    monkeypatch.setattr(int8, "_FLOAT32_ROWS", 0)
    assert not torch.equal(int8_map(weight)(inputs), expected)
    assert torch.equal(int8_map(weight, None, choice)(inputs), expected)
    earlier = asdict(choice)
    del earlier["float32_rows"]
    monkeypatch.setattr(int8, "_FLOAT32_ROWS", 8)
    assert not torch.equal(int8_map(weight, None, int8.Int8Choice(**earlier))(inputs), expected)


def _float32_tensors_of(product, size):
    """Tensors that belong to a product, as far as Python can see, and have so many numbers in float32."""
    parts = [product, *vars(product).values()]
    for part in parts[:]:
        if isinstance(part, partial):
            parts += [*part.args, *part.keywords.values()]
        elif isinstance(part, dict | tuple):
            parts += gc.get_referents(part)
    return [
        part
        for part in parts
        if isinstance(part, torch.Tensor) and part.numel() >= size and part.dtype == torch.float32
    ]


@pytest.fixture
def without_quantized_tensors(monkeypatch):
    """A PyTorch that has removed them."""
    for name in ("quantize_per_channel", "qint8"):
        monkeypatch.delattr(torch, name)
    for name in ("_int8_backends", "_backend_without_quantized_tensors", "_multiplies_by_rows"):
        monkeypatch.setattr(int8, name, cache(getattr(int8, name).__wrapped__))


def by_rows(reduces_range=None):
    """The choice where PyTorch has no quantized tensors."""
    if reduces_range is None:
        reduces_range = int8._reduces_range()
    return int8.Int8Choice("qlinear", "qlinear", "qlinear", "qlinear", reduces_range)


def _product_by_rows(inputs, weight, bias, largest_level):
    """The product of weights and activations with a scale a row. Sums are exact, and scales are rounded to float32."""
    largest = inputs.abs().amax(1, keepdim=True).clamp(min=1e-30)
    levels = (inputs * (largest_level / largest)).round().long()
    integers, scales = int8.quantized(weight.t())
    sums = levels @ integers.long().t()
    product = sums.float() * (scales / largest_level) * largest
    return product if bias is None else product + bias


@needs_rows
@pytest.mark.parametrize("reduces_range", {True, int8._reduces_range()})
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shape", [(7, 5), (64, 96), (300, 700), (4096, 33)])
def test_products_by_rows_are_exact(shape, with_bias, reduces_range, monkeypatch):
    """A row becomes the same numbers next to others. No sum overflows. CPUs without VNNI have 7 bits."""
    monkeypatch.setattr(int8, "_SCALED_NUMBERS", 1000)
    weight = torch.randn(shape)
    bias = torch.randn(shape[1]) if with_bias else None
    weight[:, 0] = 0
    weight[:, 1] *= 100
    # All have the largest level, so their sums are the largest.
    weight[:, 2] = 1
    product = int8_map(weight, bias, by_rows(reduces_range))
    for rows in (1, 4, 40):
        inputs = torch.randn(rows, shape[0])
        inputs[0] = 1
        inputs[rows // 2] *= 1000
        inputs[rows // 3] = 0
        outputs = product(inputs)
        assert torch.equal(outputs, _product_by_rows(inputs, weight, bias, 63 if reduces_range else 127))
        for row in range(rows):
            assert torch.equal(product(inputs[row : row + 1])[0], outputs[row])


@needs_rows
def test_products_by_rows_are_close_to_those_of_float32():
    weight, bias, inputs = torch.randn(300, 700), torch.randn(700), torch.randn(40, 300)
    expected = product_in_float32(inputs, weight, bias)
    error = (int8_map(weight, bias, by_rows())(inputs) - expected).norm() / expected.norm()
    assert 0 < error < (0.04 if int8._reduces_range() else 0.02)


@needs_rows
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_products_by_rows_show_values_that_are_not_finite(value):
    inputs = torch.randn(3, 64)
    inputs[1, 5] = value
    is_finite = int8_map(torch.randn(64, 96), torch.randn(96), by_rows())(inputs).isfinite()
    assert is_finite[0].all()
    assert not is_finite[1].any()
    assert is_finite[2].all()


@needs_rows
def test_without_quantized_tensors_products_are_by_rows(without_quantized_tensors, caplog):
    with caplog.at_level(logging.INFO, logger=int8.__name__):
        product = int8_map(torch.randn(64, 96), torch.randn(96))
        int8_map(torch.randn(64, 96))
    assert isinstance(product, int8.RowProduct)
    assert [record.getMessage() for record in caplog.records] == [
        "int8: qlinear, because this PyTorch has no products of quantized tensors"
    ]
    assert int8.int8_choice() == by_rows()
    assert not _float32_tensors_of(product, 64 * 96)


@needs_rows
@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_every_family_without_quantized_tensors(name, without_quantized_tensors, engine_calls):
    model, source = ending(name), sources(9)
    options = {"num_beams": 3, "max_new_tokens": 7}
    for dtype in ("float32", "int8"):
        encoded = engine_of(model, dtype).encode(**source)
        model.generate(**source, encoder_outputs=encoded, **options, custom_generate=partial(generate, dtype=dtype))
    exact, found = ([translation.scores[0].item() for translation in call] for call in engine_calls)
    differences = torch.tensor([abs(a - b) for a, b in zip(exact, found)])
    assert differences.median() < 0.1
    assert differences.max() > 0


@needs_int8
@needs_rows
def test_a_choice_of_products_by_rows_is_used_or_refused(without_quantized_tensors, monkeypatch):
    """Also where PyTorch still has quantized tensors. The other way round the command stops."""
    with pytest.raises(UserError, match=r"int8 products of x86. This CPU or this PyTorch has none"):
        choice_of("x86", "x86").check()
    monkeypatch.undo()
    assert not int8.int8_choice().is_by_rows
    by_rows().check()
    assert isinstance(int8_map(torch.randn(64, 96), None, by_rows()), int8.RowProduct)
    monkeypatch.setattr(int8, "_multiplies_by_rows", lambda: False)
    with pytest.raises(UserError, match=r"int8 products of qlinear. This CPU or this PyTorch has none"):
        by_rows().check()


def _raises(*given):
    raise AttributeError("no such operation")


@pytest.mark.parametrize(
    ("name", "replacement"),
    [
        # As on aarch64, where oneDNN has only slow products of integers.
        ("torch.backends.cpu.get_cpu_capability", lambda: "DEFAULT"),
        ("RowProduct", _raises),
        # Two products of 8 bits that overflow.
        ("RowProduct._products", lambda self, activations: torch.full((len(activations), 16), 32767.0)),
    ],
)
def test_without_int8_products_are_float32(name, replacement, without_quantized_tensors, monkeypatch, caplog):
    owner = int8
    *path, attribute = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    monkeypatch.setattr(owner, attribute, replacement)
    weight, bias, inputs = torch.randn(6, 9), torch.randn(9), torch.randn(3, 6)
    with caplog.at_level(logging.WARNING, logger=int8.__name__):
        maps = [PRECISIONS["int8"](weight, bias) for _ in range(2)]
    assert torch.equal(maps[0](inputs), plain_map(weight, bias)(inputs))
    [record] = caplog.records
    assert "float32" in record.getMessage()
    assert int8.int8_choice().many_rows == "float32"


@needs_int8
def test_a_choice_of_another_process_is_used_or_refused(monkeypatch):
    """Otherwise the second part of an output would be of other products than the first."""
    monkeypatch.setattr(int8, "_fastest_backend", lambda wide, many: f"{wide} {many}")
    timed = int8.int8_choice()
    assert (timed.few_rows, timed.many_rows) == ("False False", "False True")
    assert (timed.few_rows_wide, timed.many_rows_wide) == ("True False", "True True")
    with pytest.raises(UserError, match=r"used int8 products of False False. This CPU or this PyTorch has none"):
        timed.check()
    first, last = int8._int8_backends()[0], int8._int8_backends()[-1]
    choice_of(first, last).check()
    product = int8_map(torch.randn(64, 96), None, choice_of(first, last))
    assert (product._backend_for_few, product._backend_for_many) == (first, last)
    monkeypatch.setattr(int8, "_reduces_range", lambda: True)
    with pytest.raises(UserError, match="This CPU lacks VNNI"):
        replace(choice_of(first, last), reduces_range=False).check()


@needs_int8
@pytest.mark.parametrize("width", [4095, 4096])
def test_wide_weights_have_backends_of_their_own(width):
    choice = int8.Int8Choice("few", "many", "few of a wide one", "many of a wide one", reduces_range=True)
    product = int8_map(torch.randn(2, width), None, choice)
    backends = product._backend_for_few, product._backend_for_many
    assert backends == (("few", "many") if width == 4095 else ("few of a wide one", "many of a wide one"))


@needs_int8
def test_a_choice_says_how_many_bits_activations_have():
    weight, inputs = torch.randn(64, 96), torch.randn(3, 64)
    results = []
    for reduces_range in (True, False):
        backend = int8._int8_backends()[0]
        choice = replace(choice_of(backend, backend), reduces_range=reduces_range)
        results.append(int8_map(weight, None, choice)(inputs))
    assert not torch.equal(*results)


@pytest.mark.parametrize("fast", [False, True])
def test_bfloat16_products(fast, monkeypatch):
    if fast and not products.multiplies_bfloat16(torch.device("cpu")):
        pytest.skip("this machine has no product in bfloat16")
    monkeypatch.setattr(products, "multiplies_bfloat16", lambda device: fast)
    weight, bias, inputs = torch.randn(30, 50), torch.randn(50), torch.randn(9, 30)
    found = bfloat16_map(weight, bias)(inputs)
    expected = inputs.bfloat16().double() @ weight.bfloat16().double() + bias.bfloat16().double()
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=2**-8, atol=2**-6)
    assert torch.equal(found, found.bfloat16().float())


@pytest.mark.parametrize("make", [bfloat16_map, pytest.param(int8_map, marks=needs_int8)])
def test_words_that_fill_groups_are_never_chosen(make):
    hidden = torch.randn(8, 16)
    vocabulary = Vocabulary(torch.randn(600, 16), -100 * torch.ones(600), make)
    best = vocabulary.best(hidden, torch.zeros(2, 4), 8, None)
    assert (best.tokens < 600).all()
    assert best.scores.isfinite().all()
    assert (vocabulary.best_token(hidden, None) < 600).all()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "int8") for name in EVERY_KIND), *((name, "bfloat16") for name in ONE_OF_EACH_FAMILY)],
)
def test_every_kind_of_model(name, dtype, engine_calls):
    model, source = ending(name), sources(9)
    options = {"num_beams": 3, "max_new_tokens": 7}
    model.generate(**source, **options, custom_generate=generate)
    model.generate(**source, **options, custom_generate=generate, dtype=dtype)
    exact, found = ([translation.scores[0].item() for translation in call] for call in engine_calls)
    # Where sequences part, scores do; most do not.
    differences = torch.tensor([abs(a - b) for a, b in zip(exact, found)])
    # Levels are twice as far apart where 7 bits have to do, on CPUs without VNNI.
    has_wide_levels = dtype == "int8" and int8._reduces_range()
    assert differences.median() < (0.1 if has_wide_levels else 0.05)
    assert differences.max() > 0
    with torch.inference_mode():
        states = engine_of(model, dtype).encode(**source).last_hidden_state
        expected = model.get_encoder()(**source).last_hidden_state
    words = source["attention_mask"].bool()
    error = (states - expected)[words].norm() / expected[words].norm()
    # Recurrent layers are computed in float32.
    assert error < (0.2 if has_wide_levels else 0.1)
    assert error > 0 or name.startswith("recurrent")


@pytest.mark.parametrize("name", ["marian", "pre_norm/m2m100"])
def test_the_encoder_is_not_rounded_by_autocast(name):
    engine, source = engine_of(ending(name)), sources(4)
    expected = engine.encode(**source).last_hidden_state
    with torch.autocast("cpu", torch.bfloat16):
        states = engine.encode(**source).last_hidden_state
    assert torch.equal(states, expected)


def test_precisions_have_engines_of_their_own():
    model = ending("marian")
    engines = {dtype: engine_of(model, dtype) for dtype in PRECISIONS}
    assert len(set(map(id, engines.values()))) == 3
    assert all(engine_of(model, dtype) is engine for dtype, engine in engines.items())
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    assert all(engine_of(model, dtype) is not engine for dtype, engine in engines.items())


@needs_int8
def test_choices_for_int8_have_engines_of_their_own():
    """So two callers in one process, such as two files, do not choose for each other."""
    model, source = ending("marian"), sources(9)
    backend = int8._int8_backends()[0]
    choices = [None, *(replace(choice_of(backend, backend), float32_rows=rows) for rows in (0, 8))]
    engines = [engine_of(model, "int8", choice) for choice in choices]
    assert len(set(map(id, engines))) == 3
    assert [engine_of(model, "int8", choice) for choice in choices] == engines
    hidden = engines[0].encode(**source).last_hidden_state[0, :1]
    by_default, without_float32, with_float32 = [engine.vocabulary.scores(hidden) for engine in engines]
    assert not torch.equal(without_float32, with_float32)
    assert torch.equal(by_default, with_float32)


def test_an_engine_refuses_products_that_this_machine_lacks():
    with pytest.raises(UserError, match=r"used int8 products of mps. This CPU or this PyTorch has none"):
        engine_of(ending("marian"), "int8", choice_of("mps", "mps"))


def test_a_weight_becomes_the_nearest_integer():
    torch.manual_seed(0)
    weight = torch.randn(5, 400)
    integers, scales = int8.quantized(weight)
    error = (integers * scales.unsqueeze(1) - weight).abs()
    assert (error <= 0.5001 * scales.unsqueeze(1)).all()
