"""The engine behind `generate()`: `model.generate(..., custom_generate=hf_capsule_mt.decoding.generate)`."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation import EosTokenCriteria, GenerationMode, MaxLengthCriteria
from transformers.integrations import is_deepspeed_zero3_enabled, is_fsdp_managed_module
from transformers.utils import ModelOutput

from ..modeling.outputs import CACHE
from .constraints import Constraints
from .decoder_weights import UnsupportedError, UnsupportedModelError
from .engine import Engine
from .finite_scores import FiniteScores
from .precisions import check_precision
from .search import NewTokenLimits, Settings, Translation, stacked
from .stream import Source

logger = logging.getLogger(__name__)

_MAKING = RLock()
_engines: WeakKeyDictionary[PreTrainedModel, dict[str, Engine]] = WeakKeyDictionary()
_SLOW = {
    GenerationMode.GREEDY_SEARCH: "_sample",
    GenerationMode.SAMPLE: "_sample",
    GenerationMode.BEAM_SEARCH: "_beam_search",
    GenerationMode.BEAM_SAMPLE: "_beam_search",
}
_LONGEST = 1 << 20
_PENALTIES = (-2.0, 10.0)
"""Those of length that leave scores in the range of numbers, and above that of what cannot be chosen."""
# Arguments of the model that change nothing in what is written.
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

    Give it as `custom_generate`: Transformers calls it with what it has prepared. What the engine cannot do exactly,
    such as sampling, is done by Transformers, and a log line at level info says why; a warning, if it is the model
    that the engine cannot decode, or a `dtype` was asked for. Of words or translations with exactly the same score
    either may be chosen. Transformers gives no streamer and no `assistant_model` to what is called in this way: the
    models of this package refuse them, and a [`MarianMTModel`] never tells a streamer that the text has ended.

    Args:
        model: the model that decodes.
        input_ids: the start tokens, `[sentences * beams, 1]`.
        logits_processor: as prepared.
        stopping_criteria: as prepared; [`NewTokenLimits`] are known.
        generation_config: as prepared.
        dtype: precision of the engine's products; see [`Engine`]. The tokens are those of `generate()` in float32.
        **model_kwargs: as prepared: the encoder's output, and the mask of the sources.

    Raises:
        ValueError: if the mode of generation is not one that Transformers itself has, such as assisted generation,
            there is no such `dtype`, there are more or fewer limits in [`NewTokenLimits`] than sentences,
            `encoder_outputs` is not what the encoder of the model returns, or the scores of words are not finite.
    """
    check_precision(dtype)
    _check_limits(input_ids, stopping_criteria, generation_config)
    try:
        _check_asked_for(input_ids, generation_config, model_kwargs)
        _check_encoded(model_kwargs["encoder_outputs"])
        _check_words(model_kwargs.get("attention_mask"))
        engine = engine_of(model, dtype)
        settings, limits = _settings(engine, input_ids, logits_processor, stopping_criteria, generation_config)
        if max(limits) > engine.positions:
            raise UnsupportedError(
                f"translations may have {max(limits)} tokens, and there are {engine.positions} positions"
            )
    except UnsupportedError as reason:
        is_expected = dtype == "float32" and not isinstance(reason, UnsupportedModelError)
        _log_once(str(reason), logging.INFO if is_expected else logging.WARNING)
        options = {"logits_processor": logits_processor, "stopping_criteria": stopping_criteria}
        return _transformers(model, input_ids, generation_config, **options, **model_kwargs)
    encoded, mask = _once_a_sentence(model_kwargs, len(limits), settings.num_beams)
    translations = engine.translate(encoded, mask, settings, limits)
    return stacked(translations, settings.filling).to(input_ids.device)


