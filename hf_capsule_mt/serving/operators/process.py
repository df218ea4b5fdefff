"""The process of a server: what its signals do, and what the log says when it starts and stops."""

import asyncio
import logging
import selectors
import signal
import socket
import time
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.version import __version__

from ..settings import ApiKeys

logger = logging.getLogger(__name__)

_QUIET_TURNS = 20
"""Turns of the loop without a new connection, after which it has read the requests of those that waited."""


class KeyReloading:
    """Reads the file of keys again after SIGHUP, also after one that comes while models are loaded.

    Without keys, or without this signal, as on Windows, it does nothing.

    Args:
        keys: of the clients, as [`ApiKeys.read`] returns them.
    """

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys
        self._is_asked = False
        if keys.are_needed and hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        # A signal may come in the middle of a line of the log, so nothing is logged here.
        self._is_asked = True

    def reload_if_asked(self) -> None:
        """Read the keys if a signal has come. A damaged file leaves the old ones."""
        if not self._is_asked:
            return
        self._is_asked = False
        try:
            self._keys.read_again()
        except (OSError, UserError) as error:
            logger.error("The keys were not read again, so the old ones hold. %s", error)
        else:
            logger.info("The keys were read again: keys=%(keys)d", {"keys": len(self._keys.digests)})


class LoggedServer(uvicorn.Server):
    """A server that logs its start and its end, reads its keys again, and loses no connection when it ends.

    Args:
        config: of uvicorn.
        models: what `--models` names.
        address: at which clients reach the server.
        reloading: of the keys.
        refuse: answers all requests that come after the signal.
    """

    def __init__(
        self, config: uvicorn.Config, models: str, address: str, reloading: KeyReloading, refuse: ASGIApp
    ) -> None:
        super().__init__(config)
        self._refuse = refuse
        self._models = models
        self._address = address
        self._reloading = reloading
        self._signal = "-"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and log it."""
        await super().startup(sockets)
        fields = {"version": __version__, "address": self._address, "models": self._models}
        logger.info("Started: version=%(version)s address=%(address)s models=%(models)s", fields)

    async def on_tick(self, counter: int) -> bool:
        """Do what is to be done ten times in a second, and return whether the server ends."""
        self._reloading.reload_if_asked()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note the signal that ends the server."""
        self._signal = signal.Signals(sig).name
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was accepted, refuse what waits to be accepted, and log how long it took."""
        started = time.monotonic()
        drain = self.config.timeout_graceful_shutdown
        fields = {"signal": self._signal, "open": len(self.server_state.tasks), "drain": drain}
        logger.info("Stopping: signal=%(signal)s open=%(open)d drain=%(drain)s", fields)
        self._refuse_requests()
        await self._accept_what_waits(started + drain)
        await super().shutdown(sockets)
        logger.info("Stopped: ms=%(ms)d", {"ms": round(1000 * (time.monotonic() - started))})

    def _refuse_requests(self) -> None:
        """Refuse the next requests of all connections. Those that have begun go on."""
        self.config.loaded_app = self._refuse
        for connection in self.server_state.connections:
            connection.app = self._refuse

    async def _accept_what_waits(self, until: float) -> None:
        """Accept the connections that wait in the queue of the system, which would reset them when the port is closed.

        Args:
            until: when it ends at the latest, if clients do not stop to come. Of time.monotonic().
        """
        quiet_turns = 0
        with selectors.DefaultSelector() as selector:
            for server in self.servers:
                for listener in server.sockets:
                    selector.register(listener, selectors.EVENT_READ)
            while quiet_turns < _QUIET_TURNS and time.monotonic() < until:
                quiet_turns = 0 if selector.select(timeout=0) else quiet_turns + 1
                # In each turn the loop accepts connections, or reads from them.
                await asyncio.sleep(0)
