"""The engine behind `generate()`: `model.generate(..., custom_generate=hf_capsule_mt.decoding.generate)`."""

import math
import os
from collections.abc import Mapping
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation import EosTokenCriteria, GenerationMode, MaxLengthCriteria
from transformers.integrations import is_deepspeed_zero3_enabled, is_fsdp_managed_module
from transformers.utils import ModelOutput, logging

from hf_capsule_mt.errors import UserError

from ..modeling.outputs import CACHE
from .constraints import Constraints, NewTokenLimits
from .engine import Engine
from .fingerprint import UnsupportedError, UnsupportedModelError
from .search import Settings
from .vocabulary import FiniteScores

logger = logging.get_logger(__name__)

_MAKING = RLock()
"""Held while an engine is looked up or made."""


def _renew_lock() -> None:
    global _MAKING
    _MAKING = RLock()


# The thread that holds the lock does not exist in a forked process, so nobody would ever release it there.
os.register_at_fork(after_in_child=_renew_lock)

_engines: WeakKeyDictionary[PreTrainedModel, dict[str, Engine]] = WeakKeyDictionary()
_SLOW = {
    GenerationMode.GREEDY_SEARCH: "_sample",
    GenerationMode.SAMPLE: "_sample",
    GenerationMode.BEAM_SEARCH: "_beam_search",
    GenerationMode.BEAM_SAMPLE: "_beam_search",
}
_PENALTIES = (-2.0, 10.0)
"""Length penalties that leave scores in the range of numbers, and above the score of what cannot be chosen."""
# Arguments of the model that do not change the translation.
_READ = {"encoder_outputs", "attention_mask", CACHE, "use_cache", "labels"}


def generate(
    model: PreTrainedModel,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList | None = None,
    stopping_criteria: StoppingCriteriaList | None = None,
    generation_config: GenerationConfig | None = None,
    dtype: str = "float32",
    **model_kwargs: Any,
) -> Any:
    """Decode greedily or by beam search, to the tokens that `generate()` finds without this argument.

    Give it as `custom_generate`: Transformers calls it with what it has prepared. Transformers does what the engine
    cannot do exactly, such as sampling, and a log line at level info says why. It is a warning if the model is the
    reason, or a `dtype` was asked for. Where two tokens or translations have exactly the same score,
    either may be chosen. Transformers gives a `custom_generate` no streamer and no `assistant_model`.

    Args:
        model: the model that decodes. The arguments that are not named here are as `generate()` prepares them.
        input_ids: the start tokens, `[sentences * beams, 1]`.
        stopping_criteria: as prepared. [`NewTokenLimits`] are known.
        dtype: precision of the engine's products, as in [`Engine`]. The tokens are those of `generate()` in float32.

    Raises:
        UserError: if Transformers itself does not have the mode of generation, as with assisted generation, there is
            no such `dtype`, or the scores of tokens are not finite.
    """
    _check_length_penalty(generation_config)
    # Transformers has repeated each sentence as often.
    sentences = len(input_ids) // max(generation_config.num_beams or 1, generation_config.num_return_sequences or 1)
    limits = [each.of(sentences) for each in stopping_criteria or () if type(each) is NewTokenLimits]
    try:
        _check_asked_for(input_ids, generation_config, model_kwargs)
        engine = engine_of(model, dtype)
        settings = _settings(engine, input_ids, logits_processor, stopping_criteria, generation_config)
        limits = list(map(min, zip([settings.max_length - 1] * sentences, *limits)))
        if not 1 <= min(limits) <= max(limits) <= engine.positions:
            raise UnsupportedError(f"translations may have {min(limits)} to {max(limits)} tokens")
    except UnsupportedError as reason:
        is_expected = dtype == "float32" and not isinstance(reason, UnsupportedModelError)
        say = logger.info_once if is_expected else logger.warning_once
        say(f"Transformers decodes, not the engine: {reason}")
        options = {"logits_processor": logits_processor, "stopping_criteria": stopping_criteria}
        return _transformers(model, input_ids, generation_config, **options, **model_kwargs)
    encoded, mask = model_kwargs["encoder_outputs"], model_kwargs.get("attention_mask")
    if settings.num_beams > 1:
        # Transformers has repeated them for every beam.
        tensors = {name: value for name, value in encoded.items() if isinstance(value, Tensor)}
        encoded = type(encoded)(**{name: value[:: settings.num_beams] for name, value in tensors.items()})
        mask = None if mask is None else mask[:: settings.num_beams]
    rows = [row for found in engine.translate(encoded, mask, settings, limits) for row in found.sequences]
    return pad_sequence(rows, batch_first=True, padding_value=settings.filling).to(input_ids.device)


def engine_of(model: PreTrainedModel, dtype: str = "float32") -> Engine:
    """Return an engine for a model: the one made before in this precision, unless a weight has changed.

    Raises:
        UnsupportedModelError: if the engine cannot decode this model.
        UserError: if there is no such precision on its device.
    """
    with _MAKING:
        if any(module.training for module in model.modules()):
            # Whoever trains it may write to weights in a way that leaves no trace.
            release(model)
            raise UnsupportedModelError("the model, or a part of it, is in training mode")
        if not all(engine.is_of(model) for engine in _engines.get(model, {}).values()):
            release(model)
        engines = _engines.setdefault(model, {})
        if dtype not in engines:
            engines[dtype] = Engine(model, dtype)
        return engines[dtype]


