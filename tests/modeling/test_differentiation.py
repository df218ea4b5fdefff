"""What cannot be differentiated twice, or in forward mode, says so. A part of the result would be missing otherwise."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call

from hf_capsule_mt.modeling.additive_scores import additive_scores
from hf_capsule_mt.modeling.em_routing import em_routing
from hf_capsule_mt.modeling.linear import LinearFunction
from hf_capsule_mt.modeling.losses import linear_cross_entropy, rdrop_cross_entropy

LABELS = torch.tensor([[1, 2], [3, 1]])
EMBEDDING = torch.randn(5, 4)
ZEROS = torch.zeros(4)
FUNCTIONS = {
    "em_routing": lambda inputs: em_routing(inputs.unflatten(-1, (4, 1)), ZEROS, ZEROS).capsules,
    "additive_scores": lambda inputs: additive_scores(inputs, inputs, EMBEDDING),
    "linear": lambda inputs: LinearFunction.apply(inputs.flatten(0, 1), EMBEDDING, None),
    "linear_cross_entropy": lambda inputs: linear_cross_entropy(inputs, EMBEDDING, LABELS),
    "rdrop_cross_entropy": lambda inputs: rdrop_cross_entropy(inputs, EMBEDDING, LABELS, 0.5)[0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_second_derivative_is_refused(name):
    inputs = torch.randn(2, 2, 4, requires_grad=True)
    # In a model the inputs come from weights. Without the refusal the second gradient would exist, and lack a part.
    total = FUNCTIONS[name](inputs.square()).sum()
    with pytest.raises(RuntimeError, match="differentiated only once"):
        torch.autograd.grad(total, inputs, create_graph=True)
    (gradient,) = torch.autograd.grad(FUNCTIONS[name](inputs.square()).sum(), inputs)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_mode_is_refused(name):
    inputs = torch.randn(2, 2, 4)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(inputs, torch.randn_like(inputs))
        with pytest.raises(NotImplementedError, match="jvp"):
            FUNCTIONS[name](dual)


def test_torch_func_refuses_a_loss_in_training():
    weights = {"weight": torch.randn(4, 4)}
    layer = torch.nn.Linear(4, 4, bias=False)

    def loss(weights):
        return linear_cross_entropy(functional_call(layer, weights, torch.ones(2, 2, 4)), EMBEDDING, LABELS)

    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(loss)(weights)
