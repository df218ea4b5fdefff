"""Requests to a server of both protocols, damaged in their body or without end, and what the server answers."""

import functools
import random
import select
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx
from running_server import connected, running
from tiny_marian import tiny_model, tiny_tokenizer

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=b"
PAGE = "<!doctype html><html><p>a <b>b <i>c</i></b>.</p><p translate='no'>d</p><img alt='e f'></html>"
FILE = (
    '--b\r\ncontent-disposition: form-data; name="file"; filename="a.html"\r\n\r\n'
    f"{PAGE}\r\n"
    '--b\r\ncontent-disposition: form-data; name="source"\r\n\r\nen\r\n'
    '--b\r\ncontent-disposition: form-data; name="target"\r\n\r\nde\r\n'
)
DOCUMENT = FILE.replace("source", "source_lang").replace("target", "target_lang")
END = "--b--\r\n"
KEY = '--b\r\ncontent-disposition: form-data; name="api_key"\r\n\r\nk\r\n'


@dataclass(frozen=True)
class Sent:
    """A request."""

    path: str
    kind: str
    body: bytes
    method: str = "POST"


def _json(path: str, text: str) -> Sent:
    return Sent(path, JSON, text.encode())


REQUESTS = (
    _json("/translate", '{"q": ["a b c", "d"], "source": "en", "target": "de", "alternatives": 2, "api_key": "k"}'),
    _json(
        "/translate", '{"q": "<p>a <b>b</b> c</p>", "source": "auto", "target": "de", "format": "html", "api_key": "k"}'
    ),
    _json("/detect", '{"q": "a b c", "api_key": "k"}'),
    _json(
        "/v2/translate",
        '{"text": ["a <x id=\\"5\\"></x> b"], "source_lang": "EN", "target_lang": "DE", "tag_handling": "xml", '
        '"ignore_tags": ["x"], "formality": "default", "split_sentences": "1", "glossary_ids": [], '
        '"show_billed_characters": true, "context": "c"}',
    ),
    _json(
        "/v2/glossaries",
        '{"name": "terms", "source_lang": "EN", "target_lang": "DE", "entries": "a\\tb", "entries_format": "tsv"}',
    ),
    _json(
        "/v3/glossaries",
        '{"name": "terms", "dictionaries": [{"source_lang": "en", "target_lang": "de", "entries": "a\\tb", '
        '"entries_format": "tsv"}]}',
    ),
    Sent("/translate", FORM, b"q=a+b%0D%0Ac&source=en&target=de&format=html&alternatives=1&api_key=k"),
    Sent("/v2/translate", FORM, b"text=a+b&text=c&target_lang=DE"),
    Sent("/v2/languages", FORM, b"type=target", "GET"),
    Sent("/translate_file", MULTIPART, (FILE + KEY + END).encode()),
    Sent("/v2/document", MULTIPART, (DOCUMENT + END).encode()),
)

PATHS = (*dict.fromkeys(request.path for request in REQUESTS), "/suggest", "/absent", "/health", "/docs", "/metrics")
SHARE_WITHOUT_END = 0.1
PATIENCE = 30
"""Seconds after which a connection is kept for ever. The limits of the server are much lower."""


@functools.cache
def _clients() -> list:
    """Clients of a server that needs no key, and of one that does. They live as long as the process."""
    import hashlib

    from starlette.testclient import TestClient

    from hf_capsule_mt.serving.app import build_app
    from hf_capsule_mt.serving.models import ServedModel
    from hf_capsule_mt.serving.settings import ApiKeys, ServerSettings
    from hf_capsule_mt.translation.text_translator import TextTranslator

    translator = TextTranslator(tiny_model(), tiny_tokenizer())
    decode = functools.partial(translator.decode, num_beams=4, max_new_tokens=8)
    models = [ServedModel("en", "de", translator, decode, "en", num_beams=4)]
    keys = ApiKeys({"owner": hashlib.sha256(b"k").hexdigest()})
    clients = []
    for settings in (ServerSettings(), ServerSettings(keys=keys)):
        client = TestClient(build_app(models, settings), raise_server_exceptions=False)
        client.__enter__()
        clients.append(client)
    return clients