def translate_stream(
    model: PreTrainedModel,
    sources: Iterable[Source],
    room: int = 4096,
    dtype: str = "float32",
    **generate_options: Any,
) -> Iterator[tuple[int, Translation]]:
    """Translate sentences as they come, each as `generate()` does by itself; see [`Engine.stream`].

    A translation that is cut at its limit has no end, `forced_eos_token_id` or not.

    Args:
        model: the model that decodes, in evaluation mode.
        sources: sentences with the limits of their translations.
        room: source tokens that are decoded at a time, padding included.
        dtype: precision of the products; see [`Engine`].
        **generate_options: of `generate()`, but for its limits; the generation config's where not given.

    Raises:
        UnsupportedError: before the first sentence is read, if the engine cannot do this.
        TypeError: where a sentence is read that is no [`Source`].
        ValueError: before that, if the options have a limit or there is no such `dtype`; where one is read that has no
            words, words or positions that the model lacks, or a limit that is no whole number or below 1.
    """
    engine, prepared = engine_of(model, dtype), []
    # Longer than any translation, or `forced_eos_token_id` would act on those that end there.
    limits = {"max_length": _LONGEST, "max_new_tokens": None}
    for name in limits:
        if generate_options.pop(name, None) is not None:
            raise ValueError(f"{name} is given, and each Source has a limit of its own; leave it out")

    def prepare(
        model: PreTrainedModel,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList | None = None,
        stopping_criteria: StoppingCriteriaList | None = None,
        generation_config: GenerationConfig | None = None,
        **model_kwargs: Any,
    ) -> Tensor:
        _check_asked_for(input_ids, generation_config, model_kwargs)
        if any(type(criterion) is NewTokenLimits for criterion in stopping_criteria):
            raise UnsupportedError("NewTokenLimits are given, and each Source has a limit of its own")
        prepared.append(_settings(engine, input_ids, logits_processor, stopping_criteria, generation_config)[0])
        return input_ids

    word = torch.zeros((1, 1), dtype=torch.long, device=model.device)
    model.generate(input_ids=word, **limits, **generate_options, custom_generate=prepare)
    [settings] = prepared
    if settings.num_beams > 1 and settings.early_stopping == "never" and settings.length_penalty > 0:
        raise UnsupportedError("what early_stopping='never' finds depends on the longest translation of a batch")
    return engine.stream(sources, settings, room)


def engine_of(model: PreTrainedModel, dtype: str = "float32") -> Engine:
    """Return an engine for a model: the one made before in this precision, unless a weight or a setting has changed.

    Raises:
        UnsupportedModelError: if the engine cannot decode this model.
        ValueError: if there is no such precision.
    """
    if any(module.training for module in model.modules()):
        raise UnsupportedModelError("the model, or a part of it, is in training mode")
    with _MAKING:
        if not all(engine.is_of(model) for engine in _engines.get(model, {}).values()):
            # Not those of old and of new weights at a time.
            release(model)
        engines = _engines.setdefault(model, {})
        if dtype not in engines:
            engines[dtype] = Engine(model, dtype)
        return engines[dtype]


def release(model: PreTrainedModel) -> None:
    """Free the engines of a model; the next call of [`generate`] makes another.

    Call it after writing some rows of a large weight through `.data`, which can be missed.
    """
    with _MAKING:
        _engines.pop(model, None)


def _check_asked_for(input_ids: Tensor, config: GenerationConfig, model_kwargs: Mapping[str, Any]) -> None:
    mode = config.get_generation_mode(None)
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.BEAM_SEARCH):
        raise UnsupportedError(f"the mode of generation is {mode.value}")
    if config.return_dict_in_generate:
        raise UnsupportedError("return_dict_in_generate asks for more than tokens")
    if torch.is_autocast_enabled(input_ids.device.type):
        raise UnsupportedError("autocast is on")
    if input_ids.shape[1] != 1:
        raise UnsupportedError("the translations have a prefix")
    if config._eos_token_tensor is None:
        raise UnsupportedError("there is no eos_token_id")
    if config.low_memory or config.prefill_chunk_size is not None:
        raise UnsupportedError("low_memory or prefill_chunk_size is set")
    for name, value in model_kwargs.items():
        if name not in _READ and value is not None and value is not False:
            raise UnsupportedError(f"the model is given {name}")
    past = model_kwargs.get(CACHE)
    if past is not None and (past.get_seq_length() or getattr(past, "_is_user_defined", False)):
        raise UnsupportedError(f"{CACHE} is given")


