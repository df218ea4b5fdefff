"""Models that are exported: of the usual tests, and smaller ones, whose programs take seconds less."""

from families import translator

_LEAST = {"encoder_layers": 1, "decoder_layers": 1, "routing_iterations": 1, "guided_routing_iterations": 1}
_SMALL = {
    "small-marian": "marian-everything",
    "small-rnmt": "recurrent-guided_hybrid",
    "small-hybrid": "recurrent-hybrid",
    "small-capsnmt": "recurrent-capsule",
}


def model_of(name):
    """A model by the name of a kind, or of a small one."""
    kind = _SMALL.get(name, name)
    known = translator(kind).config.to_dict()
    fields = {field: value for field, value in _LEAST.items() if field in known} if name in _SMALL else {}
    return translator(kind, vocab_size=29, **fields)
