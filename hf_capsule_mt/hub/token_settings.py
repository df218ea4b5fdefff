"""Token ids in the settings of a model: those that must stay, and their numbers in a smaller model."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transformers import GenerationConfig, PreTrainedConfig

from hf_capsule_mt.errors import UserError

NewIds = Mapping[int, int]
"""The new ids of the tokens that stay, by their old ones."""
Settings = PreTrainedConfig | GenerationConfig

_LISTS = ("suppress_tokens", "begin_suppress_tokens")
"""Settings that list token ids."""
_SEQUENCES = "bad_words_ids"
"""The setting that lists sequences of token ids."""
_BIASES = "sequence_bias"
"""The setting that has a number for each of several sequences."""
_FORCED_WORDS = "force_words_ids"
"""The setting that lists sequences which a translation must have, or alternatives of each."""
_FORCED_PLACES = "forced_decoder_ids"
"""The setting that lists places of a translation with the token id that stands there. Old checkpoints have it."""
_KNOWN = {*_LISTS, _SEQUENCES, _BIASES, _FORCED_WORDS, _FORCED_PLACES}
_OF_TASKS = "task_specific_params"
"""The field with settings for each of several tasks."""
_NAME_OF_ID = re.compile(r"_id$")
_NAME_OF_IDS = re.compile(r"_(ids?|tokens)$")


def check_token_settings(settings: Settings, size: int) -> None:
    """Raise a UserError unless the token ids of settings are known, so that they can get new numbers.

    Args:
        settings: of a model.
        size: the number of tokens that the model can write.
    """
    file = "generation_config.json" if isinstance(settings, GenerationConfig) else "config.json"
    for name, value in _fields(settings):
        if name.endswith("_token_id"):
            for token_id in _listed(value):
                if not _is_id(token_id) or not 0 <= token_id < size:
                    raise UserError(
                        f"{file}: {name} is {value!r:.80}, which is no token. The model has the tokens 0 to "
                        f"{size - 1}. Correct it, or take it out."
                    )
        elif name in _KNOWN:
            if not _is_readable(name, value):
                raise UserError(f"{file}: {name} has another form than Transformers reads: {value!r:.80}.")
        elif _may_have_ids(name, value):
            raise UserError(
                f"{file}: {name} may have token ids, and they would name other tokens in a smaller model. Take it out."
            )


def needed_ids(settings: Settings) -> set[int]:
    """Return the tokens that settings name as needed, such as `eos_token_id`."""
    ids: set[int] = set()
    for name, value in _fields(settings):
        if name.endswith("_token_id"):
            ids.update(_listed(value))
        elif name == _FORCED_WORDS:
            ids.update(_flat(value))
        elif name == _FORCED_PLACES:
            ids.update(token_id for _, token_id in value or ())
    return ids - {None}


def renumber(settings: Settings, new_ids: NewIds) -> None:
    """Give the token ids in settings their new numbers. What a smaller model cannot write is left out."""
    for name, value in settings.to_dict().items():
        if name == _OF_TASKS and isinstance(value, dict):
            tasks = {task: _renumbered_fields(of_task, new_ids) for task, of_task in value.items()}
            setattr(settings, name, tasks)
        elif name in _KNOWN or name.endswith("_token_id"):
            setattr(settings, name, _renumbered(name, value, new_ids))


def _fields(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of settings, also of those for tasks."""
    for name, value in settings.to_dict().items():
        if name == _OF_TASKS and isinstance(value, dict):
            for of_task in value.values():
                if isinstance(of_task, dict):
                    yield from of_task.items()
        else:
            yield name, value


def _renumbered_fields(fields: Any, new_ids: NewIds) -> Any:
    """Return the settings for a task with new token ids."""
    if not isinstance(fields, dict):
        return fields
    renumbered = {}
    for name, value in fields.items():
        if name in _KNOWN or name.endswith("_token_id"):
            value = _renumbered(name, value, new_ids)
        renumbered[name] = value
    return renumbered


def _renumbered(name: str, value: Any, new_ids: NewIds) -> Any:
    """Return the value of a setting with new token ids, or None if nothing is left of it."""
    if value is None or isinstance(value, int):
        return new_ids.get(value)
    if name == _FORCED_WORDS:
        return _deep(value, new_ids)
    if name == _FORCED_PLACES:
        return [[place, new_ids.get(token_id)] for place, token_id in value]
    if name == _SEQUENCES:
        return [_sequence(token_ids, new_ids) for token_ids in value if _stays(token_ids, new_ids)] or None
    if name == _BIASES and isinstance(value, dict):
        return {_sequence(ids, new_ids): bias for ids, bias in value.items() if _stays(ids, new_ids)} or None
    if name == _BIASES:
        return [[_sequence(ids, new_ids), bias] for ids, bias in value if _stays(ids, new_ids)] or None
    return [new_ids[token_id] for token_id in value if token_id in new_ids] or None


def _stays(token_ids: Sequence[int], new_ids: NewIds) -> bool:
    """Return whether a model can write a sequence. It cannot if it lacks one of the tokens."""
    return new_ids.keys() >= set(token_ids)


def _sequence(token_ids: Sequence[int], new_ids: NewIds) -> Sequence[int]:
    """Return a list or a tuple of token ids with their new numbers."""
    return type(token_ids)(new_ids[token_id] for token_id in token_ids)


def _deep(value: Any, new_ids: NewIds) -> Any:
    """Return token ids in lists of lists with their new numbers. All of them stay."""
    if isinstance(value, int):
        return new_ids[value]
    return [_deep(part, new_ids) for part in value]


def _listed(value: Any) -> Sequence[Any]:
    """Return the values of a setting that has one, several, or none."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _flat(value: Any) -> list[Any]:
    """Return everything in lists of lists."""
    if not isinstance(value, list | tuple):
        return _listed(value)
    flat = []
    for part in value:
        flat += _flat(part)
    return flat


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_ids(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_id, value))


def _is_readable(name: str, value: Any) -> bool:
    """Return whether a setting with token ids has the form that Transformers reads."""
    if value is None:
        return True
    if name == _BIASES and isinstance(value, dict):
        return all(map(_are_ids, value))
    if not isinstance(value, list | tuple):
        return False
    if name == _BIASES:
        return all(isinstance(pair, list | tuple) and len(pair) == 2 and _are_ids(pair[0]) for pair in value)
    if name == _FORCED_PLACES:
        return all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value)
    if name == _FORCED_WORDS:
        return _are_ids(_flat(value))
    if name == _SEQUENCES:
        return all(map(_are_ids, value))
    return _are_ids(value)


def _may_have_ids(name: str, value: Any) -> bool:
    """Return whether a setting that is not known looks as if it had token ids."""
    if isinstance(value, list | tuple | dict):
        return bool(value) and _NAME_OF_IDS.search(name) is not None
    return _is_id(value) and _NAME_OF_ID.search(name) is not None
