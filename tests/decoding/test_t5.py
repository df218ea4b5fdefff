"""T5, MADLAD-400 and mT5 in the engine: relative positions, and what else Marian does not have."""

import json

import pytest
import tiny_multilingual
import torch
from agreement import check_agreement
from ending_models import T5, VOCABULARY, sources, t5
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForSeq2SeqLM, UMT5Config, UMT5ForConditionalGeneration

from hf_capsule_mt import pipeline
from hf_capsule_mt.decoding import engine_of, generate
from hf_capsule_mt.decoding.models import target_cache as target_cache_module
from hf_capsule_mt.decoding.products import vocabulary as vocabulary_module

KINDS = [name.partition("/")[2] for name in T5]
PAD, EOS = 0, 2
SEARCHES = [{}, *({"num_beams": beams, "num_return_sequences": beams} for beams in range(2, 6))]
LATE = {"num_beams": 3, "length_penalty": 1.4, "min_new_tokens": 5, "early_stopping": "never"}
CONSTRAINED = {
    **{"num_beams": 4, "num_return_sequences": 2, "early_stopping": True, "repetition_penalty": 1.3},
    **{"suppress_tokens": [5, 37, 400], "length_penalty": 0.6, "renormalize_logits": True},
}
# More than the distances that have buckets of their own, so that slots of the cache are freed.
LONG = {"min_new_tokens": 90, "max_new_tokens": 90, "no_repeat_ngram_size": 3}


