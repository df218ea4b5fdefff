# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/ops/scan.py.
"""A loop over the words of a sentence: as it stands, or as one operation of an exported program.

An export follows a loop of Python word by word, and would be fixed to the length of its example.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

Tensors = tuple[Tensor, ...]
Step = Callable[[Tensors, Tensors, Tensors], tuple[Tensors, Tensors]]


def scan_words(
    module: nn.Module, step: Step, states: Tensors, words: Tensors, others: Tensors = ()
) -> tuple[Tensors, Tensors]:
    """Read words one after the other.

    Args:
        module: whose parameters `step` reads; others it may not.
        step: maps the states, what it reads of a word, `[batch, ...]` each, and `others` to the states after the word
            and what it puts out, in new tensors.
        states: before the first word.
        words: what is read, `[batch, length, ...]` each.
        others: what is read with every word.

    Returns:
        The states after the last word, and what was put out, `[batch, length, ...]` each.
    """
    if is_exported():
        return _exported_scan(module, step, states, words, others)
    outputs = []
    for word in zip(*(each.unbind(1) for each in words)):
        states, output = step(states, word, others)
        outputs.append(output)
    return states, tuple(torch.stack(parts, dim=1) for parts in zip(*outputs))


def is_exported() -> bool:
    """Return whether `torch.export` follows the program with `strict=False`, its default.

    With `strict=True` the compiler follows it, which does not look into this operation.
    """
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


class _Step(nn.Module):
    """A step as the forward of a module, to which its parameters can be given."""

    def __init__(self, module: nn.Module, step: Step) -> None:
        super().__init__()
        self.module, self.step = module, step

    def forward(self, *args: Tensors) -> tuple[Tensors, Tensors]:
        return self.step(*args)


def _exported_scan(
    module: nn.Module, step: Step, states: Tensors, words: Tensors, others: Tensors
) -> tuple[Tensors, Tensors]:
    holder = _Step(module, step)
    parameters = {**dict(holder.named_parameters()), **dict(holder.named_buffers())}
    num_states, num_words = len(states), len(words)

    def combine(*tensors: Tensor) -> list[Tensor]:
        before, rest = tensors[:num_states], tensors[num_states:]
        word, given, shared = rest[:num_words], rest[num_words:][: len(parameters)], rest[num_words:][len(parameters) :]
        after, outputs = functional_call(holder, dict(zip(parameters, given)), (before, word, shared))
        return [*after, *(output.clone() for output in outputs)]

    results = _scan_operation()(
        combine,
        # What goes in and what comes out must share no memory.
        [state.clone() for state in states],
        [each.transpose(0, 1) for each in words],
        additional_inputs=(*parameters.values(), *others),
    )
    return tuple(results[:num_states]), tuple(output.transpose(0, 1) for output in results[num_states:])


def _scan_operation() -> Any:
    # Not the function of this name: it compiles the step first, which takes twenty times as long.
    from torch._higher_order_ops.scan import scan_op

    return scan_op
