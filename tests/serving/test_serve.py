"""The command `serve`: a process of its own on loopback, real clients, and how it ends."""

import hashlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from http.client import HTTPConnection
from urllib.error import HTTPError, URLError

import deepl
import httpx
import libretranslatepy
import pytest
import torch
from running_server import post
from tiny_marian import save_tiny_marian, tiny_model, tiny_tokenizer
from translated_lines import translate_lines

from hf_capsule_mt.cli.serve import main
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.serving import models
from hf_capsule_mt.version import __version__


def started(checkpoint, log, *options):
    """Return the process of a command that loads its model."""
    words = ["serve", "--models", f"en-de={checkpoint}", "--port", "0", "--device", "cpu", *options]
    with log.open("w") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "hf_capsule_mt", *words], stdout=subprocess.PIPE, stderr=errors, text=True
        )


class Server:
    """A running command."""

    def __init__(self, checkpoint, log, *options):
        self.log = log
        self.process = started(checkpoint, log, *options)
        first = self.process.stdout.readline()
        assert first.startswith("Serving en-de on "), log.read_text()
        self.url = re.search(r"http://\S+", first)[0]

    def post(self, path, **fields):
        body = json.dumps(fields).encode()
        headers = {"content-type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, body, headers), timeout=60) as answer:
            return json.load(answer)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def digest(key):
    return hashlib.sha256(key.encode()).hexdigest()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_tiny_marian(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def server(checkpoint, tmp_path_factory):
    # These tests are about words. A machine may be so slow that clients are rightly refused.
    running = Server(checkpoint, tmp_path_factory.mktemp("log") / "log", "--max_wait", "1000")
    yield running
    if running.process.poll() is None:
        running.stop()


def lines_of(*lines):
    return translate_lines(tiny_model(), tiny_tokenizer(), lines)


@pytest.mark.slow
def test_many_clients_get_the_words_of_translate(server):
    lines = [f"{first} {second} c d" for first in "abcdefgh" for second in "ijkl"]

    def ask(line):
        return server.post("/translate", q=line, source="en", target="de")["translatedText"]

    with ThreadPoolExecutor(64) as threads:
        assert list(threads.map(ask, lines)) == lines_of(*lines)


@pytest.mark.slow
def test_many_connections_that_send_nothing(server):
    """Each is a file of this process, too."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as idle:
        for _ in range(min(1100, most - 200)):
            idle.enter_context(socket.create_connection((host, int(port)), timeout=60))
        assert server.post("/translate", q="a", source="en", target="de")["translatedText"] == lines_of("a")[0]


@pytest.mark.slow
def test_a_client_of_libretranslate(server):
    client = libretranslatepy.LibreTranslateAPI(f"{server.url}/")
    assert client.translate("a b c", "en", "de") == lines_of("a b c")[0]
    assert client.detect("a b")[0]["language"] == "en"
    assert [entry["code"] for entry in client.languages()] == ["en", "de"]


@pytest.mark.slow
def test_a_client_of_deepl(server):
    client = deepl.DeepLClient("key-of-a-client", server_url=server.url)
    made = client.create_glossary("name-of-terms", "EN", "DE", {"c": "q"})
    found = client.translate_text(["a b c", "d"], source_lang="EN", target_lang="DE")
    assert [each.text for each in found] == lines_of("a b c", "d")
    with_terms = client.translate_text("a b c", source_lang="EN", target_lang="DE", glossary=made)
    assert "q" in with_terms.text


@pytest.mark.slow
def test_the_page_of_the_demo(checkpoint, tmp_path):
    running = Server(checkpoint, tmp_path / "log", "--demo")
    try:
        assert running.post("/translate", q="a", source="en", target="de")["translatedText"] == lines_of("a")[0]
        with urllib.request.urlopen(f"{running.url}/demo/config", timeout=60) as answer:
            assert "en-de" in answer.read().decode()
        with pytest.raises(HTTPError, match="403"):
            urllib.request.urlopen(f"{running.url}/demo/gradio_api/upload", timeout=60)
    finally:
        running.stop()


@pytest.mark.slow
def test_another_name_of_the_host(server):
    request = urllib.request.Request(f"{server.url}/health", headers={"Host": "evil.example"})
    with pytest.raises(HTTPError, match="400"):
        urllib.request.urlopen(request, timeout=60)


LOADING_WAITS = """
from hf_capsule_mt.serving import models


def load_models(*arguments):
    open({pipe!r}).read()


models.load_models = load_models
"""


@pytest.mark.slow
def test_a_signal_while_it_loads(checkpoint, tmp_path):
    """Its models wait for a pipe, and reading it does not end before the test writes."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = tmp_path / "loading_waits.py"
    code.write_text(LOADING_WAITS.format(pipe=str(pipe)))
    log = tmp_path / "log"
    process = started(checkpoint, log, "--import", str(code))
    # Opening waits for the server, which then loads.
    with pipe.open("w"):
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert output == ""
    assert "Traceback" not in log.read_text()


@pytest.mark.slow
def test_a_signal_while_it_is_idle(checkpoint, tmp_path):
    """Clients keep their connections, with a request behind them or before them."""
    idle = Server(checkpoint, tmp_path / "log")
    host, _, port = idle.url.removeprefix("http://").partition(":")
    answered = HTTPConnection(host, int(port), timeout=60)
    answered.request("GET", "/health")
    assert answered.getresponse().read() == b'{"status":"ok"}'
    with answered.sock, socket.create_connection((host, int(port)), timeout=60) as silent:
        assert idle.stop() == -signal.SIGTERM
        assert answered.sock.recv(1) == b""
        assert silent.recv(1) == b""
    assert idle.process.stdout.read() == ""
    assert "Traceback" not in idle.log.read_text()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=60)


@pytest.mark.slow
def test_a_signal_while_connections_wait_to_be_accepted(checkpoint, tmp_path):
    """The system accepts them for a process that stands still."""
    server = Server(checkpoint, tmp_path / "log")
    url = httpx.URL(server.url)
    # From its first answer on, the server and not the system decides what a signal does.
    assert httpx.get(f"{server.url}/health", timeout=60).status_code == 200
    server.process.send_signal(signal.SIGSTOP)
    with ExitStack() as connections:
        clients = []
        for _ in range(64):
            client = connections.enter_context(socket.create_connection((url.host, url.port), timeout=60))
            client.sendall(post("/translate", b'{"q": "a", "source": "en", "target": "de"}'))
            clients.append(client)
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGCONT)
        statuses = [client.recv(1000)[9:12] for client in clients]
    assert set(statuses) <= {b"200", b"503"}
    assert server.process.wait(60) == -signal.SIGTERM
    assert "Traceback" not in server.log.read_text()


