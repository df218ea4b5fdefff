"""Weights as decoding reads them, and the check that modules are what their classes say."""

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..modeling.linear import GateLinear, Linear, UnitGainLinear
from ..shared_weights import hooks_of, with_shared_weights
from .precisions import Make, Map

_LINEAR = (nn.Linear, Linear, UnitGainLinear, GateLinear)
_RECORDING_HOOKS = "transformers.utils.output_capturing"
_ATTENTIONS = ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4", None)
"""Implementations of attention that differ in their rounding alone."""
_PLAIN = (bool, int, float, str)
_NO_SETTINGS = frozenset(vars(nn.Module())) | {"_is_hf_initialized"}
"""Attributes of every module: they say nothing of what it computes in evaluation mode, or are looked at elsewhere."""


class UnsupportedError(ValueError):
    """Raised for what the engine cannot do as `generate()` does it; the message names the reason."""


class UnsupportedModelError(UnsupportedError):
    """Raised for a model that the engine cannot decode as `generate()` would; the message names the reason."""


def product(*linears: nn.Linear, make: Make, kind: type[nn.Linear] = nn.Linear) -> Map:
    """Return the maps as one, their outputs side by side, in the precision that `make` has.

    Raises:
        UnsupportedModelError: if one of them is not of the class `kind`, or has been changed.
    """
    check_plain(*linears, kind=kind)
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
        # An adapter around it reads them.
        self.weight, self.bias = linear.weight, linear.bias
        self._product = product(linear, make=make, kind=type(linear))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self._product(inputs.reshape(-1, inputs.shape[-1]))
        return outputs.view(*inputs.shape[:-1], outputs.shape[-1])


