"""Decoding as Transformers' `generate()` does it, faster: the same tokens, from a snapshot of a model.

model.generate(**inputs, num_beams=4, custom_generate=hf_capsule_mt.decoding.generate)

To read it, begin with generation.py, which Transformers calls, and engine.py, which holds the snapshot. A search is in
search.py or term_search.py. In every step it asks two parts. An adapter computes the decoder's states: adapter.py is
the base of all, transformer_decoding.py and target_cache.py that of Transformers, with Marian's, and each other family
has a file. vocabulary.py and token_block.py find the best next tokens by these states. products.py multiplies for both.

constraints.py, term_automaton.py and term_banks.py say what may be written. fingerprint.py notices that a model has
changed. step_graph.py makes a step one launch on a GPU.
"""

from .constraints import NewTokenLimits
from .engine import Engine, adapter_for
from .fingerprint import UnsupportedError, UnsupportedModelError
from .finite_scores import FiniteScores
from .generation import engine_of, generate, release
from .words import OnlyWords
