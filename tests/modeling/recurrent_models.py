"""Tiny models of the recurrent families whose every weight is random."""

import torch
from aggregated_models import EOS, GUIDED_ROUTINGS, PAD, VOCABULARY, WIDTH, copied, randomise

from hf_capsule_mt import CapsNMTConfig, CapsNMTForConditionalGeneration, RNMTConfig, RNMTForConditionalGeneration

LAYERS, CAPSULES = 2, 4
SHAPE = {"vocab_size": VOCABULARY, "d_model": WIDTH, "encoder_layers": LAYERS, "num_sentence_capsules": CAPSULES}
SHAPE |= {"dropout": 0.1, "pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD}
NO_STRATEGIES = {"position_aware_routing": False, "share_routing_weights": True, "separable_scoring": False}
CAPSNMT_KINDS = {
    "capsule": {"decoder_layers": LAYERS},
    "no_strategies": {"decoder_layers": LAYERS, **NO_STRATEGIES},
    "pooling": {"decoder_layers": LAYERS, "sentence_aggregation": "pooling"},
}
GUIDED_KINDS = {
    "guided": GUIDED_ROUTINGS["gdr"],
    "guided_classifier": GUIDED_ROUTINGS["guided_classifier"],
    "guided_attention": GUIDED_ROUTINGS["guided_attention"],
    "guided_hybrid": {"sentence_aggregation": "capsule", **GUIDED_ROUTINGS["gdr"]},
}
RNMT_KINDS = {
    "rnmt": {},
    "hybrid": {"sentence_aggregation": "capsule"},
    "hybrid_pooling": {"sentence_aggregation": "pooling"},
    **GUIDED_KINDS,
}
KINDS = {**CAPSNMT_KINDS, **RNMT_KINDS}
ROUTED_KINDS = ("capsule", "no_strategies", "hybrid", "guided_hybrid")
ONE_OF_EACH_FAMILY = ("capsule", "rnmt")


@copied
def recurrent(kind="capsule", seed=0, **fields):
    """A translation model in evaluation mode."""
    config_class = CapsNMTConfig if kind in CAPSNMT_KINDS else RNMTConfig
    model_class = CapsNMTForConditionalGeneration if kind in CAPSNMT_KINDS else RNMTForConditionalGeneration
    return randomise(model_class(config_class(**{**SHAPE, **KINDS[kind], **fields})).eval(), seed)


def prefer_eos(model, bias):
    """Make sentences end: the head has no bias, but the direction of EOS in what it reads is one."""
    decoder = model.get_decoder()
    last = decoder.readout if hasattr(decoder, "readout") else decoder.layers[-1].layer_norm
    with torch.no_grad():
        last.bias += bias * model.lm_head.weight[EOS]
