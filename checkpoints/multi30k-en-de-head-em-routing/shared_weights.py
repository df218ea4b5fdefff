# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/shared_weights.py.
"""Copies of modules that have the weights of the original."""

from collections.abc import Callable
from copy import deepcopy
from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def with_shared_weights(module: M) -> M:
    """Return a copy of a module, whose weights, buffers and hooks are those of the original themselves."""
    shared: list[object] = [*module.parameters(), *module.buffers()]
    for part in module.modules():
        # What accelerate offloads is in its hook.
        shared += [*_added_hooks(part), *filter(None, [part.__dict__.get("_hf_hook")])]
    return deepcopy(module, {id(each): each for each in shared})


def hooks_of(module: nn.Module) -> list[Callable]:
    """Return the functions that run with or instead of the forward of the module's class."""
    own = [module.__dict__["forward"]] if "forward" in module.__dict__ else []
    return [*_added_hooks(module), *own]


def _added_hooks(module: nn.Module) -> list[Callable]:
    return [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
