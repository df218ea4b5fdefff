"""M2M-100, NLLB-200 and mBART in the engine: what Marian does not have."""

import json
import random

import pytest
import tiny_multilingual
import torch
from aggregated_models import AGGREGATIONS, EACH_LAYER, OUTPUTS, SOURCE_AGGREGATIONS, aggregated_m2m100
from agreement import check_agreement
from ending_models import PRE_NORM, VOCABULARY, pre_norm, sources
from transformers import AutoModelForSeq2SeqLM, LogitsProcessorList, SequenceBiasLogitsProcessor

from hf_capsule_mt.decoding import engine_of, generate
from hf_capsule_mt.decoding.products import vocabulary as vocabulary_module
from hf_capsule_mt.modeling.streams import STREAMS

KINDS = [name.partition("/")[2] for name in PRE_NORM]
PAD, EOS, GERMAN = 1, 2, 17
# The tokens of Transformers' own configurations.
SPECIAL = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": EOS}
SEARCHES = [{}, *({"num_beams": beams, "num_return_sequences": beams} for beams in range(2, 6))]
LATE = {"num_beams": 3, "length_penalty": 1.4, "min_new_tokens": 5, "early_stopping": "never"}
CONSTRAINED = {
    **{"num_beams": 4, "num_return_sequences": 2, "early_stopping": True, "repetition_penalty": 1.3},
    **{"suppress_tokens": [5, 37, 400], "length_penalty": 0.6, "renormalize_logits": True},
}


def padded(side, count=12):
    """Sources with padding, which is the token 1 here, on a side."""
    source = sources(count)
    ids, mask = source["input_ids"], source["attention_mask"]
    ids = ids.masked_fill(mask == 0, PAD)
    if side == "left":
        rows = [torch.roll(row, int((row == PAD).sum())) for row in ids]
        ids = torch.stack(rows)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long()}


def model_of(kind, **fields):
    # With 200 tokens and 5 beams, some random weights have two translations whose scores differ in the last digit.
    torch.manual_seed(0)
    model = pre_norm(kind, **{**SPECIAL, **fields})
    model.generation_config.forced_eos_token_id = None
    return model


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(("side", "options"), [("left", {"num_beams": 4}), ("right", {})])
@pytest.mark.parametrize("kind", [*AGGREGATIONS, *SOURCE_AGGREGATIONS])
def test_with_capsules(kind, side, options, output, engine_calls):
    model = aggregated_m2m100(kind, vocab_size=VOCABULARY, **SPECIAL, **OUTPUTS[output])
    check_agreement(model, padded(side), engine_calls, max_new_tokens=8, forced_bos_token_id=GERMAN, **options)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("options", [{}, {"num_beams": 4}], ids=["greedy", "beams"])
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("aggregation", STREAMS)
def test_mixes_that_each_layer_reads(aggregation, normalised, options, output, engine_calls):
    fields = {**EACH_LAYER, "layer_aggregation": aggregation, "layer_aggregation_input_norm": normalised}
    fields |= {**SPECIAL, **OUTPUTS[output], "encoder_layers": 3, "decoder_layers": 3}
    model = aggregated_m2m100("none", vocab_size=VOCABULARY, **fields)
    check_agreement(model, padded("right"), engine_calls, max_new_tokens=8, forced_bos_token_id=GERMAN, **options)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("forced", [None, GERMAN])
