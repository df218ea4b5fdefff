# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/configuration/checks.py.
"""Checks of the fields of a configuration: ValueError with the field, its value and what is allowed."""

from collections.abc import Iterable
from dataclasses import fields
from numbers import Real
from typing import Any

from transformers import PreTrainedConfig


def check_choice(name: str, value: Any, allowed: tuple) -> None:
    """Raise ValueError unless `value` is one of `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; allowed are {', '.join(map(repr, allowed))}")


def check_overrides(config_class: type[PreTrainedConfig], overrides: Iterable[str]) -> None:
    """Raise ValueError unless every name in `overrides` is a field of `config_class`."""
    # num_labels is a property that sets id2label.
    known = tuple(sorted([*(field.name for field in fields(config_class)), "num_labels"]))
    for name in overrides:
        check_choice("an overriding field", name, known)


def check_positive_integer(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is an integer of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}; allowed are integers of at least 1")


def check_fraction(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is a number in [0, 1)."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value < 1:
        raise ValueError(f"{name} is {value!r}; allowed are numbers in [0, 1)")
