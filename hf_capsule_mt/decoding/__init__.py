"""Decoding as Transformers' `generate()` does it, faster: the same tokens, from a snapshot of a model.

model.generate(**inputs, num_beams=4, custom_generate=hf_capsule_mt.decoding.generate)
"""

from .constraints import NewTokenLimits
from .engine import Engine, adapter_for
from .fingerprint import UnsupportedError, UnsupportedModelError
from .finite_scores import FiniteScores
from .generation import engine_of, generate, release
