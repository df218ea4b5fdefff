"""Check a server of the command `serve` under load: many clients, signals, slow and idle connections.

    python -m benchmarks.serving.load --model checkpoints/tatoeba-en-de-transformer --input_file test.en.gz

Each check starts the command in a process of its own, and calls it on loopback. It ends with an error where the server
loses an answer, gives another one, or writes what it must not. Times are printed, and not judged.
"""

import argparse
import hashlib
import json
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.serving.processes import Client, ServerProcess, in_threads, percentile, stopwatch
from hf_capsule_mt.data.lines import read_lines

KEY = "a-key-that-nobody-guesses"
LOST = (OSError, HTTPException)
SENTENCES = 10
"""Of a request under overload."""


@dataclass
class Load:
    """What the checks need.

    Args:
        model: a checkpoint from English to German.
        lines: English sentences.
        folder: for logs and keys.
        rounds: servers that are stopped under load.
    """

    model: str
    lines: Sequence[str]
    folder: Path
    rounds: int

    def server(self, name: str, *options: str) -> ServerProcess:
        """Start a server."""
        words = ["--models", f"en-de={self.model}", "--port", "0", "--device", "cpu", *options]
        return ServerProcess([sys.executable, "-m", "hf_capsule_mt", "serve", *words], self.folder / f"{name}.log")


def words(load: Load) -> str:
    """64 clients get the words of the command `translate`. Neither log nor metrics have a text, key or address."""
    keys = load.folder / "keys"
    keys.write_text(f"client {hashlib.sha256(KEY.encode()).hexdigest()}\n")
    server = load.server("words", "--api_keys", str(keys), "--max_wait", "1000")
    found: list[str] = [""] * len(load.lines)

    def work(number: int) -> None:
        client = Client(server.address, KEY)
        for index in range(number, len(load.lines), 64):
            status, fields = client.translate(load.lines[index])
            assert status == 200, fields
            found[index] = fields["translatedText"]
        client.close()

    seconds = stopwatch()
    in_threads(64, work)
    elapsed = seconds()
    metrics = Client(server.address).call("GET", "/metrics", headers={"Authorization": f"Bearer {KEY}"})[1]
    server.stop()
    expected = translated_by_command(load)
    different = sum(one != other for one, other in zip(found, expected, strict=True))
    assert different == 0, f"{different} translations differ"
    check_is_private(server.log.read_text(), load.lines, found)
    check_is_private(metrics, load.lines, found)
    return f"{len(found)} translations by 64 clients in {elapsed:.1f} s, {different} differ from `translate`"


def translated_by_command(load: Load) -> list[str]:
    """Return the translations of the command `translate`."""
    source = load.folder / "source"
    target = load.folder / "target"
    source.write_text("".join(f"{line}\n" for line in load.lines), encoding="utf-8")
    options = ["--model", load.model, "--input_file", str(source), "--output_file", str(target), "--device", "cpu"]
    subprocess.run(
        [sys.executable, "-m", "hf_capsule_mt", "translate", *options, "--sentences", "en"],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return read_lines(target)


def check_is_private(text: str, sources: Sequence[str], translations: Sequence[str]) -> None:
    """Raise an error if a text has a sentence, the key or an address."""
    assert text
    for secret in (KEY, hashlib.sha256(KEY.encode()).hexdigest(), "127.0.0.1", *sources, *translations):
        assert len(secret) < 8 or secret not in text, f"there is {secret!r}"


def stops(load: Load) -> str:
    """SIGTERM under load: what was accepted is answered."""
    answered = 0
    for number in range(load.rounds):
        answered += stop_under_load(load, number)
    return f"{load.rounds} servers stopped under load, {answered} requests accepted, 0 lost"


def stop_under_load(load: Load, number: int) -> int:
    """Return the number of requests that a server has accepted until it was stopped."""
    server = load.server(f"stop{number}")
    answers: Counter[str] = Counter()
    guard = threading.Lock()
    started = threading.Event()

    def work(thread: int) -> None:
        client = Client(server.address)
        for index in range(thread, len(load.lines), 32):
            try:
                status, fields = client.translate(load.lines[index])
            except LOST:
                return
            assert isinstance(fields, dict), fields
            with guard:
                answers[str(status)] += 1
            started.set()

    clients = threading.Thread(target=in_threads, args=(32, work))
    clients.start()
    assert started.wait(60)
    time.sleep(random.Random(number).random())
    status = server.stop()
    clients.join()
    assert status == -signal.SIGTERM, status
    log = server.log.read_text()
    logged = Counter(re.findall(r" INFO \S+ \S+ (\d{3}) ", log))
    assert logged == answers, f"logged {logged}, answered {answers}"
    assert "Traceback" not in log, log
    return logged["200"]


@dataclass
class Answers:
    """What many clients read."""

    seconds: float  # Until the last one was answered.
    accepted: list[float] = field(default_factory=list)  # Seconds of each.
    refused: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)

    def sentences_per_second(self) -> float:
        """Return how many sentences were translated."""
        return SENTENCES * len(self.accepted) / self.seconds


