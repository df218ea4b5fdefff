"""The aggregation of a sentence against its loops, and what masks, precision and its options may do to it."""

import math

import pytest
import torch
from reference.sentence_capsules import pool_sentences, route_sentences
from torch import nn

from hf_capsule_mt import CapsNMTConfig, dynamic_routing
from hf_capsule_mt.modeling.sentence_capsules import SENTENCE_AGGREGATIONS, SentencePooling, SentenceProjection

WIDTH = 8
# Table 2, row by row, and each strategy alone.
STRATEGIES = {
    "none": {"position_aware_routing": False, "share_routing_weights": True, "separable_scoring": False},
    "own_weights": {"position_aware_routing": False, "share_routing_weights": False, "separable_scoring": False},
    "positions": {"position_aware_routing": True, "share_routing_weights": True, "separable_scoring": False},
    "scoring": {"position_aware_routing": False, "share_routing_weights": True, "separable_scoring": True},
    "own_weights_positions": {"share_routing_weights": False, "separable_scoring": False},
    "all": {},
}
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
# Padding on the right, on the left, in the middle, and none.
MASK = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1], [1, 0, 1, 0, 1], [1, 1, 1, 1, 1]]).bool()


def make_config(strategy="all", **fields):
    return CapsNMTConfig(**{"d_model": WIDTH, "num_sentence_capsules": 4, **STRATEGIES[strategy], **fields})


def make_module(config, dtype=torch.float64, std=0.5):
    """A module whose every parameter is random."""
    module = SENTENCE_AGGREGATIONS[config.sentence_aggregation](config).to(dtype)
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=std)
    return module


def make_states(*leading, dtype=torch.float64, width=WIDTH):
    torch.manual_seed(1)
    return torch.randn(*leading, width, dtype=torch.float64).to(dtype)


def compare_with_loops(config, dtype, std=0.5, mask=MASK):
    """Yield (name, actual, expected) of the capsules, the assignment of every iteration and every gradient."""
    module = make_module(config, dtype, std)
    states = make_states(*mask.shape, dtype=dtype).requires_grad_()
    parameters = dict(module.named_parameters())
    fast, routing = module(states, mask, "all")
    cotangent = torch.randn(fast.shape).to(dtype)
    gradients = torch.autograd.grad(fast, [states, *parameters.values()], cotangent)
    exact = {name: value.detach().double().requires_grad_() for name, value in parameters.items()}
    exact_states = states.detach().double().requires_grad_()
    slow, expected_routing = route_sentences(config, exact, exact_states, mask)
    expected = torch.autograd.grad(slow, [exact_states, *exact.values()], cotangent.double())
    yield "capsules", fast, slow
    yield "assignment", routing, expected_routing
    yield from zip(["states", *parameters], gradients, expected, strict=True)


@pytest.mark.parametrize(("iterations", "num_capsules"), [(1, 4), (2, 8), (3, 6), (3, 1), (4, 2)])
@every_strategy
def test_matches_loops(strategy, iterations, num_capsules):
    config = make_config(strategy, routing_iterations=iterations, num_sentence_capsules=num_capsules)
    for name, actual, expected in compare_with_loops(config, torch.float64):
        # One capsule takes everything, whatever it scores.
        assert expected.any() or num_capsules == 1, f"{name} is zero and shows nothing"
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item(), msg=name)


@pytest.mark.parametrize("strategy", ["none", "positions"])
def test_autocast_does_not_lower_the_precision_of_routing(strategy):
    module, states = make_module(make_config(strategy), torch.float32), make_states(2, 300, dtype=torch.float32)
    messages = [module._messages(module._children(states, None), 0)] * 3
    module._messages = lambda children, iteration: messages[iteration]
    expected = module(states, None, "all")
    with torch.autocast("cpu", torch.bfloat16):
        actual = module(states, None, "all")
    assert torch.equal(actual[0], expected[0])
    assert torch.equal(actual[1], expected[1])


