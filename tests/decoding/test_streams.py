"""A stream of sentences finds what `generate()` finds for each by itself, whoever is decoded beside it."""

import pytest
import torch
from aggregated_models import EOS
from ending_models import EVERY_KIND, LONGEST, ending, every_option, skip_beams_of_two_vocabularies, sources
from transformers import MarianConfig, MarianMTModel, StoppingCriteriaList

from hf_capsule_mt.decoding import NewTokenLimits, Source, UnsupportedError, translate_stream

OPTIONS = {
    "greedy": {"num_beams": 1},
    "beams": {"num_beams": 4, "num_return_sequences": 2},
    "early_stopping": {"num_beams": 3, "early_stopping": True, "length_penalty": 0.6},
    "min_new_tokens": {"num_beams": 3, "min_new_tokens": 4},
    "constrained": {"num_beams": 3, "no_repeat_ngram_size": 2, "begin_suppress_tokens": [7, 9], "min_new_tokens": 3},
    "greedy_constrained": {"num_beams": 1, "repetition_penalty": 1.3, "min_new_tokens": 3},
}


def check_stream(model, count, room, **options):
    """Require what `generate()` finds, with a limit for every sentence."""
    source = sources(count, seed=6)
    rows = [ids[mask.bool()].tolist() for ids, mask in zip(source["input_ids"], source["attention_mask"])]
    limits = [LONGEST - index % 7 for index in range(count)]
    found = dict(translate_stream(model, map(Source, rows, limits), room, **options))
    assert sorted(found) == list(range(count))
    criteria = StoppingCriteriaList([NewTokenLimits(torch.tensor(limits))])
    scored = {"return_dict_in_generate": True, "output_scores": True}
    source = {name: value.to(model.device) for name, value in source.items()}
    expected = model.generate(**source, **options, **scored, stopping_criteria=criteria, max_new_tokens=LONGEST + 1)
    number = options.get("num_return_sequences", 1)
    filling = {model.config.pad_token_id, model.config.eos_token_id}
    for index, sequences in enumerate(expected.sequences.cpu().split(number)):
        width = found[index].sequences.shape[1]
        assert torch.equal(found[index].sequences, sequences[:, :width]), index
        assert set(sequences[:, width:].flatten().tolist()) <= filling
        if options["num_beams"] > 1:
            scores = expected.sequences_scores.cpu()[index * number : (index + 1) * number]
            torch.testing.assert_close(found[index].scores, scores, atol=1e-4, rtol=1e-6)


@pytest.mark.parametrize(("name", "option"), every_option(OPTIONS, ("greedy", "beams")))
def test_every_option(name, option):
    check_stream(ending(name), 32, 64, **OPTIONS[option])


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("room", [12, 200])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", EVERY_KIND)
def test_hundreds_of_sentences(name, option, room):
    check_stream(ending(name), 200, room, **OPTIONS[option])


def test_an_encoder_of_fewer_words():
    """Neither the word that decoding starts from nor what fills up translations need be one of its."""
    skip_beams_of_two_vocabularies()
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    words = {"vocab_size": 20, "decoder_vocab_size": 29, "decoder_start_token_id": 28, "pad_token_id": 0}
    ends = {"eos_token_id": 2, "forced_eos_token_id": None}
    config = MarianConfig(share_encoder_decoder_embeddings=False, tie_word_embeddings=False, **words, **ends, **sizes)
    model = MarianMTModel(config).eval()
    model.generation_config.pad_token_id = 25
    rows = [[5, 6, 2], [7, 2]]
    found = dict(translate_stream(model, [Source(ids, 4) for ids in rows], num_beams=2))
    for index, ids in enumerate(rows):
        expected = model.generate(input_ids=torch.tensor([ids]), num_beams=2, max_new_tokens=4)
        assert torch.equal(found[index].sequences, expected)


