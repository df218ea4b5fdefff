"""Tiny models of the families of Marian, M2M-100 and mBART with random weights, and a padded batch for them."""

import functools
from copy import deepcopy

import torch
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
)

from hf_capsule_mt import (
    CapsuleAggregatedM2M100Config,
    CapsuleAggregatedM2M100ForConditionalGeneration,
    CapsuleAggregatedMarianConfig,
    CapsuleAggregatedMarianForConditionalGeneration,
    preset_config,
)

PAD, EOS, VOCABULARY, WIDTH, LAYERS, HEADS = 0, 2, 31, 16, 2, 4
SHAPE = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "max_position_embeddings": 40,
    "scale_embedding": True,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "forced_eos_token_id": EOS,
    "decoder_start_token_id": PAD,
}
# M2M-100 gives padding no position, so its targets must not begin with it. Neither do those of mBART.
PRE_NORM_SHAPE = {**SHAPE, "decoder_start_token_id": EOS}
LAYER_AGGREGATIONS = {
    "linear": {"layer_aggregation": "linear"},
    "dynamic": {"layer_aggregation": "dynamic"},
    "attention": {"layer_aggregation": "attention"},
    "dynamic_routing": {"layer_aggregation": "dynamic_routing"},
    "em_routing": {"layer_aggregation": "em_routing"},
    "em_routing_joint": {
        "layer_aggregation": "em_routing",
        "layer_aggregation_parameterization": "joint",
        "num_output_capsules": 4,
    },
}
_EVERY_SITE = {"head_aggregation_decoder_layers": None, "head_aggregation_cross_layers": None}
HEAD_AGGREGATIONS = {
    "heads_simple": {"head_aggregation": "simple_routing", "num_output_capsules": 4, **_EVERY_SITE},
    "heads_em": {"head_aggregation": "em_routing", **_EVERY_SITE},
}
_BOTH = {"head_aggregation": "em_routing", "layer_aggregation": "em_routing", "head_aggregation_input_norm": True}
HEAD_AGGREGATIONS["heads_and_layers_em"] = {**_BOTH, **_EVERY_SITE}
GUIDED_ROUTINGS = {
    "gdr": {"guided_routing": "gdr", "guided_capsule_dim": 4},
    "guided_classifier": {"guided_routing": "classifier", "guided_capsule_dim": 4, "num_past_capsules": 1},
    "guided_attention": {"guided_routing": "attention", "guided_capsule_dim": 4, "num_future_capsules": 3},
}
_BOTH = {"layer_aggregation": "em_routing", "head_aggregation": "simple_routing"}
GUIDED_ROUTINGS["everything"] = {**GUIDED_ROUTINGS["gdr"], **_BOTH, **_EVERY_SITE}
AGGREGATIONS = {**LAYER_AGGREGATIONS, **HEAD_AGGREGATIONS, **GUIDED_ROUTINGS}
SOURCE_AGGREGATIONS = {
    f"source_{kind}": {"layer_aggregation": kind, "layer_aggregation_place": "source"}
    for kind in ("linear", "attention", "dynamic", "dynamic_routing", "em_routing")
}
EACH_LAYER = {"layer_aggregation": "linear", "layer_aggregation_place": "layers"}
PRE_NORM_KINDS = {
    "delta": {**EACH_LAYER, "layer_aggregation": "delta-attention"},
    "hyper": {**EACH_LAYER, "layer_aggregation": "hyper-connections", "layer_aggregation_streams": 3},
    "mhc": {**EACH_LAYER, "layer_aggregation": "manifold-hyper-connections", "layer_aggregation_streams": 3},
}
ALL = {"none": {}, **AGGREGATIONS, **SOURCE_AGGREGATIONS, "each_layer": EACH_LAYER}
ALL_PRE_NORM = {**ALL, **PRE_NORM_KINDS}
OUTPUTS = {
    output: {"layer_aggregation_output": output, "head_aggregation_output": output}
    for output in ("replace", "residual")
}


def copied(make):
    """Make a model of the same arguments once, and return copies, which take a fifth of the time."""
    made = {}

    @functools.wraps(make)
    def copy(*args, **fields):
        key = repr((args, sorted(fields.items()), torch.get_default_dtype(), torch.get_default_device()))
        if key not in made:
            made[key] = make(*args, **fields)
        return deepcopy(made[key])

    return copy


def randomise(model, seed):
    """Give every weight a value that matters: zeros, ones and small numbers hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(1 + 0.3 * noise if "norm.weight" in name else 0.3 * noise)
        if hasattr(model, "final_logits_bias"):  # which a classifier has not
            model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape, generator=generator))
    return model


@copied
def marian(seed=0, **fields):
    """A MarianMTModel in evaluation mode."""
    return randomise(MarianMTModel(MarianConfig(**{**SHAPE, **fields})).eval(), seed)


@copied
def aggregated(kind="em_routing", seed=0, **fields):
    """A translation model of this package, with one of the aggregations, in evaluation mode."""
    config = CapsuleAggregatedMarianConfig(**{**SHAPE, **ALL[kind], **fields})
    return randomise(CapsuleAggregatedMarianForConditionalGeneration(config).eval(), seed)


@copied
def m2m100(seed=0, **fields):
    """An M2M-100 in evaluation mode."""
    return randomise(M2M100ForConditionalGeneration(M2M100Config(**{**PRE_NORM_SHAPE, **fields})).eval(), seed)


@copied
def mbart(seed=0, **fields):
    """An mBART in evaluation mode."""
    return randomise(MBartForConditionalGeneration(MBartConfig(**{**PRE_NORM_SHAPE, **fields})).eval(), seed)


@copied
def aggregated_m2m100(kind="em_routing", seed=0, **fields):
    """The same with one of the aggregations."""
    config = CapsuleAggregatedM2M100Config(**{**PRE_NORM_SHAPE, **ALL_PRE_NORM[kind], **fields})
    return randomise(CapsuleAggregatedM2M100ForConditionalGeneration(config).eval(), seed)


def changed(config, **fields):
    """The configuration with other fields, among them such as its model does not read, which presets refuse."""
    for name, value in fields.items():
        setattr(config, name, value)
    config.validate()
    return config


def without_weights(method, size, **overrides):
    """A model by a preset, whose weights are not made."""
    with torch.device("meta"):
        return CapsuleAggregatedMarianForConditionalGeneration(preset_config(method, size, **overrides))


def added(model):
    """The names of the weights that Marian does not have."""
    return set(model.state_dict()) - set(MarianMTModel(MarianConfig(**model.config.to_dict())).state_dict())


def random_tokens(lengths, seed, vocabulary=25, padding=PAD):
    """Words `[batch, longest]` that end in EOS, filled up with `padding`."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.full((len(lengths), max(lengths)), padding)
    for row, length in enumerate(lengths):
        tokens[row, : length - 1] = torch.randint(3, vocabulary, (length - 1,), generator=generator)
        tokens[row, length - 1] = EOS
    return tokens


def source_batch(lengths=(7, 5, 2)):
    """Sources with their mask, as a tokenizer returns them."""
    input_ids = random_tokens(lengths, seed=1)
    return {"input_ids": input_ids, "attention_mask": input_ids.ne(PAD).long()}


def training_batch():
    """Sources and labels of different lengths."""
    return {**source_batch(), "labels": random_tokens((4, 6, 3), seed=2, vocabulary=20, padding=-100)}
