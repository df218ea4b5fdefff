"""Products by oneDNN, where they are faster."""

import os

import pytest

from hf_capsule_mt.cli.common import report_user_errors
from hf_capsule_mt.modeling import linear as products


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
