"""What Transformers' own tests need around them."""

from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent

# `--strict-markers` would refuse them.
MARKS = [
    "accelerate_tests",
    "flash_attn_test",
    "flash_attn_3_test",
    "flash_attn_4_test",
    "torch_compile_test",
]


# What routed models attend with is Marian's, and tests/modeling compares its implementations for every kind: of these
# they run few, and of loading in all ways to spell a dtype none.
ATTENTION = "test_eager_matches_sdpa_inference_"
FEW = ("_13_fp32_pad_right", "_17_bf16_pad_left", "_24_fp32_pad_left_output_attentions")
ALL = ("NoAggregationTest", "RNMTTest")
# Of these models EverythingTest has every part.
PARTS = ("NoAggregationTest", "GuidedRoutingTest")


def pytest_configure(config):
    for mark in MARKS:
        config.addinivalue_line("markers", f"{mark}: of Transformers' own tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave out what the run of another model shows."""

    def shown(item):
        name, owner = item.name, getattr(item.cls, "__name__", None)
        of_attention = name == "test_bc_torch_dtype" or (name.startswith(ATTENTION) and not name.endswith(FEW))
        return owner not in ALL if of_attention else owner in PARTS

    items[:] = [item for item in items if item.path.parent != HERE or not shown(item)]


@pytest.fixture(autouse=True)
def no_numbers_in_names():
    """The tests name their parts by weights, which take long to write out."""
    torch.set_printoptions(threshold=0, edgeitems=0)
    yield
    torch.set_printoptions(profile="default")
