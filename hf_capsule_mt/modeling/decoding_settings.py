"""Checks of the settings that a model decodes with: ValueError with the field, its value and what is allowed."""

import math
from numbers import Real
from typing import Any

from transformers import GenerationConfig
from transformers.generation import GenerationMode

_MOST = 1000
"""Beams and translations of a sentence, and words of an n-gram, which all cost memory."""
_FEW_OF_THEM = ("num_beams", "num_return_sequences", "num_beam_groups")
_COUNTS = ("max_length", "max_new_tokens")
_NGRAMS = ("no_repeat_ngram_size", "encoder_no_repeat_ngram_size")
_SIZES = ("min_length", "min_new_tokens", "top_k")
_POSITIVE = ("repetition_penalty", "encoder_repetition_penalty", "temperature", "max_time")
# To Transformers, 2 is none of their values, and 2.0 is.
_WITH_A_POINT = ("repetition_penalty", "encoder_repetition_penalty")
_SHARES = ("top_p", "min_p", "epsilon_cutoff", "eta_cutoff")
_SOME = ("typical_p", "top_h")
# For them `generate()` needs a tokenizer or another model, has an error, or finds other words.
_ELSEWHERE = {
    **dict.fromkeys(("stop_strings", "prefill_chunk_size"), (None,)),
    **dict.fromkeys(("token_healing", "low_memory", "is_assistant"), (None, False)),
    "guidance_scale": (None, 1),
}
_SWITCHES = ("do_sample", "use_cache", "remove_invalid_values", "renormalize_logits", "return_dict_in_generate")
_SUPPRESSED = ("suppress_tokens", "begin_suppress_tokens")
_TOKENS = (
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
    *("forced_bos_token_id", "forced_eos_token_id", *_SUPPRESSED),
)
_MODES = (
    *(GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE),
    *(GenerationMode.BEAM_SEARCH, GenerationMode.BEAM_SAMPLE),
)
_ONE_TOKEN = ("pad_token_id", "bos_token_id", "decoder_start_token_id", "forced_bos_token_id")


def check_decoding_settings(settings: GenerationConfig, num_words: int) -> None:
    """Check the values of `settings` for a model that has `num_words` in its vocabulary; None stands for the default.

    Raises:
        ValueError: if a value is not allowed.
    """
    given = {name: value for name, value in vars(settings).items() if value is not None}
    for name in _FEW_OF_THEM:
        check_positive_integer(name, given.get(name, 1), _MOST)
    for name in _COUNTS:
        check_positive_integer(name, given.get(name, 1))
    for name in _SIZES:
        value = given.get(name, 0)
        _check(isinstance(value, int) and value >= 0, name, value, "integers of at least 0")
    for name in _NGRAMS:
        value = given.get(name, 0)
        _check(isinstance(value, int) and 0 <= value <= _MOST, name, value, f"integers from 0 to {_MOST}")
    for name in _POSITIVE:
        value = given.get(name, 1)
        _check(_is_number(value) and value > 0, name, value, "positive numbers")
    for name in (*_WITH_A_POINT, "temperature") if settings.do_sample else _WITH_A_POINT:
        value = given.get(name, 1)
        _check(isinstance(value, float) or value == 1, name, value, f"numbers with a point, such as {value}.0")
    for name in _SHARES:
        value = given.get(name, 0)
        _check(_is_number(value) and 0 <= value <= 1, name, value, "numbers in [0, 1]")
    for name in _SOME:
        value = given.get(name, 1)
        _check(_is_number(value) and 0 < value <= 1, name, value, "numbers above 0, up to 1")
    length_penalty = given.get("length_penalty", 1)
    _check(_is_number(length_penalty), "length_penalty", length_penalty, "finite numbers")
    for name in (*_SWITCHES, "output_hidden_states", "output_attentions", "output_scores", "output_logits"):
        check_choice(name, given.get(name), (None, True, False))
    check_choice("early_stopping", given.get("early_stopping"), (None, True, False, "never"))
    penalty_alpha = given.get("penalty_alpha", 0)
    _check(_is_number(penalty_alpha), "penalty_alpha", penalty_alpha, "finite numbers")
    _check_tokens(given, num_words)
    _check_biases(given, num_words)


