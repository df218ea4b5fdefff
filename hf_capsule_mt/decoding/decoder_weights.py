"""Copies of a model's weights as decoding reads them, and the check that modules compute what their classes say."""

from collections.abc import Callable
from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..modeling.linear import GateLinear, Linear, UnitGainLinear
from .precisions import Make, Map

M = TypeVar("M", bound=nn.Module)
_LINEAR = (nn.Linear, Linear, UnitGainLinear, GateLinear)
_ATTENTIONS = ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4", None)
"""Implementations of attention that differ only in their rounding."""
# Where the classes of modules are defined that the engine knows.
_KNOWN_MODULES = (
    "torch.nn.modules.",
    "transformers.activations",
    "transformers.models.marian.modeling_marian",
    f"{__package__.rpartition('.')[0]}.modeling.",
)


class UnsupportedError(ValueError):
    """The engine cannot do this as `generate()` does it. The message names the reason."""


class UnsupportedModelError(UnsupportedError):
    """The engine cannot decode this model as `generate()` does. The message names the reason."""


def product(*linears: nn.Linear, make: Make) -> Map:
    """Return linear maps as one, their outputs side by side, in the precision of `make`."""
    return joined([(linear.weight, linear.bias) for linear in linears], make)


def joined(parts: list[tuple[Tensor, Tensor | None]], make: Make) -> Map:
    """Return weights `[out, in]`, with biases `[out]` or without, as one map whose outputs are side by side."""
    weight = torch.cat([weight.detach() for weight, _ in parts]).t()
    if all(bias is None for _, bias in parts):
        return make(weight, None)
    biases = [part.new_zeros(len(part)) if bias is None else bias.detach() for part, bias in parts]
    return make(weight, torch.cat(biases))


class _Linear(nn.Module):
    def __init__(self, linear: nn.Linear, make: Make) -> None:
        super().__init__()
        self._product = product(linear, make=make)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self._product(inputs.reshape(-1, inputs.shape[-1]))
        return outputs.view(*inputs.shape[:-1], outputs.shape[-1])


def with_products(module: nn.Module, make: Make) -> nn.Module:
    """Return a copy of a plain module that shares its weights. Its linear maps have the precision of `make`."""
    copied = with_shared_weights(module)
    for parent in list(copied.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in _LINEAR:
                setattr(parent, name, _Linear(child, make))
    return copied


def with_shared_weights(module: M) -> M:
    """Return a copy of a module that shares the weights, buffers and hooks of the original."""
    shared: list[object] = [*module.parameters(), *module.buffers()]
    for part in module.modules():
        # accelerate keeps offloaded weights in its hook.
        shared += [*_added_hooks(part), *filter(None, [part.__dict__.get("_hf_hook")])]
    return deepcopy(module, {id(each): each for each in shared})


def norm(module: nn.LayerNorm) -> Map:
    """Return a copy of a LayerNorm, which maps `[..., d]`."""
    weight, bias, epsilon = module.weight.detach().clone(), module.bias.detach().clone(), module.eps
    return lambda inputs: torch.layer_norm(inputs, weight.shape, weight, bias, epsilon)


def check_plain(*modules: nn.Module) -> None:
    """Check that modules compute what their class says: no adapter, parametrization, hook or quantized weight.

    Raises:
        UnsupportedModelError: if one does not.
    """
    for module in modules:
        kind = type(module)
        if not f"{kind.__module__}.".startswith(_KNOWN_MODULES):
            raise UnsupportedModelError(f"the engine does not know the module {kind.__module__}.{kind.__qualname__}")
        if not all(map(_only_listens, _hooks_of(module))):
            raise UnsupportedModelError(f"a {kind.__name__} has a hook, or a forward of its own")
        if any(type(each) is not nn.Parameter or each.is_meta for each in module.parameters(recurse=False)):
            raise UnsupportedModelError(f"a {kind.__name__} has a weight that is not a plain tensor")
        if not _attends_as_known(module):
            raise UnsupportedModelError(f"the attention of a {kind.__name__} is not one of Transformers' own")


class Fingerprint:
    """Tells whether a model still has the modules, hooks and weights that it had. It reads no numbers.

    A write to a weight raises its version. A write through `.data` does not, nor does a changed setting of a module,
    such as its number of iterations: call [`release`] after these.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules, self._tensors = _parts(model)
        self._versions = _versions(self._tensors)

    def is_unchanged(self) -> bool:
        """Whether the weights are those that they were."""
        return _versions(self._tensors) == self._versions

    def is_of(self, model: nn.Module) -> bool:
        """Whether `model` has the same modules, hooks and weights as then."""
        modules, tensors = _parts(model)
        same = len(tensors) == len(self._tensors) and all(a is b for a, b in zip(tensors, self._tensors))
        return same and modules == self._modules and self.is_unchanged()


def only_listens(hook: Callable) -> Callable:
    """Mark a hook that changes nothing, as a decorator. It does not stop the engine, which does not call it."""
    hook.only_listens = True
    return hook


def _only_listens(hook: Callable) -> bool:
    recording = "transformers.utils.output_capturing"
    return getattr(hook, "__module__", None) == recording or getattr(hook, "only_listens", False)


def _added_hooks(module: nn.Module) -> list[Callable]:
    return [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]


def _hooks_of(module: nn.Module) -> list[Callable]:
    """The functions that run with or instead of the forward of the module's class."""
    return _added_hooks(module) + [part for name, part in module.__dict__.items() if name == "forward"]


def _attends_as_known(module: nn.Module) -> bool:
    return getattr(getattr(module, "config", None), "_attn_implementation", None) in _ATTENTIONS


def _parts(model: nn.Module) -> tuple[list[tuple], list[Tensor]]:
    """The modules, by their identity, with their hooks; and the weights."""
    modules, tensors = [], []
    for module in model.modules():
        modules.append((id(module), type(module), _attends_as_known(module), *map(id, _hooks_of(module))))
        tensors += filter(lambda each: each is not None, (*module._parameters.values(), *module._buffers.values()))
    return modules, tensors


def _versions(tensors: list[Tensor]) -> list[tuple[int, int]]:
    # Tensors made in inference mode have no version, and those made of other tensors, as quantized ones, no place.
    return [
        (
            0 if is_traceable_wrapper_subclass(each) else each.data_ptr(),
            0 if each.is_inference() else each._version,
        )
        for each in tensors
    ]
