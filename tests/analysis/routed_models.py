"""Tiny random models with every kind of routing, a tokenizer of letters for them, and a corpus."""

from aggregated_models import aggregated
from recurrent_models import recurrent
from tiny_marian import tiny_tokenizer

from hf_capsule_mt.analysis.corpus import encode_references
from hf_capsule_mt.analysis.sentence import read_encoded

TOKENIZER = tiny_tokenizer()
SOURCES = ["a b c d e f", "", "g h", "i j k a", "b"]
REFERENCES = ["f e d", "x", "h g h g h", "a k j i", "b"]
WITH_BOTH_SIDES = [0, 2, 3, 4]
RECURRENT = ("capsule", "hybrid", "guided")
KINDS = ("everything", "heads_simple", "guided_classifier", "guided_attention", *RECURRENT)


def routed(kind):
    """A model in evaluation mode."""
    return recurrent(kind) if kind in RECURRENT else aggregated(kind)


def corpus_for(model):
    return encode_references(model, TOKENIZER, SOURCES, REFERENCES)


def read_pair(model, source, target):
    """The routing of a sentence with a given translation."""
    return read_encoded(model, TOKENIZER, TOKENIZER(source)["input_ids"], TOKENIZER(target)["input_ids"])
