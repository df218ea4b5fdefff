"""Checks of the fields of a configuration: ValueError with the field, its value and what is allowed."""

import math
from collections.abc import Iterable
from dataclasses import MISSING, Field, fields, is_dataclass
from difflib import get_close_matches
from numbers import Real
from typing import Any

import torch
from transformers import PreTrainedConfig

MOST = 2**24
"""The largest size of anything, such as a vocabulary; beyond it, a configuration is damaged."""
MOST_STEPS = 1000
"""The most layers, and the most iterations."""
MOST_POSITIONS = 2**16
"""The most positions, whose sinusoids are computed one by one."""
_SWITCHES = ("layer_aggregation", "head_aggregation", "guided_routing", "sentence_aggregation")
_OF_THIS_PACKAGE = ("aggregation", "capsule", "routing")
"""Words that no field of Transformers has in its name."""
_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "forced_eos_token_id", "decoder_start_token_id")


def check_choice(name: str, value: Any, allowed: tuple) -> None:
    """Raise ValueError unless `value` is one of `allowed`."""
    # To Python, 0 and 1 are False and True.
    if not any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in allowed):
        raise ValueError(f"{name} is {value!r:.80}; allowed are {', '.join(map(repr, allowed))}")


def check_overrides(config_class: type[PreTrainedConfig], overrides: Iterable[str]) -> None:
    """Raise ValueError unless every name in `overrides` is a field of `config_class`."""
    # num_labels is a property that sets id2label.
    known = tuple(sorted([*(field.name for field in fields(config_class)), "num_labels"]))
    for name in overrides:
        if name not in known:
            near = get_close_matches(name, known)
            others = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(known)}"
            raise ValueError(f"{config_class.__name__} has no field {name!r}; {others}")


def check_names(config_class: type[PreTrainedConfig], names: Iterable[str]) -> None:
    """Raise ValueError if one of `names`, which are no fields of `config_class`, was meant for a field of this package.

    All others pass: old configurations, and options of loading, have names that no configuration knows.
    """
    bases = [
        base for base in config_class.__mro__ if base.__module__.startswith("transformers.") and is_dataclass(base)
    ]
    foreign = {field.name for base in bases for field in fields(base)}
    own = {field.name for field in fields(config_class)} - foreign
    # A property is an attribute, such as the number of RNMT's decoder layers.
    for name in names:
        if name in own or hasattr(config_class, name):
            continue
        near = get_close_matches(name, own, cutoff=0.8)
        if near or any(word in name for word in _OF_THIS_PACKAGE):
            others = (
                f"did you mean {' or '.join(near)}?" if near else "it is of another family, or of none; leave it out"
            )
            raise ValueError(f"{config_class.__name__} has no field {name!r}; {others}")


def check_read(config: PreTrainedConfig, given: Iterable[str]) -> None:
    """Raise ValueError if a field in `given` is not as it is by default, and no part of the model reads it."""
    unread = config.unread_fields()
    # One iteration reads less than several.
    once = ("routing_iterations",) if getattr(config, "routing_iterations", None) == 1 else ()
    settings = [name for name in (*_SWITCHES, *once) if hasattr(config, name) and name not in unread]
    switches = [f"{name}={getattr(config, name)!r}" for name in settings]
    known = {field.name: field for field in fields(config)}
    for name in unread.intersection(given):
        if getattr(config, name) != _default(known[name]):
            near = [other for other in known if other not in unread and name.split("_")[-2:] == other.split("_")[-2:]]
            raise ValueError(
                f"{name} is {getattr(config, name)!r:.80}, which a model with {', '.join(switches)} does not read; "
                f"leave it out{f', or did you mean {near[0]}?' if near else ''}"
            )


def _default(field: Field) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def check_positive_integer(name: str, value: Any, most: int = MOST) -> None:
    """Raise ValueError unless `value` is an integer from 1 to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r:.80}; allowed are integers of at least 1")
    if value > most:
        raise ValueError(f"{name} is {value}; allowed are integers up to {most}")


def check_fraction(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is a number in [0, 1)."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value < 1:
        raise ValueError(f"{name} is {value!r:.80}; allowed are numbers in [0, 1)")


def check_probability(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is a number in [0, 1]."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(f"{name} is {value!r:.80}; allowed are numbers in [0, 1]")


def check_not_negative(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is a finite number of at least 0."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ValueError(f"{name} is {value!r:.80}; allowed are numbers of at least 0")


def check_positive(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is a finite number above 0."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ValueError(f"{name} is {value!r:.80}; allowed are positive numbers")


def check_heads(name: str, value: Any, width: int) -> None:
    """Raise ValueError unless `value` is a number of attention heads that divide a `width`."""
    check_positive_integer(name, value)
    if width % value:
        raise ValueError(f"{name} is {value}; allowed are divisors of d_model={width}")


def check_dtype(value: Any) -> None:
    """Raise ValueError unless `value` is None, a type of floating-point numbers of torch, or the name of one."""
    dtype = getattr(torch, value, None) if isinstance(value, str) else value
    if value is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ValueError(f"dtype is {value!r:.80}; allowed are names such as 'float32' and 'bfloat16'")


def check_token_ids(config: PreTrainedConfig) -> None:
    """Raise ValueError unless the ids of special tokens are those of words in the vocabulary, defaults, or None."""
    shared = getattr(config, "share_encoder_decoder_embeddings", True)
    words = config.vocab_size if shared else min(config.vocab_size, config.decoder_vocab_size or config.vocab_size)
    for name in _TOKENS:
        value = getattr(config, name, None)
        # Of Marian's vocabulary; whoever makes a configuration of another size gives the ids later.
        if value is None or (type(value) is int and value == getattr(type(config), name, None)):
            continue
        for token in value if isinstance(value, list) and "eos" in name else [value]:
            is_word = isinstance(token, int) and not isinstance(token, bool) and 0 <= token < words
            if token is not None and not is_word:
                raise ValueError(f"{name} is {value!r:.80}; allowed are integers from 0 to {words - 1}, the last word")


def check_spelling(known: Iterable[str], found: Iterable[str]) -> None:
    """Raise ValueError if a name in `found` is a missing one of `known` but for one character, as damage makes it."""
    missing = set(known) - set(found)
    for name in set(found) - set(known):
        for field in missing:
            if _differ_by_one(name, field):
                raise ValueError(f"{name!r} is no field, and {field!r} is missing; one is the other, damaged")


def _differ_by_one(name: str, other: str) -> bool:
    """Return whether one name becomes the other if one character is replaced, added or left out."""
    short, long = sorted((name, other), key=len)
    place = next((i for i, (one, two) in enumerate(zip(short, long)) if one != two), len(short))
    return long[place + 1 :] == short[place + (len(long) == len(short)) :] and len(long) - len(short) < 2
