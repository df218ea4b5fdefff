"""A Hub on loopback for every test that asks for one."""

import pytest
from huggingface_hub import constants
from loopback_hub import serve


@pytest.fixture
def hub(monkeypatch):
    """A new Hub, which this process may talk to."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serve() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.partition("/{repo_id}")
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", running.url + "".join(template[1:]))
        yield running
