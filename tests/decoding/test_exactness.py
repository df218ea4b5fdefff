"""The engine writes the tokens of `generate()`, for every kind of model and every option that it takes on."""

import copy
from functools import cache

import pytest
import torch
from aggregated_models import EOS, aggregated
from agreement import check_agreement
from ending_models import (
    EVERY_KIND,
    LONGEST,
    ONE_OF_EACH_FAMILY,
    batches,
    ending,
    every_option,
    sources,
    stored,
)
from transformers import LogitsProcessorList, StoppingCriteriaList, TemperatureLogitsWarper
from transformers.modeling_outputs import BaseModelOutput

from hf_capsule_mt.decoding import NewTokenLimits, engine_of, generate
from hf_capsule_mt.decoding.search import search as search_module

BEAMS = {"num_beams": 4}
OPTIONS = {
    "length_penalty_0": {**BEAMS, "length_penalty": 0.0},
    "length_penalty_2": {**BEAMS, "length_penalty": 2.0},
    "length_penalty_-1": {**BEAMS, "length_penalty": -1.0},
    "early_stopping": {**BEAMS, "early_stopping": True},
    "never": {**BEAMS, "early_stopping": "never"},
    "never_length_penalty_0": {**BEAMS, "early_stopping": "never", "length_penalty": 0.0},
    "min_new_tokens": {**BEAMS, "min_new_tokens": 5},
    "min_length": {**BEAMS, "min_length": 7},
    "no_repeat_ngram_size": {**BEAMS, "no_repeat_ngram_size": 2},
    "repetition_penalty": {**BEAMS, "repetition_penalty": 1.3},
    "bad_words": {**BEAMS, "bad_words_ids": [[9], [14], [33], [EOS + 1]]},
    "bad_eos": {**BEAMS, "bad_words_ids": [[EOS]], "min_length": 4},
    "bad_sequences": {**BEAMS, "bad_words_ids": [[9], [14, 20], [EOS + 1]]},
    "suppress_tokens": {**BEAMS, "suppress_tokens": [5, 37, 69, 400, 10**6]},
    "begin_suppress_tokens": {**BEAMS, "begin_suppress_tokens": [EOS, 7]},
    "forced_bos": {**BEAMS, "forced_bos_token_id": 7},
    "forced_eos": {**BEAMS, "forced_eos_token_id": EOS, "max_new_tokens": 9},
    "all_returned": {**BEAMS, "num_return_sequences": 4},
    "two_returned_early": {"num_beams": 3, "num_return_sequences": 2, "early_stopping": True},
    "only_an_end": {**BEAMS, "forced_bos_token_id": EOS},
    "two_ends": {**BEAMS, "eos_token_id": [EOS, 17]},
    "one_token": {**BEAMS, "max_new_tokens": 1},
    "no_cache": {**BEAMS, "use_cache": False},
    "several": {
        **{**BEAMS, "no_repeat_ngram_size": 3, "repetition_penalty": 1.1, "bad_words_ids": [[9]]},
        **{"forced_eos_token_id": EOS, "min_new_tokens": 3, "max_new_tokens": 9, "renormalize_logits": True},
    },
    # As OPUS-MT's models decode.
    "renormalized": {
        **{"num_beams": 6, "bad_words_ids": [[9], [14], [33]], "renormalize_logits": True},
        **{"forced_eos_token_id": EOS, "max_new_tokens": 9},
    },
    "greedy_renormalized": {"bad_words_ids": [[9], [14]], "renormalize_logits": True},
    "greedy_forced": {"forced_bos_token_id": 7, "forced_eos_token_id": EOS, "max_new_tokens": 9},
    "greedy_constrained": {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "bad_words_ids": [[9]]},
    "greedy_suppressed": {"min_new_tokens": 4, "suppress_tokens": [5, 37, 69]},
}


@pytest.fixture(scope="module")
def models():
    return cache(ending)


@pytest.mark.parametrize(
    ("name", "num_beams"),
    [*((name, 4) for name in EVERY_KIND), *((name, 1) for name in (*ONE_OF_EACH_FAMILY, "marian/own_words"))],
)
def test_every_kind_of_model(name, num_beams, models, engine_calls):
    options = {"num_beams": num_beams, "early_stopping": True} if num_beams > 1 else {}
    lengths = check_agreement(models(name), sources(24), engine_calls, max_new_tokens=LONGEST, **options)
    assert num_beams == 1 or len(lengths) >= 3