def with_products(module: nn.Module, make: Make) -> nn.Module:
    """Return a copy of a module, with its weights and hooks, whose linear maps have the precision that `make` has."""
    copied = with_shared_weights(module)
    for parent in list(copied.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in _LINEAR and _is_plain(child):
                setattr(parent, name, _Linear(child, make))
    return copied


@dataclass(frozen=True)
class Norm:
    """A copy of a LayerNorm."""

    weight: Tensor
    bias: Tensor
    epsilon: float

    def __call__(self, inputs: Tensor) -> Tensor:
        """Normalise `[..., d]`."""
        return torch.layer_norm(inputs, self.weight.shape, self.weight, self.bias, self.epsilon)


def norm(module: nn.LayerNorm) -> Norm:
    """Return a copy of a LayerNorm."""
    check_plain(module, kind=nn.LayerNorm)
    return Norm(module.weight.detach().clone(), module.bias.detach().clone(), module.eps)


def check_plain(*modules: nn.Module, kind: type[nn.Module]) -> None:
    """Check that modules compute what their class says: no adapter, parametrization, hook or quantized weight.

    Raises:
        UnsupportedModelError: if one does not.
    """
    for module in modules:
        # Another way to the same products.
        if type(module) is not kind and (type(module), kind) != (Linear, nn.Linear):
            found = f"{type(module).__module__}.{type(module).__qualname__}"
            remedy = "; merge the adapter first" if found.startswith("peft.") else ""
            raise UnsupportedModelError(f"a {found} stands where the engine knows {kind.__qualname__}{remedy}")
        if not all(map(_only_listens, hooks_of(module))):
            raise UnsupportedModelError(f"a {kind.__name__} has a hook, or a forward of its own")
        for name, weight in module.named_parameters(recurse=False):
            if type(weight) is not nn.Parameter or weight.is_meta or not weight.numel():
                raise UnsupportedModelError(f"the {name} of a {kind.__name__} is not at hand as a plain tensor")


def _is_plain(module: nn.Module) -> bool:
    try:
        check_plain(module, kind=type(module))
    except UnsupportedModelError:
        return False
    return True


def check_attention(*modules: nn.Module) -> None:
    """Check that modules attend as Transformers' own implementations do.

    Raises:
        UnsupportedModelError: if one does not.
    """
    for module in modules:
        if module.config._attn_implementation not in _ATTENTIONS:
            name = module.config._attn_implementation
            raise UnsupportedModelError(f"the attention implementation {name!r} is not one of Transformers' own")
        if module.scaling != module.head_dim**-0.5:
            raise UnsupportedModelError(
                f"an attention has scaling {module.scaling}; the engine knows head_dim**-0.5, {module.head_dim**-0.5}"
            )


_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Fingerprint:
    """Tells cheaply whether the weights and settings of a model are those that they were.

    Writing to a tensor raises its version; what is written through `.data` does not, so vectors and small tensors are
    compared whole, and of each of the others a few numbers. What is written through `.data` to some rows of a larger
    tensor can be missed: call [`release`] after it. Settings are the numbers, texts and switches among the attributes
    of the modules in a model, but for `training`; and whether their attention is Transformers' own.

    Raises:
        UnsupportedModelError: if a weight is made of other tensors.
    """

    _SAMPLES = 16
    _SMALL = 1 << 12

    def __init__(self, model: nn.Module) -> None:
        self._modules, self._tensors = _parts(model)
        for tensor in self._tensors:
            # Such as a quantized weight, which has neither a place nor numbers of its own.
            if is_traceable_wrapper_subclass(tensor):
                raise UnsupportedModelError(f"the model has a {type(tensor).__name__} as a weight")
        self._places = [_place(tensor) for tensor in self._tensors]
        self._samples = [self._sample(tensor) for tensor in self._tensors if tensor.is_contiguous() and tensor.numel()]
        self._values = self._sampled()
        # Those of the model itself say nothing of what its parts compute, and could hold it.
        self._settings = _settings(module for module in model.modules() if module is not model)
        configs = [vars(module).get("config") for module in model.modules()]
        self._configs = list({id(config): config for config in configs}.values())

    def is_unchanged(self) -> bool:
        """Whether no weight has changed, nor its place, and no setting."""
        if any(_place(tensor) != place for tensor, place in zip(self._tensors, self._places)):
            return False
        now = [attributes.get(name) for attributes, name, _ in self._settings]
        if not all(value is before or _is_same(value, before) for value, (_, _, before) in zip(now, self._settings)):
            return False
        if any(getattr(config, "_attn_implementation", None) not in _ATTENTIONS for config in self._configs):
            return False
        return all(map(torch.equal, self._sampled(), self._values))

    def is_of(self, model: nn.Module) -> bool:
        """Whether `model` has the same modules and hooks as then, and the same tensors, unchanged."""
        modules, tensors = _parts(model)
        same = len(tensors) == len(self._tensors) and all(a is b for a, b in zip(tensors, self._tensors))
        return same and modules == self._modules and self.is_unchanged()

    def _sample(self, tensor: Tensor) -> Tensor:
        numbers = tensor.detach().flatten()
        is_whole = len(numbers) <= max((self._SMALL, *tensor.shape))
        return numbers if is_whole else numbers[:: len(numbers) // self._SAMPLES]

    def _sampled(self) -> list[Tensor]:
        kinds = dict.fromkeys((sample.dtype, sample.device) for sample in self._samples)
        values = [torch.cat([s for s in self._samples if (s.dtype, s.device) == kind]) for kind in kinds]
        # As bits, by which also what is not a number is the same.
        return [each.view(_BITS[each.itemsize]) for each in values]


def only_listens(hook: Callable) -> Callable:
    """Mark a hook, as a decorator, that changes nothing, so that it stops no engine; the engine does not call it."""
    hook.only_listens = True
    return hook


def _only_listens(hook: Callable) -> bool:
    return getattr(hook, "__module__", None) == _RECORDING_HOOKS or getattr(hook, "only_listens", False)


def _parts(model: nn.Module) -> tuple[list[tuple], list[Tensor]]:
    """The modules, by their identity, with their hooks; and the weights."""
    modules, tensors = [], []
    for module in model.modules():
        modules.append((id(module), type(module), *map(id, hooks_of(module))))
        tensors += [
            tensor for tensor in (*module._parameters.values(), *module._buffers.values()) if tensor is not None
        ]
    return modules, tensors


def _place(tensor: Tensor) -> tuple[int, int]:
    # Tensors made in inference mode have no version.
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def _settings(modules: Iterable[nn.Module]) -> list[tuple[dict[str, Any], str, Any]]:
    """The settings of modules: where each is, its name and its value."""
    return [
        (vars(module), name, copy(value))
        for module in modules
        for name, value in vars(module).items()
        if name not in _NO_SETTINGS and _is_setting(value)
    ]


def _is_setting(value: Any) -> bool:
    if type(value) in (list, dict):
        # Such as the scale of each adapter.
        return all(type(item) in _PLAIN for item in (value.values() if type(value) is dict else value))
    return type(value) in _PLAIN


def _is_same(value: Any, before: Any) -> bool:
    return type(value) is type(before) and value == before