@pytest.mark.slow
def test_a_signal_while_a_document_is_read(checkpoint, tmp_path):
    """Reading it takes minutes, and another file waits for its turn."""
    server = Server(checkpoint, tmp_path / "log", "--drain", "1", "--max_file_bytes", "10000000")
    url = httpx.URL(server.url)
    try:
        with httpx.Client(timeout=60) as client, socket.create_connection((url.host, url.port), timeout=60) as waiting:
            files = {"file": ("long.txt", b"a b c d\n" * 1_000_000)}
            uploaded = client.post(f"{server.url}/v2/document", files=files, data={"target_lang": "DE"})
            assert uploaded.status_code == 200, uploaded.text
            # Its request is answered, and it is being read.
            fields = {"source": "en", "target": "de"}
            request = client.build_request(
                "POST", f"{server.url}/translate_file", files={"file": ("a.txt", b"a")}, data=fields
            )
            head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
            waiting.sendall(f"POST /translate_file HTTP/1.1\r\n{head}\r\n".encode() + request.read())
            # The server has the request when it answers a later one.
            assert client.get(f"{server.url}/health").status_code == 200
            server.process.send_signal(signal.SIGTERM)
            # Head and body may come one after the other, and the server closes the connection behind them.
            answer = b"".join(iter(lambda: waiting.recv(1000), b""))
            assert server.process.wait(20) == -signal.SIGTERM
    finally:
        server.process.kill()
    # A busy machine may not have read the request when the signal comes.
    assert re.search(r"Stopping: signal=SIGTERM open=[01] drain=1", server.log.read_text())
    assert answer.startswith(b"HTTP/1.1 503")
    assert answer.endswith(b'{"error":"The server stops."}')
    assert "Traceback" not in server.log.read_text()


@pytest.mark.slow
def test_what_was_accepted_is_answered(checkpoint, tmp_path):
    """It ends its server, so it has one of its own."""
    server = Server(checkpoint, tmp_path / "log")
    lines = [f"{letter} b c d e f g h" for letter in "abcdefghijklmnop"] * 3

    server.post("/translate", q="a b", source="en", target="de")
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as answer:
        metrics = answer.read().decode()
    assert 'requests_total{api="libretranslate",key="-",pair="en-de",status="200"}' in metrics

    def ask(line):
        try:
            return server.post("/translate", q=line, source="en", target="de")["translatedText"]
        except (URLError, ConnectionError):
            # It came too late.
            return None

    with ThreadPoolExecutor(16) as threads:
        answers = threads.map(ask, lines)
        first = next(answers)
        status = server.stop()
        found = [first, *answers]
    # uvicorn ends with the signal itself.
    assert status == -signal.SIGTERM
    for answer, expected in zip(found, lines_of(*lines), strict=True):
        assert answer in (expected, None)
    accepted = sum(answer is not None for answer in found)
    log = server.log.read_text()
    logged = re.findall(r"libretranslate en-de 200 .*characters=15", log)
    assert len(logged) == accepted > 0
    assert "Traceback" not in log
    lines_of_log = re.findall(r"^[\dT:.-]{23}[+-]\d\d:\d\d INFO (.*)", log, re.MULTILINE)
    first, *between, last = [line for line in lines_of_log if not line.startswith("- - 503 path=/translate")]
    assert first == f"Started: version={__version__} address={server.url} models=en-de={checkpoint}"
    assert len(between) == accepted + 2
    assert sum(line.startswith("Stopping: signal=SIGTERM open=") for line in between) == 1
    assert last.startswith("Stopped: ms=")
    for secret in ("b c d", *lines_of(lines[0]), "key-of-a-client", "name-of-terms", "127.0.0.1"):
        assert secret not in log.replace(server.url, "")
        assert secret not in metrics


