"""Clients that are slow, or go away, on real connections."""

import json
import select
import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack

import pytest
from running_server import connected, post, running
from starlette.responses import Response
from starlette.routing import Mount
from tiny_marian import tiny_model, tiny_tokenizer

from hf_capsule_mt.serving.app import build_app
from hf_capsule_mt.serving.models import ServedModel
from hf_capsule_mt.serving.operators.connections import TimedConnection
from hf_capsule_mt.serving.operators.metrics import Metrics
from hf_capsule_mt.serving.settings import BodyLimits, ServerSettings
from hf_capsule_mt.translation.text_translator import TextTranslator


class HeldTranslator:
    """Decodes when the test lets it, and remembers what it has decoded."""

    def __init__(self):
        self.translator = TextTranslator(tiny_model(), tiny_tokenizer())
        self.decoded = []
        self.started = threading.Event()
        self.may_go = threading.Event()

    def decode(self, sentences):
        self.decoded += [sentence.segment.text for sentence in sentences]
        self.started.set()
        assert self.may_go.wait(60)
        return self.translator.decode(sentences)


@pytest.fixture
def held():
    return HeldTranslator()


def app_of(held, **settings):
    return build_app([ServedModel("en", "de", held.translator, held.decode, "en")], ServerSettings(**settings))


def request(text):
    return post("/translate", json.dumps({"q": text, "source": "en", "target": "de"}).encode())


def wait_for_log(caplog, words):
    """Wait until a line is logged."""
    until = time.monotonic() + 60
    while words not in caplog.text:
        assert time.monotonic() < until, caplog.text
        time.sleep(0.02)


def is_closed_while_it_sends(client):
    """Send parts of a body until the connection is closed."""
    until = time.monotonic() + 60
    try:
        while time.monotonic() < until:
            client.sendall(b"1\r\na\r\n")
            time.sleep(0.02)
    except ConnectionError:
        return True
    return False


def test_a_client_that_goes_away_is_not_translated(held, caplog):
    """Whether its sentence waits, or is decoded."""
    caplog.set_level("INFO", "hf_capsule_mt.serving")
    with running(app_of(held)) as port:
        decoded, waiting, patient = connected(port), connected(port), connected(port)
        decoded.sendall(request("a b"))
        assert held.started.wait(60)
        waiting.sendall(request("c d e"))
        waiting.close()
        wait_for_log(caplog, "en-de 499 texts=1 characters=5")
        decoded.close()
        wait_for_log(caplog, "en-de 499 texts=1 characters=3")
        patient.sendall(request("f"))
        held.may_go.set()
        assert patient.recv(1000).startswith(b"HTTP/1.1 200")
        patient.close()
    assert held.decoded == ["a b", "f"]


def test_a_client_that_goes_away_while_it_sends(held, caplog):
    """That is no fault of the server."""
    caplog.set_level("INFO", "hf_capsule_mt.serving")
    with running(app_of(held)) as port:
        with connected(port) as client:
            client.sendall(post("/translate", b'{"q"', length=99))
        wait_for_log(caplog, "libretranslate - 499")
    assert "Traceback" not in caplog.text


def test_a_body_that_does_not_come(held):
    held.may_go.set()
    with running(app_of(held, body=BodyLimits(seconds=0.1))) as port, connected(port) as slow, connected(port) as other:
        slow.sendall(post("/translate", b'{"q"', length=99))
        answer = slow.recv(1000)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"connection: close" in answer.lower()
        other.sendall(request("a"))
        assert other.recv(1000).startswith(b"HTTP/1.1 200")


class ImpatientConnection(TimedConnection):
    seconds = 1.0
    """Long enough for a test to connect and send on a busy machine."""


@pytest.mark.parametrize("sent", [b"", b"POST /translate HTTP/1.1\r\nHost: local"])
def test_a_head_that_does_not_come(held, sent):
    with running(app_of(held), http=ImpatientConnection) as port, connected(port) as silent:
        silent.sendall(sent)
        assert silent.recv(1000) == b""


def test_a_second_head_that_does_not_come(held):
    """The first request may take longer, and the connection is kept for a while."""
    with running(app_of(held), http=ImpatientConnection) as port, connected(port) as client:
        client.sendall(request("a"))
        assert held.started.wait(60)
        time.sleep(1.5 * ImpatientConnection.seconds)
        held.may_go.set()
        answer = client.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 200")
        time.sleep(1.5 * ImpatientConnection.seconds)
        client.sendall(request("b")[:20])
        assert client.recv(1000) == b""