def _check_limits(input_ids: Tensor, criteria: StoppingCriteriaList | None, config: GenerationConfig) -> None:
    # Transformers has repeated each sentence as often.
    rows = max(config.num_beams or 1, config.num_return_sequences or 1)
    for criterion in criteria or ():
        if type(criterion) is NewTokenLimits:
            criterion.check(len(input_ids) // rows)


def _check_encoded(encoded: Any) -> None:
    # From the caller, who may have called the encoder with return_dict=False.
    if not isinstance(encoded, ModelOutput):
        raise UnsupportedError(f"encoder_outputs is a {type(encoded).__name__}")


def _check_words(mask: Tensor | None) -> None:
    # What attention makes of no words depends on its implementation.
    if mask is not None and not mask.any(-1).all():
        raise UnsupportedError("a source has no words")


def _settings(
    engine: Engine,
    input_ids: Tensor,
    processors: LogitsProcessorList,
    criteria: StoppingCriteriaList,
    config: GenerationConfig,
) -> tuple[Settings, list[int]]:
    """The settings of the search, and the limits to the new tokens of every sentence."""
    sentences = input_ids.shape[0] // config.num_beams
    max_length = _max_length(criteria, config)
    limits = [max_length - 1] * sentences
    for criterion in criteria:
        if type(criterion) is NewTokenLimits:
            # Of the one token that they all begin with, the limits may count more or less.
            own = criterion.limits + criterion.prefix_length - 1
            limits = list(map(min, limits, own.expand(sentences).tolist()))
    if min(limits) < 1:
        raise UnsupportedError("there are no new tokens to write")
    if config.num_beams > 1 and not _PENALTIES[0] <= config.length_penalty <= _PENALTIES[1]:
        raise UnsupportedError(f"length_penalty is {config.length_penalty}")
    start = input_ids[:, 0].unique()
    if len(start) > 1:
        raise UnsupportedError("the translations begin with different tokens")
    try:
        constraints = Constraints(processors, engine.num_target_words, engine.device)
    except ValueError as error:
        raise UnsupportedError(str(error)) from None
    return Settings(
        constraints=constraints,
        start=int(start),
        eos=config._eos_token_tensor.cpu(),
        pad=int(config._pad_token_tensor),
        max_length=max_length,
        num_beams=config.num_beams,
        num_return_sequences=config.num_return_sequences,
        length_penalty=config.length_penalty,
        early_stopping=config.early_stopping,
    ), limits


def _max_length(criteria: StoppingCriteriaList, config: GenerationConfig) -> int:
    """The longest that a translation can be, the start token included; checks that all criteria are known."""
    ends = []
    for criterion in criteria:
        if type(criterion) is EosTokenCriteria:
            ends.append(torch.equal(criterion.eos_token_id.cpu(), config._eos_token_tensor.cpu()))
        elif type(criterion) is MaxLengthCriteria and criterion.max_length != config.max_length:
            raise UnsupportedError("a MaxLengthCriteria differs from max_length")
        elif type(criterion) not in (MaxLengthCriteria, NewTokenLimits):
            raise UnsupportedError(f"the stopping criterion {type(criterion).__name__}")
    if not ends or not all(ends) or config.max_length is None:
        raise UnsupportedError("an EosTokenCriteria differs from eos_token_id, or there is no max_length")
    return config.max_length


def _once_a_sentence(
    model_kwargs: Mapping[str, Any], sentences: int, num_beams: int
) -> tuple[ModelOutput, Tensor | None]:
    """The encoder's output and the mask of the sources, which Transformers has repeated for every beam."""
    encoded, mask = model_kwargs["encoder_outputs"], model_kwargs.get("attention_mask")
    if num_beams > 1:
        tensors = {name: value for name, value in encoded.items() if isinstance(value, Tensor)}
        encoded = type(encoded)(**{name: value[::num_beams] for name, value in tensors.items()})
        mask = None if mask is None else mask[::num_beams]
    return encoded, mask


def _transformers(
    model: PreTrainedModel,
    input_ids: Tensor,
    config: GenerationConfig,
    logits_processor: LogitsProcessorList | None,
    **kwargs: Any,
) -> Any:
    mode = config.get_generation_mode(None)
    if mode not in _SLOW:
        raise ValueError(
            f"custom_generate is called in the mode {mode.value!r}, which it cannot do; call generate() without it"
        )
    scores = FiniteScores(model)
    # Before what changes scores, so that it sees the model's own.
    processors = LogitsProcessorList([scores, *(logits_processor or ())])
    search = getattr(type(model), _SLOW[mode])
    # As generate() has it, which keeps it from who is called in its place: ranks that are done wait for the others.
    shared = is_deepspeed_zero3_enabled() or is_fsdp_managed_module(model)
    kwargs["synced_gpus"] = shared and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
    found = search(model, input_ids, generation_config=config, logits_processor=processors, **kwargs)
    scores.check()
    return found


@cache
def _log_once(reason: str, level: int) -> None:
    logger.log(level, "Transformers decodes, not the engine: %s", reason)
