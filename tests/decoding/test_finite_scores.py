"""A model whose activations overflow ends in an error, whoever decodes, and not in nonsense."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from ending_models import ONE_OF_EACH_FAMILY, ending
from tiny_marian import save_tiny_marian
from transformers import LogitsProcessorList, pipeline
from translated_lines import decoded_batches

from hf_capsule_mt.decoding import engine_of, generate
from hf_capsule_mt.decoding.precision import PRECISIONS
from hf_capsule_mt.decoding.products.vocabulary import FiniteSum
from hf_capsule_mt.decoding.search.constraints import Constraints
from hf_capsule_mt.decoding.search.search import Settings
from hf_capsule_mt.errors import UserError

ROWS = [[5, 6, 2], [7, 2]]


def overflowing(name, factor=1e38):
    """A model with finite weights."""
    model = ending(name)
    with torch.no_grad():
        # One, if they are tied.
        weights = {model.get_input_embeddings().weight, model.get_output_embeddings().weight}
        if name.startswith("t5"):
            # A norm without a mean makes zeros of states whose squares overflow.
            weights = {model.decoder.final_layer_norm.weight}
        for weight in weights:
            weight.mul_(factor)
            assert weight.isfinite().all()
    model.name_or_path = "some/model"
    return model


def translate(model, **options):
    list(decoded_batches(model, ROWS, [[0, 1]], max_new_tokens=5, **options))


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_the_engine(name, num_beams):
    model = overflowing(name)
    with pytest.raises(ValueError, match="some/model in float32 are not finite"):
        translate(model, num_beams=num_beams)


@pytest.mark.parametrize("options", [{"num_beams": 1}, {"num_beams": 3}, {"num_beams": 1, "engine": "fast"}])
def test_transformers(options):
    options = {"engine": "transformers", **options}
    with pytest.raises(ValueError, match="some/model in float16 are not finite"):
        translate(overflowing("marian", 4e4).half(), **options)


@pytest.mark.parametrize("options", [{"num_beams": 2}, {"num_beams": 2, "engine": "transformers"}])
def test_the_pipeline(options, tmp_path):
    """Whoever decodes in it; what the caller has to say of scores is heard behind the check."""
    save_tiny_marian(tmp_path)
    translator = pipeline("translation", model=str(tmp_path), device="cpu")
    heard = []
    hears = LogitsProcessorList([lambda words, scores: heard.append(scores.shape) or scores])
    assert translator("a b", max_new_tokens=3, logits_processor=hears, **options)
    assert heard
    with torch.no_grad():
        translator.model.final_logits_bias[0, 8] = torch.inf
    with pytest.raises(ValueError, match="in float32 are not finite"):
        translator("a b", max_new_tokens=3, **options)


def test_an_overflow_is_that_of_one_call(often_switched):
    """Of an engine, which decodes others at the same time, and goes on."""
    engine = engine_of(ending("marian"))
    settings = Settings(
        Constraints([], engine.vocabulary.size, engine.vocabulary.device), 0, torch.tensor([2]), 0, 9, 1
    )

    def overflows(number):
        encoded = engine.encode(torch.tensor([[5, 6, 2]]))
        if number % 2:
            encoded.last_hidden_state[0, 1] = torch.nan
        try:
            engine.translate(encoded, None, settings, [8])
        except ValueError as error:
            return "not finite" in str(error)
        return False

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(overflows, range(80))) == [False, True] * 40


@pytest.mark.parametrize("options", [{"num_beams": 1}, {"num_beams": 2}, {"num_beams": 2, "repetition_penalty": 1.2}])
@pytest.mark.parametrize("place", ["encoder", "first", "last"])
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_a_weight_that_is_no_number(dtype, place, options):
    """It has not changed, so the engine stays."""
    model = ending("marian")
    layers = model.model.encoder.layers if place == "encoder" else model.model.decoder.layers
    layer = layers[0 if place == "first" else -1]
    with torch.no_grad():
        # Products in int8 notice it in the first number of a row, and in others they do not.
        (layer.fc1.weight[0] if place == "first" else layer.final_layer_norm.weight)[7] = torch.nan
    engine = engine_of(model, dtype)
    custom = partial(generate, dtype=dtype)
    with pytest.raises(UserError, match=f"in {dtype} are not finite"):
        model.generate(torch.tensor(ROWS[:1]), max_new_tokens=5, custom_generate=custom, **options)
    assert engine_of(model, dtype) is engine


@pytest.mark.parametrize("num_beams", [1, 2])
def test_the_states_of_a_token_that_is_forced_are_watched(num_beams):
    """No score is read where the first token is the last."""
    options = {"forced_bos_token_id": 7, "forced_eos_token_id": None, "max_new_tokens": 1}
    model = ending("marian")
    with torch.no_grad():
        model.model.decoder.layers[-1].final_layer_norm.weight[7] = torch.nan
    with pytest.raises(UserError, match="not finite"):
        model.generate(torch.tensor(ROWS[:1]), num_beams=num_beams, custom_generate=generate, **options)


def test_a_large_sum_of_numbers_in_16_bits_is_no_overflow():
    seen = FiniteSum(torch.device("cpu"))
    seen.add(torch.full((9, 9), 1e4, dtype=torch.float16))
    seen.check("some/model", "float16")


def test_where_every_word_is_suppressed():
    """Nothing overflows; `generate()` writes word 0."""
    model = ending("marian")
    words = model.get_input_embeddings().num_embeddings
    options = {"suppress_tokens": [word for word in range(words) if word != 2], "min_new_tokens": 2}
    source = {"input_ids": torch.tensor([[5, 6, 2]])}
    expected = model.generate(**source, **options, num_beams=1, max_new_tokens=4)
    found = model.generate(**source, **options, num_beams=1, max_new_tokens=4, custom_generate=generate)
    assert torch.equal(found, expected)