def check_settings_for_commands(settings: GenerationConfig) -> None:
    """Check that `settings` ask for nothing that `generate()` needs more than a source for.

    Raises:
        ValueError: if they do.
    """
    for name, allowed in _ELSEWHERE.items():
        check_choice(name, getattr(settings, name, None), allowed)
    mode = settings.get_generation_mode()
    if mode not in _MODES:
        # The code of others is elsewhere, or needs another model.
        known = ", ".join(mode.value for mode in _MODES)
        raise ValueError(f"its values ask for {mode.value}; allowed are those that ask for {known}")


def _check_tokens(given: dict[str, Any], num_words: int) -> None:
    if not given.keys() & {"decoder_start_token_id", "bos_token_id"}:
        raise ValueError("decoder_start_token_id is None; allowed is the word that decoding starts with")
    allowed = f"integers from 0 to {num_words - 1}, the last word, and lists of them"
    for name in _TOKENS:
        value = given.get(name, 0)
        tokens = value if isinstance(value, list) and name not in _ONE_TOKEN else [value]
        are_words = all(_is_word(token, num_words) for token in tokens)
        _check(are_words and (bool(tokens) or name in _SUPPRESSED), name, value, allowed)
    first = given.get("begin_suppress_tokens", [0])
    _check(isinstance(first, list), "begin_suppress_tokens", first, f"lists of {allowed.partition(',')[0]}")
    phrases = given.get("bad_words_ids", [[0]])
    lists = isinstance(phrases, list) and phrases and all(isinstance(phrase, list) and phrase for phrase in phrases)
    known = lists and all(_is_word(token, num_words) for phrase in phrases for token in phrase)
    _check(bool(known), "bad_words_ids", phrases, f"lists of lists of {allowed}")


def _check_biases(given: dict[str, Any], num_words: int) -> None:
    decay = given.get("exponential_decay_length_penalty", [0, 1.0])
    is_pair = isinstance(decay, list) and len(decay) == 2 and all(map(_is_number, decay))
    known = is_pair and isinstance(decay[0], int) and decay[0] >= 0 and decay[1] > 0
    allowed = "pairs of a length, an integer of at least 0, and a positive number"
    _check(known, "exponential_decay_length_penalty", decay, allowed)
    biases = given.get("sequence_bias", [[[0], 0.0]])
    pairs = [*biases.items()] if isinstance(biases, dict) else biases if isinstance(biases, list) else []
    known = bool(pairs) and all(_is_bias(pair, num_words) for pair in pairs)
    allowed = f"lists of pairs of words, integers from 0 to {num_words - 1}, and a number with a point"
    _check(known, "sequence_bias", biases, allowed)


def _is_bias(pair: object, num_words: int) -> bool:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return False
    words, bias = pair
    known = isinstance(words, (list, tuple)) and words and all(_is_word(word, num_words) for word in words)
    return bool(known) and isinstance(bias, float) and _is_number(bias)


def _is_word(token: object, num_words: int) -> bool:
    return isinstance(token, int) and not isinstance(token, bool) and 0 <= token < num_words


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value) and abs(value) < 1e6


def _check(is_allowed: bool, name: str, value: object, allowed: str) -> None:
    if not is_allowed or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r:.80}; allowed are {allowed}")


def check_positive_integer(name: str, value: Any, most: int = 2**24) -> None:
    """Raise ValueError unless `value` is an integer from 1 to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ValueError(f"{name} is {value!r:.80}; allowed are integers from 1 to {most}")


def check_choice(name: str, value: Any, allowed: tuple) -> None:
    """Raise ValueError unless `value` is one of `allowed`."""
    if not any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in allowed):
        raise ValueError(f"{name} is {value!r:.80}; allowed are {', '.join(map(repr, allowed))}")
