"""The fields of guided routing: presets, the rows of Table 1, parameters, and the rejection of wrong values."""

import pytest
import torch

from hf_capsule_mt import CapsuleAggregatedMarianForConditionalGeneration, preset_config

WIDTH, CAPSULE, HIDDEN = 512, 256, 2048
WITHOUT_LOSSES = {"bow_loss_weight": 0, "bca_loss_weight": 0}


def parameters(method, **overrides):
    with torch.device("meta"):
        model = CapsuleAggregatedMarianForConditionalGeneration(preset_config(method, "base", **overrides))
    return model.num_parameters()


@pytest.mark.parametrize(
    ("method", "kind"), [("gdr", "gdr"), ("gdr-classifier", "classifier"), ("gdr-attention", "attention")]
)
def test_presets(method, kind):
    config = preset_config(method, "base")
    assert config.guided_routing == kind
    assert config.layer_aggregation is config.head_aggregation is None
    # Section 4, "Training": J / 2 = 2, d_c = 256, r = 3, and both weights 1.
    assert (config.num_past_capsules, config.num_future_capsules, config.num_redundant_capsules) == (2, 2, 2)
    assert (config.guided_capsule_dim, config.guided_routing_iterations) == (256, 3)
    assert config.bow_loss_weight == config.bca_loss_weight == 1
    assert preset_config("transformer", "base").guided_routing is None


def test_parameters_are_those_of_the_equations():
    votes, guide, score = 6 * WIDTH * CAPSULE, (WIDTH + 2 * CAPSULE) * CAPSULE, CAPSULE
    feed_forward = (WIDTH + 4 * CAPSULE) * HIDDEN + HIDDEN + HIDDEN * WIDTH + WIDTH
    plain, routed = parameters("transformer"), parameters("gdr", **WITHOUT_LOSSES)
    assert routed - plain == votes + guide + score + feed_forward
    one_loss = 2 * WIDTH * 2 * CAPSULE
    # Table 1: 68.9M with GDR, and 69.4M with the agreement loss too.
    assert parameters("gdr", bow_loss_weight=0) - routed == one_loss == pytest.approx(0.5e6, rel=0.05)
    assert parameters("gdr", bca_loss_weight=0) - routed == one_loss
    assert parameters("gdr") - routed == 2 * one_loss
    assert parameters("gdr", num_redundant_capsules=0) == parameters("gdr") - 2 * WIDTH * CAPSULE


def test_parameters_of_the_baselines():
    plain = parameters("transformer")
    feed_forward = (WIDTH + 4 * CAPSULE) * HIDDEN + HIDDEN + HIDDEN * WIDTH + WIDTH
    values = 4 * WIDTH * CAPSULE
    classifier = parameters("gdr-classifier", **WITHOUT_LOSSES) - plain - feed_forward - values
    assert classifier == 2 * WIDTH * CAPSULE + 3 * CAPSULE
    attention = parameters("gdr-attention", **WITHOUT_LOSSES) - plain - feed_forward - values
    assert attention == 2 * 2 * WIDTH * CAPSULE
