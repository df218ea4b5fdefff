"""Linear maps by oneDNN are those of torch."""

import os

import pytest
import torch
from torch import nn

from hf_capsule_mt.cli.common import report_user_errors
from hf_capsule_mt.modeling import linear


@pytest.fixture
def calls(monkeypatch):
    """The products that are asked for, of matrices of any size, on a CPU whose MKL is the slower one."""
    monkeypatch.setattr(linear, "_SMALL_PRODUCT", 0)
    monkeypatch.setattr(linear, "_is_intel", lambda: False)
    asked, original = [], linear.product

    def record(left, right):
        asked.append((tuple(left.shape), tuple(right.shape)))
        return original(left, right)

    monkeypatch.setattr(linear, "product", record)
    return asked


def both(bias, shape=(2, 5, 6), dtype=torch.float32):
    """A map of ours and one of torch with the same weights, and the same inputs for each."""
    torch.manual_seed(0)
    plain = nn.Linear(6, 7, bias=bias).to(dtype)
    ours = linear.Linear(6, 7, bias=bias).to(dtype)
    ours.load_state_dict(plain.state_dict())
    return ours, plain, torch.randn(shape, dtype=dtype)


@pytest.mark.parametrize("shape", [(6,), (1, 6), (2, 5, 6), (0, 6)])
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients(shape, bias, calls):
    ours, plain, inputs = both(bias, shape)
    results = []
    for module in (ours, plain):
        given = inputs.clone().requires_grad_()
        outputs = module(given)
        outputs.square().sum().backward()
        results.append([outputs.detach(), given.grad, *(weight.grad for weight in module.parameters())])
    torch.testing.assert_close(*results)
    assert len(calls) == (3 if linear.has_onednn() and inputs.numel() else 0)


def test_only_gradients_that_are_wanted(calls):
    ours, _, inputs = both(True)
    if not linear.has_onednn():
        pytest.skip("no oneDNN here")
    ours(inputs).sum().backward()
    ours.requires_grad_(False)
    ours(inputs.requires_grad_()).sum().backward()
    # Output and weight, output and inputs.
    assert [left for left, _ in calls] == [(10, 6), (7, 10), (10, 6), (10, 7)]
    with torch.no_grad():
        assert not ours(inputs.detach()).requires_grad


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_torchs(dtype, calls):
    ours, plain, inputs = both(True, dtype=dtype)
    assert torch.equal(ours(inputs), plain(inputs))
    ours, plain, inputs = both(True)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ours(inputs), plain(inputs))
        assert ours(inputs).dtype == torch.bfloat16
    assert not calls


@pytest.mark.parametrize("total", [torch.float32, torch.float64])
def test_sums_of_products(total, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(linear, "_is_intel", lambda: False)
    left, right, before = torch.randn(3, 4), torch.randn(5, 4), torch.randn(3, 5).to(total)
    for least in (0, 1 << 40):
        monkeypatch.setattr(linear, "_SMALL_PRODUCT", least)
        after = before.clone()
        linear.add_product(after, left, right)
        torch.testing.assert_close(after, before + (left @ right.t()).to(total))


def test_maps_of_a_module_are_replaced():
    """Only torch's own: a subclass has its reasons."""
    parts = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Sequential(linear.GateLinear(3, 4)))
    before = dict(parts.named_parameters())
    linear.use_products(parts)
    assert [type(part) for part in (parts[0], parts[2][0])] == [linear.Linear, linear.GateLinear]
    assert all(weight is before[name] for name, weight in parts.named_parameters())


@pytest.mark.parametrize("given", [None, "7"])
def test_commands_limit_the_number_of_programs(given, monkeypatch):
    names = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    for name in names:
        # Put back afterwards.
        monkeypatch.setenv(name, given or "")
        if given is None:
            monkeypatch.delenv(name)
    with report_user_errors():
        assert [os.environ[name] for name in names] == [given or "128"] * 2
