"""What Transformers' own tests need around them."""

import pytest
import torch

# `--strict-markers` would refuse them.
MARKS = [
    "accelerate_tests",
    "flash_attn_test",
    "flash_attn_3_test",
    "flash_attn_4_test",
    "torch_compile_test",
]


def pytest_configure(config):
    for mark in MARKS:
        config.addinivalue_line("markers", f"{mark}: of Transformers' own tests")


@pytest.fixture(autouse=True)
def no_numbers_in_names():
    """The tests name their parts by weights, which take long to write out."""
    torch.set_printoptions(threshold=0, edgeitems=0)
    yield
    torch.set_printoptions(profile="default")
