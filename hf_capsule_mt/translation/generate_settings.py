"""What `generate()` is asked for, and whether the decoder engine can do it."""

import copy
from collections.abc import Mapping
from typing import Any

from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation import GenerationMode
from transformers.utils import logging

from hf_capsule_mt.data.encoding import positions
from hf_capsule_mt.errors import UserError

logger = logging.get_logger(__name__)

ENGINES = ("fast", "transformers")
# Arguments that generate() only gives to its own loops. The engine would silently ignore them.
_OF_TRANSFORMERS = ("custom_generate", "streamer", "tokenizer", "assistant_model", "assistant_tokenizer", "synced_gpus")


def settings_of(model: PreTrainedModel, options: Mapping[str, Any]) -> GenerationConfig:
    """Return the settings of `generate()` with these options.

    They are those of the model, of a `generation_config` among the options, and of the options themselves. A later one
    replaces an earlier one. An option of None counts: it switches off what the model's settings say.
    """
    config = copy.copy(model.generation_config)
    given = options.get("generation_config")
    fields: dict[str, Any] = {}
    if given is not None:
        # In a generation config None stands for whatever the model's settings say.
        fields = {name: value for name, value in vars(given).items() if value is not None}
    for name, value in {**fields, **options}.items():
        if hasattr(config, name):
            setattr(config, name, value)
    return config


def engine_takes(model: PreTrainedModel, options: Mapping[str, Any]) -> bool:
    """Return whether `generate()` would search greedily or by beams, and give the engine all of its arguments."""
    if any(options.get(name) is not None for name in _OF_TRANSFORMERS):
        return False
    mode = settings_of(model, options).get_generation_mode()
    return mode in (GenerationMode.GREEDY_SEARCH, GenerationMode.BEAM_SEARCH)


def with_tokenizer(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return options of `generate()` with the tokenizer, if something stops at strings. Others must not have it."""
    options = dict(options)
    if settings_of(model, options).stop_strings is not None:
        options.setdefault("tokenizer", tokenizer)
    return options


def warn_of_dtype(dtype: str) -> None:
    """Warn if the engine was asked for a precision, and Transformers decodes."""
    if dtype != "float32":
        logger.warning_once(f"dtype {dtype} is only for engine fast. Transformers decodes, in the weights' dtype.")


def check_beams(settings: GenerationConfig) -> None:
    """Raise a UserError if a search is asked for more translations than it has beams."""
    count = settings.num_return_sequences or 1
    beams = settings.num_beams or 1
    if count > beams and not settings.do_sample:
        raise UserError(f"{count} translations of a sentence need as many beams, and num_beams is {beams}. Give more.")


def new_tokens_limit(model: PreTrainedModel, max_new_tokens: int | None, given: GenerationConfig | None) -> int | float:
    """Return the most new tokens of a translation.

    Raises:
        UserError: if `max_new_tokens` does not fit the model, or the generation config allows no token.
    """
    # The start token takes a position too.
    most = (positions(model.config) or float("inf")) - 1
    if max_new_tokens is not None:
        if not 1 <= max_new_tokens <= most:
            raise UserError(f"max_new_tokens is {max_new_tokens}. It must be from 1 to {most}.")
        return max_new_tokens
    config = model.generation_config
    if given is not None and (given.max_length is not None or given.max_new_tokens is not None):
        config = given
    if config.max_length:
        most = min(most, config.max_length - 1)
    if config.max_new_tokens:
        most = min(most, config.max_new_tokens)
    if most < 1:
        # All translations would be empty.
        raise UserError(f"The generation config allows no token: max_length is {config.max_length}. Raise it.")
    return most
