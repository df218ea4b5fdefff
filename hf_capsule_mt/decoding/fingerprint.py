"""Whether a model computes what its class says, and whether it has changed since a copy of its weights was made."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, TypeVar

import torch
from accelerate.hooks import ModelHook
from torch import Tensor, nn

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
    "transformers.models.m2m_100.modeling_m2m_100",
    "transformers.models.mbart.modeling_mbart",
    "transformers.models.t5.modeling_t5",
    "transformers.models.mt5.modeling_mt5",
    f"{__package__.rpartition('.')[0]}.modeling.",
)
_SAMPLED = 256
"""Numbers of each weight that are compared. Most of the time is spent waiting for memory, once for each number."""
_SETTINGS = frozenset({int, float, bool, str})
"""Types of the attributes of a module that change what it computes, such as `num_iterations` and `embed_scale`.

`training` is not one of them: whoever has a copy follows it, or refuses it.
"""


class UnsupportedError(UserError):
    """The engine cannot do this as `generate()` does it. The message names the reason."""


class UnsupportedModelError(UnsupportedError):
    """The engine cannot decode this model as `generate()` does. The message names the reason."""


def check_plain(*modules: nn.Module) -> None:
    """Raise an UnsupportedModelError if a module has an adapter, a parametrization, a hook or a quantized weight."""
    for module in modules:
        name = type(module).__name__
        source = type(module).__module__
        if not f"{source}.".startswith(_KNOWN_MODULES):
            raise UnsupportedModelError(f"the engine does not know the module {source}.{type(module).__qualname__}")
        if any(getattr(hook, "__module__", None) != _RECORDING for hook in _hooks(module)):
            raise UnsupportedModelError(f"a {name} has a hook, or a forward of its own")
        for weight in module.parameters(recurse=False):
            if type(weight) is not nn.Parameter or weight.is_meta:
                raise UnsupportedModelError(f"a {name} has a weight that is not a plain tensor")
        if not _attends_as_known(module):
            raise UnsupportedModelError(f"the attention of a {name} is not one of Transformers' own")


class Fingerprint:
    """Tells whether a model still has the modules, settings, hooks and weights that it had.

    A write to a weight raises its version. A write through `.data` does not, so some numbers of each weight are
    compared too. A write through `.data` to a few rows of a weight can be missed: call [`release`] after it.
    """

    def __init__(self, model: nn.Module) -> None:
        self._state = _state_of(model)
        # They are kept, so that other weights cannot take their places in memory.
        self._weights = [weight for _, weight in _weights_of(model)]
        self._samples = WeightSamples(self._weights)

    def is_of(self, model: nn.Module) -> bool:
        """Whether `model` has the same modules, settings, hooks and weights as then."""
        return _state_of(model) == self._state and self._samples.are_unchanged()


class WeightSamples:
    """Some numbers of each weight, evenly spread over its memory, and whether they are still the same."""

    def __init__(self, weights: list[Tensor]) -> None:
        # Views by dtype and device, because `torch.cat` takes one of each. A write to the weight changes them too.
        self._views: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for weight in weights:
            # Weights on disk have no numbers.
            if _is_plain(weight) and not weight.is_meta and weight.numel():
                self._views.setdefault((weight.dtype, weight.device), []).append(_spread_numbers(weight))
        self._expected = self._read()

    def are_unchanged(self) -> bool:
        """Whether all numbers have the bits that they had at first."""
        for numbers, expected in zip(self._read(), self._expected, strict=True):
            if not torch.equal(numbers, expected):
                return False
        return True

    def _read(self) -> list[Tensor]:
        # As bytes, because NaN is not equal to itself.
        return [torch.cat(views).view(torch.uint8) for views in self._views.values()]


def _is_plain(weight: Tensor) -> bool:
    """Whether a weight has memory of its own. One that is made of others, as a quantized one, has not."""
    return type(weight) in (Tensor, nn.Parameter)


def _spread_numbers(weight: Tensor) -> Tensor:
    """Return a view of at most `_SAMPLED` numbers of a weight of any shape, `[numbers]`."""
    last = 0
    for size, stride in zip(weight.shape, weight.stride(), strict=True):
        last += (size - 1) * stride
    # Steps of a multiple of the rows' length would read one column only. They seldom are with one more.
    step = (last + 1) // _SAMPLED + 1
    count = last // step + 1
    return weight.detach().as_strided((count,), (step,), weight.storage_offset())


def with_shared_weights(module: M) -> M:
    """Return a copy of a module that shares the weights, buffers and hooks of the original."""
    shared: list[object] = [*module.parameters(), *module.buffers()]
    for part in module.modules():
        shared += _added_hooks(part)
        # accelerate keeps offloaded weights in its hook.
        shared += [value for value in vars(part).values() if isinstance(value, ModelHook)]
    return deepcopy(module, {id(each): each for each in shared})


def _added_hooks(module: nn.Module) -> list[Callable]:
    # PyTorch has no public way to ask for hooks.
    return [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]


def _hooks(module: nn.Module) -> list[Callable]:
    """Return the functions that run with or instead of the forward of the module's class."""
    hooks = _added_hooks(module)
    replaced_forward = module.__dict__.get("forward")
    if replaced_forward is not None:
        hooks.append(replaced_forward)
    return hooks


def _attends_as_known(module: nn.Module) -> bool:
    config = getattr(module, "config", None)
    # Configurations have the implementation under no other name.
    return getattr(config, "_attn_implementation", None) in _ATTENTIONS


def _weights_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """All parameters and buffers of a model by name, those that two modules share twice."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _settings_of(module: nn.Module) -> list[Any]:
    """Return the numbers, texts and other simple values that a module has, such as `embed_scale`."""
    settings = []
    for name, value in vars(module).items():
        if type(value) in _SETTINGS and name != "training":
            settings.append(value)
    # The only field of a configuration that changes what a forward computes, T5's.
    config = getattr(module, "config", None)
    settings.append(getattr(config, "scale_decoder_outputs", None))
    return settings


def _state_of(model: nn.Module) -> list[Any]:
    """Return a list that changes with the modules, their settings and hooks, and with the places of weights."""
    state: list[Any] = []
    for module in model.modules():
        state.append((id(module), type(module), _attends_as_known(module)))
        state += [id(hook) for hook in _hooks(module)]
        state += _settings_of(module)
    for name, weight in _weights_of(model):
        address = weight.data_ptr() if _is_plain(weight) else 0
        # The number of writes to it, which PyTorch counts for autograd. A tensor of inference mode has none.
        version = 0 if weight.is_inference() else weight._version
        state.append((name, id(weight), address, version))
    return state
