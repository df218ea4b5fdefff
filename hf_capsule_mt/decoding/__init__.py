"""Decoding as Transformers' `generate()` does it, sooner: the same tokens, from a snapshot of a model.

model.generate(**inputs, num_beams=4, custom_generate=hf_capsule_mt.decoding.generate)
"""

from .decoder_weights import UnsupportedError, UnsupportedModelError, only_listens
from .engine import Engine
from .finite_scores import FiniteScores
from .generation import engine_of, generate, release, translate_stream
from .search import NewTokenLimits
from .stream import Source

__all__ = [
    "Engine",
    "FiniteScores",
    "NewTokenLimits",
    "Source",
    "UnsupportedError",
    "UnsupportedModelError",
    "engine_of",
    "generate",
    "only_listens",
    "release",
    "translate_stream",
]
