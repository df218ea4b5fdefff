"""Decoding as Transformers' `generate()` does it, faster: the same tokens, from a snapshot of a model.

model.generate(**inputs, num_beams=4, custom_generate=hf_capsule_mt.decoding.generate)

To read it, begin with generation.py, which Transformers calls, and engine.py, which holds the snapshots. fingerprint.py
notices that a model has changed. In a Transformers that no test has seen, proof.py compares first scores.
precision.py says in which precision it multiplies.

* search/: greedy search and beam search, search with terms, and what may be written. step_graph.py makes a step one
  launch on a GPU.
* models/: in every step a search asks an adapter for the decoder's states. Each family of models has a file.
* products/: vocabulary.py finds the best next tokens by these states. products.py multiplies for all,
  and int8.py in int8.
"""

from .engine import Engine, engine_of, release
from .fingerprint import UnsupportedError, UnsupportedModelError
from .generation import generate
from .precision import adapter_for
from .products.shortlist import ShortlistLogitsProcessor
from .products.vocabulary import FiniteScores
from .search.constraints import NewTokenLimits
