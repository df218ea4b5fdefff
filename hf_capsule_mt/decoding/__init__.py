"""Decoding as Transformers' `generate()` does it, sooner: the same tokens, from a snapshot of a model.

model.generate(**inputs, num_beams=4, custom_generate=hf_capsule_mt.decoding.generate)
"""

from .engine import Engine
from .generation import engine_of, generate
from .search import NewTokenLimits
from .weights import UnsupportedModelError

__all__ = ["Engine", "NewTokenLimits", "UnsupportedModelError", "engine_of", "generate"]