def send(
    rng: random.Random,
    damage_json: Callable[[random.Random, bytes], bytes],
    damage_bytes: Callable[[random.Random, bytes], bytes],
) -> tuple[Sent, int, str]:
    """Send a damaged request.

    Args:
        rng: draws the request and its damage.
        damage_json: damages values of JSON.
        damage_bytes: damages any body.

    Returns:
        The request as it was sent, the status of its answer, and what is against the answer, or "".
    """
    if rng.random() > 1 - SHARE_WITHOUT_END:
        return _send_without_end(rng)
    request = rng.choice(REQUESTS)
    damage = damage_json if request.kind == JSON and rng.random() < 0.7 else damage_bytes
    body = damage(rng, request.body)
    sent = Sent(request.path, request.kind, body, request.method)
    client = rng.choice(_clients())
    headers = {"content-type": sent.kind, "authorization": "DeepL-Auth-Key k"}
    answer = client.request(sent.method, sent.path, content=body, headers=headers)
    return sent, answer.status_code, _against(sent, answer)


def _send_without_end(rng: random.Random) -> tuple[Sent, int, str]:
    """Send a request whose body goes on until the server closes the connection."""
    from hf_capsule_mt.serving.app import build_app
    from hf_capsule_mt.serving.models import ServedModel
    from hf_capsule_mt.serving.operators.connections import TimedConnection
    from hf_capsule_mt.serving.settings import BodyLimits, ServerSettings
    from hf_capsule_mt.translation.text_translator import TextTranslator

    class Impatient(TimedConnection):
        seconds = 0.3

    translator = TextTranslator(tiny_model(), tiny_tokenizer())
    limits = BodyLimits(seconds=0.3)
    file_limits = rng.choice([limits, BodyLimits(size=0)])
    settings = ServerSettings(body=limits, file_body=file_limits)
    app = build_app([ServedModel("en", "de", translator, translator.decode, "en")], settings)
    path = rng.choice(PATHS)
    method = rng.choice(["POST", "POST", "GET", "DELETE", "PUT"])
    kind = rng.choice([JSON, FORM, MULTIPART])
    length = rng.choice(["Content-Length: 1000000000", "Transfer-Encoding: chunked"])
    beginning = rng.choice(REQUESTS).body
    part = b"a" * rng.choice([1, 100, 70_000])
    if "chunked" in length:
        beginning = b"%x\r\n%b\r\n" % (len(beginning), beginning)
        part = b"%x\r\n%b\r\n" % (len(part), part)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n{length}\r\n\r\n"
    sent = Sent(path, f"{kind}, {length}, parts of {len(part)} bytes", beginning, method)
    answer = b""
    until = time.monotonic() + PATIENCE
    with running(app, http=Impatient) as port, connected(port) as client:
        try:
            client.sendall(head.encode() + beginning)
            while time.monotonic() < until:
                readable, _, _ = select.select([client], [], [], 0.02)
                if readable:
                    answered = client.recv(100_000)
                    if not answered:
                        break
                    answer += answered
                client.sendall(part)
            else:
                return sent, 0, f"the connection is open after {PATIENCE} seconds"
        except ConnectionError:
            # It was closed while this end was sending.
            pass
    if not answer.startswith(b"HTTP/1.1 "):
        return sent, 0, f"no answer: {answer[:200]!r}"
    status = int(answer[9:12])
    return sent, status, f"status {status}" if status >= 500 else ""


def _against(sent: Sent, answer: httpx.Response) -> str:
    """Return what is wrong with an answer."""
    if answer.status_code >= 500:
        return f"status {answer.status_code}"
    try:
        fields = answer.json()
    except ValueError:
        return f"status {answer.status_code}, and no JSON: {answer.text[:200]!r}"
    error = "message" if sent.path.startswith("/v") else "error"
    if answer.status_code >= 400 and not isinstance(fields.get(error), str):
        return f"status {answer.status_code} without {error!r}: {fields}"
    return ""
