"""Tests here use the tiny models of those of modeling."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "modeling"))


@pytest.fixture
def engine_calls(monkeypatch):
    """The translations of every call of an engine: none if Transformers did the work."""
    from hf_capsule_mt.decoding import Engine

    calls, translate = [], Engine.translate

    def recorded(*args):
        calls.append(translate(*args))
        return calls[-1]

    monkeypatch.setattr(Engine, "translate", recorded)
    return calls
