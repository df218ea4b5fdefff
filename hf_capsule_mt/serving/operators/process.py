"""The process of a server: what its signals do, and what the log says when it starts and stops."""

import logging
import signal
import socket
import time
from types import FrameType

import uvicorn

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.version import __version__

from ..settings import ApiKeys

logger = logging.getLogger(__name__)


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
    """A server that logs its start and its end, and reads its keys again.

    Args:
        config: of uvicorn.
        models: what `--models` names.
        address: at which clients reach the server.
        reloading: of the keys.
    """

    def __init__(self, config: uvicorn.Config, models: str, address: str, reloading: KeyReloading) -> None:
        super().__init__(config)
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
        """Answer what was accepted, and log how long it took."""
        started = time.monotonic()
        drain = self.config.timeout_graceful_shutdown
        fields = {"signal": self._signal, "open": len(self.server_state.tasks), "drain": drain}
        logger.info("Stopping: signal=%(signal)s open=%(open)d drain=%(drain)s", fields)
        await super().shutdown(sockets)
        logger.info("Stopped: ms=%(ms)d", {"ms": round(1000 * (time.monotonic() - started))})
