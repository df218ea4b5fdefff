"""The loss against its formula, word by word."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_capsule_mt.modeling.ops.losses import label_smoothed_cross_entropy


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


@pytest.mark.parametrize("count", [7, torch.tensor(7)])
def test_number_of_items_is_an_integer_or_a_tensor(count):
    logits, labels = torch.zeros(1, 2, 4), torch.tensor([[1, -100]])
    assert label_smoothed_cross_entropy(logits, labels, num_items_in_batch=count).item() == pytest.approx(
        math.log(4) / 7
    )
