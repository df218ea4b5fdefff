"""The memory of a piece of work, next to what it must allocate."""

import pytest
import torch

from benchmarks.speed.memory import peak_memory, peak_of_live_tensors

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
    ),
]
MEBIBYTE = 2**20


def allocate(mebibytes, device):
    return torch.empty(mebibytes, MEBIBYTE, dtype=torch.uint8, device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_peak_is_the_most_at_one_time(device):
    before = allocate(50, device)

    def work():
        first = allocate(20, device)
        del first
        second, third = allocate(8, device), allocate(16, device)
        return before.shape, second.shape, third.shape

    assert peak_memory(work, torch.device(device)) == pytest.approx(24 * MEBIBYTE, abs=4096)


@pytest.mark.parametrize("device", DEVICES)
def test_what_a_backward_pass_keeps_counts(device):
    weight = torch.ones(1024, 1024, device=device, requires_grad=True)

    def work(times):
        loss = weight
        for _ in range(times):
            loss = loss.tanh()
        loss.sum().backward()
        weight.grad = None

    small, large = (peak_memory(lambda times=times: work(times), torch.device(device)) for times in (4, 8))
    # Every output of tanh is kept for its gradient.
    assert large - small == pytest.approx(4 * 4 * MEBIBYTE, abs=4096)


@pytest.mark.parametrize("device", DEVICES)
def test_no_work_needs_no_memory(device):
    assert peak_memory(lambda: None, torch.device(device)) == 0


@pytest.mark.parametrize("inference", [False, True])
def test_peak_of_live_tensors(inference):
    weight = torch.randn(100, 100)

    def work():
        first = torch.zeros(10, 100)
        second = first.view(1000).view(10, 100) @ weight
        weight.t()
        del first
        joined = torch.cat([second, second])
        del second
        return joined.add_(1), torch.zeros(100)

    with torch.inference_mode(inference):
        # The product and what is joined of it: more than any other two.
        assert peak_of_live_tensors(work) == 4 * (1000 + 2000)
        # Nothing is left of it.
        assert peak_of_live_tensors(lambda: None) == 0