@pytest.mark.parametrize(
    ("name", "option"),
    every_option(OPTIONS, ("several", "renormalized", "all_returned", "one_token", "no_cache", "greedy_constrained")),
)
def test_every_option(name, option, models, engine_calls):
    options = {"max_new_tokens": 9, **OPTIONS[option]}
    if isinstance(options.get("eos_token_id"), list):
        expected = models(name).generate(**sources(16, seed=1), **options)
        found = models(name).generate(**sources(16, seed=1), **options, custom_generate=generate)
        assert engine_calls
        assert torch.equal(expected, found)
    else:
        check_agreement(models(name), sources(16, seed=1), engine_calls, **options)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_a_model_without_padding(num_beams, models, engine_calls):
    """Shorter translations are followed by their end."""
    model = copy.deepcopy(models("marian"))
    model.generation_config.pad_token_id = None
    check_agreement(model, sources(12), engine_calls, num_beams=num_beams, max_new_tokens=9)


def test_an_output_projection_with_a_bias(models, engine_calls):
    model = copy.deepcopy(models("marian"))
    torch.manual_seed(0)
    model.lm_head.bias = torch.nn.Parameter(3 * torch.randn(model.config.vocab_size))
    check_agreement(model, sources(12), engine_calls, num_beams=3, max_new_tokens=9)


def test_no_step_follows_the_last_end(models, engine_calls, monkeypatch):
    """With this penalty longer translations would be better, but nobody asks for them."""
    model = copy.deepcopy(models("marian"))
    model.final_logits_bias[:, EOS] += 3
    steps = counted_steps(model, monkeypatch)
    options = {"num_beams": 3, "early_stopping": True, "num_return_sequences": 3, "max_new_tokens": 40}
    options["length_penalty"] = 4.0
    found = model.generate(**sources(1), **options, custom_generate=generate)
    assert len(engine_calls) == 1
    assert len(steps) == found.shape[1] - 1 < 40


def test_no_greedy_step_follows_the_second_of_two_ends(models, monkeypatch):
    model = models("marian")
    options = {"max_new_tokens": 40, "custom_generate": generate}
    plain = model.generate(**sources(1), **options)
    steps = counted_steps(model, monkeypatch)
    second = plain[0, 3].item()
    assert second != EOS
    found = model.generate(**sources(1), eos_token_id=[EOS, second], **options)
    assert len(steps) == found.shape[1] - 1 <= 3


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
def test_a_search_has_as_many_steps_as_that_of_transformers(early_stopping, models, monkeypatch):
    """It ends when no running beam can get a better score, by the length that `generate()` expects of it."""
    model = with_the_same_scores(models("marian"), end=20.25)
    steps = counted_steps(model, monkeypatch)
    for limit in (8, 16):
        options = {"num_beams": 2, "early_stopping": early_stopping, "max_new_tokens": limit}
        expected = steps_of_transformers(model, options)
        steps.clear()
        model.generate(**sources(1), **options, custom_generate=generate)
        assert len(steps) == expected < limit


def with_the_same_scores(model, end):
    """A copy of a model whose words have the same scores in each step, whatever the source. `end` is that of EOS."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        # Scores are those of the bias.
        model.model.decoder.layers[-1].final_layer_norm.weight.mul_(0.001)
        model.model.decoder.layers[-1].final_layer_norm.bias.zero_()
    model.final_logits_bias[:] = -50
    model.final_logits_bias[:, 7:11] = torch.tensor([20.0, 17.5, 17.4, 17.3])
    model.final_logits_bias[:, EOS] = end
    return model


def counted_steps(model, monkeypatch):
    """A list that gets an entry for each step of the model's engine."""
    steps = []
    block = engine_of(model).vocabulary._blocks[0]
    scores = block.scores

    def counted(*args):
        steps.append(args)
        return scores(*args)

    monkeypatch.setattr(block, "scores", counted)
    return steps


def steps_of_transformers(model, options):
    """How many steps `generate()` of Transformers takes."""
    steps = []

    def count(tokens, scores):
        steps.append(tokens)
        return scores

    model.generate(**sources(1), **options, logits_processor=LogitsProcessorList([count]))
    return len(steps)


