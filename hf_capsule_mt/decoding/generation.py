"""The engine behind `generate()`: `model.generate(..., custom_generate=hf_capsule_mt.decoding.generate)`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteria, StoppingCriteriaList
from transformers.generation import (
    EosTokenCriteria,
    GenerateBeamEncoderDecoderOutput,
    GenerationMode,
    MaxLengthCriteria,
)
from transformers.generation.utils import GENERATION_MODES_MAPPING
from transformers.integrations import is_deepspeed_zero3_enabled, is_fsdp_managed_module
from transformers.utils import ModelOutput, logging

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.modeling.transformers_versions import CACHE

from .engine import Engine, engine_of
from .fingerprint import UnsupportedError, UnsupportedModelError
from .products.int8 import Int8Choice
from .products.products import HALVES
from .products.vocabulary import FiniteScores
from .search.constraints import Constraints, NewTokenLimits
from .search.search import DecodedTokens, Settings
from .search.term_automaton import Forms
from .search.term_banks import TermBanks, default_bank_width

logger = logging.get_logger(__name__)

_MODES_OF_TRANSFORMERS = (
    GenerationMode.GREEDY_SEARCH,
    GenerationMode.SAMPLE,
    GenerationMode.BEAM_SEARCH,
    GenerationMode.BEAM_SAMPLE,
)
"""Modes that can be left to Transformers. Others need what it does not give to a `custom_generate`."""
_LEAST_PENALTY = -2.0
"""The least length penalty that leaves scores above the score of what cannot be chosen."""
_LARGEST_PENALTY = 10.0
"""The largest length penalty that leaves scores in the range of numbers."""
_HARMLESS_ARGUMENTS = {"encoder_outputs", "attention_mask", CACHE, "use_cache", "labels"}
"""Arguments of the model that do not change the translation, or that the engine reads."""


def generate(
    model: PreTrainedModel,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList | None = None,
    stopping_criteria: StoppingCriteriaList | None = None,
    generation_config: GenerationConfig | None = None,
    dtype: str = "float32",
    terms: Sequence[Sequence[Forms]] | None = None,
    return_scores: bool = False,
    **model_kwargs: Any,
) -> Any:
    """Decode greedily or by beam search, to the tokens that `generate()` finds without this argument.

    Give it as `custom_generate`: Transformers calls it with what it has prepared. Transformers does what the engine
    cannot do exactly, such as sampling, and a log line at level info says why. It is a warning if the model is the
    reason, or a `dtype` was asked for. Where two tokens or translations have exactly the same score,
    either may be chosen. Transformers gives a `custom_generate` no streamer and no `assistant_model`.

    Args:
        model: the model that decodes.
        input_ids: the start tokens, `[sentences * beams, 1]`.
        logits_processor: as `generate()` prepares them, as are all arguments but the first and `dtype`.
        stopping_criteria: the engine also knows [`NewTokenLimits`].
        generation_config: the settings of the call.
        dtype: precision of the engine's products, as in [`Engine`]. The tokens are those of `generate()` in float32,
            but for the rounding of what is multiplied in fewer bits.
        terms: what the translation of each sentence must have: for each sentence its terms, for each term its forms,
            for each form its token ids. `force_words_ids` of `generate()` is the same for all sentences.
        return_scores: whether the engine returns an object with `sequences` and `sequences_scores`, not only token ids.
            Greedy search has no scores. Where Transformers decodes, it returns what `generation_config` says.
        model_kwargs: the encoder's output, and other arguments of the model.

    Returns:
        Token ids with the start tokens, `[sentences * translations, length]`, or what Transformers returns.
        A translation without all terms comes last. It is only there if they have no room. If a search with terms finds
        fewer than were asked for, the last one is repeated.

    Raises:
        UserError: if there are terms and the engine cannot decode, or a form of a term has no tokens. Also if
            Transformers itself does not have the mode of generation, as with assisted generation, there is no such
            `dtype`, `length_penalty` is not finite, or the scores of tokens are not finite.
    """
    sentences = len(input_ids) // max(1, generation_config.num_beams or 1)
    terms = _terms_of(terms, generation_config, sentences)
    prepared = {
        "input_ids": input_ids,
        "logits_processor": logits_processor,
        "stopping_criteria": stopping_criteria,
        "generation_config": generation_config,
    }
    try:
        engine, settings = search_settings(model, **prepared, dtype=dtype, **model_kwargs)
        limits = _limits(engine, len(input_ids), stopping_criteria, generation_config)
        if terms is not None and settings.constraints.shortlist is not None:
            raise UnsupportedError("a shortlist may lack the words of a term")
    except UnsupportedError as reason:
        if terms is not None:
            raise UserError(f"Only the engine writes terms, and it cannot decode here: {reason}.") from reason
        is_expected = dtype == "float32" and not isinstance(reason, UnsupportedModelError)
        log = logger.info_once if is_expected else logger.warning_once
        log(f"Transformers decodes, not the engine: {reason}")
        if "encoder_outputs" in model_kwargs:
            model_kwargs["encoder_outputs"] = _in_dtype(model_kwargs["encoder_outputs"], model.dtype)
        return _transformers(model, **prepared, **model_kwargs)
    encoded = model_kwargs["encoder_outputs"]
    mask = model_kwargs.get("attention_mask")
    # Transformers has repeated the source of each sentence for every beam. The engine reads it once.
    encoded = _every_nth_row(encoded, settings.num_beams)
    if mask is not None:
        mask = mask[:: settings.num_beams]
    banks = None
    if terms is not None:
        # A bank is as wide as the number of translations that it returns, or more.
        width = max(default_bank_width(settings.num_beams), settings.num_return_sequences)
        banks = TermBanks.of(terms, width)
    translations = engine.translate(encoded, mask, settings, limits, banks)
    output = _output_of(translations, settings, input_ids.device)
    return output if return_scores else output.sequences


def search_settings(
    model: PreTrainedModel,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    *,
    dtype: str,
    int8_choice: Int8Choice | None = None,
    **model_kwargs: Any,
) -> tuple[Engine, Settings]:
    """Return the engine, and the settings of its search, for a call of `generate()`, which gives what it has prepared.

    As `custom_generate` it says once what many searches with the same options need.

    Args:
        model: the model that decodes.
        input_ids: the start tokens, `[sentences * beams, 1]`.
        logits_processor: as `generate()` prepares them, as are the next two.
        stopping_criteria: the engine also knows [`NewTokenLimits`].
        generation_config: the settings of the call.
        dtype: precision of the engine's products, as in [`Engine`].
        int8_choice: how products in int8 are computed.
        model_kwargs: the encoder's output, and other arguments of the model.

    Raises:
        UnsupportedError: if the engine cannot do exactly what is asked for.
        UserError: if `length_penalty` is not finite, or there is no such `dtype`.
    """
    _check_length_penalty(generation_config)
    _check_asked_for(input_ids, generation_config, model_kwargs)
    engine = engine_of(model, dtype, int8_choice)
    if engine.needs_cache and model_kwargs.get("use_cache") is False:
        raise UnsupportedError("use_cache is False")
    return engine, _settings(engine, input_ids, logits_processor, stopping_criteria, generation_config)


def _output_of(
    translations: Sequence[DecodedTokens], settings: Settings, device: torch.device
) -> GenerateBeamEncoderDecoderOutput:
    """Return translations, each with so many sequences as were asked for, in the form of Transformers."""
    rows: list[Tensor] = []
    scores: list[Tensor] = []
    for translation in translations:
        rows += _as_many(translation.sequences, settings.num_return_sequences)
        if translation.scores is not None:
            scores += _as_many(translation.scores, settings.num_return_sequences)
    sequences = pad_sequence(rows, batch_first=True, padding_value=settings.filling)
    # Greedy search has none.
    sequences_scores = torch.stack(scores).to(device) if scores else None
    return GenerateBeamEncoderDecoderOutput(sequences=sequences.to(device), sequences_scores=sequences_scores)


def _as_many(best_first: Tensor, count: int) -> list[Tensor]:
    """Return as many rows as were asked for. A search for terms may end with fewer, so the last one is repeated."""
    rows = list(best_first)[:count]
    missing = count - len(rows)
    return rows + [rows[-1]] * missing


def _in_dtype(encoded: Any, dtype: torch.dtype) -> Any:
    """Return an encoder's output in the dtype of weights in 16 bits. The engine's encoder returns float32."""
    if dtype not in HALVES or not isinstance(encoded, ModelOutput):
        return encoded
    converted = {}
    for name, value in encoded.items():
        is_float = isinstance(value, Tensor) and value.is_floating_point()
        converted[name] = value.to(dtype) if is_float else value
    return type(encoded)(**converted)


def _terms_of(
    terms: Sequence[Sequence[Forms]] | None, config: GenerationConfig, sentences: int
) -> Sequence[Sequence[Forms]] | None:
    """Return the terms of every sentence, from the argument or from `force_words_ids`. None: there are none."""
    if config.constraints is not None:
        raise UserError("The engine does not know constraints. Give force_words_ids, with the token ids of words.")
    if config.force_words_ids is not None:
        terms = [[_forms_of(words) for words in config.force_words_ids]] * sentences
    if terms is None:
        return None
    if len(terms) != sentences:
        raise UserError(f"There are {sentences} sentences, but terms of {len(terms)}. Give a list for each sentence.")
    for terms_of_sentence in terms:
        for forms in terms_of_sentence:
            if not all(forms):
                raise UserError("A form of a term has no tokens.")
    return terms


def _forms_of(words: Sequence[int] | Sequence[Sequence[int]]) -> Forms:
    """Return the forms of an entry of `force_words_ids`: the tokens of one word, or those of several to choose from."""
    if isinstance(words[0], int):
        return [words]
    return words


def _every_nth_row(encoded: ModelOutput, n: int) -> ModelOutput:
    """Return the encoder's output for every nth row of the batch."""
    tensors = {name: value[::n] for name, value in encoded.items() if isinstance(value, Tensor)}
    return type(encoded)(**tensors)


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
        raise UserError(f"length_penalty is {penalty}. Give a number from {_LEAST_PENALTY:g} to {_LARGEST_PENALTY:g}.")