@pytest.mark.parametrize("path", ["/suggest", "/absent", "/translate_file", "/v2/document"])
@pytest.mark.parametrize("kind", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
def test_the_rest_of_a_body_that_is_not_read(held, path, kind):
    """It is answered at once. Whoever goes on to send has no more time than for a head."""
    app = app_of(held, file_body=BodyLimits(size=0))
    with running(app, http=ImpatientConnection) as port, connected(port) as endless:
        endless.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n\r\n".encode())
        assert endless.recv(1000)[9:12] in (b"403", b"404")
        assert is_closed_while_it_sends(endless)


def test_the_rest_of_a_body_may_come(held):
    """The connection is kept for the next request."""
    held.may_go.set()
    with running(app_of(held)) as port, connected(port) as client:
        client.sendall(post("/suggest", b"a", length=2))
        assert client.recv(1000).startswith(b"HTTP/1.1 403")
        client.sendall(b"b" + request("a"))
        assert client.recv(1000).startswith(b"HTTP/1.1 200")


async def large_answer(scope, receive, send):
    """Answer with more bytes than the buffers of two sockets take."""
    if scope["type"] == "http":
        await Response(b"a" * 20_000_000)(scope, receive, send)


def connected_with_little_room(port):
    """Return a connection that takes few bytes before they are read."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(60)
    client.connect(("127.0.0.1", port))
    return client


def wait_for_status(port, status):
    """Ask on new connections until an answer has a status."""
    until = time.monotonic() + 60
    answer = b""
    while not answer.startswith(b"HTTP/1.1 " + status):
        assert time.monotonic() < until, answer
        time.sleep(0.02)
        with connected(port) as client:
            client.sendall(GET)
            answer = client.recv(100)


GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("requests", [1, 2, 1000])
def test_a_client_that_reads_no_answers(requests):
    """Its place is free for others soon, whether the next answer waits for it, or the end of the connection."""
    options = {"http": ImpatientConnection, "limit_concurrency": 2}
    with running(large_answer, **options) as port, connected_with_little_room(port) as holder:
        holder.sendall(requests * GET)
        wait_for_status(port, b"503")
        wait_for_status(port, b"200")


@pytest.mark.slow
def test_a_client_that_reads_slowly():
    """It gets all, also if that takes longer than it may read nothing."""

    class SoonClosedConnection(TimedConnection):
        seconds = 3.0

    with running(large_answer, http=SoonClosedConnection) as port, connected(port) as slow:
        slow.sendall(GET)
        size = 0
        while size < 20_000_000:
            time.sleep(0.01)
            part = slow.recv(50_000)
            assert part, size
            size += len(part)


def test_the_server_stops_though_a_client_reads_no_answers(held, caplog):
    """The second answer waits for the client."""
    app = app_of(held)
    app.router.routes.append(Mount("/large", large_answer))
    with running(app, http=TimedConnection, timeout_graceful_shutdown=1, log_config=None) as port:
        client = connected_with_little_room(port)
        client.sendall(2 * GET.replace(b"/", b"/large/", 1))
        wait_for_status(port, b"307")
    client.close()
    assert "Cancel 1 running task(s)" in caplog.text
    assert "Traceback" not in caplog.text


def test_many_idle_connections(held):
    held.may_go.set()
    with running(app_of(held)) as port:
        idle = [connected(port) for _ in range(200)]
        with connected(port) as other:
            other.sendall(request("a"))
            assert other.recv(1000).startswith(b"HTTP/1.1 200")
        for connection in idle:
            connection.close()


def test_more_clients_than_the_server_takes(held):
    """Those that it refuses do not wait for the engine. The others are answered, and then the queue is empty."""
    metrics = Metrics()
    model = ServedModel("en", "de", held.translator, held.decode, "en")
    app = build_app([model], ServerSettings(max_waiting_tokens=50), metrics)
    with running(app) as port, ExitStack() as connections:
        clients = [connections.enter_context(connected(port)) for _ in range(256)]
        # A test that fails must not wait for an engine that is held.
        connections.callback(held.may_go.set)
        for client in clients:
            client.sendall(request("a b c"))
        # A batch is being decoded, and few requests have 50 tokens. The others are refused meanwhile.
        until = time.monotonic() + 60
        refused = []
        while len(refused) < 220:
            assert time.monotonic() < until, len(refused)
            time.sleep(0.02)
            refused, _, _ = select.select(clients, [], [], 0)
        assert not held.may_go.is_set()
        for client in refused:
            assert client.recv(1000, socket.MSG_PEEK).startswith(b"HTTP/1.1 429")
        held.may_go.set()
        statuses = Counter(client.recv(1000)[9:12].decode() for client in clients)
        assert set(statuses) == {"200", "429"}
        assert len(held.decoded) == statuses["200"]
        assert b"hf_capsule_mt_waiting_sentences 0.0" in metrics.text()
