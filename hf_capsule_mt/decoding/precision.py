"""How the engine multiplies, by what is asked, what the device has, and what the weights are.

| asked | weights | the engine multiplies |
| --- | --- | --- |
| auto, float32, float16 | float32 | in float32 |
| auto, float32, float16 | 16 bits | as they are where that is fast, otherwise Transformers decodes |
| bfloat16 | any that the engine reads | in bfloat16 |
| int8 | any that the engine reads, on a CPU | in int8, as the [`Int8Choice`] says |

Weights that are loaded for bfloat16 or int8 stay in the dtype of their file where its products are fast. Otherwise they
become float32. Where only Transformers decodes, they become bfloat16, and int8 is refused.
"""

import logging
from functools import partial

import torch
from torch import nn
from transformers import PreTrainedModel

from hf_capsule_mt.errors import UserError

from .fingerprint import UnsupportedModelError
from .models import ADAPTERS
from .models.base import Adapter
from .products.int8 import Int8Choice, int8_choice
from .products.products import (
    HALVES,
    HalfProduct,
    Make,
    bfloat16_map,
    int8_map,
    multiplies_bfloat16,
    plain_map,
)

logger = logging.getLogger(__name__)

PRECISIONS: dict[str, Make] = {"float32": plain_map, "bfloat16": bfloat16_map, "int8": int8_map}
"""How products are made of weights in float32 for an engine of a `dtype`."""
ENGINE_DTYPES = ("bfloat16", "int8")
"""Those that the engine makes itself, from weights in another dtype."""


def name_of(dtype: str | torch.dtype | None) -> str:
    """Return the name of a precision, such as "int8" of `torch.int8`. None is "auto"."""
    if dtype is None:
        return "auto"
    return str(dtype).removeprefix("torch.")


def is_of_engine(dtype: str | torch.dtype | None, engine: str | None = None) -> bool:
    """Return whether the engine makes a precision itself.

    Args:
        dtype: the precision that is asked for.
        engine: "transformers" if `generate()` computes. None is the default, "fast".
    """
    return name_of(dtype) in ENGINE_DTYPES and engine != "transformers"


def check_asked(dtype: str | torch.dtype | None, engine: str | None = None) -> None:
    """Raise a UserError if int8 is asked for, and not of the engine. The arguments are those of [`is_of_engine`]."""
    if name_of(dtype) == "int8" and not is_of_engine(dtype, engine):
        raise _no_int8("Here Transformers computes.")


def dtype_to_load(dtype: str | torch.dtype | None, engine: str | None = None) -> str | torch.dtype | None:
    """Return the dtype in which weights are read, before [`fit_weights`]. The arguments are those of [`is_of_engine`].

    Weights in 16 bits would take twice the memory in float32.

    Raises:
        UserError: if int8 is asked for, and not of the engine.
    """
    check_asked(dtype, engine)
    return "auto" if is_of_engine(dtype, engine) else dtype


def fit_weights(
    model: PreTrainedModel, device: torch.device, dtype: str | torch.dtype | None, engine: str | None = None
) -> None:
    """Convert weights that were loaded in [`dtype_to_load`], for what decodes with them.

    Args:
        model: has the weights. They are changed.
        device: where it will decode.
        dtype: the precision that is asked for.
        engine: as in [`is_of_engine`].

    Raises:
        UserError: as [`engine_dtype`] does.
    """
    name = name_of(dtype)
    if name == "auto" and device.type == "cpu" and model.dtype in HALVES:
        logger.warning("%s is in %s. On a CPU it computes in float32.", model.name_or_path, model.dtype)
        model.float()
    if is_of_engine(name, engine):
        takes_half = multiplies_as_they_are(model.dtype, device) and _decodes(model, device, name)
        if not takes_half:
            model.float()
    if name in ENGINE_DTYPES and engine_dtype(model, device, name, engine) != name:
        model.to(getattr(torch, name))


