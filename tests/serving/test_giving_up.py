"""Work on a file ends soon after nobody waits for it: it looks whether somebody does between the parts of the file."""

import json
import threading
import time
from dataclasses import replace

import httpx
import pytest
from running_server import connected, post, running
from stand_in_translator import UpperCase, upper
from starlette.testclient import TestClient

from hf_capsule_mt.long_work import GivenUpError, LongWork, next_step
from hf_capsule_mt.serving import files, service
from hf_capsule_mt.serving.app import build_app
from hf_capsule_mt.serving.calls import Upload
from hf_capsule_mt.serving.files import read_file
from hf_capsule_mt.serving.models import ServedModel
from hf_capsule_mt.serving.settings import ServerSettings
from hf_capsule_mt.serving.texts import join, prepare, sentences_to_decode
from hf_capsule_mt.translation.generation.decoder import Decoded

PARTS = 60
EN_DE = {"source": "en", "target": "de"}
LONG_TEXT = "A dog runs. " * 100
"""Is read in a thread."""
SOON = 1.0
"""Seconds until a request is late. Its work must have begun by then, also on a busy machine."""


def repeated(part):
    """Return parts with numbers in place of the mark #."""
    return "".join(part.replace("#", str(number)) for number in range(PARTS))


FILES = {
    "lines.txt": "A dog runs.\n" * PARTS,
    "one_line.txt": "A dog runs. " * PARTS,
    "one_sentence.txt": "dog " * 40 * PARTS,
    "paragraphs.md": "A **dog** runs.\n\n" * PARTS,
    "page.html": f"<!doctype html><html>{repeated('<p>A <b>dog</b> runs.</p>')}</html>",
    "cues.srt": repeated("#\n00:00:01,000 --> 00:00:02,000\nA dog runs.\n\n"),
    "messages.po": repeated('msgid "A dog runs #."\nmsgstr ""\n\n'),
    "en.json": "{" + repeated('"#": "A dog runs.", ') + '"a": "A dog."}',
    "messages.properties": repeated("a#=A dog runs.\n"),
    "strings.xml": "<resources>" + repeated('<string name="a#">A dog runs.</string>') + "</resources>",
    "a.xlf": (
        '<xliff version="1.2"><file source-language="en" target-language="de" original="a" datatype="plaintext"><body>'
        + repeated('<trans-unit id="#"><source>A dog runs.</source></trans-unit>')
        + "</body></file></xliff>"
    ),
}


class CountedWork(LongWork):
    """Counts its steps."""

    def __init__(self):
        super().__init__()
        self.steps = 0

    def check(self):
        self.steps += 1


@pytest.fixture(scope="module")
def model():
    translator = UpperCase()
    return ServedModel("en", "de", translator, translator.decode, "en")


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_and_written_in_steps(model, name):
    """Each part of it is a step, wherever most of the time goes."""
    steps = {}

    def counted(function, *arguments):
        work = CountedWork()
        value = work.run(function, *arguments)
        steps[function.__name__] = work.steps
        return value

    request = counted(read_file, Upload(name, FILES[name].encode()), model)
    prepared = counted(prepare, request)
    decoded = [(Decoded([], text=upper(sentence.segment)),) for sentence in sentences_to_decode(prepared)]
    translated = counted(join, request, prepared, {model.name: decoded})

    def write():
        return request.written([text.text for text in translated])

    assert b"DOG" in counted(write)
    if name.endswith(".txt"):
        # As it is.
        del steps["read_file"]
        del steps["write"]
    if name == "page.html":
        # Only words in attributes take the places of their marks, which needs no reading.
        del steps["write"]
    assert min(steps.values()) >= PARTS, steps


class EndlessReading:
    """Reads a file until it is given up. `ended` says that it was, or that it has read for too long."""

    patience = 60
    """Seconds until a test fails in which nobody gives it up."""

    def __init__(self):
        self.started = threading.Event()
        self.ended = threading.Event()
        self.is_given_up = False

    def read(self, *arguments):
        self.started.set()
        until = time.monotonic() + self.patience
        try:
            while time.monotonic() < until:
                next_step()
                time.sleep(0.001)
        except GivenUpError:
            self.is_given_up = True
            raise
        finally:
            self.ended.set()

    def wait_until_given_up(self):
        """Return whether it is given up."""
        assert self.ended.wait(2 * self.patience)
        return self.is_given_up


