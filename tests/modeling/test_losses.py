"""The loss against its formula, word by word."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_capsule_mt.modeling import losses
from hf_capsule_mt.modeling.losses import (
    label_smoothed_cross_entropy,
    linear_cross_entropy,
    log_partition_sum,
    rdrop_cross_entropy,
)


def reference(logits, labels, label_smoothing):
    """-(1 - e) log p(y) - e/V sum_v log p(v), for each label in turn: their sum, and how many there are."""
    total, count = 0.0, 0
    for row, label in zip(logits.flatten(0, 1).tolist(), labels.flatten().tolist()):
        if label == -100:
            continue
        largest = max(row)
        normaliser = largest + math.log(sum(math.exp(value - largest) for value in row))
        smooth = sum(normaliser - value for value in row) / len(row)
        total += (1 - label_smoothing) * (normaliser - row[label]) + label_smoothing * smooth
        count += 1
    return total, count


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(2, 7)),
    label_smoothing=st.sampled_from([0.0, 0.1, 0.5]),
    scale=st.sampled_from([1e-3, 1.0, 100.0]),
    num_items=st.none() | st.integers(1, 50),
    seed=st.integers(0, 2**16),
)
def test_matches_formula(shape, label_smoothing, scale, num_items, seed):
    torch.manual_seed(seed)
    logits = (scale * torch.randn(shape)).requires_grad_()
    labels = torch.randint(shape[2], shape[:2])
    labels[torch.rand(shape[:2]) < 0.3] = -100
    labels[0, 0] = 1
    total, count = reference(logits, labels, label_smoothing)
    loss = label_smoothed_cross_entropy(logits, labels, label_smoothing, num_items)
    # The logits are rounded to float32: a loss far below them has no more digits than they leave it.
    rounding = torch.finfo(torch.float32).eps * logits.abs().max().item() * count / (num_items or count)
    assert loss.item() == pytest.approx(total / (num_items or count), rel=1e-5, abs=2 * rounding)
    loss.backward()
    target = torch.nn.functional.one_hot(labels.clamp(0), shape[2])
    smoothed = (1 - label_smoothing) * target + label_smoothing / shape[2]
    expected = (logits.softmax(-1) - smoothed) * (labels != -100).unsqueeze(-1) / (num_items or count)
    torch.testing.assert_close(logits.grad, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_summed_in_float32(dtype):
    torch.manual_seed(0)
    logits, labels = torch.randn(4, 300, 50).to(dtype), torch.randint(50, (4, 300))
    loss = label_smoothed_cross_entropy(logits, labels, 0.1, num_items_in_batch=1)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(reference(logits, labels, 0.1)[0], rel=1e-5)


def vocabulary(*shape, positions=6, width=4, words=9):
    """States, an embedding and a bias without gradient, in float64."""
    torch.manual_seed(0)
    shapes = (positions, width), (words, width), (words,)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=len(shape) > 1) for shape in shapes]


@pytest.mark.parametrize("chunk", [1, 20, 1 << 20])
def test_log_partition_gradients(chunk, monkeypatch):
    monkeypatch.setitem(losses._SCORE_CHUNK, "cpu", chunk)
    weights = torch.tensor([0.5, 0.0, 1.0, 2.0, 0.0, -1.0], dtype=torch.float64)

    *tensors, bias = vocabulary()
    for each in (None, bias):
        assert torch.autograd.gradcheck(
            lambda *both, each=each: log_partition_sum(*both, weights, each), tensors, fast_mode=True
        )
    states, embedding = tensors
    for one, other in ((states, embedding.detach()), (states.detach(), embedding)):
        assert log_partition_sum(one, other, weights).requires_grad
    expected = weights @ (tensors[0] @ tensors[1].t() + bias).logsumexp(-1)
    torch.testing.assert_close(log_partition_sum(*tensors, weights, bias), expected)


def divergence(one, other):
    """(KL(p || q) + KL(q || p)) / 2 of the distributions by two rows of logits."""
    p, q = ([math.exp(value) for value in row.log_softmax(-1).tolist()] for row in (one, other))
    there = sum(a * (math.log(a) - math.log(b)) for a, b in zip(p, q))
    back = sum(b * (math.log(b) - math.log(a)) for a, b in zip(p, q))
    return (there + back) / 2


@pytest.mark.parametrize("chunk", [1, 20, 1 << 20])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(("num_items", "label_smoothing", "alpha"), [(None, 0.0, 1.0), (5, 0.1, 3.0)])
def test_rdrop(chunk, has_bias, num_items, label_smoothing, alpha, monkeypatch):
    monkeypatch.setitem(losses._SCORE_CHUNK, "cpu", chunk)
    states, embedding, bias = vocabulary(positions=12)
    bias = bias if has_bias else None
    labels = torch.tensor([[1, -100, 3], [8, 8, -100]]).repeat(2, 1)
    logits = (states @ embedding.t() + (bias if has_bias else 0)).view(2, 6, -1)
    apart = sum(divergence(logits[0, place], logits[1, place]) for place in (0, 2, 3, 4))
    cross_entropy, _ = reference(logits.detach().view(4, 3, -1), labels, label_smoothing)
    settings = label_smoothing, num_items
    loss, part = rdrop_cross_entropy(states.view(4, 3, -1), embedding, labels, alpha, bias, *settings)
    assert part.item() == pytest.approx(apart / (num_items or 8), rel=1e-12)
    assert loss.item() == pytest.approx((cross_entropy + alpha * apart) / (num_items or 8), rel=1e-12)
    assert not part.requires_grad

    def total(states, embedding):
        return rdrop_cross_entropy(states.view(4, 3, -1), embedding, labels, alpha, bias, *settings)[0]

    assert torch.autograd.gradcheck(total, [states, embedding], fast_mode=True)


@pytest.mark.parametrize("chunk", [1, 20, 1 << 20])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("num_items", [None, 5])
def test_without_logits(chunk, label_smoothing, has_bias, num_items, monkeypatch):
    """The same loss and the same gradients as from logits, word by word."""
    monkeypatch.setitem(losses._SCORE_CHUNK, "cpu", chunk)
    states, embedding, bias = vocabulary()
    labels = torch.tensor([[1, -100, 3], [8, 8, -100]])
    logits = (states @ embedding.t() + (bias if has_bias else 0)).view(2, 3, -1)
    total, count = reference(logits.detach(), labels, label_smoothing)
    # Where there is no word may be anything.
    without_a_word = torch.zeros(6, 1).index_fill(0, torch.tensor([1, 5]), torch.inf)
    given = (states + without_a_word).view(2, 3, -1)
    loss = linear_cross_entropy(given, embedding, labels, bias if has_bias else None, label_smoothing, num_items)
    assert loss.item() == pytest.approx(total / (num_items or count), rel=1e-12)
    # Not label_smoothed_cross_entropy, which is in float32.
    by_label = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), label_smoothing=label_smoothing, reduction="sum"
    ) / (num_items or count)
    for actual, expected in zip(*(torch.autograd.grad(each, [states, embedding]) for each in (loss, by_label))):
        assert expected.any()
        torch.testing.assert_close(actual, expected)


def frequent_word():
    """States, an embedding, and labels of which one is frequent and all but known: its gradient is a small rest."""
    torch.manual_seed(1)
    embedding, known = torch.randn(500, 32) / 32**0.5, torch.randn(32)
    known *= 3 / known.norm()
    embedding[7] = 1.2 * known
    labels = torch.randint(500, (2000,)).index_fill(0, torch.arange(600), 7)
    states = torch.randn(2, 2000, 32) * torch.where(labels == 7, 0.3, 1.0).unsqueeze(-1)
    order = torch.randperm(2000)
    return (states + known * (labels == 7).unsqueeze(-1))[:, order], embedding, labels[order].expand(2, -1)


@pytest.mark.parametrize("alpha", [None, 1.0])
@pytest.mark.parametrize("autocast", [False, True])
def test_a_frequent_words_gradient_in_half_precision(alpha, autocast):
    """It is that of float64 but for roundings: sums of bfloat16 would be off by twice as much as it is."""
    states, embedding, labels = frequent_word()

    def gradient(states, embedding):
        embedding = embedding.detach().requires_grad_()
        if alpha is None:
            linear_cross_entropy(states, embedding, labels, label_smoothing=0.1).backward()
        else:
            rdrop_cross_entropy(states, embedding, labels, alpha, label_smoothing=0.1)[0].backward()
        return embedding.grad[7].double()

    half = [tensor.bfloat16() for tensor in (states, embedding)]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        actual = gradient(*(tensor.float() for tensor in half) if autocast else half)
    expected = gradient(*(tensor.double() for tensor in half))
    assert (actual - expected).norm() < 0.02 * expected.norm()


def test_the_loss_of_what_is_known_is_not_negative_in_half_precision():
    """The word has a score of 17.53, which the product rounds to 17.5."""
    direction = torch.eye(64)[:1]
    embedding = (0.05 * torch.randn(100, 64, generator=torch.Generator().manual_seed(0))).index_copy(
        0, torch.tensor([7]), 4.14 * direction
    )
    states, labels = 4.25 * direction.unsqueeze(0), torch.tensor([[7]])
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(states, embedding, labels)
    assert 0 <= loss.item() < 1e-4


@pytest.mark.parametrize("has_bias", [False, True])
def test_the_operators_keep_what_they_promise(has_bias):
    """A compiled graph takes shapes, dtypes and layouts of their results as they are described."""
    torch.manual_seed(0)
    one, other, embedding, bias = (torch.randn(shape) for shape in ((6, 4), (6, 4), (9, 4), (9,)))
    weights = torch.rand(6)
    bias = bias if has_bias else None
    for with_gradients in (False, True):
        torch.library.opcheck(losses._log_partition, (one.bfloat16(), embedding, bias, weights, with_gradients))
    torch.library.opcheck(losses._two_passes, (one.bfloat16(), other.bfloat16(), embedding, bias, weights, 2.0))


@pytest.mark.parametrize("alpha", [None, 1.0])
def test_autocast_lowers_only_the_states(alpha):
    """All sums stay in float32."""
    states, embedding, labels = frequent_word()
    states = states.bfloat16()
    bias = torch.randn(500)

    def loss(states):
        if alpha is None:
            return linear_cross_entropy(states, embedding, labels, bias, 0.1)
        return rdrop_cross_entropy(states, embedding, labels, alpha, bias, 0.1)[0]

    with torch.autocast("cpu", torch.bfloat16):
        found = loss(states.float())
    assert found.dtype == torch.float32
    assert found.item() == loss(states).item()
