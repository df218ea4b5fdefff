"""The script that tells how far routed heads are saturated."""

import sys
from pathlib import Path

import pytest
import torch
from aggregated_models import aggregated, source_batch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from head_saturation import saturation

sys.path.pop(0)


def test_what_is_saturated():
    model, source = aggregated("heads_em"), source_batch()
    layers = model.get_encoder().layers
    with torch.no_grad():
        for layer, (weight, bias) in zip(layers, [(0.0, 0.5), (0.0, 5.0)], strict=True):
            layer.self_attn.out_proj.inputs.weight.fill_(weight)
            layer.self_attn.out_proj.inputs.bias.fill_(bias)
    found = list(saturation(model, source["input_ids"], source["attention_mask"]))
    assert [(name, share) for name, _, share in found] == [
        ("layers.0.self_attn.out_proj", 0.0),
        ("layers.1.self_attn.out_proj", 1.0),
    ]


def test_padding_does_not_count():
    model, source = aggregated("heads_em"), source_batch((4, 4))
    found = list(saturation(model, source["input_ids"], source["attention_mask"]))
    padded = {name: torch.nn.functional.pad(each, (0, 3)) for name, each in source.items()}
    for (name, *values), (other, *others) in zip(
        found, saturation(model, padded["input_ids"], padded["attention_mask"]), strict=True
    ):
        assert name == other
        assert others == pytest.approx(values, rel=1e-4)
        assert values[0] > 0


def test_a_model_without_routed_heads():
    source = source_batch()
    with pytest.raises(ValueError, match="the encoder of the model routes no heads; name a model that does"):
        list(saturation(aggregated("none"), source["input_ids"], source["attention_mask"]))