def _check_asked_for(input_ids: Tensor, config: GenerationConfig, model_kwargs: Mapping[str, Any]) -> None:
    """Raise an UnsupportedError for the first reason not to decode with the engine.

    Args:
        input_ids: what the translations begin with, `[rows, length]`.
        config: the settings of the call.
        model_kwargs: the arguments of the model.
    """
    mode = config.get_generation_mode(None)
    if mode not in (GenerationMode.BEAM_SEARCH, GenerationMode.GREEDY_SEARCH, GenerationMode.CONSTRAINED_BEAM_SEARCH):
        raise UnsupportedError(f"the mode of generation is {mode.value}")
    if config.return_dict_in_generate:
        raise UnsupportedError("return_dict_in_generate asks for more than tokens")
    if torch.is_autocast_enabled(input_ids.device.type):
        raise UnsupportedError("autocast is on")
    if input_ids.shape[1] != 1:
        raise UnsupportedError("the translations have a prefix")
    if (input_ids != input_ids[0, 0]).any():
        raise UnsupportedError("the translations begin with different tokens")
    if config.eos_token_id is None or torch.as_tensor(config.eos_token_id).numel() == 0:
        raise UnsupportedError("there is no eos_token_id")
    penalty = config.length_penalty
    if mode != GenerationMode.GREEDY_SEARCH and not _LEAST_PENALTY <= penalty <= _LARGEST_PENALTY:
        raise UnsupportedError(f"length_penalty is {penalty}")
    _check_arguments(model_kwargs)