def release(model: PreTrainedModel) -> None:
    """Free the engines of a model. The next call of [`generate`] makes another.

    Call it after writing to weights through `.data`, or changing a setting of a module, which are not noticed.
    """
    with _MAKING:
        _engines.pop(model, None)


def _check_length_penalty(config: GenerationConfig) -> None:
    """Raise a UserError if beam search cannot divide by the length to the power of the penalty."""
    penalty = config.length_penalty
    if (config.num_beams or 1) == 1 or penalty is None:
        return
    try:
        divisor = float(config.max_length) ** penalty
    except OverflowError:
        divisor = math.inf
    # Transformers would compare scores that are no numbers, and choose any translation.
    if not 0 < divisor < math.inf:
        raise UserError(f"length_penalty is {penalty}. Give a number from {_PENALTIES[0]:g} to {_PENALTIES[1]:g}.")


def _check_asked_for(input_ids: Tensor, config: GenerationConfig, model_kwargs: Mapping[str, Any]) -> None:
    """Raise an UnsupportedError for the first reason not to decode with the engine."""
    mode, past = config.get_generation_mode(None), model_kwargs.get(CACHE)
    encoded, mask = model_kwargs["encoder_outputs"], model_kwargs.get("attention_mask")
    given = [
        name for name, value in model_kwargs.items() if name not in _READ and value is not None and value is not False
    ]
    is_beam_search = mode == GenerationMode.BEAM_SEARCH
    penalty = config.length_penalty
    reasons = {
        f"the mode of generation is {mode.value}": not (is_beam_search or mode == GenerationMode.GREEDY_SEARCH),
        "return_dict_in_generate asks for more than tokens": config.return_dict_in_generate,
        "autocast is on": torch.is_autocast_enabled(input_ids.device.type),
        "the translations have a prefix": input_ids.shape[1] != 1,
        "the translations begin with different tokens": bool((input_ids != input_ids[0, 0]).any()),
        "there is no eos_token_id": config._eos_token_tensor is None,
        f"the model is given {', '.join(given)}": given,
        f"{CACHE} is given": past is not None and (past.get_seq_length() or getattr(past, "_is_user_defined", False)),
        f"length_penalty is {penalty}": is_beam_search and not _PENALTIES[0] <= penalty <= _PENALTIES[1],
        # From a caller who has called the encoder with return_dict=False.
        f"encoder_outputs is a {type(encoded).__name__}": not isinstance(encoded, ModelOutput),
        # Implementations of attention differ where there are no tokens.
        "a source has no tokens": mask is not None and not mask.any(-1).all(),
    }
    for reason, holds in reasons.items():
        if holds:
            raise UnsupportedError(reason)


def _settings(
    engine: Engine,
    input_ids: Tensor,
    processors: LogitsProcessorList,
    criteria: StoppingCriteriaList,
    config: GenerationConfig,
) -> Settings:
    """Return the settings of the search, if the engine knows all criteria and processors."""
    eos = config._eos_token_tensor.cpu()
    for criterion in criteria:
        known = {
            EosTokenCriteria: lambda each: torch.equal(each.eos_token_id.cpu(), eos),
            MaxLengthCriteria: lambda each: each.max_length == config.max_length,
            NewTokenLimits: lambda each: True,
        }
        if not known.get(type(criterion), lambda each: False)(criterion):
            raise UnsupportedError(f"the engine does not know the stopping criterion {type(criterion).__name__}")
    return Settings(
        constraints=Constraints(processors, engine.vocabulary.size, engine.vocabulary.device),
        start=int(input_ids[0, 0]),
        eos=eos,
        pad=int(config._pad_token_tensor),
        max_length=config.max_length,
        num_beams=config.num_beams,
        num_return_sequences=config.num_return_sequences,
        length_penalty=config.length_penalty,
        early_stopping=config.early_stopping,
    )


def _transformers(
    model: PreTrainedModel,
    input_ids: Tensor,
    config: GenerationConfig,
    logits_processor: LogitsProcessorList | None,
    **kwargs: Any,
) -> Any:
    mode = config.get_generation_mode(None)
    if mode not in _SLOW:
        raise UserError(f"custom_generate does not know the mode {mode.value!r}. Call generate() without it.")
    scores = FiniteScores(model)
    # Before what changes scores, so that it sees the model's own.
    processors = LogitsProcessorList([scores, *(logits_processor or ())])
    search = getattr(type(model), _SLOW[mode])
    # As generate() sets it for its own loops: ranks that are done wait for the others.
    shared = is_deepspeed_zero3_enabled() or is_fsdp_managed_module(model)
    kwargs["synced_gpus"] = shared and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
    found = search(model, input_ids, generation_config=config, logits_processor=processors, **kwargs)
    scores.check()
    return found
