"""Files over both protocols: sent, translated by format, and fetched."""

import asyncio
import gc
import hashlib
import io
import time
import weakref

import deepl
import pytest
from running_server import running
from stand_in_translator import UpperCase
from starlette.testclient import TestClient

from hf_capsule_mt.serving import files
from hf_capsule_mt.serving.app import build_app
from hf_capsule_mt.serving.files import Files, FileStore, StoredFile
from hf_capsule_mt.serving.models import ServedModel
from hf_capsule_mt.serving.settings import ApiKeys, BodyLimits, ServerSettings
from hf_capsule_mt.translation.text.words import keep_pattern

EN_DE = {"source": "en", "target": "de"}
PAGE = "<!doctype html>\n<html lang='en'><p>A <b>dog</b>.</p><p translate='no'>Cat</p><img alt='a b'></html>"
TRANSLATED_PAGE = """<!doctype html>
<html lang="de"><p>A <b>DOG</b>.</p><p translate='no'>Cat</p><img alt="A B"></html>"""


@pytest.fixture(scope="module")
def model():
    translator = UpperCase()
    return ServedModel("en", "de", translator, translator.decode, "en")


@pytest.fixture
def serve(model):
    clients = []

    def make(**settings):
        client = TestClient(build_app([model], ServerSettings(**settings)), raise_server_exceptions=False)
        client.__enter__()
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.__exit__(None, None, None)


def sent(client, name, data, path="/translate_file", **fields):
    return client.post(path, files={"file": (name, data)}, data={**EN_DE, **fields})


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.txt", "A dog.\r\n\n  It runs.\n", "A DOG.\r\n\n  IT RUNS.\n"),
        ("a.txt", "\ufeffa dog", "\ufeffA DOG"),
        ("a.txt", "", ""),
        ("page.html", PAGE, TRANSLATED_PAGE),
        ("C:\\files\\a.md", "# A dog\n\nIt **runs** `fast`.\n", "# A DOG\n\nIT **RUNS** `fast`.\n"),
        (
            "a.xlf",
            "<xliff version='2.0'><segment><source>a <ph>x</ph> dog</source></segment></xliff>",
            '<xliff version=\'2.0\' trgLang="de"><segment state="translated"><source>a <ph>x</ph> dog</source>'
            "<target>A <ph>x</ph> DOG</target></segment></xliff>",
        ),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nA dog\n", "1\n00:00:01,000 --> 00:00:02,000\nA DOG\n"),
    ],
)
def test_a_file(serve, name, data, expected):
    client = serve()
    url = sent(client, name, data.encode()).json()["translatedFileUrl"]
    assert url.startswith("http://testserver/download_file/")
    found = client.get(url)
    assert found.content.decode() == expected
    assert found.headers["content-disposition"] == f"attachment; filename*=utf-8''{name.split(chr(92))[-1]}"
    assert found.headers["x-content-type-options"] == "nosniff"


def test_the_log_names_what_stays(serve, caplog):
    page = b"A dog.\n\n<!-- a house -->\n"
    assert sent(serve(), "a.md", page).status_code == 200
    [message] = [message for message in caplog.messages if message.startswith("a.md: not translated: comments")]
    assert message.endswith("Their lines: 3")


def test_what_the_server_keeps(serve):
    client = serve(keep=keep_pattern("dog"))
    url = sent(client, "a.md", b"# A dog\n").json()["translatedFileUrl"]
    assert client.get(url).text == "# A dog\n"


def test_addresses_stay(serve):
    client = serve()
    for name, data in (("a.md", b"to <a@b.de>, c@d.de\n"), ("a.txt", b"to c@d.de\nhttps://x.org/a.\n")):
        url = sent(client, name, data).json()["translatedFileUrl"]
        assert client.get(url).content == data.replace(b"to", b"TO")
    client = serve(keep=None)
    url = sent(client, "a.md", b"to c@d.de\n").json()["translatedFileUrl"]
    assert client.get(url).text == "TO C@D.DE\n"


