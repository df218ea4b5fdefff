"""Products by oneDNN: the programs that it keeps for the shapes of the past stay few."""

import os
import subprocess
import sys

import pytest

from hf_capsule_mt.modeling import linear as products

GROWTH = """
import ctypes
import torch
from hf_capsule_mt.modeling import linear as products

def held():
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

products._is_intel = lambda: False
rows, weight = torch.ones(7500, 128), torch.ones(512, 128)
for number in range(1200):
    products.product(rows[: 1500 + 5 * number], weight)
    if number == 299:
        before = held()
print((held() - before) // 1024)
"""


@pytest.mark.parametrize("given", [None, "7"])
def test_the_number_of_programs_is_limited(given):
    names = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {} if given is None else dict.fromkeys(names, given)
    code = f"import os, hf_capsule_mt.modeling.linear\nprint(*(os.environ[name] for name in {names}))"
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == [given or "128"] * 2


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.skipif(not products._has_onednn(), reason="needs oneDNN")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow_with_the_number_of_shapes():
    """Without a limit it grows by some 270 MB."""
    found = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 60


@pytest.mark.parametrize(("vendor", "found"), [("GenuineIntel", True), ("AuthenticAMD", False)])
@pytest.mark.parametrize("listed", [True, False], ids=["/proc/cpuinfo", "platform"])
def test_whose_cpu_it_is(vendor, found, listed, tmp_path, monkeypatch):
    """Linux lists its CPUs; elsewhere Python knows."""
    cpus = tmp_path / "cpuinfo"
    if listed:
        cpus.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")
    monkeypatch.setattr(products, "Path", {"/proc/cpuinfo": cpus}.get)
    monkeypatch.setattr(products.platform, "processor", lambda: "" if listed else f"x86 Family 6, {vendor}")
    assert products._is_intel.__wrapped__() == found
