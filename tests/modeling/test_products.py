"""Products by oneDNN, where they are faster."""

import os

import pytest

from hf_capsule_mt.cli.common import report_user_errors


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