def test_a_long_file_goes_to_the_engine_in_parts(serve, model, monkeypatch):
    monkeypatch.setattr(files, "_PART", 2)
    model.translator.seen.clear()
    client = serve(max_texts=1, char_limit=5, timeout=0.0001)
    url = sent(client, "a.txt", b"A.\nB b.\nC c c.\nD.\nE.\n").json()["translatedFileUrl"]
    assert client.get(url).text == "A.\nB B.\nC C C.\nD.\nE.\n"
    seen = model.translator.seen
    assert [{*seen[:2]}, {*seen[2:4]}, {*seen[4:]}] == [{"A.", "B b."}, {"C c c.", "D."}, {"E."}]


@pytest.mark.parametrize(
    ("name", "data", "fields", "status", "words"),
    [
        ("a.pdf", b"%PDF-1.7", {}, 400, "a.pdf is not supported. Files may be .txt, .md"),
        ("a.py", b"a = 1", {}, 400, "a.py is not supported"),
        ("a", b"a dog", {}, 400, "a is not supported"),
        pytest.param("a.txt", b"\xff", {}, 400, "Line 1 is not UTF-8", id="not UTF-8"),
        ("a.html", b"<!doctype html><b>a", {}, 400, "is not closed"),
        ("a.txt", b"a", {"target": "fr"}, 400, "en to fr is not supported"),
        ("a.txt", b"a", {"format": "html"}, 400, "'format' is not supported"),
        pytest.param("a.txt", b"a" * 2000, {}, 413, "larger than 1000 bytes", id="too large"),
        ("a.txt", b"a", {"api_key": "wrong"}, 403, "Invalid API key"),
    ],
)
def test_files_that_are_refused(serve, name, data, fields, status, words):
    keys = ApiKeys({"friend": hashlib.sha256(b"secret").hexdigest()})
    client = serve(file_body=BodyLimits(size=1000), keys=keys)
    found = sent(client, name, data, **{"api_key": "secret", **fields})
    assert found.status_code == status
    assert words in found.json()["error"]


def test_requests_without_a_file(serve):
    client = serve()
    assert "file is missing" in client.post("/translate_file", data=EN_DE).json()["error"]
    assert "file is missing" in client.post("/translate_file", json=EN_DE).json()["error"]
    # And one where none is read.
    found = client.post("/translate", files={"q": ("a.txt", b"a")}, data=EN_DE)
    assert (found.status_code, "a file is not supported here" in found.json()["error"]) == (400, True)


def test_a_library_that_is_missing(serve, monkeypatch):
    monkeypatch.setattr(files, "is_installed", lambda package: False)
    client = serve()
    found = sent(client, "a.md", b"# A dog\n")
    assert (found.status_code, "markdown_it is not installed on this server" in found.json()["error"]) == (400, True)
    settings = client.get("/frontend/settings").json()
    assert settings["filesTranslation"]
    assert ".txt" in settings["supportedFilesFormat"]
    assert ".md" not in settings["supportedFilesFormat"]


def test_files_are_switched_off(serve):
    client = serve(file_body=BodyLimits(size=0))
    assert sent(client, "a.txt", b"a").status_code == 403
    assert sent(client, "a.txt", b"a", "/v2/document").status_code == 403
    assert not client.get("/frontend/settings").json()["filesTranslation"]


def test_too_many_files(serve, monkeypatch):
    monkeypatch.setattr(files, "_MOST_FILES", 0)
    found = sent(serve(), "a.txt", b"a")
    assert (found.status_code, found.headers["retry-after"]) == (429, "30")


def test_a_file_that_takes_too_long(serve):
    found = sent(serve(file_timeout=0.0), "a.txt", b"a")
    assert (found.status_code, found.json()["error"]) == (504, "The translation took too long.")


def test_a_secret_name(serve):
    assert serve().get("/download_file/x").status_code == 404


def test_how_long_files_are_kept():
    store = FileStore(most_bytes=5, seconds=0.05)
    first, second = store.add(StoredFile("a", b"aaa")), store.add(StoredFile("b", b"bbb"))
    assert store.find(first) is None
    assert store.find(second).data == b"bbb"
    time.sleep(0.06)
    assert store.find(second) is None


def document(client, name="a.md", data=b"# A dog\n", **fields):
    given = {"target_lang": "DE", **fields}
    return client.post("/v2/document", files={"file": (name, data)}, data=given)


