"""Ports of this machine, for tests that serve something."""

import socket


def free_port():
    """One that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