def overload(load: Load) -> str:
    """256 clients: each answer is a translation or 429, and memory stays."""
    server = load.server("overload", "--max_wait", "1")
    warm = Client(server.address)
    for line in load.lines[:50]:
        warm.translate(line)
    # So few are not refused, and fill the batches.
    capacity = under_load(load, server, clients=16, seconds=10)
    before = server.memory()
    answers = under_load(load, server, clients=256, seconds=20)
    after = server.memory()
    # The server has closed the connection of the first client, which was silent for so long.
    last = Client(server.address)
    status, fields = last.translate(load.lines[0])
    assert status == 200, fields
    check_is_empty(last)
    server.stop()
    assert answers.accepted
    assert answers.refused
    return (
        f"{answers.sentences_per_second():.1f} sentences/s with 256 clients, "
        f"{capacity.sentences_per_second():.1f} with 16, of whom {len(capacity.refused)} requests were refused; "
        f"200 after {milliseconds(answers.accepted)}; {len(answers.refused)} times 429 after "
        f"{milliseconds(answers.refused)}; /health after {milliseconds(answers.health)}; "
        f"memory {before:.0f} MiB before, {after:.0f} MiB after"
    )


def milliseconds(values: Sequence[float]) -> str:
    """Return the median and the 99th percentile of some times in seconds."""
    return f"{1000 * percentile(values, 0.5):.0f} ms (p99 {1000 * percentile(values, 0.99):.0f} ms)"


def under_load(load: Load, server: ServerProcess, clients: int, seconds: float) -> Answers:
    """Let clients ask for ten sentences at a time, and another one ask how the server is."""
    elapsed = stopwatch()
    answers = Answers(seconds)

    def work(number: int) -> None:
        client = Client(server.address)
        rng = random.Random(number)
        # They do not all come in the same moment.
        time.sleep(2 * rng.random())
        while elapsed() < seconds:
            taken = stopwatch()
            status, fields = client.translate(rng.sample(load.lines, SENTENCES))
            assert status in (200, 429), f"{status} {fields}"
            if status == 200:
                answers.accepted.append(taken())
            else:
                answers.refused.append(taken())
                # As a client does that reads 429, but sooner.
                time.sleep(rng.random())
        client.close()

    def ask(number: int) -> None:
        client = Client(server.address)
        while elapsed() < seconds:
            taken = stopwatch()
            assert client.call("GET", "/health")[0] == 200
            answers.health.append(taken())
            time.sleep(0.1)

    in_threads(clients + 1, lambda number: work(number) if number < clients else ask(number))
    answers.seconds = elapsed()
    return answers


def connections(load: Load) -> str:
    """1,000 idle connections, slow bodies and clients that go away do not hold up others."""
    server = load.server("connections")
    host, _, port = server.address.partition(":")
    body = json.dumps({"q": load.lines[0], "source": "en", "target": "de"}).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    idle = [socket.create_connection((host, int(port))) for _ in range(1000)]
    slow = [socket.create_connection((host, int(port))) for _ in range(50)]
    for connection in slow:
        connection.sendall(head)
    client = Client(server.address)
    taken = stopwatch()
    for byte in range(15):
        for connection in slow:
            with suppress(OSError):
                connection.sendall(body[byte : byte + 1])
        status, fields = client.translate(load.lines[byte])
        assert status == 200, fields
        with socket.create_connection((host, int(port))) as gone:
            gone.sendall(head + body)
        time.sleep(1)
    statuses = Counter(connection.recv(15)[9:12].decode() for connection in slow)
    assert statuses == {"408": 50}, statuses
    check_is_empty(client)
    seconds = taken()
    for connection in (*idle, *slow):
        connection.close()
    server.stop()
    log = server.log.read_text()
    assert "Traceback" not in log, log[-2000:]
    return f"1,000 idle connections, 50 slow bodies and 15 vanished clients for {seconds:.0f} s, all others answered"


