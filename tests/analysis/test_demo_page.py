"""The page as a server: what it answers, that it talks to nobody, and that its list of checkpoints holds."""

import ipaddress
import socket
import urllib.error
import urllib.request

import pytest
from served import CAPS_NMT, MARIAN, needs_gradio, served

from hf_capsule_mt.translation.translator import translate_lines

pytestmark = [pytest.mark.slow, needs_gradio]


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


def test_fixed_models_are_the_only_ones():
    with served(MARIAN, fixed_models=True) as url, pytest.raises(Exception, match=f"{CAPS_NMT} .*not in the list"):
        client_of(url).predict(CAPS_NMT, "a b c d", None, api_name="/respond")


@pytest.mark.parametrize(
    ("path", "method"),
    [("upload", "POST"), ("process_recording", "POST"), ("run/predict", "POST"), ("call/respond", "POST")]
    + [("proxy=http://example.org", "GET"), ("component_server", "POST")],
)
def test_other_routes_are_closed(url, path, method):
    assert status(f"{url}gradio_api/{path}", method, b"{}" if method == "POST" else None) == 403


def test_long_requests_are_refused(url):
    assert status(f"{url}gradio_api/queue/join", "POST", b"x" * 200_000) in (413, None)
    assert status(f"{url}gradio_api/queue/join", "POST", iter([b"{}"])) in (413, None)


@pytest.fixture(scope="module")
def url():
    with served(MARIAN) as url:
        yield url


def status(url, method, data):
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request) as found:
            return found.status
    except urllib.error.HTTPError as error:
        return error.code
    except (ConnectionError, urllib.error.URLError):
        # The server hangs up while a request is being sent that it does not read.
        return None
