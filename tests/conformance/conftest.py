"""What Transformers' own tests need around them."""

from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent

# `--strict-markers` would refuse them.
MARKS = ["accelerate_tests", "flash_attn_test", "flash_attn_3_test", "flash_attn_4_test", "torch_compile_test"]


# Routed models attend as Marian does, and tests/modeling compares the implementations: a few of these will do.
ATTENTION = "test_eager_matches_sdpa_inference_"
FEW = ("_13_fp32_pad_right", "_17_bf16_pad_left", "_24_fp32_pad_left_output_attentions")


def pytest_configure(config):
    for mark in MARKS:
        config.addinivalue_line("markers", f"{mark}: of Transformers' own tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave out most ways to attend, and all ways to spell a dtype."""

    def is_left_out(name):
        return name == "test_bc_torch_dtype" or (name.startswith(ATTENTION) and not name.endswith(FEW))

    items[:] = [item for item in items if item.path.parent != HERE or not is_left_out(item.name)]


@pytest.fixture(autouse=True)
def no_numbers_in_names():
    """The tests name their parts by weights, which take long to write out."""
    torch.set_printoptions(threshold=0, edgeitems=0)
    yield
    torch.set_printoptions(profile="default")
