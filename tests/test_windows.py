"""Windows has no fork. Without it the package still imports. PyTorch is imported first, for it asks for the system."""

import subprocess
import sys

import pytest

IMPORT_ALL = """
import importlib, os, pkgutil, torch
del os.fork, os.register_at_fork
import hf_capsule_mt
for module in pkgutil.walk_packages(hf_capsule_mt.__path__, "hf_capsule_mt."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


@pytest.mark.slow
def test_every_module_imports_without_fork():
    ended = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
