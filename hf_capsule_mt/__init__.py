"""Capsule-routing machine translation models for the Hugging Face ecosystem.

Importing the package registers its models with Transformers' Auto classes, and `pipeline("translation")`. The function
`hf_capsule_mt.pipeline` makes the same pipeline without that task.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .public_names import *  # noqa: F403

_command = sys.modules.get("hf_capsule_mt_command")
# Transformers takes seconds to import. The command reads its options first, and registers the models later.
if _command is None or not _command.reads_options:
    importlib.import_module("hf_capsule_mt.registration")


def __getattr__(name: str) -> Any:
    """Import the public names when the first of them is used."""
    # An import statement would ask for the attribute, and so call this function again.
    public_names = importlib.import_module("hf_capsule_mt.public_names")
    if name != "__all__" and name not in public_names.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(public_names, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
