"""Whether a model computes what its class says, and whether it has changed since a copy of its weights was made."""

from collections.abc import Callable
from copy import deepcopy
from typing import TypeVar

from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from hf_capsule_mt.errors import UserError

M = TypeVar("M", bound=nn.Module)
_ATTENTIONS = ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4", None)
"""Implementations of attention that differ only in their rounding."""
_RECORDING = "transformers.utils.output_capturing"
"""Where hooks are defined that only record what they see."""
# Where the classes of modules are defined that the engine knows.
_KNOWN_MODULES = (
    "torch.nn.modules.",
    "transformers.activations",
    "transformers.models.marian.modeling_marian",
    f"{__package__.rpartition('.')[0]}.modeling.",
)


class UnsupportedError(UserError):
    """The engine cannot do this as `generate()` does it. The message names the reason."""


class UnsupportedModelError(UnsupportedError):
    """The engine cannot decode this model as `generate()` does. The message names the reason."""


def check_plain(*modules: nn.Module) -> None:
    """Raise an UnsupportedModelError if a module has an adapter, a parametrization, a hook or a quantized weight."""
    for module in modules:
        kind = type(module)
        if not f"{kind.__module__}.".startswith(_KNOWN_MODULES):
            raise UnsupportedModelError(f"the engine does not know the module {kind.__module__}.{kind.__qualname__}")
        if any(getattr(hook, "__module__", None) != _RECORDING for hook in _hooks(module)):
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
        # The weights are kept, so that others cannot take their places in memory.
        self._state, self._weights = _state(model)

    def is_of(self, model: nn.Module) -> bool:
        """Whether `model` has the same modules, hooks and weights as then."""
        return _state(model)[0] == self._state


def with_shared_weights(module: M) -> M:
    """Return a copy of a module that shares the weights, buffers and hooks of the original."""
    shared: list[object] = [*module.parameters(), *module.buffers()]
    for part in module.modules():
        # accelerate keeps offloaded weights in its hook.
        shared += [*_added_hooks(part), *filter(None, [part.__dict__.get("_hf_hook")])]
    return deepcopy(module, {id(each): each for each in shared})


def _added_hooks(module: nn.Module) -> list[Callable]:
    return [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]


def _hooks(module: nn.Module) -> list[Callable]:
    """Return the functions that run with or instead of the forward of the module's class."""
    return _added_hooks(module) + [part for name, part in module.__dict__.items() if name == "forward"]


def _attends_as_known(module: nn.Module) -> bool:
    return getattr(getattr(module, "config", None), "_attn_implementation", None) in _ATTENTIONS


def _state(model: nn.Module) -> tuple[list[tuple], list[Tensor]]:
    """Return a list that changes with the modules and weights, and the weights."""
    state, weights = [], []
    for module in model.modules():
        state.append((id(module), type(module), _attends_as_known(module), *map(id, _hooks(module))))
        for weight in (*module._parameters.values(), *module._buffers.values()):
            if weight is not None:
                # A tensor made of others, as a quantized one, has no place. A tensor of inference mode has no version.
                place = 0 if is_traceable_wrapper_subclass(weight) else weight.data_ptr()
                state.append((id(weight), place, 0 if weight.is_inference() else weight._version))
                weights.append(weight)
    return state, weights
