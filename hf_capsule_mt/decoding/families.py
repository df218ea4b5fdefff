"""The adapters of all families that the engine decodes; a checkpoint carries that of its own family instead."""

from .caps_nmt_adapter import ADAPTERS as CAPS_NMT
from .marian_adapter import ADAPTERS as MARIAN
from .rnmt_adapter import ADAPTERS as RNMT

ADAPTERS = {**MARIAN, **RNMT, **CAPS_NMT}
"""Adapters by the class of the model."""