def test_without_strategies_it_is_dynamic_routing():
    module, states = make_module(make_config("none")), make_states(4, 5)
    votes = (states @ module.weight[0]).relu().unflatten(-1, (4, WIDTH))
    expected = dynamic_routing(votes, mask=MASK, return_all_coefficients=True)
    capsules, assignment = module(states, MASK, "all")
    torch.testing.assert_close(capsules, expected.capsules)
    torch.testing.assert_close(assignment, expected.all_coefficients.movedim(0, 1))


@pytest.mark.parametrize("aggregation", [*STRATEGIES, "pooling"])
def test_padding_contributes_exactly_nothing(aggregation):
    module = SentencePooling(make_config()) if aggregation == "pooling" else make_module(make_config(aggregation))
    states = make_states(4, 5)
    # What stands there may be anything, infinity included.
    hidden = states.masked_fill(~MASK.unsqueeze(-1), math.inf).requires_grad_()
    vectors, assignment = module(hidden, MASK, True)
    vectors.square().sum().backward()
    assert hidden.grad[~MASK].count_nonzero() == 0
    assert aggregation == "pooling" or assignment[~MASK].count_nonzero() == 0
    for row, present in enumerate(MASK):
        alone = states[row : row + 1, present].clone().requires_grad_()
        expected, expected_assignment = module(alone, None, True)
        expected.square().sum().backward()
        torch.testing.assert_close(vectors[row : row + 1], expected)
        torch.testing.assert_close(hidden.grad[row : row + 1, present], alone.grad)
        if aggregation != "pooling":
            torch.testing.assert_close(assignment[row : row + 1, present], expected_assignment)


@pytest.mark.parametrize("aggregation", [*STRATEGIES, "pooling"])
def test_a_sentence_without_words_is_zero(aggregation):
    module = SentencePooling(make_config()) if aggregation == "pooling" else make_module(make_config(aggregation))
    states, mask = make_states(2, 5).requires_grad_(), MASK[2:].clone()
    mask[0] = False
    vectors, _ = module(states, mask)
    vectors.square().sum().backward()
    assert vectors[0].count_nonzero() == 0
    assert states.grad[0].count_nonzero() == 0
    assert states.grad.isfinite().all()
    assert vectors[1].all(-1).any()


def test_pooling_matches_loops():
    states = make_states(4, 5).requires_grad_()
    fast, slow = SentencePooling(make_config())(states, MASK)[0], pool_sentences(states, MASK)
    torch.testing.assert_close(fast, slow)
    cotangent = torch.randn(fast.shape, dtype=torch.float64)
    gradients = [torch.autograd.grad(one, states, cotangent)[0] for one in (fast, slow)]
    torch.testing.assert_close(*gradients)


@every_strategy
def test_assignments(strategy):
    module, states = make_module(make_config(strategy)), make_states(4, 5)
    capsules, nothing = module(states, MASK)
    assert nothing is None
    _, last = module(states, MASK, True)
    _, every = module(states, MASK, "all")
    assert every.shape == (4, 3, 5, 4)
    assert torch.equal(last, every[:, -1])
    assert not every.requires_grad
    torch.testing.assert_close(every.sum(-1), MASK.double().unsqueeze(1).expand(4, 3, 5))
    torch.testing.assert_close(every[:, 0][MASK], torch.full((MASK.sum(), 4), 0.25, dtype=torch.float64))
    assert (every[:, 2] - every[:, 1]).abs().max() > 0.01
    assert (capsules.norm(dim=-1) < 1).all()


@pytest.mark.parametrize("fields", [{}, {"sentence_aggregation": "pooling"}], ids=["capsule", "pooling"])
def test_the_sentence_starts_as_large_as_a_word(fields):
    config = CapsNMTConfig(d_model=256, **fields)
    aggregation, projection = SENTENCE_AGGREGATIONS[config.sentence_aggregation](config), SentenceProjection(config)
    torch.manual_seed(0)
    for module in (*aggregation.modules(), projection):
        if hasattr(module, "init_weights"):
            module.init_weights()
    state = projection(aggregation(torch.randn(8, 20, 256))[0].flatten(-2))
    assert state.shape == (8, 256)
    assert 0.3 < state.std().item() < 2
