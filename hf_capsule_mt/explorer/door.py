"""The door of the Explorer: what a stranger may send to the page, and how many jobs may wait."""

import ipaddress
import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import gradio as gr

LONGEST_REQUEST = 100_000
"""In bytes; what the page itself sends is far shorter."""
MOST_WAITING = 20
"""Jobs that wait for the one that runs."""
JOBS_OF_A_CLIENT = 4
"""Jobs of one visitor that wait or run: a click asks two panels, and each then draws."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class Door:
    """ASGI middleware that refuses uploads and long requests, without reading them."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request that is refused; let all others in."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if scope["path"].rstrip("/").endswith("/upload"):
            return await _refuse(send, 403, "this page takes no files")
        if not length.isdigit() or int(length) > LONGEST_REQUEST:
            return await _refuse(send, 413, f"a request has {LONGEST_REQUEST} bytes at most")
        return await self._app(scope, _bounded(receive), send)


def _bounded(receive: Any) -> Any:
    """Return `receive`, which ends a request that is longer than it said, as if its sender had gone."""
    read = 0

    async def bounded() -> Any:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        return message if read <= LONGEST_REQUEST else {"type": "http.disconnect"}

    return bounded


async def _refuse(send: Any, status: int, reason: str) -> None:
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"detail": reason}).encode()})


def bound_queue(page: "gr.Blocks") -> None:
    """Bound the jobs that wait for a page, and those of each visitor among them."""
    # By itself Gradio also runs what is sent to its direct routes, at once and past the queue, except on a Space.
    queue = page.queue(max_size=MOST_WAITING, api_open=False)._queue
    push = queue.push

    async def push_in_turn(body: Any, request: Any, username: str | None) -> Any:
        running = [event for events in queue.active_jobs if events for event in events]
        waiting = [event for each in queue.event_queue_per_concurrency_id.values() for event in each.queue]
        jobs = [event for event in running + waiting if _client(event.request) == _client(request)]
        if len(jobs) >= JOBS_OF_A_CLIENT:
            return False, "Your last sentence is still being translated. Wait for it.", "queue_full"
        return await push(body=body, request=request, username=username)

    queue.push = push_in_turn


def _client(request: Any) -> str:
    """Return where a request comes from: of a proxy, which is the same for all visitors, what it says last.

    What comes before that may be the visitor's invention, and so is all of it where there is no proxy, on this machine
    or in front of the Hub's Spaces.
    """
    behind_proxy = "SPACE_ID" in os.environ or is_loopback(request.client.host)
    forwarded = request.headers.get("x-forwarded-for", "") if behind_proxy else ""
    return forwarded.rpartition(",")[2].strip() or request.client.host
