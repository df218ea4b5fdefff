"""Names of tests are the same in every collection. Workers that share the tests compare them, and stop otherwise."""

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_names_are_the_same_in_another_collection(request):
    """At another time, and with another order of sets."""
    names = {item.nodeid for item in request.session.items}

    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *request.config.args]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    other = subprocess.run(command, cwd=request.config.rootpath, env=environment, capture_output=True, text=True)

    other_names = set(other.stdout.splitlines())
    assert names - other_names == set(), other.stdout[-2000:]
