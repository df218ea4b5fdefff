"""Fields of a configuration on the command line, as name=value."""

import json
from typing import Any

from hf_capsule_mt.errors import UserError

_PYTHON_WORDS = {"True": True, "False": False, "None": None}


def parse_override(text: str) -> tuple[str, Any]:
    """Split `name=value`, where the value is JSON, one of Python's True, False and None, or plain text.

    Raises:
        UserError: if there is no equals sign, or a list or an object is not JSON.
    """
    name, separator, value = text.partition("=")
    if not separator:
        raise UserError(f"config_overrides has {text!r}. Write name=value.")
    if value in _PYTHON_WORDS:
        return name, _PYTHON_WORDS[value]
    try:
        return name, json.loads(value)
    except json.JSONDecodeError as error:
        if value.lstrip().startswith(("[", "{")):
            raise UserError(f"""config_overrides has {text!r}. Write lists as JSON: '{name}=["a", "b"]'.""") from error
        # A word without quotes, such as em_routing.
        return name, value