def memory(load: Load) -> str:
    """Failed documents, refused glossaries and connections that are held leave no memory behind."""
    server = load.server("memory")
    under_load(load, server, clients=16, seconds=10)
    before = server.memory()
    fail_documents(server, 1000)
    after_documents = server.memory()
    refuse_glossaries(server, 1000)
    after_glossaries = server.memory()
    hold_connections(server, 4096)
    after_connections = server.memory()
    server.stop()
    return (
        f"{before:.0f} MiB before, {after_documents:.0f} MiB after 1,000 failed documents, "
        f"{after_glossaries:.0f} MiB after 1,000 refused glossaries, "
        f"{after_connections:.0f} MiB after 4,096 held connections"
    )


def fail_documents(server: ServerProcess, count: int) -> None:
    """Send documents of 80 KB that are read, and fail because a word has too many tags."""
    word = 99 * "<b>" + "a" + 99 * "</b>" + "<i>b</i><i>c</i>"
    page = f"<!doctype html><html><p>{word}</p><p>{'A dog runs. ' * 6600}</p></html>"
    body = (
        '--b\r\ncontent-disposition: form-data; name="file"; filename="a.html"\r\n\r\n'
        f"{page}\r\n"
        '--b\r\ncontent-disposition: form-data; name="target_lang"\r\n\r\nDE\r\n--b--\r\n'
    ).encode()
    client = Client(server.address)
    for _ in range(count):
        status, fields = client.call("POST", "/v2/document", body, {"Content-Type": "multipart/form-data; boundary=b"})
        assert status == 200, fields
        path = f"/v2/document/{fields['document_id']}"
        key = json.dumps({"document_key": fields["document_key"]}).encode()
        state = "translating"
        while state == "translating":
            time.sleep(0.02)
            state = client.call("POST", path, key, {"Content-Type": "application/json"})[1]["status"]
        assert state == "error", state
    client.close()


def refuse_glossaries(server: ServerProcess, count: int) -> None:
    """Send glossaries with a term of 120,000 characters."""
    entries = f"{'a' * 120_000}\tb"
    fields = {"name": "a", "source_lang": "EN", "target_lang": "DE", "entries": entries, "entries_format": "tsv"}
    body = json.dumps(fields).encode()
    client = Client(server.address)
    for _ in range(count):
        status, answer = client.call("POST", "/v2/glossaries", body, {"Content-Type": "application/json"})
        assert status == 400, answer
    client.close()


def hold_connections(server: ServerProcess, count: int) -> None:
    """Hold connections in four ways until the server has closed them."""
    head = b"POST /suggest HTTP/1.1\r\nHost: localhost\r\n"
    endless = head + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
    # So many answers that they wait for a client that does not read.
    unread = 200 * b"GET /spec HTTP/1.1\r\nHost: localhost\r\n\r\n"
    kinds = [*(10 * [b"", head, endless]), unread]
    host, _, port = server.address.partition(":")
    held = []
    for number in range(count):
        connection = socket.create_connection((host, int(port)))
        connection.setblocking(False)
        with suppress(OSError):
            connection.send(kinds[number % len(kinds)])
        held.append(connection)
    until = time.monotonic() + 120
    status = 503
    while status == 503 or server.connections() > 1:
        assert time.monotonic() < until, f"{server.connections()} connections are held"
        time.sleep(1)
        with suppress(OSError):
            client = Client(server.address)
            status, _ = client.call("GET", "/health")
            client.close()
    for connection in held:
        connection.close()


def check_is_empty(client: Client) -> None:
    """Raise an error if sentences still wait."""
    text = client.call("GET", "/metrics")[1]
    assert "hf_capsule_mt_waiting_sentences 0.0" in text, text


CHECKS: dict[str, Callable[[Load], str]] = {
    "words": words,
    "stops": stops,
    "overload": overload,
    "connections": connections,
    "memory": memory,
}


def main() -> None:
    """Run the checks, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint from English to German")
    parser.add_argument("--input_file", type=Path, required=True, help="English sentences (.gz)")
    parser.add_argument("--checks", nargs="+", choices=CHECKS, default=[*CHECKS], help="default: all")
    parser.add_argument("--rounds", type=int, default=10, help="servers that are stopped (default: %(default)s)")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        load = Load(args.model, read_lines(args.input_file), Path(folder), args.rounds)
        for name in args.checks:
            print(f"{name}: {CHECKS[name](load)}", flush=True)


if __name__ == "__main__":
    main()