@pytest.mark.slow
def test_keys_that_change_and_the_log_in_json(checkpoint, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"first {digest('first key')}\n")
    server = Server(checkpoint, tmp_path / "log", "--api_keys", str(keys), "--log_format", "json", "--log_texts")
    host, _, port = server.url.removeprefix("http://").partition(":")

    def status(key):
        fields = {"q": "a b", "source": "en", "target": "de", "api_key": key}
        return httpx.post(f"{server.url}/translate", json=fields, timeout=60).status_code

    def hang_up(words):
        server.process.send_signal(signal.SIGHUP)
        until = time.monotonic() + 60
        while words not in server.log.read_text():
            assert time.monotonic() < until, server.log.read_text()
            time.sleep(0.05)

    try:
        assert (status("first key"), status("second key")) == (200, 403)
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(b"This is not HTTP.\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 400")
        keys.write_text(f"second {digest('second key')}\n")
        hang_up("The keys were read again")
        assert (status("first key"), status("second key")) == (403, 200)
        keys.write_text("third key\n")
        hang_up("the old ones hold")
        assert (status("second key"), status("third key")) == (200, 403)
    finally:
        server.stop()
    # torchao may warn of its parts when it is imported, which is before the log begins.
    log = server.log.read_text()
    lines = [json.loads(line) for line in log[log.index("{") :].splitlines()]
    for line in lines:
        assert datetime.fromisoformat(line["time"]).utcoffset() is not None
    warning, started, *_, stopping, _ = lines
    assert warning["level"] == "WARNING"
    assert (started["version"], started["address"]) == (__version__, server.url)
    assert (stopping["signal"], stopping["open"]) == ("SIGTERM", 0)
    asked = [line for line in lines if line.get("api") == "libretranslate"]
    assert [line["status"] for line in asked] == [200, 403, 403, 200, 200, 403]
    assert [line["key"] for line in asked] == ["first", "-", "-", "second", "second", "-"]
    assert (asked[1]["path"], asked[1]["reason"]) == ("/translate", "Invalid API key")
    assert any(line["logger"] == "uvicorn.error" for line in lines)
    [refused] = [line["message"] for line in lines if line["level"] == "ERROR"]
    assert "keys:1: a line has a name" in refused
    assert [line["text"] for line in lines if "text" in line] == ["a b"] * 3
    for key in ("first key", "second key", "third key"):
        assert key not in server.log.read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--models", "en-de"], "'en-de' is no pair with its model"),
        (["--models", "en-de=absent"], "There is no folder absent"),
        (["--host", "0.0.0.0"], "--host 0.0.0.0 can be reached by others"),
        (["--host", "example.org"], "--host example.org can be reached by others"),
        (["--api_keys", "keys", "--open"], "--open serves everybody"),
        (["--api_keys", "absent"], "absent"),
        (["--api_keys", "keys", "--demo"], "--demo shows a page to everybody"),
        (["--keep", "("], "keep is '(', which is not a regular expression"),
        (["--engine", "transformers", "--dtype", "int8"], "dtype int8 needs a CPU, engine fast"),
        (["--max_wait", "nan"], "nan"),
    ],
)
def test_mistakes(tmp_path, monkeypatch, capsys, options, words):
    monkeypatch.chdir(tmp_path)
    given = ["--models", "en-de=absent", "--port", "0", "--device", "cpu", *options]
    with pytest.raises(SystemExit, match="2"):
        main(given)
    assert words in capsys.readouterr().err


def test_models_are_on_the_device_that_was_asked_for(monkeypatch):
    devices = []

    def load_models(specifications, options, device):
        devices.append(device)
        raise UserError("That is all.")

    monkeypatch.setattr(models, "load_models", load_models)
    with pytest.raises(SystemExit, match="2"):
        main(["--models", "en-de=absent", "--port", "0", "--device", "meta"])
    assert devices == [torch.device("meta")]


def test_a_port_that_is_taken(checkpoint, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match="2"):
            main(["--models", f"en-de={checkpoint}", "--port", str(port)])
    assert f"Nobody can listen at 127.0.0.1, port {port}" in capsys.readouterr().err
    assert os.path.isdir(checkpoint)
