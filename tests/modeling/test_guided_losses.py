"""The losses of guided routing against the loops of tests/reference, and what they hold in memory."""

import pytest
import torch
from reference import guided_routing as reference

from hf_capsule_mt import RNMTConfig
from hf_capsule_mt.modeling.guided_losses import GuidedLosses
from hf_capsule_mt.modeling.losses import _SCORE_CHUNK, bag_of_words_loss, shares

WIDTH, CAPSULE, VOCABULARY = 6, 3, 11
LABELS = {
    "one word": [[4]],
    "no padding": [[4, 5, 4], [1, 2, 3]],
    "both sides": [[-100, 4, 4, 6, -100], [7, 8, 9, 10, 2], [-100, -100, -100, 5, -100]],
    "in the middle": [[3, -100, 4, 6], [-100, 8, -100, 9]],
}
CONFIG = RNMTConfig(guided_routing="gdr", num_past_capsules=1, d_model=WIDTH, guided_capsule_dim=CAPSULE)
every_label = pytest.mark.parametrize("labels", [torch.tensor(rows) for rows in LABELS.values()], ids=LABELS)


def make(labels):
    """The losses in float64, and states, capsules and embedding for them."""
    torch.manual_seed(0)
    module = GuidedLosses(CONFIG).double()
    shapes = (*labels.shape, WIDTH), (*labels.shape, 3, CAPSULE), (VOCABULARY, WIDTH)
    return module, *(torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)


def assert_same_gradients(losses, tensors):
    """Of both losses, by every tensor."""
    weights = torch.rand(len(losses[0]), dtype=torch.float64)
    actual, expected = (torch.autograd.grad(weights @ torch.stack(list(one)), tensors) for one in losses)
    for one, other in zip(actual, expected):
        assert one.any()
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("chunk", [1, 3 * VOCABULARY, 1 << 20])
@every_label
def test_match_the_loops(labels, chunk, monkeypatch):
    monkeypatch.setitem(_SCORE_CHUNK, "cpu", chunk)
    module, states, capsules, embedding = make(labels)
    losses = module(states, capsules, labels, embedding)
    past, future = capsules[:, :, :1], capsules[:, :, 1:]
    weights = (module.past_bow.weight, module.future_bow.weight), (module.past_bca.weight, module.future_bca.weight)
    expected = [
        reference.bag_of_words_loss(past, future, *weights[0], embedding, labels),
        reference.content_agreement_loss(past, future, *weights[1], states, labels),
    ]
    assert list(losses) == ["bow_loss", "bca_loss"]
    torch.testing.assert_close(list(losses.values()), expected)
    tensors = [states, capsules, embedding, module.future_bow.weight, *weights[1]]
    if (labels != -100).sum(1).max() > 1:
        # Else there is no past.
        tensors.append(module.past_bow.weight)
    assert_same_gradients((losses.values(), expected), tensors)
    without_gradients = torch.no_grad()(module)(states, capsules, labels, embedding)
    torch.testing.assert_close(list(without_gradients.values()), [loss.detach() for loss in expected])


@pytest.mark.parametrize("garbage", [1e30, float("inf"), float("nan")])
@every_label
def test_positions_without_a_word_contribute_nothing(labels, garbage):
    module, states, capsules, embedding = make(labels)
    real = labels != -100
    spoilt = [torch.where(real.view(*real.shape, *[1] * (x.dim() - 2)), x, garbage) for x in (states, capsules)]
    spoilt = [tensor.detach().requires_grad_() for tensor in spoilt]
    expected, actual = (module(*made, labels, embedding) for made in ((states, capsules), spoilt))
    assert expected == actual
    for gradient in torch.autograd.grad(sum(actual.values()), spoilt):
        assert gradient.isfinite().all()
        assert not gradient[~real].any()


def test_the_probabilities_of_all_positions_never_exist(monkeypatch):
    monkeypatch.setitem(_SCORE_CHUNK, "cpu", 4 * VOCABULARY)
    sizes, exp = [], torch.Tensor.exp_
    monkeypatch.setattr(torch.Tensor, "exp_", lambda x: sizes.append(x.numel()) or exp(x))
    labels = torch.randint(VOCABULARY, (3, 10))
    module, *tensors, embedding = make(labels)
    sum(module(*tensors, labels, embedding).values()).backward()
    assert max(sizes) == 4 * VOCABULARY
    # The first word of a sentence has no past, and what has no bag costs nothing.
    assert sum(sizes) == (2 * labels.numel() - len(labels)) * VOCABULARY


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision(dtype, autocast):
    labels = torch.randint(VOCABULARY, (3, 10))
    module, *tensors, embedding = make(labels)
    expected = module(*tensors, labels, embedding)
    module.to(torch.float32 if autocast else dtype)
    lower = [
        tensor.detach().to(torch.float32 if autocast else dtype).requires_grad_() for tensor in (*tensors, embedding)
    ]
    with torch.autocast("cpu", dtype, enabled=autocast):
        actual = module(*lower[:2], labels, lower[2])
    for name, loss in actual.items():
        assert loss.dtype == torch.float32
        torch.testing.assert_close(loss.double(), expected[name], rtol=0.02, atol=0)
    sum(actual.values()).backward()
    assert all(tensor.grad.isfinite().all() and tensor.grad.dtype == tensor.dtype for tensor in lower)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_bag_of_words_loss_adds_up_in_float32(dtype, monkeypatch):
    """With logits near zero, nothing else could be far from what float64 makes of the same inputs."""
    monkeypatch.setitem(_SCORE_CHUNK, "cpu", 50)
    torch.manual_seed(0)
    queries, embedding = (torch.randn(size).to(dtype).requires_grad_() for size in ((2, 40, 8), (50, 8)))
    words = torch.randint(50, (2, 40))
    bags = shares(torch.ones(2, 40, 40, dtype=torch.bool).tril(-1))
    with torch.autocast("cpu", dtype):
        actual = bag_of_words_loss(queries / 8, embedding, words, bags)
    expected = bag_of_words_loss(queries.double() / 8, embedding.double(), words, bags.double())
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=0)
    gradients = [torch.autograd.grad(loss, (queries, embedding)) for loss in (actual, expected)]
    for one, other in zip(*gradients):
        # What one rounding costs, not one for each of the 78 chunks.
        assert (one.double() - other.double()).norm() < 0.6 * torch.finfo(dtype).eps * other.double().norm()