def _check_arguments(model_kwargs: Mapping[str, Any]) -> None:
    """Raise an UnsupportedError if the model is given something that the engine does not read."""
    names = []
    for name, value in model_kwargs.items():
        if name not in _HARMLESS_ARGUMENTS and value is not None and value is not False:
            names.append(name)
    if names:
        raise UnsupportedError(f"the model is given {', '.join(names)}")
    past = model_kwargs.get(CACHE)
    # Only this mark tells a cache of the caller, who reads it afterwards, from the one that Transformers has made.
    if past is not None and (past.get_seq_length() or getattr(past, "_is_user_defined", False)):
        raise UnsupportedError(f"{CACHE} is given")
    encoded = model_kwargs["encoder_outputs"]
    # From a caller who has called the encoder with return_dict=False.
    if not isinstance(encoded, ModelOutput):
        raise UnsupportedError(f"encoder_outputs is a {type(encoded).__name__}")
    mask = model_kwargs.get("attention_mask")
    # Implementations of attention differ where there are no tokens.
    if mask is not None and not mask.any(-1).all():
        raise UnsupportedError("a source has no tokens")


def _settings(
    engine: Engine,
    input_ids: Tensor,
    processors: LogitsProcessorList,
    criteria: StoppingCriteriaList,
    config: GenerationConfig,
) -> Settings:
    """Return the settings of the search, if the engine knows all criteria and processors.

    Args:
        engine: the engine that will decode.
        input_ids: the start tokens, `[rows, 1]`.
        processors: the logits processors of the call.
        criteria: its stopping criteria.
        config: its settings.

    Raises:
        UnsupportedError: if the engine does not know one of them.
    """
    eos = torch.as_tensor(config.eos_token_id).flatten().cpu()
    for criterion in criteria:
        if not _is_known(criterion, eos, config.max_length):
            raise UnsupportedError(f"the engine does not know the stopping criterion {type(criterion).__name__}")
    constraints = Constraints(processors, engine.vocabulary.size, engine.vocabulary.device)
    shortlist = constraints.shortlist
    # So many candidates are compared. With fewer tokens, some of them would be the same.
    candidates = max(2, 1 + len(eos)) * config.num_beams
    if shortlist is not None and len(shortlist.token_ids) < candidates:
        raise UnsupportedError(f"the shortlist has only {len(shortlist.token_ids)} tokens")
    return Settings(
        constraints=constraints,
        start=int(input_ids[0, 0]),
        eos=eos,
        # As generate() has it.
        pad=int(eos[0] if config.pad_token_id is None else config.pad_token_id),
        max_length=config.max_length,
        num_beams=config.num_beams,
        num_return_sequences=config.num_return_sequences,
        length_penalty=config.length_penalty,
        early_stopping=config.early_stopping,
    )


