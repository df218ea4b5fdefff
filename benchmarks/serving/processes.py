"""A server in a process of its own, and clients that call it, for measurements of `serve`."""

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import psutil

MEBIBYTE = 2**20


class ServerProcess:
    """A server that runs.

    Args:
        command: starts it. It prints its URL in its first line.
        log: the file of what it writes to stderr.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        url = re.search(r"http://\S+", first)
        if url is None:
            raise RuntimeError(f"The server has not started: {log.read_text()}")
        self.address = urlsplit(url[0]).netloc
        self._state = psutil.Process(self.process.pid)

    def cpu_seconds(self) -> float:
        """Return the seconds of CPU that it has used."""
        return cpu_seconds(self._state)

    def memory(self) -> float:
        """Return its resident memory in MiB."""
        return self._state.memory_info().rss / MEBIBYTE

    def connections(self) -> int:
        """Return the number of its connections."""
        return sum(connection.status == psutil.CONN_ESTABLISHED for connection in self._state.net_connections("tcp"))

    def stop(self) -> int:
        """Send SIGTERM, and return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


def cpu_seconds(process: psutil.Process) -> float:
    """Return the seconds of CPU that a process has used."""
    times = process.cpu_times()
    return times.user + times.system


class Client:
    """A client that keeps its connection.

    Args:
        address: host and port.
        key: is sent with each request, if given.
    """

    def __init__(self, address: str, key: str | None = None) -> None:
        self._connection = HTTPConnection(address, timeout=120)
        self._key = key

    def translate(self, text: str | Sequence[str]) -> tuple[int, Any]:
        """Return the status and the fields of an answer.

        Raises:
            OSError, HTTPException: if there is no answer.
        """
        fields = {"q": text, "source": "en", "target": "de"}
        if self._key is not None:
            fields["api_key"] = self._key
        headers = {"Content-Type": "application/json"}
        return self.call("POST", "/translate", json.dumps(fields).encode(), headers)

    def call(self, method: str, path: str, body: bytes | None = None, headers: Any = None) -> tuple[int, Any]:
        """Return the status of an answer, and its fields, or its text if it is not JSON."""
        try:
            self._connection.request(method, path, body, headers or {})
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, HTTPException):
            # The next call needs a new connection.
            self._connection.close()
            raise
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(text) if is_json else text.decode()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Call a function with the numbers of so many threads, and wait for all.

    Raises:
        BaseException: the first that a thread has raised.
    """
    errors: SimpleQueue[BaseException] = SimpleQueue()

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.put(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        raise errors.get_nowait()
    except Empty:
        return


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values is."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def stopwatch() -> Callable[[], float]:
    """Return a function that returns the seconds since now."""
    started = time.monotonic()
    return lambda: time.monotonic() - started
