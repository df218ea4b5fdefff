"""Products by oneDNN: the programs that it keeps for the shapes of the past stay few."""

import os
import subprocess
import sys

import pytest
from torch import ones

from hf_capsule_mt.modeling.ops.products import is_faster_by_onednn

GROWTH = """
import ctypes
import torch
from hf_capsule_mt.modeling.ops.products import product

def held():
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

rows, weight = torch.ones(7500, 128), torch.ones(512, 128)
for number in range(1200):
    product(rows[: 1500 + 5 * number], weight)
    if number == 299:
        before = held()
print((held() - before) // 1024)
"""


def test_the_limit_is_set_before_the_first_product():
    assert {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"} <= set(os.environ)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.skipif(not is_faster_by_onednn(ones(1500, 128), ones(512, 128)), reason="needs oneDNN")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow_with_the_number_of_shapes():
    """Without a limit it grows by some 270 MB."""
    found = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 60