def engine_dtype(
    model: PreTrainedModel, device: torch.device, dtype: str | torch.dtype | None, engine: str | None = None
) -> str:
    """Return the `dtype` of the engine for a precision that is asked for. The weights are fit, or a user's own.

    The arguments are those of [`fit_weights`].

    Raises:
        UserError: if int8 is asked of a model, a device or an engine that it is not for.
    """
    check_asked(dtype, engine)
    name = name_of(dtype)
    if not is_of_engine(name, engine):
        return "float32"
    if _decodes(model, device, name):
        return name
    if name == "int8":
        raise _no_int8(f"{model.name_or_path or 'The model'} is a {type(model).__name__} on {device}.")
    return "float32"


def make_of(model: PreTrainedModel, dtype: str, choice: Int8Choice | None = None) -> Make:
    """Return what makes the products of an engine.

    Args:
        model: has the weights.
        dtype: a key of `PRECISIONS`. If it is "float32", weights in 16 bits are multiplied as they are.
        choice: how products in int8 are computed. None: as they are fastest here.

    Raises:
        UnsupportedModelError: if products of the weights as they are would be slow.
        UserError: if there is no such precision on the device, or this machine lacks the chosen products in int8.
    """
    weights = model.dtype
    device = model.device
    if dtype not in precisions_on(device):
        names = ", ".join(precisions_on(device))
        raise UserError(f"The engine has no dtype {dtype!r} on {device}. It has {names}.")
    if dtype == "int8":
        choice = choice or int8_choice()
        choice.check()
        return partial(int8_map, choice=choice)
    if weights not in HALVES:
        return PRECISIONS[dtype]
    if dtype == "float32" and not multiplies_as_they_are(weights, device):
        raise UnsupportedModelError(f"products of weights in {weights} are slow on {device}")
    if device.type == "cuda" and (dtype == "float32" or weights == torch.bfloat16):
        return HalfProduct
    return bfloat16_map


def adapter_for(model: nn.Module) -> type[Adapter]:
    """Return the adapter that decodes a model.

    Raises:
        UnsupportedModelError: if there is none for the model, its device or its precision.
    """
    for adapter in ADAPTERS:
        if type(model) in adapter.models:
            break
    else:
        raise UnsupportedModelError(f"the engine does not know the model {type(model).__name__}")
    kinds = {(parameter.dtype, parameter.device) for parameter in model.parameters()}
    devices = {device for _, device in kinds}
    known = {torch.float32}
    if type(model) in adapter.models_in_half:
        # T5 in float16 has some weights in float32.
        known.add(model.dtype if model.dtype in HALVES else torch.float32)
    are_known = all(dtype in known for dtype, _ in kinds)
    if not are_known or len(devices) > 1 or not precisions_on(model.device):
        names = ", ".join(f"{dtype} on {device}" for dtype, device in sorted(kinds, key=str))
        raise UnsupportedModelError(f"the weights are {names}: the engine needs float32, on a CPU or one CUDA device")
    return adapter


def precisions_on(device: torch.device) -> list[str]:
    """Return the precisions of engines on a device, or none if there are no engines."""
    if device.type == "cpu":
        return list(PRECISIONS)
    if device.type == "cuda":
        return [name for name in PRECISIONS if name != "int8"]
    return []


def multiplies_as_they_are(weights: torch.dtype, device: torch.device) -> bool:
    """Return whether products of a device with weights in 16 bits are fast, so that they need not become float32."""
    if device.type == "cuda":
        return weights in HALVES
    return weights == torch.bfloat16 and multiplies_bfloat16(device)


def _decodes(model: PreTrainedModel, device: torch.device, dtype: str) -> bool:
    """Return whether the engine decodes a model with its weights on a device in a precision."""
    if dtype not in precisions_on(device):
        return False
    try:
        adapter_for(model)
    except UnsupportedModelError:
        return False
    return True


def _no_int8(reason: str) -> UserError:
    return UserError(
        f"dtype int8 needs a CPU, engine fast, and a model that this engine knows. {reason} Use float32 or bfloat16."
    )