def _is_known(criterion: StoppingCriteria, eos: Tensor, max_length: int) -> bool:
    """Whether the search stops as a criterion does. `eos` are the tokens that end translations, `[1 or more]`."""
    kind = type(criterion)
    if kind is EosTokenCriteria:
        return torch.equal(criterion.eos_token_id.cpu(), eos)
    if kind is MaxLengthCriteria:
        return criterion.max_length == max_length
    return kind is NewTokenLimits


def _limits(engine: Engine, rows: int, criteria: StoppingCriteriaList | None, config: GenerationConfig) -> list[int]:
    """Return the most new tokens of each sentence.

    Args:
        engine: the engine that will decode.
        rows: the size of the batch.
        criteria: the stopping criteria of the call.
        config: its settings.

    Raises:
        UnsupportedError: if these are none, or more than the engine has positions.
    """
    # Transformers has repeated each sentence for every beam.
    sentences = rows // (config.num_beams or 1)
    limits = [config.max_length - 1] * sentences
    for criterion in criteria or ():
        if type(criterion) is NewTokenLimits:
            limits = [min(pair) for pair in zip(limits, criterion.of(sentences))]
    if not 1 <= min(limits) <= max(limits) <= engine.positions:
        raise UnsupportedError(f"translations may have {min(limits)} to {max(limits)} tokens")
    return limits


def _transformers(
    model: PreTrainedModel,
    input_ids: Tensor,
    generation_config: GenerationConfig,
    logits_processor: LogitsProcessorList | None,
    **kwargs: Any,
) -> Any:
    """Decode with Transformers' own loop, and return what it returns.

    Args:
        model: the model that decodes.
        input_ids: what the translations begin with, `[rows, length]`.
        generation_config: the settings of the call.
        logits_processor: its processors.
        kwargs: all other arguments of `generate()`.

    Raises:
        UserError: if Transformers does not have the mode of generation, or scores are not finite.
    """
    mode = generation_config.get_generation_mode(None)
    if mode not in _MODES_OF_TRANSFORMERS:
        raise UserError(f"custom_generate does not know the mode {mode.value!r}. Call generate() without it.")
    scores = FiniteScores(model)
    # Before what changes scores, so that it sees the model's own.
    processors = LogitsProcessorList([scores, *(logits_processor or ())])
    search = getattr(type(model), GENERATION_MODES_MAPPING[mode])
    # As generate() sets it for its own loops: ranks that are done wait for the others.
    is_sharded = is_deepspeed_zero3_enabled() or is_fsdp_managed_module(model)
    has_others = torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
    kwargs["synced_gpus"] = is_sharded and has_others
    output = search(model, input_ids, generation_config=generation_config, logits_processor=processors, **kwargs)
    scores.check()
    return output