def padded(side, count=12):
    """Sources with padding on a side."""
    source = sources(count)
    if side == "right":
        return source
    rolled = {}
    for name, rows in source.items():
        shifts = (source["attention_mask"] == 0).sum(1).tolist()
        rolled[name] = torch.stack([row.roll(shift) for row, shift in zip(rows, shifts)])
    return rolled


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("options", [*SEARCHES, LATE, CONSTRAINED], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_are_those_of_generate(kind, options, side, engine_calls):
    check_agreement(t5(kind), padded(side), engine_calls, max_new_tokens=10, **options)


@pytest.mark.parametrize("options", [{}, {"num_beams": 4}, {"num_beams": 3, "num_return_sequences": 3}], ids=str)
@pytest.mark.parametrize("kind", ["v1_0", "v1_1"])
def test_long_translations(kind, options, engine_calls, monkeypatch):
    freed = []
    free = target_cache_module.TargetCache._free
    monkeypatch.setattr(
        target_cache_module.TargetCache, "_free", lambda cache, *given: freed.append(free(cache, *given)) or freed[-1]
    )
    check_agreement(t5(kind), padded("right", 5), engine_calls, **LONG, **options)
    assert any(freed) == ("num_beams" in options)


@settings(max_examples=25)
@given(data=st.data())
def test_any_shape(data):
    """Of the model, and of the search."""
    draw = data.draw
    buckets = draw(st.sampled_from([4, 6, 8, 32]))
    decoder_layers = draw(st.integers(1, 3))
    fields = {
        "d_model": draw(st.sampled_from([6, 16, 20])),
        "d_kv": draw(st.sampled_from([2, 5, 8])),
        "num_heads": draw(st.integers(1, 5)),
        "num_decoder_layers": decoder_layers,
        # With fewer Transformers itself fails.
        "num_layers": draw(st.integers(decoder_layers, 3)),
        "relative_attention_num_buckets": buckets,
        "relative_attention_max_distance": draw(st.integers(buckets + 1, 3 * buckets)),
        "feed_forward_proj": draw(st.sampled_from(["relu", "gated-gelu", "gated-silu", "gelu"])),
        "layer_norm_epsilon": draw(st.sampled_from([1e-6, 0.1])),
    }
    kind = draw(st.sampled_from(KINDS))
    model = t5(kind, seed=draw(st.integers(0, 9)), **fields)
    num_beams = draw(st.integers(1, 5))
    options = {"num_beams": num_beams, "max_new_tokens": draw(st.integers(1, 14))}
    if num_beams > 1:
        options |= {
            "length_penalty": draw(st.sampled_from([-1.0, 0.6, 1.0, 2.0])),
            "early_stopping": draw(st.sampled_from([True, False, "never"])),
            "num_return_sequences": draw(st.integers(1, num_beams)),
        }
    source = padded(draw(st.sampled_from(["left", "right"])), draw(st.integers(1, 6)))
    expected = model.generate(**source, **options, return_dict_in_generate=True, output_scores=True)
    found = model.generate(**source, **options, custom_generate=_only_engine)
    if not torch.equal(found, expected.sequences):
        # Only if two translations are equally good.
        assert num_beams > 1
        scores = _scores(model, source, found, options)
        torch.testing.assert_close(scores, expected.sequences_scores, atol=1e-5, rtol=1e-5)


def _only_engine(model, *given, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hf_capsule_mt.decoding.generation._transformers", None)
        return generate(model, *given, **options)


def _scores(model, source, sequences, options):
    """The scores of translations by the model itself."""
    repeated = {name: rows.repeat_interleave(len(sequences) // len(rows), 0) for name, rows in source.items()}
    with torch.no_grad():
        logits = model(**repeated, decoder_input_ids=sequences[:, :-1]).logits
    written = sequences[:, 1:]
    log_probabilities = logits.log_softmax(-1).gather(2, written.unsqueeze(-1)).squeeze(-1)
    is_token = (written == EOS).long().cumsum(1) - (written == EOS).long() == 0
    lengths = is_token.sum(1)
    return (log_probabilities * is_token).sum(1) / lengths ** options["length_penalty"]


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_scale_of_the_scores(kind, scaled, engine_calls):
    """The field of the file that says it is `tie_word_embeddings`. mT5 ignores what it is read from."""
    model = t5(kind)
    model.config.scale_decoder_outputs = scaled
    check_agreement(model, sources(6), engine_calls, num_beams=3, max_new_tokens=6)
    # Transformers reads it in every call.
    model.config.scale_decoder_outputs = not scaled
    check_agreement(model, sources(6), engine_calls, num_beams=3, max_new_tokens=6)


@pytest.mark.parametrize("tied", [False, True, None])
@pytest.mark.parametrize("kind", ["v1_0", "v1_1"])
def test_a_saved_model(kind, tied, tmp_path, engine_calls):
    """Whether scores are scaled is read from the file, and whether weights are tied from what is in it."""
    saved = t5(kind)
    saved.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["tie_word_embeddings"]
    config.pop("scale_decoder_outputs", None)
    if tied is not None:
        config["tie_word_embeddings"] = tied
    # Fields of the checkpoints on the Hub.
    config |= {"n_positions": 5, "output_past": True, "task_specific_params": {"translation_en_to_de": {}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    assert model.config.scale_decoder_outputs == (tied is not False)
    assert (model.lm_head.weight is model.shared.weight) == (kind == "v1_0")
    check_agreement(model, padded("left", 6), engine_calls, num_beams=4, max_new_tokens=9)


@pytest.mark.parametrize("block", [64, 100, 599])
@pytest.mark.parametrize("options", [{}, {"num_beams": 4}, LATE, CONSTRAINED], ids=str)
def test_a_vocabulary_in_blocks(options, block, engine_calls, monkeypatch):
    monkeypatch.setattr(vocabulary_module, "_BLOCK", block)
    model = t5("v1_1")
    check_agreement(model, padded("left"), engine_calls, max_new_tokens=10, **options)
    assert len(engine_of(model).vocabulary._blocks) == -(-VOCABULARY // block)


@pytest.mark.parametrize("name", ["eager", "sdpa"])
def test_implementations_of_attention(name, engine_calls):
    model = t5("v1_1")
    model.set_attn_implementation(name)
    check_agreement(model, padded("left"), engine_calls, num_beams=3, max_new_tokens=9)


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_a_changed_bias_is_noticed(name, engine_calls):
    model = t5("v1_0")
    check_agreement(model, sources(6), engine_calls, num_beams=3, max_new_tokens=9)
    before = engine_calls[-1]
    with torch.no_grad():
        getattr(model, name).block[0].layer[0].SelfAttention.relative_attention_bias.weight.neg_()
    check_agreement(model, sources(6), engine_calls, num_beams=3, max_new_tokens=9)
    scores = [torch.cat([translation.scores for translation in call]) for call in (before, engine_calls[-1])]
    assert not torch.equal(*scores)


def test_the_language_is_a_token_of_the_source(engine_calls):
    """As MADLAD-400 has it."""
    model, tokenizer = tiny_multilingual.t5()
    tokenizer.add_tokens(["<2de>", "<2en>"])
    model.resize_token_embeddings(len(tokenizer))
    texts = ["<2de> a dog", "<2en> a dog runs"]
    source = tokenizer(texts, return_tensors="pt", padding=True)
    assert (source["input_ids"][:, 0] >= len(tokenizer) - 2).all()
    check_agreement(model, source, engine_calls, num_beams=3, max_new_tokens=6)
    translate = pipeline(model=model, tokenizer=tokenizer)
    expected = [
        tokenizer.decode(model.generate(**tokenizer(text, return_tensors="pt"))[0], skip_special_tokens=True)
        for text in texts
    ]
    calls = len(engine_calls)
    assert [answer["translation_text"] for answer in translate(texts)] == expected
    assert len(engine_calls) > calls


def test_umt5_goes_to_transformers(engine_calls):
    """It has biases of its own in every layer."""
    torch.manual_seed(0)
    shape = {"vocab_size": 40, "d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 4}
    model = UMT5ForConditionalGeneration(UMT5Config(**shape)).eval()
    options = {"max_new_tokens": 6, "num_beams": 3}
    expected = model.generate(**sources(4), **options)
    assert torch.equal(model.generate(**sources(4), **options, custom_generate=generate), expected)
    assert not engine_calls
