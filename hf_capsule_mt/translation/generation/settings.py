"""What `generate()` is asked for, and how long a translation may be."""

import copy
from collections.abc import Mapping
from typing import Any

from transformers import GenerationConfig, PreTrainedModel
from transformers.generation import GenerationMode

from hf_capsule_mt.data.encoding import positions
from hf_capsule_mt.errors import UserError

ENGINES = ("fast", "transformers")
# Arguments that generate() only gives to its own loops. The engine would silently ignore them.
_OF_TRANSFORMERS = ("custom_generate", "streamer", "tokenizer", "assistant_model", "assistant_tokenizer", "synced_gpus")
_OF_LENGTH = ("max_new_tokens", "max_length", "stopping_criteria")


def as_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of `generate()` with the fields of their `generation_config`, if there is one, in its place.

    Where both have a field, the option is taken. In a generation config None stands for whatever the model's settings
    say, but an option of None switches off what they say.
    """
    options = dict(options)
    given = options.pop("generation_config", None)
    if given is None:
        return options

    names = vars(GenerationConfig())
    fields = {}
    for name, value in vars(given).items():
        if name in names and value is not None:
            fields[name] = value
    fields.pop("transformers_version", None)
    return {**fields, **options}


def settings_of(model: PreTrainedModel, options: Mapping[str, Any]) -> GenerationConfig:
    """Return the settings of `generate()`: those of the model, with what [`as_arguments`] says instead."""
    config = copy.copy(model.generation_config)
    for name, value in as_arguments(options).items():
        if hasattr(config, name):
            setattr(config, name, value)
    return config


def engine_takes(settings: GenerationConfig, options: Mapping[str, Any]) -> bool:
    """Return whether `generate()` would search greedily or by beams, and give the engine all of its arguments."""
    if any(options.get(name) is not None for name in _OF_TRANSFORMERS):
        return False
    return settings.get_generation_mode() in (GenerationMode.GREEDY_SEARCH, GenerationMode.BEAM_SEARCH)


def has_limit(options: Mapping[str, Any]) -> bool:
    """Return whether options of `generate()` limit the length of translations, without a generation config."""
    return any(options.get(name) is not None for name in _OF_LENGTH)


def most_new_tokens(
    model: PreTrainedModel, options: Mapping[str, Any], max_new_tokens: int | None = None
) -> int | float:
    """Return the most new tokens of any translation.

    Args:
        model: the model. It may have positions for so many tokens.
        options: of `generate()`. Their limits come before those of the model's settings.
        max_new_tokens: what somebody asked for. Then there is no other limit.

    Raises:
        UserError: if `max_new_tokens` does not fit the model, or the settings allow no token.
    """
    # The start token takes a position too.
    most = (positions(model.config) or float("inf")) - 1
    if max_new_tokens is not None:
        if not 1 <= max_new_tokens <= most:
            raise UserError(f"max_new_tokens is {max_new_tokens}. It must be from 1 to {most}.")
        return max_new_tokens

    max_length, of_new_tokens = options.get("max_length"), options.get("max_new_tokens")
    if max_length is None and of_new_tokens is None:
        config = model.generation_config
        max_length, of_new_tokens = config.max_length, config.max_new_tokens

    if max_length:
        most = min(most, max_length - 1)
    if of_new_tokens:
        most = min(most, of_new_tokens)

    if most < 1:
        # All translations would be empty.
        raise UserError(f"The generation config allows no token: max_length is {max_length}. Raise it.")
    return most
