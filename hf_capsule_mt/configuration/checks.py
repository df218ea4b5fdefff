"""Checks of what a user names: a method, a size, a field."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from transformers import PreTrainedConfig


def check_choice(name: str, value: Any, allowed: tuple) -> None:
    """Raise ValueError unless `value` is one of `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r:.80}; allowed are {', '.join(map(repr, allowed))}")


def check_overrides(config_class: type[PreTrainedConfig], overrides: Iterable[str]) -> None:
    """Raise ValueError unless every name in `overrides` is a field of `config_class`: others would have no effect."""
    # num_labels is a property that sets id2label.
    known = sorted([*(field.name for field in fields(config_class)), "num_labels"])
    for name in overrides:
        if name not in known:
            raise ValueError(f"{config_class.__name__} has no field {name!r}; it has {', '.join(known)}")
