"""Whether a model computes what its class says, and whether it has changed since a copy of its weights was made."""

from collections.abc import Callable
from copy import deepcopy
from operator import attrgetter
from typing import Any, TypeVar

from accelerate.hooks import ModelHook
from torch import Tensor, nn

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.modeling.streams import Stream

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
_SETTINGS = frozenset({int, float, bool, str})
"""Types of the attributes of a module that change what it computes, such as `num_iterations` and `embed_scale`."""


class UnsupportedError(UserError):
    """The engine cannot do this as `generate()` does it. The message names the reason."""


class UnsupportedModelError(UnsupportedError):
    """The engine cannot decode this model as `generate()` does. The message names the reason."""


def check_plain(*modules: nn.Module) -> None:
    """Raise an UnsupportedModelError if a module has an adapter, a parametrization, a hook or a quantized weight."""
    vouched_for = _parts_of_own_streams(modules)
    for module in modules:
        name = type(module).__name__
        source = type(module).__module__
        if not f"{source}.".startswith(_KNOWN_MODULES) and module not in vouched_for:
            raise UnsupportedModelError(f"the engine does not know the module {source}.{type(module).__qualname__}")
        if any(getattr(hook, "__module__", None) != _RECORDING for hook in _hooks(module)):
            raise UnsupportedModelError(f"a {name} has a hook, or a forward of its own")
        for weight in module.parameters(recurse=False):
            if type(weight) is not nn.Parameter or weight.is_meta:
                raise UnsupportedModelError(f"a {name} has a weight that is not a plain tensor")
        if not _attends_as_known(_config_of(module)):
            raise UnsupportedModelError(f"the attention of a {name} is not one of Transformers' own")


def _parts_of_own_streams(modules: tuple[nn.Module, ...]) -> set[nn.Module]:
    """Return the streams among the modules whose class says that the engine may run them, and all their parts."""
    parts: set[nn.Module] = set()
    for module in modules:
        if isinstance(module, Stream) and module.is_positionwise:
            parts.update(module.modules())
    return parts


class Fingerprint:
    """Tells whether a model still has the modules, settings, hooks and weights that it had.

    Every sentence asks, so only what can be compared at once is compared. A write to a weight raises its version. A
    write through `.data` leaves no trace: call [`release`] after it.
    """

    def __init__(self, model: nn.Module) -> None:
        _, *parts = model.modules()
        # They are kept, so that others cannot take their places in memory. Not the model, which could never be freed.
        self._parts = parts
        self._settings = [_names_of_settings(module) for module in model.modules()]
        weights = {id(weight): weight for weight in (*model.parameters(), *model.buffers())}
        # A tensor of inference mode counts no writes. One that is made of others, as a quantized one, has no address.
        self._weights = [weight for weight in weights.values() if _is_plain(weight) and not weight.is_inference()]
        configs = {id(config): config for config in map(_config_of, model.modules())}
        self._configs = list(configs.values())
        self._state = self._state_of(model)

    def is_of(self, model: nn.Module) -> bool:
        """Whether `model` has the same modules, settings, hooks and weights as then."""
        return self._state_of(model) == self._state

    def _state_of(self, model: nn.Module) -> list[Any]:
        """Return a list that changes with the model."""
        state: list[Any] = []
        for module, names in zip((model, *self._parts), self._settings, strict=True):
            attributes = vars(module)
            # Whatever is added, such as a forward of its own, makes them more.
            state += (type(module), len(attributes))
            state += (id(attributes.get("config")), id(attributes.get("forward")))
            state += map(attributes.get, names)
            for parts in _parts_of(module):
                state += map(id, parts.values())
        state += map(Tensor.data_ptr, self._weights)
        # The number of writes, which PyTorch counts for autograd.
        state += map(_version_of, self._weights)
        for config in self._configs:
            state += (_attends_as_known(config), _scales_outputs(config))
        return state


_parts_of = attrgetter("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")
"""Returns what a module has, by name. PyTorch has no public way to ask for hooks, or for all this at once."""
_version_of = attrgetter("_version")


def _is_plain(weight: Tensor) -> bool:
    """Whether a weight has memory of its own. One that is made of others, as a quantized one, has not."""
    return type(weight) in (Tensor, nn.Parameter)


def _names_of_settings(module: nn.Module) -> list[str]:
    """Return the names of the simple values that a module has, such as `embed_scale`."""
    return [name for name, value in vars(module).items() if type(value) in _SETTINGS]


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


def _config_of(module: nn.Module) -> Any:
    return getattr(module, "config", None)


def _attends_as_known(config: Any) -> bool:
    """Whether modules with this configuration attend as those of Transformers. None is that of a module without one."""
    # Configurations have the implementation under no other name.
    return getattr(config, "_attn_implementation", None) in _ATTENTIONS


def _scales_outputs(config: Any) -> bool | None:
    """Return the only field of a configuration that changes what a forward computes, T5's."""
    return getattr(config, "scale_decoder_outputs", None)