@pytest.mark.parametrize("text", ["A dog.", (4, 5), None])
def test_what_is_no_sentence_is_refused(text):
    found = translate_stream(ending("marian"), [Source([4, 5, EOS], 3), text], 64, num_beams=2)
    message = f"sources holds a {type(text).__name__}, .*; give Source"
    with pytest.raises(TypeError, match=message):
        list(found)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Source([4, EOS], 0), "one of 2 words whose translation has the limit 0; both must be at least 1"),
        (Source([4, EOS], 4.5), "one whose translation has the limit 4.5; give a whole number of tokens"),
        (Source([4, EOS], None), "one whose translation has the limit None; give a whole number of tokens"),
        (Source([], 3), "one of 0 words whose translation has the limit 3; both must be at least 1"),
        (Source([4] * 999, 3), "a source has 999 tokens, and the model has .* positions; cut it"),
        (Source([4, EOS], 999), "a translation may have 999 tokens, and the model has .* positions; lower the limit"),
        (Source([-3, EOS], 3), "a source has a word -3, and the model has .*; make sources with its tokenizer"),
        (Source([999, EOS], 3), "a source has a word 999, and the model has .*; make sources with its tokenizer"),
    ],
)
def test_sentences_that_cannot_be_read_are_refused(source, message):
    with pytest.raises(ValueError, match=message):
        list(translate_stream(ending("marian"), [Source([4, EOS], 3), source], num_beams=2))


def test_sentences_are_read_when_there_are_places():
    read = []

    def arriving():
        for index in range(40):
            read.append(index)
            yield Source([5] * (2 + index % 4) + [EOS], 6)

    stream = translate_stream(ending("marian"), arriving(), 20, num_beams=2)
    next(stream)
    # Four of five words at a time, and the one that waits.
    assert len(read) <= 10
    assert len(list(stream)) == 39


def test_a_sentence_that_is_longer_than_the_room_is_decoded_alone():
    found = dict(translate_stream(ending("marian"), [Source([5] * 9 + [EOS], 4), Source([6, EOS], 4)], 3, num_beams=2))
    assert sorted(found) == [0, 1]


def test_results_are_plain_tensors():
    _, translation = next(translate_stream(ending("recurrent/rnmt"), [Source([6, EOS], 4)], num_beams=2))
    assert not translation.sequences.is_inference()
    assert not torch.is_inference_mode_enabled()


def test_no_sentences():
    assert not list(translate_stream(ending("marian"), [], num_beams=2))


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": True},
        {"early_stopping": "never", "num_beams": 2},
        {"length_penalty": float("nan"), "num_beams": 2},
        {"length_penalty": -20.0, "num_beams": 2},
        {"stopping_criteria": StoppingCriteriaList([NewTokenLimits(torch.tensor([2]))])},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_it_cannot_do_is_refused_before_a_sentence_is_read(options):
    sources = iter([Source([6, EOS], 4)])
    with pytest.raises(UnsupportedError, match=r"sample|never|length_penalty is (nan|-20\.0)|each Source has a limit"):
        translate_stream(ending("marian"), sources, **options)
    assert next(sources)


@pytest.mark.parametrize("name", ["max_new_tokens", "max_length"])
def test_a_limit_for_all_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} is given, and each Source has a limit of its own; leave it out"):
        translate_stream(ending("marian"), [], **{name: 3})
    assert not list(translate_stream(ending("marian"), [], **{name: None}))


def test_greedy_search_knows_no_early_stopping():
    sources = [Source([6, 7, EOS], 4), Source([5, EOS], 6)]
    one, two = (
        {index: found.sequences.tolist() for index, found in translate_stream(ending("marian"), sources, **options)}
        for options in ({"num_beams": 1}, {"num_beams": 1, "early_stopping": "never"})
    )
    assert one == two


def test_changed_weights_end_a_stream():
    model = ending("marian")
    stream = translate_stream(model, (Source([5, EOS], 3 + index % 5) for index in range(40)), 20, num_beams=2)
    next(stream)
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    with pytest.raises(RuntimeError, match="make a new one"):
        list(stream)


def test_changed_weights_end_a_stream_that_admits_no_more():
    model = ending("recurrent/rnmt")
    stream = translate_stream(model, [Source([5, 6, EOS], limit) for limit in (2, 9)], num_beams=2, min_new_tokens=8)
    next(stream)
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    with pytest.raises(RuntimeError, match="make a new one"):
        next(stream)
