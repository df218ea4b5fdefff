"""Guided routing and its baselines against the loops of tests/reference: capsules, assignment and gradients."""

import pytest
import torch
from reference import guided_routing as reference

from hf_capsule_mt import CapsuleAggregatedMarianConfig
from hf_capsule_mt.modeling import additive_scores as additive_scores_module
from hf_capsule_mt.modeling.additive_scores import AdditiveScoresFunction, additive_scores
from hf_capsule_mt.modeling.guided_routing import GuidedRouting, GuidedVotes, guided_dynamic_routing

WIDTH, CAPSULE = 6, 4
# B, T, S
SHAPES = [(1, 1, 1), (2, 3, 4), (3, 2, 7)]
KINDS = {
    "gdr": {"guided_routing": "gdr", "num_past_capsules": 1, "num_redundant_capsules": 3},
    "gdr_without_redundant": {"guided_routing": "gdr", "num_redundant_capsules": 0},
    "gdr_once": {"guided_routing": "gdr", "guided_routing_iterations": 1},
    "classifier": {"guided_routing": "classifier", "num_future_capsules": 1},
    "classifier_without_redundant": {"guided_routing": "classifier", "num_redundant_capsules": 0},
    "attention": {"guided_routing": "attention", "num_past_capsules": 3},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind, seed=0):
    """The two modules in float64, with every weight random."""
    config = CapsuleAggregatedMarianConfig(**KINDS[kind], d_model=WIDTH, guided_capsule_dim=CAPSULE, dropout=0.0)
    torch.manual_seed(seed)
    modules = GuidedVotes(config), GuidedRouting(config, hidden_width=7)
    for module in modules:
        for parameter in module.double().parameters():
            torch.nn.init.normal_(parameter, std=0.7)
    return config, *modules


def inputs(shape, seed=1):
    """States, source states, and a mask with padding on both sides and in the middle; at least one word is real."""
    generator = torch.Generator().manual_seed(seed)
    batch, length, source = shape
    states = torch.randn(batch, length, WIDTH, dtype=torch.float64, generator=generator)
    sources = torch.randn(batch, source, WIDTH, dtype=torch.float64, generator=generator)
    mask = torch.rand(batch, source, generator=generator) < 0.6
    mask[:, source // 2] = True
    return states.requires_grad_(), sources.requires_grad_(), mask


def by_loops(config, votes, routing, states, sources, mask):
    """Capsules and assignments [B, T, iterations, S, J] by the reference."""
    kind = config.guided_routing
    values = votes.votes.weight.unflatten(0, (-1, CAPSULE))
    if kind == "gdr":
        guide = torch.cat([routing.queries.weight, votes.keys.weight, routing.capsule_map], dim=1)
        weights = values, guide, routing.score_weight[0]
        return reference.guided_dynamic_routing(states, sources, *weights, config.guided_routing_iterations, mask)
    if kind == "classifier":
        hidden = torch.cat([routing.queries.weight, votes.keys.weight], dim=1)
        weights = values, hidden, routing.score_weight
        capsules, classes = reference.guided_classifier(states, sources, *weights, config.num_past_capsules, mask)
    else:
        weights = (module.weight.unflatten(0, (2, CAPSULE)) for module in (routing.queries, votes.keys))
        arguments = states, sources, values, *weights, config.num_past_capsules, mask
        capsules, classes = reference.guided_attention(*arguments)
    return capsules, classes.unsqueeze(2)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@every_kind
def test_matches_the_loops(kind, shape, masked):
    config, votes, routing = make(kind)
    states, sources, mask = inputs(shape)
    mask = mask if masked else None
    outputs, capsules, assignment = routing(states, *votes(sources, mask), mask, output_routing="all")
    expected, assignments = by_loops(config, votes, routing, states, sources, mask)
    kept = config.num_past_capsules + config.num_future_capsules
    torch.testing.assert_close(capsules, expected[:, :, :kept])
    torch.testing.assert_close(assignment, assignments.detach())
    last = routing(states, *votes(sources, mask), mask, output_routing=True).assignment
    assert torch.equal(last, assignment[:, :, -1])
    context = torch.cat([states, expected[:, :, :kept].flatten(-2)], dim=-1)
    results = states + routing.fc2(routing.fc1(context).relu())
    torch.testing.assert_close(outputs, results)
    parameters = [*votes.parameters(), *routing.parameters()]
    weight = torch.randn_like(results)
    # With one iteration nothing guides.
    actual, wanted = (
        torch.autograd.grad((result * weight).sum(), [states, sources, *parameters], allow_unused=True)
        for result in (outputs, results)
    )
    assert any(gradient is not None and gradient.any() for gradient in actual[2:])
    for one, other in zip(actual, wanted, strict=True):
        torch.testing.assert_close(one, other)


@every_kind
def test_the_assignment_of_a_word(kind):
    config, votes, routing = make(kind)
    states, sources, mask = inputs((2, 3, 5))
    assignment = routing(states, *votes(sources, mask), mask, output_routing="all").assignment
    real = mask[:, None, None].expand(assignment.shape[:-1])
    totals = assignment.sum(3) if kind == "attention" else assignment.sum(-1)[real]
    torch.testing.assert_close(totals, torch.ones_like(totals))
    assert not assignment[~real].any()
    if config.guided_routing == "gdr":
        # The first assignment is uniform; later ones differ from word to word and from state to state.
        first = assignment[:, :, 0][real[:, :, 0]]
        torch.testing.assert_close(first, torch.full_like(first, 1 / first.shape[-1]))
        if config.guided_routing_iterations > 1:
            assert assignment[:, :, -1].std(1).max() > 1e-3


@pytest.mark.parametrize("garbage", [1e30, float("inf"), float("nan")])
@every_kind
def test_padded_words_contribute_nothing(kind, garbage):
    _, votes, routing = make(kind)
    states, sources, mask = inputs((2, 3, 5))
    spoilt = torch.where(mask.unsqueeze(-1), sources, garbage).detach().requires_grad_()
    results = []
    for words in (sources, spoilt):
        outputs, _, assignment = routing(states, *votes(words, mask), mask, output_routing=True)
        parameters = [*votes.parameters(), *routing.parameters()]
        gradients = torch.autograd.grad(outputs.sum(), [words, states, *parameters], allow_unused=True)
        results.append((outputs, assignment, *gradients))
    for one, other in zip(*results):
        assert one is other is None or torch.equal(one, other)
    assert results[0][2].any()
    assert not results[0][2][~mask].any()
    nothing = routing(states, *votes(sources), torch.zeros_like(mask))
    assert not nothing.capsules.any()
    assert torch.autograd.grad(nothing.states.sum(), states)[0].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_kind
def test_half_precision_routes_in_float32(kind, dtype):
    _, votes, routing = make(kind)
    states, sources, mask = (tensor.detach() for tensor in inputs((2, 3, 5)))
    made = [tensor.to(dtype) for tensor in votes(sources)]
    routing.to(dtype)
    outputs = routing(states.to(dtype), *made, mask, True)
    assert {tensor.dtype for tensor in outputs} == {dtype}
    # The same routing in float32 of what was rounded before it.
    queries = routing.queries(states.to(dtype))
    exact = routing.float()._route(*(tensor.float() for tensor in made), queries.float(), mask, False)
    torch.testing.assert_close(outputs.assignment, exact.assignment.to(dtype))
    torch.testing.assert_close(outputs.capsules, exact.capsules[:, :, : outputs.capsules.shape[2]].to(dtype))


@every_kind
def test_autocast_does_not_lower_the_precision_of_routing(kind):
    _, votes, routing = (each.float() if isinstance(each, torch.nn.Module) else each for each in make(kind))
    states, sources, mask = inputs((2, 3, 5))
    states = states.detach().float()
    made = [tensor.detach() for tensor in votes(sources.detach().float(), mask)]
    with torch.autocast("cpu", torch.bfloat16):
        outputs, queries = routing(states, *made, mask, True), routing.queries(states)
    exact = routing._route(*made, queries.float(), mask, False)
    torch.testing.assert_close(outputs.assignment.float(), exact.assignment, rtol=2**-8, atol=1e-6)
    capsules = exact.capsules[:, :, : outputs.capsules.shape[2]]
    torch.testing.assert_close(outputs.capsules.float(), capsules, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 7, 40, 1000])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1, 1), (3, 4, 5, 2, 1), (2, 3, 1, 5, 3)])
