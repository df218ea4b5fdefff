"""Decoding settings with which the library would fail, or find other words, are refused by name."""

import pytest
from transformers import GenerationConfig

from hf_capsule_mt.modeling.decoding_settings import check_decoding_settings, check_settings_for_commands

START = {"decoder_start_token_id": 0}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"use_cache": 0}, "use_cache is 0; allowed are None, True, False"),
        ({"return_dict_in_generate": 1.0}, "return_dict_in_generate is 1.0; allowed are None, True, False"),
        ({"early_stopping": 1}, "early_stopping is 1; allowed are None, True, False, 'never'"),
        ({"encoder_repetition_penalty": 2}, "encoder_repetition_penalty is 2; allowed are numbers with a point, such"),
        ({"temperature": 3, "do_sample": True}, "temperature is 3; allowed are numbers with a point, such as 3.0"),
        ({"typical_p": 0}, "typical_p is 0; allowed are numbers above 0"),
        ({"exponential_decay_length_penalty": [5]}, r"exponential_decay_length_penalty is \[5\]; allowed are pairs"),
        ({"exponential_decay_length_penalty": 5}, "exponential_decay_length_penalty is 5; allowed are pairs"),
        ({"sequence_bias": [[[5, 29], 0.5]]}, r"sequence_bias is \[\[\[5, 29\], 0.5\]\]; allowed are lists of pairs"),
        ({"sequence_bias": [[5, 0.5]]}, r"sequence_bias is \[\[5, 0.5\]\]; allowed are lists of pairs"),
        ({"sequence_bias": {"5": 0.5}}, "sequence_bias is {'5': 0.5}; allowed are lists of pairs"),
        ({"sequence_bias": []}, r"sequence_bias is \[\]; allowed are lists of pairs"),
        ({"begin_suppress_tokens": 5}, "begin_suppress_tokens is 5; allowed are lists of integers from 0 to 28"),
    ],
)
def test_a_value_is_refused(fields, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        check_decoding_settings(GenerationConfig(**START, **fields), 29)


@pytest.mark.parametrize(
    "fields",
    [
        {"exponential_decay_length_penalty": [3, 1.5], "sequence_bias": [[[5, 6], -1.0]], "begin_suppress_tokens": [5]},
        {"repetition_penalty": 1, "encoder_repetition_penalty": 2.0, "temperature": 3, "typical_p": 1.0},
        {"use_cache": False, "early_stopping": "never", "return_dict_in_generate": True},
        {"suppress_tokens": [], "begin_suppress_tokens": []},
    ],
)
def test_a_value_is_allowed(fields):
    check_decoding_settings(GenerationConfig(**START, **fields), 29)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stop_strings": ["a"]}, r"stop_strings is \['a'\]; allowed are None$"),
        ({"prefill_chunk_size": 1}, "prefill_chunk_size is 1; allowed are None$"),
        ({"low_memory": True}, "low_memory is True; allowed are None, False"),
        ({"guidance_scale": 2.0}, "guidance_scale is 2.0; allowed are None, 1"),
        ({"prompt_lookup_num_tokens": 3}, "its values ask for assisted_generation; allowed are those that"),
        ({"num_beams": 4, "num_beam_groups": 2}, "its values ask for group_beam_search; allowed are those that"),
    ],
)
def test_what_needs_more_than_a_source_is_refused_by_commands_alone(fields, message):
    settings = GenerationConfig(**START, **fields)
    check_decoding_settings(settings, 29)
    with pytest.raises(ValueError, match=f"^{message}"):
        check_settings_for_commands(settings)


def test_commands_take_what_says_that_it_is_not_asked_for():
    fields = {"token_healing": False, "guidance_scale": 1, "stop_strings": None, "low_memory": False}
    check_settings_for_commands(GenerationConfig(**START, **fields))