@pytest.mark.parametrize("options", [*SEARCHES, LATE, CONSTRAINED], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_are_those_of_generate(kind, options, forced, side, engine_calls):
    options = {"max_new_tokens": 10, "forced_bos_token_id": forced, **options}
    check_agreement(model_of(kind), padded(side), engine_calls, **options)
    if forced is not None:
        assert all((translation.sequences[:, 1] == forced).all() for translation in engine_calls[-1])


@pytest.mark.parametrize("options", [{}, {"num_beams": 4}, {"num_beams": 3, "num_return_sequences": 3}], ids=str)
@pytest.mark.parametrize("forced", [None, GERMAN])
def test_padding_that_the_model_writes_has_no_position(forced, options, engine_calls):
    """In M2M-100. More than 32 steps, so that slots of the cache are freed."""
    model = model_of("m2m100", likely=PAD, added=5)
    options = {"min_new_tokens": 36, "max_new_tokens": 36, "forced_bos_token_id": forced, **options}
    # Or there would be nothing but padding behind the first.
    options["no_repeat_ngram_size"] = 2
    check_agreement(model, padded("right"), engine_calls, **options)
    written = torch.cat([translation.sequences[:, :-1] for translation in engine_calls[-1]])
    assert ((written[:, :-1] == PAD) & (written[:, 1:] != PAD)).any()
    # Without a cache Transformers itself gives the tokens after it other positions.
    calls = len(engine_calls)
    without_cache = {**options, "use_cache": False}
    expected = model.generate(**padded("right"), **without_cache)
    assert torch.equal(model.generate(**padded("right"), **without_cache, custom_generate=generate), expected)
    assert len(engine_calls) == calls


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_cache(kind, num_beams, engine_calls):
    model = model_of(kind)
    options = {"max_new_tokens": 8, "num_beams": num_beams, "use_cache": False}
    expected = model.generate(**padded("left"), **options)
    assert torch.equal(model.generate(**padded("left"), **options, custom_generate=generate), expected)
    assert len(engine_calls) == (kind == "mbart")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu", "swish"])
def test_scales_and_activations(kind, scaled, activation, engine_calls):
    model = model_of(kind, scale_embedding=scaled, activation_function=activation)
    check_agreement(model, padded("right"), engine_calls, max_new_tokens=9, num_beams=3)


@pytest.mark.parametrize("padding", [0, 1, 5])
def test_more_tokens_than_positions(padding, engine_calls):
    """M2M-100 makes positions as it needs them. The engine takes translations up to the number in the configuration."""
    model = model_of("m2m100", max_position_embeddings=12, pad_token_id=padding)
    source = sources(4, longest=20)
    assert source["input_ids"].shape[1] > 12
    options = {"num_beams": 2, "min_new_tokens": 12}
    check_agreement(model, source, engine_calls, **options, max_new_tokens=12)
    expected = model.generate(**source, **options, max_new_tokens=16)
    found = model.generate(**source, **options, max_new_tokens=16, custom_generate=generate)
    assert torch.equal(found, expected)
    assert len(engine_calls) == 1


# Fields of older checkpoints of these models.
LEFT_OVER = {"normalize_before": True, "add_final_layer_norm": True, "static_position_embeddings": False}
LEFT_OVER |= {"add_bias_logits": False, "normalize_embedding": True, "output_past": True}
SEARCH = {"num_beams": 5, "early_stopping": True, "max_length": 200}


@pytest.mark.parametrize("place", ["config.json", "generation_config.json", "nowhere"])
@pytest.mark.parametrize("kind", KINDS)
def test_left_over_fields(kind, place, tmp_path, engine_calls):
    model_of(kind, max_position_embeddings=220).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | LEFT_OVER
    settings = tmp_path / "generation_config.json"
    if place == "config.json":
        config |= SEARCH
    elif place == "generation_config.json":
        settings.write_text(json.dumps(json.loads(settings.read_text()) | SEARCH))
    else:
        settings.unlink()
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    limits = {} if place == "generation_config.json" else {"max_new_tokens": 12}
    source = padded("left", 6)
    expected = model.generate(**source, **limits)
    assert torch.equal(model.generate(**source, **limits, custom_generate=generate), expected)
    assert len(engine_calls) == 1


@pytest.mark.parametrize("make", [tiny_multilingual.nllb, tiny_multilingual.mbart])
def test_every_language_of_a_tokenizer(make, engine_calls):
    """With tied embeddings, and the sources of a tokenizer."""
    model, tokenizer = make()
    codes = [token for token in tokenizer.all_special_ids if token > 3]
    source = tokenizer(["a dog", "a cat runs"], return_tensors="pt", padding=True)
    assert len(codes) > 20
    for code in codes[:: len(codes) // 6]:
        for num_beams in (1, 4):
            options = {"forced_bos_token_id": code, "num_beams": num_beams, "max_new_tokens": 6}
            check_agreement(model, source, engine_calls, **options)


FORCED = {
    "plain": {},
    "one_token": {"max_new_tokens": 1},
    "two_tokens": {"max_new_tokens": 2, "forced_eos_token_id": EOS},
    # Both processors act on the same token.
    "one_token_and_end": {"max_new_tokens": 1, "forced_eos_token_id": EOS},
    "its_own_end": {"forced_bos_token_id": EOS},
    "biased": {"logits_processor": LogitsProcessorList([SequenceBiasLogitsProcessor({(GERMAN,): -3.0})])},
    "suppressed_at_begin": {"begin_suppress_tokens": [GERMAN]},
    "others_suppressed": {"suppress_tokens": [3, 4], "min_new_tokens": 3},
    "renormalized": {"renormalize_logits": True},
    "without_infinity": {"remove_invalid_values": True},
    "decaying": {"exponential_decay_length_penalty": (0, 1.2)},
    "penalised": {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
    "several_ends": {"eos_token_id": [EOS, 9]},
}


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("name", FORCED)
def test_a_forced_first_word(name, num_beams, engine_calls):
    """With all that can happen to its score behind it."""
    model, source = model_of("mbart"), padded("right")
    options = {"forced_bos_token_id": GERMAN, "num_beams": num_beams, "max_new_tokens": 7, **FORCED[name]}
    options["num_return_sequences"] = num_beams
    check_agreement(model, source, engine_calls, **options)


@pytest.mark.parametrize("num_beams", [1, 4])
def test_a_forced_word_needs_no_scores(num_beams, engine_calls, monkeypatch):
    model = model_of("m2m100")
    blocks = engine_of(model).vocabulary._blocks
    products = []
    for block in blocks:
        multiply = block.scores
        monkeypatch.setattr(block, "scores", lambda hidden, multiply=multiply: products.append(1) or multiply(hidden))
    options = {"forced_bos_token_id": GERMAN, "num_beams": num_beams, "min_new_tokens": 5, "max_new_tokens": 5}
    check_agreement(model, padded("right"), engine_calls, **options)
    assert len(products) == 4


@pytest.mark.parametrize("block", [64, 100, 599])
@pytest.mark.parametrize("options", [{}, {"num_beams": 4}, LATE, CONSTRAINED], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_in_blocks(kind, options, block, engine_calls, monkeypatch):
    monkeypatch.setattr(vocabulary_module, "_BLOCK", block)
    model = model_of(kind)
    options = {"max_new_tokens": 10, "forced_bos_token_id": GERMAN, **options}
    check_agreement(model, padded("left"), engine_calls, **options)
    assert len(engine_of(model).vocabulary._blocks) == -(-VOCABULARY // block)


@pytest.mark.parametrize("seed", range(60))
def test_random_places_and_kinds(seed, engine_calls):
    """A few of all combinations, the same in each run."""
    chosen = random.Random(seed)
    place = chosen.choice(["top", "source", "layers"])
    kinds = STREAMS if place == "layers" else ["linear", "dynamic", "attention", "dynamic_routing", "em_routing"]
    fields = {
        "layer_aggregation": chosen.choice([*kinds]),
        "layer_aggregation_place": place,
        "layer_aggregation_sides": chosen.choice([["encoder"], ["decoder"], ["encoder", "decoder"]]),
        "layer_aggregation_output": chosen.choice(["replace", "residual"]),
        "layer_aggregation_streams": chosen.choice([2, 3, 5]),
        "layer_aggregation_input_norm": chosen.choice([True, False]),
        "encoder_layers": chosen.choice([1, 2, 4]),
        "decoder_layers": chosen.choice([1, 3]),
    }
    if place == "source":
        # Only the encoder's layers are aggregated there.
        del fields["layer_aggregation_sides"]

    model = aggregated_m2m100("none", seed, vocab_size=VOCABULARY, **SPECIAL, **fields)

    check_agreement(model, padded("right"), engine_calls, max_new_tokens=8, num_beams=chosen.choice([1, 4]))