@pytest.mark.parametrize("early_stopping", [True, False])
def test_two_likely_ends(early_stopping, models, engine_calls):
    """All candidates of a sentence can end at once, so that three for each beam are needed to go on."""
    model = copy.deepcopy(models("marian"))
    other = 17
    model.final_logits_bias[:, other] += 6
    model.final_logits_bias[:, EOS] += 2
    options = {"eos_token_id": [EOS, other], "num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 9}
    # Longer translations are better, so a sentence goes on when all candidates have ended.
    options |= {"early_stopping": early_stopping, "length_penalty": 3.0}
    source = sources(24)
    expected = model.generate(**source, **options)
    assert torch.equal(model.generate(**source, **options, custom_generate=generate), expected)
    assert len(engine_calls) == 1
    ends = expected.masked_fill((expected != EOS) & (expected != other), -1).amax(-1)
    assert {EOS, other} <= set(ends.tolist())


def test_how_long_never_searches_where_short_translations_are_better(models, engine_calls):
    """After four steps there are four ends. The fifth finds a better one, and one of full length would be worse."""
    model = with_the_same_scores(models("marian"), end=17.6)
    options = {"num_beams": 4, "num_return_sequences": 4, "early_stopping": "never", "length_penalty": -1.0}
    options |= {"sequence_bias": {(7, 7, 7, 7, EOS): 2.5}, "max_new_tokens": 30}
    check_agreement(model, sources(2), engine_calls, **options)
    assert [7, 7, 7, 7, EOS] in [row[1:6].tolist() for row in engine_calls[-1][0].sequences]


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("options", [{"suppress_tokens": [-1]}, {"eos_token_id": -1, "min_new_tokens": 3}], ids=str)
def test_words_that_do_not_exist_are_not_suppressed(options, num_beams, engine_calls):
    model = aggregated("none", vocab_size=31)
    model.final_logits_bias[0, 30] += 20
    check_agreement(model, sources(4), engine_calls, num_beams=num_beams, max_new_tokens=6, **options)
    assert (engine_calls[-1][0].sequences == 30).any()


@pytest.mark.parametrize("name", ["tatoeba-en-de-em-routing", "tatoeba-en-de-rnmt-gdr"])
def test_trained_models(name, engine_calls):
    source = sources(32, seed=3, longest=8)
    check_agreement(stored(name), source, engine_calls, num_beams=4, max_new_tokens=12)


@pytest.mark.parametrize("early_stopping", [False, "never"])
@pytest.mark.parametrize("name", ["marian/everything", "recurrent/guided_hybrid"])
def test_neither_the_batch_nor_when_rows_leave_changes_anything(
    name, early_stopping, models, monkeypatch, engine_calls
):
    options = {"num_beams": 4, "early_stopping": early_stopping, "max_new_tokens": LONGEST, "num_return_sequences": 2}
    source = sources(12, seed=5)
    together = []
    # Never, and at once.
    for dropping in (0, 10**9):
        with monkeypatch.context() as patch:
            patch.setattr(search_module, "_DROPPED", dropping)
            models(name).generate(**source, **options, custom_generate=generate)
        together.append(list(engine_calls[-1]))
    for index, batch in enumerate(batches({key: value[:6] for key, value in source.items()}, 1)):
        alone = models(name).generate(**batch, **options, custom_generate=generate)
        for found in together:
            assert torch.equal(alone, found[index].sequences), (index, found[index].scores)


def test_more_steps_than_there_is_room_for_at_first(models, engine_calls):
    model = models("marian/em_routing")
    lengths = check_agreement(model, sources(8), engine_calls, num_beams=3, min_new_tokens=35, max_new_tokens=39)
    assert min(lengths) >= 35


@pytest.mark.parametrize("options", [{"num_beams": 4, "early_stopping": True}, {}, {"min_new_tokens": 12}], ids=str)
@pytest.mark.parametrize("name", ["marian", "recurrent/capsule"])
def test_a_limit_for_every_sentence(name, options, models, engine_calls):
    limits = torch.arange(32) % 9 + 1
    criteria = StoppingCriteriaList([NewTokenLimits(limits)])
    options = {**options, "max_new_tokens": 12, "stopping_criteria": criteria}
    check_agreement(models(name), sources(32), engine_calls, **options)
    for translation, limit in zip(engine_calls[-1], limits.tolist()):
        assert translation.sequences.shape[1] <= limit + 1


@pytest.mark.parametrize("num_beams", [1, 3])
def test_one_short_limit_among_many(num_beams, models, engine_calls):
    """Its sentence is finished long before it leaves the batch, and nothing is written to it any more."""
    limits = torch.tensor([2, *[9] * 31])
    criteria = StoppingCriteriaList([NewTokenLimits(limits)])
    options = {"num_beams": num_beams, "min_new_tokens": 9, "max_new_tokens": 9, "stopping_criteria": criteria}
    check_agreement(models("marian"), sources(32), engine_calls, **options)
    assert [translation.sequences.shape[1] for translation in engine_calls[-1]] == [3, *[10] * 31]


def test_a_limit_behind_a_prefix(models):
    source, prefix = sources(2), torch.tensor([[0, 5, 6, 7]] * 2)
    criteria = StoppingCriteriaList([NewTokenLimits(torch.tensor([5, 5]), prefix_length=4)])
    options = {"min_new_tokens": 8, "max_new_tokens": 9, "stopping_criteria": criteria, "custom_generate": generate}
    assert models("marian/everything").generate(**source, decoder_input_ids=prefix, **options).shape == (2, 4 + 5)


@pytest.mark.parametrize(("limits", "expected"), [([20], 6), ([3, 20], 3), ([20, 3], 3)])
def test_the_least_of_several_limits_counts(models, engine_calls, limits, expected):
    criteria = StoppingCriteriaList([NewTokenLimits(torch.tensor([limit])) for limit in limits])
    options = {"min_new_tokens": 6, "max_new_tokens": 6, "stopping_criteria": criteria}
    check_agreement(models("marian"), sources(2), engine_calls, **options)
    assert engine_calls[-1][0].sequences.shape == (1, 1 + expected)


def test_a_limit_behind_a_prefix_that_is_only_a_start(models, engine_calls):
    """Both count what is missing as new tokens."""
    criteria = StoppingCriteriaList([NewTokenLimits(torch.tensor([2]), prefix_length=4)])
    options = {"min_new_tokens": 8, "max_new_tokens": 9, "stopping_criteria": criteria}
    check_agreement(models("marian"), sources(2), engine_calls, **options)
    assert engine_calls[-1][0].sequences.shape == (1, 1 + 5)


@pytest.mark.parametrize("name", ["marian/everything", "marian/source_linear"])
def test_without_a_mask_and_with_the_encoders_output(name, models, engine_calls):
    model, source = models(name), sources(8)
    check_agreement(model, {"input_ids": source["input_ids"]}, engine_calls, num_beams=2, max_new_tokens=9)
    for num_beams in (1, 3):
        expected = model.generate(**source, num_beams=num_beams, max_new_tokens=9)
        encoded = model.get_encoder()(**source)
        before = {name: value.clone() for name, value in encoded.items()}
        given = {"encoder_outputs": encoded, "attention_mask": source["attention_mask"]}
        found = model.generate(**given, num_beams=num_beams, max_new_tokens=9, custom_generate=generate)
        assert torch.equal(found, expected)
        # Transformers itself repeats them for every beam, in place.
        assert num_beams > 1 or all(torch.equal(value, before[name]) for name, value in encoded.items())


def test_a_part_of_the_encoders_output_is_too_little(models):
    """By the last state each layer of the decoder would read the same."""
    model, source = models("marian/source_linear"), sources(8)
    state = model.get_encoder()(**source).last_hidden_state
    given = {"encoder_outputs": BaseModelOutput(state), "attention_mask": source["attention_mask"]}
    for custom in ({}, {"custom_generate": generate}):
        with pytest.raises(ValueError, match="source_states"):
            model.generate(**given, max_new_tokens=9, **custom)


def test_processors_of_the_caller_that_are_known(models, engine_calls):
    from transformers import NoRepeatNGramLogitsProcessor

    processors = LogitsProcessorList([NoRepeatNGramLogitsProcessor(2)])
    options = {"num_beams": 3, "max_new_tokens": 9, "logits_processor": processors}
    check_agreement(models("marian"), sources(8), engine_calls, **options)
    options["logits_processor"] = LogitsProcessorList([TemperatureLogitsWarper(0.5)])
    expected = models("marian").generate(**sources(8), **options)
    calls = len(engine_calls)
    assert torch.equal(models("marian").generate(**sources(8), **options, custom_generate=generate), expected)
    assert len(engine_calls) == calls
