"""A server that stops: no connection is lost, whether the server has seen it or not."""

import socket
import threading
from contextlib import ExitStack, contextmanager

import uvicorn
from running_server import connected, post
from starlette.responses import JSONResponse

from hf_capsule_mt.serving.app import refuse_stopping
from hf_capsule_mt.serving.operators.connections import TimedConnection
from hf_capsule_mt.serving.operators.process import KeyReloading, LoggedServer
from hf_capsule_mt.serving.settings import ApiKeys

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class HeldServer(LoggedServer):
    """A server whose loop stands still until the test lets it go. Then it stops, and has accepted nobody yet."""

    def __init__(self, http):
        config = uvicorn.Config(
            app_that_runs, http=http, lifespan="off", log_config=None, timeout_graceful_shutdown=120
        )
        super().__init__(config, "", "", KeyReloading(ApiKeys()), refuse_stopping)
        self.is_held = threading.Event()
        self.may_go = threading.Event()

    async def on_tick(self, counter):
        self.is_held.set()
        assert self.may_go.wait(60)
        return True


async def app_that_runs(scope, receive, send):
    await JSONResponse({})(scope, receive, send)


class PatientConnection(TimedConnection):
    seconds_at_end = 60.0


class ImpatientConnection(TimedConnection):
    seconds_at_end = 0.1


@contextmanager
def stopping(http=PatientConnection):
    """Yield the port of a server that stands still, and a function that lets it stop."""
    server = HeldServer(http)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=[[listener]])
        thread.start()
        try:
            assert server.is_held.wait(60)
            yield listener.getsockname()[1], server.may_go.set
        finally:
            server.may_go.set()
            thread.join()


def whole_answer(client):
    """Return what comes until the connection is closed."""
    return b"".join(iter(lambda: client.recv(1000), b""))


def test_connections_that_wait_to_be_accepted_are_answered():
    """Some have sent their request, and others send it when the server stops already."""
    with ExitStack() as connections, stopping() as (port, go_on):
        clients = [connections.enter_context(connected(port)) for _ in range(64)]
        for client in clients[::2]:
            client.sendall(post("/v2/translate", b'{"text": ["a"]}'))

        go_on()
        answers = [whole_answer(client) for client in clients[::2]]
        for client in clients[1::2]:
            client.sendall(GET)
        answers += [whole_answer(client) for client in clients[1::2]]

    for answer in answers:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503")
        assert b"connection: close" in head.lower()
        assert body in (b'{"message":"The server stops."}', b'{"error":"The server stops."}')


def test_a_body_that_comes_later_is_read_before_the_answer():
    """Otherwise the rest of it would reset the connection, and the answer would be lost."""
    body = b" " * 100_000
    with stopping() as (port, go_on), connected(port) as client:
        client.sendall(post("/translate", body[:1], length=len(body)))
        go_on()
        client.sendall(body[1:])
        assert whole_answer(client).startswith(b"HTTP/1.1 503")


def test_a_connection_that_sends_nothing_does_not_hold_up_the_end():
    with stopping(http=ImpatientConnection) as (port, go_on), connected(port) as silent:
        go_on()
        assert silent.recv(1) == b""
