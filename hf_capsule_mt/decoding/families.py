"""The adapters of all families that the engine decodes; a checkpoint carries that of its own family instead."""

from .caps_nmt import ADAPTERS as CAPS_NMT
from .marian import ADAPTERS as MARIAN
from .rnmt import ADAPTERS as RNMT

ADAPTERS = {**MARIAN, **RNMT, **CAPS_NMT}
"""Adapters by the class of the model."""
