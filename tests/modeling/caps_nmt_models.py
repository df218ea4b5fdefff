"""Tiny models of CapsNMT whose every weight is random."""

from aggregated_models import EOS, PAD, VOCABULARY, WIDTH, randomise

from hf_capsule_mt import CapsNMTConfig, CapsNMTForConditionalGeneration

LAYERS, CAPSULES = 2, 4
SHAPE = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "num_sentence_capsules": CAPSULES,
    "dropout": 0.1,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "decoder_start_token_id": PAD,
}
KINDS = {
    "capsule": {},
    "no_strategies": {
        "position_aware_routing": False,
        "share_routing_weights": True,
        "separable_scoring": False,
    },
    "pooling": {"sentence_aggregation": "pooling"},
}


def caps_nmt(kind="capsule", seed=0, **fields):
    """A translation model in evaluation mode."""
    config = CapsNMTConfig(**{**SHAPE, **KINDS[kind], **fields})
    return randomise(CapsNMTForConditionalGeneration(config).eval(), seed)
