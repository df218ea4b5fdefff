"""The page as a server: what it answers, that it talks to nobody, and that its list of checkpoints holds."""

import ipaddress
import socket
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from loopback import free_port
from tiny_checkpoints import tiny_checkpoint
from translated_lines import translate_lines

from hf_capsule_mt.cli.demo import build_demo

pytestmark = pytest.mark.slow


@pytest.fixture
def addresses(monkeypatch):
    """Where this process connects to, and whose address it asks for."""
    seen = []
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def connecting(self, address):
        seen.append(address[0] if isinstance(address, tuple) else address)
        return connect(self, address)

    def looking_up(host, *arguments, **options):
        seen.append(host)
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket.socket, "connect", connecting)
    monkeypatch.setattr(socket, "getaddrinfo", looking_up)
    return seen


def is_here(address):
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address in ("localhost", None)


def client_of(url):
    from gradio_client import Client

    return Client(url, verbose=False)


def test_it_answers_and_talks_to_nobody(addresses):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    with served(MARIAN, fixed_models=True) as url:
        client = client_of(url)
        _, translation, *_ = client.predict(MARIAN, "a b c d", None, api_name="/respond")
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(MARIAN), AutoTokenizer.from_pretrained(MARIAN)
    assert [translation] == translate_lines(model, tokenizer, ["a b c d"])
    assert addresses
    assert all(is_here(address) for address in addresses)


def test_it_opens_with_an_example_and_translates_those_that_are_clicked():
    page = build_demo([MARIAN, CAPS_NMT], device="cpu", examples=["a b", "c d"])
    events = page.config["dependencies"]
    opening = [event for event in events if "load" in [what for _, what in event["targets"]]]
    [clicked] = [event["id"] for event in events if event["inputs"] == [page.config["components"][1]["id"] + 1]]
    following = [event for event in events if event["trigger_after"] == clicked]
    assert [len(part) for part in (opening, following)] == [2, 2]
    assert [event["outputs"] for event in opening] == [event["outputs"] for event in following]
    with served(MARIAN, examples=["a b", "c d"]) as url:
        client = client_of(url)
        assert client.predict(1, api_name="/lambda") == "c d"


def test_fixed_models_are_the_only_ones():
    with served(MARIAN, fixed_models=True) as url, pytest.raises(Exception, match=f"{CAPS_NMT} .*not in the list"):
        client_of(url).predict(CAPS_NMT, "a b c d", None, api_name="/respond")


def test_other_routes_and_long_requests_are_refused():
    with served(MARIAN) as url:
        for path in ("upload", "process_recording", "run/predict", "call/respond", "component_server"):
            assert httpx.post(f"{url}gradio_api/{path}", files={"files": b"some bytes"}).status_code == 403
        assert httpx.get(f"{url}gradio_api/proxy=http://example.org").status_code == 403
        assert httpx.post(f"{url}gradio_api/queue/join", content=b"x" * 200_000).status_code == 413


CHECKPOINTS = Path(__file__).parents[2] / "checkpoints"
MARIAN, CAPS_NMT = str(CHECKPOINTS / "tatoeba-en-de-em-routing"), str(tiny_checkpoint("caps_nmt"))


@contextmanager
def served(*models, **options):
    """Its address, while it is served."""
    from hf_capsule_mt.analysis.demo_page import launch_page

    page = build_demo(models, device="cpu", **options)
    launch_page(page, "127.0.0.1", free_port(), prevent_thread_lock=True)
    try:
        yield page.local_url
    finally:
        page.close(verbose=False)