def test_additive_scores(shape, chunk, monkeypatch):
    """Value and gradient, however it is cut."""
    monkeypatch.setitem(additive_scores_module._PAIR_CHUNK, "cpu", chunk)
    rows, length, source, width, outputs = shape
    torch.manual_seed(0)
    queries, keys, weight = (
        torch.randn(size, dtype=torch.float64, requires_grad=True)
        for size in ((rows, length, width), (rows, source, width), (outputs, width))
    )
    hidden = (queries[:, :, None] + keys[:, None]).tanh()
    torch.testing.assert_close(additive_scores(queries, keys, weight), hidden @ weight.t())
    assert torch.autograd.gradcheck(AdditiveScoresFunction.apply, (queries, keys, weight), fast_mode=True)


@pytest.mark.parametrize("num_scores", [1, 3])
@pytest.mark.parametrize("shift", [0.0, 50.0])
def test_additive_scores_of_large_terms(num_scores, shift):
    """Queries and keys that cancel: scores and gradients."""
    torch.manual_seed(0)
    tensors = [torch.randn(2, 4, 8) + shift, torch.randn(2, 3, 8) - shift, torch.randn(num_scores, 8)]
    actual, expected = ([t.to(dtype).requires_grad_() for t in tensors] for dtype in (torch.float32, torch.float64))
    scores = additive_scores(*actual)
    queries, keys, weight = expected
    reference = (queries.unsqueeze(-2) + keys.unsqueeze(-3)).tanh() @ weight.t()
    torch.testing.assert_close(scores, reference.float(), rtol=1e-5, atol=1e-5)
    cotangent = torch.randn_like(scores)
    gradients = torch.autograd.grad(scores, actual, cotangent)
    for gradient, exact in zip(gradients, torch.autograd.grad(reference, expected, cotangent.double())):
        torch.testing.assert_close(gradient, exact.float(), rtol=1e-4, atol=1e-5)


def test_routing_gradients():
    torch.manual_seed(0)
    sizes = (2, 2, 3, 4), (2, 2, 3, 4), (2, 2, 4), (4, 4), (1, 4)
    tensors = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]
    mask = torch.tensor([[False, True, True], [True, True, False]])
    assert torch.autograd.gradcheck(lambda *args: guided_dynamic_routing(*args, mask=mask)[0], tensors, fast_mode=True)
