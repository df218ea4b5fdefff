"""Connections that must say and read something. uvicorn waits for ever for the head and the rest of a request, and for
a client that does not read its answer.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class TimedConnection(H11Protocol):
    """A connection that is closed if the head of a request does not come in time, or the rest of an answered one.

    It is closed, too, if the client reads nothing of its answers. Otherwise whoever opens many connections, and sends
    nothing or without end, takes the places of others. A body that is read has a limit of its own, and so has a
    connection between two requests.
    """

    seconds = 10.0
    """After which it is closed."""
    seconds_at_end = 2.0
    """After which it is closed when the server stops, if it has sent no request yet."""

    _timer: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    """Runs while the client has not read all of its answers."""

    def connection_made(self, transport: Any) -> None:
        """Start to wait."""
        super().connection_made(transport)
        # Writing is paused as soon as something waits for the client, also when the connection is being closed.
        transport.set_write_buffer_limits(high=0)
        self._start()

    def data_received(self, data: bytes) -> None:
        """Wait no more once the head is there, and wait again if it is the beginning of the next one."""
        super().data_received(data)
        if self.conn.our_state is h11.SEND_RESPONSE:
            self._stop()
        elif self.conn.our_state is h11.IDLE and self._timer is None:
            self._start()

    def on_response_complete(self) -> None:
        """Wait for the rest of a body that was not read before the answer."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and self._timer is None:
            self._start()

    def shutdown(self) -> None:
        """Close it behind the answer to its request. The first request of a new connection may be on its way."""
        if self.cycle is not None:
            super().shutdown()
        else:
            self._stop()
            self._start(self.seconds_at_end)

    def pause_writing(self) -> None:
        """Wait until the client reads."""
        super().pause_writing()
        self._wait_for_reading()

    def resume_writing(self) -> None:
        """Wait no more, the client has read all."""
        self._reading.cancel()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop()
        if self._reading is not None:
            self._reading.cancel()
        super().connection_lost(exc)

    def _wait_for_reading(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(self.seconds, self._end_unless_read, unread)

    def _end_unless_read(self, unread: int) -> None:
        """End the connection if as many bytes as before wait for the client. Closing it would wait for the client."""
        if self.transport.get_write_buffer_size() < unread:
            self._wait_for_reading()
        else:
            self.transport.abort()

    def _start(self, seconds: float | None = None) -> None:
        """Close the connection after some seconds, by default as long as a head may take."""
        self._timer = self.loop.call_later(seconds or self.seconds, self.transport.close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