def test_a_document(serve):
    client = serve()
    made = document(client).json()
    path = f"/v2/document/{made['document_id']}"
    key = {"document_key": made["document_key"]}
    until = time.monotonic() + 60
    while client.post(path, json=key).json()["status"] == "translating":
        assert time.monotonic() < until
        time.sleep(0.02)
    assert client.post(path, json=key).json() == {
        "document_id": made["document_id"],
        "status": "done",
        "billed_characters": 5,
    }
    for wrong in ({}, {"document_key": "x"}, {"document_key": 5}):
        assert client.post(path, json=wrong).status_code == 404
        assert client.post(f"{path}/result", json=wrong).status_code == 404
    assert client.post(f"{path}/result", json=key).content == b"# A DOG\n"
    assert client.post(path, json=key).json()["status"] == "downloaded"
    assert client.post(f"{path}/result", json=key).status_code == 404


def test_a_document_belongs_to_the_owner_of_a_key(serve):
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("one", "two")}
    client = serve(keys=ApiKeys(digests))
    one, two = ({"authorization": f"DeepL-Auth-Key {name}"} for name in ("one", "two"))
    upload = {"files": {"file": ("a.md", b"# A dog\n")}, "data": {"target_lang": "DE"}}
    made = client.post("/v2/document", headers=one, **upload).json()
    path = f"/v2/document/{made['document_id']}"
    key = {"document_key": made["document_key"]}
    absent = client.post("/v2/document/absent", json=key, headers=two)
    for page in (path, f"{path}/result"):
        refused = client.post(page, json=key, headers=two)
        assert (refused.status_code, refused.json()) == (404, absent.json())
    assert client.post(path, json=key, headers=one).status_code == 200


def test_a_document_that_is_not_translated(serve, model, monkeypatch):
    """The client reads why, but not what a bug says."""

    def fail(self, call, file):
        raise RuntimeError("inside")

    monkeypatch.setattr(Files, "translate", fail)
    client = serve()
    made = document(client).json()
    path = f"/v2/document/{made['document_id']}"
    key = {"document_key": made["document_key"]}
    asyncio.run(asyncio.sleep(0.05))
    status = client.post(path, json=key).json()
    assert (status["status"], status["error_message"]) == ("error", "The server failed. Its log says why.")
    assert client.post(f"{path}/result", json=key).status_code == 400


def test_a_document_that_failed_is_forgotten(serve, monkeypatch):
    """The server remembers only that it failed, and not what was read of it."""
    requests = []
    read_file = files.read_file

    def read(*arguments):
        request = read_file(*arguments)
        requests.append(weakref.ref(request))
        return request

    monkeypatch.setattr(files, "read_file", read)
    client = serve()
    # It is read, but its only word has too many tags.
    page = "<!doctype html><p>" + "<b>" * 99 + "a" + "</b>" * 99 + "<i>b</i><i>c</i>"
    made = document(client, "a.html", page.encode()).json()
    path = f"/v2/document/{made['document_id']}"
    key = {"document_key": made["document_key"]}
    until = time.monotonic() + 60
    while client.post(path, json=key).json()["status"] != "error":
        assert time.monotonic() < until
        time.sleep(0.02)
    gc.collect()
    [request] = requests
    assert request() is None
    assert "over 100 tags" in client.post(path, json=key).json()["error_message"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "a.pdf"}, "is not supported. Files may be"),
        ({"target_lang": "FR"}, "en to FR is not supported"),
        ({"output_format": "docx"}, "'output_format' is only supported"),
        ({"formality": "more"}, "'formality' is not supported"),
        ({"tag_handling": "xml"}, "'tag_handling' is not supported"),
    ],
)
def test_documents_that_are_refused(serve, change, words):
    found = document(serve(), **change)
    assert found.status_code == 400
    assert words in found.json()["message"]


def test_the_client_of_deepl(model):
    """Unchanged, over loopback. Its own loop would sleep for five seconds."""
    with running(build_app([model])) as port:
        client = deepl.DeepLClient("x", server_url=f"http://127.0.0.1:{port}")
        handle = client.translate_document_upload(PAGE, target_lang="DE", filename="page.html")
        until = time.monotonic() + 60
        while not client.translate_document_get_status(handle).done:
            assert time.monotonic() < until
            time.sleep(0.02)
        output = io.BytesIO()
        client.translate_document_download(handle, output)
    assert output.getvalue().decode() == TRANSLATED_PAGE