@pytest.fixture
def endless(monkeypatch):
    reading = EndlessReading()
    monkeypatch.setattr(files, "read_file", reading.read)
    return reading


def translation_of(text):
    return post("/translate", json.dumps({"q": text, **EN_DE}).encode())


def test_the_search_of_a_late_request_is_given_up(model, endless):
    """Others are decoded then."""

    def decode(sentences):
        if sentences[0].segment.text == "late":
            endless.read()
        return model.decode(sentences)

    app = build_app([replace(model, decode=decode)], ServerSettings(timeout=SOON))
    with running(app) as port, connected(port) as client:
        client.sendall(translation_of("late"))
        assert client.recv(1000).startswith(b"HTTP/1.1 504")
        assert endless.wait_until_given_up()


def test_a_late_text_is_given_up(model, endless, monkeypatch):
    """The time of a request begins before its text is read."""
    monkeypatch.setattr(service, "prepare", endless.read)
    with running(build_app([model], ServerSettings(timeout=SOON))) as port, connected(port) as client:
        client.sendall(translation_of(LONG_TEXT))
        assert client.recv(1000).startswith(b"HTTP/1.1 504")
        assert endless.wait_until_given_up()


def test_a_text_whose_client_has_gone_is_given_up(model, endless, monkeypatch):
    """It need not be read to its end."""
    monkeypatch.setattr(service, "prepare", endless.read)
    with running(build_app([model])) as port:
        with connected(port) as client:
            client.sendall(translation_of(LONG_TEXT))
            assert endless.started.wait(60)
        assert endless.wait_until_given_up()


def form(path):
    """Return the bytes of a request with a file."""
    fields = {"target_lang": "DE"} if path == "/v2/document" else EN_DE
    request = httpx.Request("POST", f"http://localhost{path}", data=fields, files={"file": ("a.txt", b"a")})
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + request.read()


@pytest.mark.parametrize("path", ["/translate_file", "/v2/document"])
def test_a_file_that_takes_too_long_is_given_up(model, endless, path):
    """Its thread reads the files of others then."""
    app = build_app([model], ServerSettings(file_timeout=SOON))
    with running(app) as port, connected(port) as client:
        client.sendall(form(path))
        assert client.recv(1000).startswith(b"HTTP/1.1 504")
        assert endless.wait_until_given_up()


@pytest.mark.parametrize("path", ["/translate_file", "/v2/document"])
def test_the_file_of_a_client_that_has_gone_is_given_up(model, endless, path):
    with running(build_app([model])) as port:
        with connected(port) as client:
            client.sendall(form(path))
            assert endless.started.wait(60)
        assert endless.wait_until_given_up()


def test_the_server_stops_while_a_document_is_translated(model, monkeypatch):
    """Nobody waits for it any more."""
    endless = EndlessReading()
    monkeypatch.setattr(files, "join", endless.read)
    client = TestClient(build_app([model]))
    with client:
        fields = {"target_lang": "DE"}
        assert client.post("/v2/document", files={"file": ("a.txt", b"a b")}, data=fields).status_code == 200
        assert endless.started.wait(60)
    assert endless.is_given_up


@pytest.mark.parametrize(("path", "name"), [("/translate_file", "error"), ("/v2/document", "message")])
def test_a_request_that_is_cancelled_when_the_server_stops(model, endless, caplog, path, name):
    """It is answered in JSON, as its protocol writes errors."""
    with running(build_app([model]), timeout_graceful_shutdown=1, log_config=None) as port:
        client = connected(port)
        client.sendall(form(path))
        assert endless.started.wait(60)
    head, _, body = client.recv(1000).partition(b"\r\n\r\n")
    client.close()
    assert head.startswith(b"HTTP/1.1 503")
    assert json.loads(body) == {name: "The server stops."}
    assert endless.is_given_up
    assert "Cancel 1 running task(s)" in caplog.text
    assert "Traceback" not in caplog.text
