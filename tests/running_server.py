"""A server in a thread, on loopback."""

import socket
import threading
import time
from contextlib import contextmanager

import uvicorn


@contextmanager
def running(app, **options):
    """Yield the port of an application while it is served."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def connected(port):
    """Return a connection, whose reads end a test that waits for ever."""
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def post(path, body, length=None):
    """Return the bytes of a request."""
    size = len(body) if length is None else length
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    )
    return head.encode() + body
