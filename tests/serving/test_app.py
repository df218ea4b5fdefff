"""The server, called as its clients call it, without a network."""

import hashlib
import json
import logging
import re
import threading
from dataclasses import dataclass, replace

import pytest
from starlette.testclient import TestClient
from tiny_marian import tiny_model, tiny_tokenizer
from translated_lines import translate_lines

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.serving.app import build_app
from hf_capsule_mt.serving.detection import Detected, LanguageDetector
from hf_capsule_mt.serving.models import ServedModel, _parsed
from hf_capsule_mt.serving.operators.metrics import Metrics
from hf_capsule_mt.serving.settings import ApiKeys, BodyLimits, ServerSettings
from hf_capsule_mt.translation.preparation import TextOptions
from hf_capsule_mt.translation.text.words import keep_pattern
from hf_capsule_mt.translation.text_translator import TextTranslator

DIGEST = hashlib.sha256(b"secret").hexdigest()


@pytest.fixture(scope="module")
def translator():
    return TextTranslator(tiny_model(), tiny_tokenizer())


def served(translator, source="en", target="de", decode=None):
    return ServedModel(source, target, translator, decode or translator.decode, "en")


@pytest.fixture
def serve(translator):
    """Makes a client of a server."""
    clients = []

    def make(*models, **settings):
        app = build_app(models or [served(translator)], ServerSettings(**settings))
        client = TestClient(app, raise_server_exceptions=False)
        client.__enter__()
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.__exit__(None, None, None)


def lines_of(*lines):
    """What `translate` writes."""
    return translate_lines(tiny_model(), tiny_tokenizer(), lines)


EN_DE = {"source": "en", "target": "de"}


def test_a_text_and_a_list(serve):
    client = serve()
    one, two = lines_of("a b c", "d")
    assert client.post("/translate", json={"q": "a b c", **EN_DE}).json() == {"translatedText": one}
    found = client.post("/translate", json={"q": ["a b c", "1984", "d", ""], **EN_DE}).json()
    assert found == {"translatedText": [one, "1984", two, ""]}


@pytest.mark.parametrize("kind", ["data", "files", "params", "json"])
def test_a_form_a_query_and_json(serve, kind):
    """libretranslatepy sends a form, and others the rest."""
    fields = {"q": "a b c", **EN_DE}
    if kind == "files":
        fields = {name: (None, value) for name, value in fields.items()}
    found = serve().post("/translate", **{kind: fields})
    assert found.json() == {"translatedText": lines_of("a b c")[0]}


def test_lines_and_sentences_of_a_text(serve):
    one, two, three = lines_of("A b c?", "D e f!", "e f")
    found = serve().post("/translate", json={"q": "A b c? D e f!\n\n  e f\n", **EN_DE}).json()
    assert found["translatedText"] == f"{one} {two}\n\n  {three}\n"
    form = serve().post("/translate", data={"q": "A b c?\r\ne f", **EN_DE}).json()
    assert form["translatedText"] == f"{one}\n{three}"


def test_html_is_translated_as_the_command_does(serve, translator):
    page = "<p>A <b>c</b> &amp; e.</p>\n<p translate='no'>f</p> g"
    prepared = translator.reader.prepare(page, TextOptions("en", tags=True))
    expected = translator.join(prepared, translator.decode(prepared.sentences)).text
    found = serve().post("/translate", json={"q": [page], "format": "html", **EN_DE}).json()
    assert found["translatedText"] == [expected]


@pytest.mark.parametrize(
    ("fields", "pool"),
    [({"q": "a b"}, None), ({"q": "a b", "format": "html"}, "short"), ({"q": "a " * 2001}, "long")],
)
def test_what_takes_time_does_not_hold_up_other_requests(serve, translator, fields, pool):
    threads = []

    @dataclass(frozen=True)
    class Watched(ServedModel):
        def prepare(self, *arguments):
            threads.append(threading.current_thread().name)
            return super().prepare(*arguments)

    client = serve(Watched("en", "de", translator, translator.decode, "en"))
    assert client.post("/translate", json={**fields, **EN_DE}).status_code == 200
    [thread] = threads
    assert thread.startswith(f"{pool} texts") == (pool is not None)


def test_what_the_server_keeps(serve):
    """Weblate's placeholders."""
    client = serve(keep=keep_pattern(r"\[X\d+X\]"))
    found = client.post("/translate", json={"q": "a [X5X] b", **EN_DE}).json()["translatedText"]
    assert found.count("[X5X]") == 1


def test_addresses_stay(serve):
    found = serve().post("/translate", json={"q": "a b@c.de d\nhttps://x.org/a.", **EN_DE}).json()["translatedText"]
    assert found.count("b@c.de") == 1
    assert found.endswith("\nhttps://x.org/a.")


def test_auto(serve):
    client = serve()
    # There is only one source language.
    detected = {"confidence": 0.0, "language": "en"}
    asked = {"q": "d", "source": "auto", "target": "de"}
    found = client.post("/translate", json={**asked, "alternatives": 0}).json()
    assert found == {"translatedText": lines_of("d")[0], "detectedLanguage": detected}
    found = client.post("/translate", json={**asked, "q": ["d", "d"]}).json()
    assert found["detectedLanguage"] == [detected] * 2
    assert client.post("/detect", data={"q": "d"}).json() == [detected]


@pytest.fixture(scope="module")
def beams(translator):
    """A model that searches with four beams, and the numbers of translations that it was asked for."""
    asked = []

    def decode(sentences, **options):
        asked.append(options.get("num_return_sequences"))
        return translator.decode(sentences, num_beams=4, **options)

    return replace(served(translator, decode=decode), num_beams=4), asked


def test_alternatives(serve, translator, beams):
    model, asked = beams
    client = serve(model)
    page = "A b <i>c d</i>! E f g!"
    found = client.post("/translate", json={"q": page, "format": "html", "alternatives": 3, **EN_DE}).json()
    sentences = model.prepare(page, TextOptions(tags=True, split="paragraphs")).sentences
    ranked = [translator.decode([each], num_beams=4, num_return_sequences=4)[0] for each in sentences]
    restored = [translator.finish(*pair) for pair in zip(sentences, ranked, strict=True)]
    expected = [" ".join(one.number(number).text for one in restored) for number in range(4)]
    assert [found["translatedText"], *found["alternatives"]] == list(dict.fromkeys(expected))
    assert len(found["alternatives"]) > 1
    assert asked[-1] == [4, 4]
    # A list has a list for each text.
    several = client.post("/translate", json={"q": ["a b", "1984"], "alternatives": 1, **EN_DE}).json()
    assert [len(texts) for texts in several["alternatives"]] == [1, 0]
    # Who asks for none does not get them.
    plain = client.post("/translate", json={"q": page, "format": "html", **EN_DE}).json()
    assert plain == {"translatedText": found["translatedText"]}
    assert asked[-1] is None
    refused = client.post("/translate", json={"q": "a", "alternatives": 4, **EN_DE})
    assert (refused.status_code, "alternatives is 4, and this server has at most 3" in refused.json()["error"]) == (
        400,
        True,
    )


def test_languages(serve, translator):
    client = serve(served(translator), served(translator, "en", "fr"), served(translator, "de", "en"))
    expected = [
        {"code": "en", "name": "English", "targets": ["de", "fr"]},
        {"code": "de", "name": "German", "targets": ["en"]},
        # Weblate wants to find each target among the languages.
        {"code": "fr", "name": "French", "targets": []},
    ]
    assert client.get("/languages").json() == expected
    # libretranslatepy sends a GET with a body.
    assert client.request("GET", "/languages", data={"api_key": "x"}).json() == expected
    settings = client.get("/frontend/settings").json()
    assert settings["language"]["source"] == {"code": "en", "name": "English"}
    assert (settings["charLimit"], settings["keyRequired"]) == (-1, False)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"q": "a", "source": "en"}, "missing target"),
        ({"q": "a", "target": "de"}, "missing source"),
        (EN_DE, "missing q"),
        ({"q": 5, **EN_DE}, "q is neither"),
        ({"q": [], **EN_DE}, "q is neither"),
        ({"q": ["a", None], **EN_DE}, "q is neither"),
        ({"q": "a", "source": "en", "target": "zz"}, "en to zz is not supported"),
        ({"q": "a", "source": "zz", "target": "de"}, "zz to de is not supported"),
        ({"q": "a", "source": ["en"], "target": "de"}, "source is no language"),
        ({"q": "a", "format": "pdf", **EN_DE}, "neither text nor html"),
        ({"q": "a", "alternatives": "many", **EN_DE}, "alternatives is no number"),
        ({"q": "a", "alternatives": float("inf"), **EN_DE}, "alternatives is no number"),
        ({"q": "a", "formality": "more", **EN_DE}, "'formality' is not supported"),
        ({"q": "<b>a", "format": "html", **EN_DE}, "is not closed"),
        ({"q": f"a {'<x/>' * 101} b", "format": "html", **EN_DE}, "over 100 tags"),
        ({"q": "a\ud800", **EN_DE}, "half of a surrogate pair"),
        ({"q": ["a"] * 51, **EN_DE}, "over 50 texts"),
        ({"q": "abcdefghijk", **EN_DE}, "11 characters, over the limit of 10"),
        ([], "no JSON object"),
    ],
)
def test_mistakes(serve, fields, words):
    client = serve(char_limit=10 if words.endswith("limit of 10") else -1)
    body = json.dumps(fields).encode()
    found = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert found.status_code == 400
    assert words in found.json()["error"]


@pytest.mark.parametrize(
    "body", [b"{", pytest.param(b"\xff", id="not UTF-8"), pytest.param(b"[" * 100_000, id="deep"), b"null"]
)
def test_odd_bodies(serve, body):
    found = serve().post("/translate", content=body, headers={"content-type": "application/json"})
    assert found.status_code == 400
    assert "Invalid request" in found.json()["error"]


def test_a_form_that_is_not_utf8(serve):
    found = serve().post(
        "/translate", content=b"q=%ff&source=en", headers={"content-type": "application/x-www-form-urlencoded"}
    )
    assert (found.status_code, "is not UTF-8" in found.json()["error"]) == (400, True)


def test_large_slow_and_compressed_bodies(serve):
    client = serve(body=BodyLimits(size=100, seconds=0.05))
    found = client.post("/translate", json={"q": "a" * 200, **EN_DE})
    assert (found.status_code, found.headers["connection"]) == (413, "close")
    # Without its length.
    found = client.post("/translate", content=(b"a" * 30 for _ in range(9)))
    assert found.status_code == 413
    found = client.post("/translate", content=b"x", headers={"content-encoding": "gzip"})
    assert (found.status_code, found.json()) == (415, {"error": "A compressed body is not read."})


def test_keys(serve, tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"# Who may come.\nsome body {DIGEST}\n\n")
    client = serve(keys=ApiKeys.read(file))
    asked = {"q": "1", **EN_DE}
    assert client.post("/translate", json={**asked, "api_key": "secret"}).status_code == 200
    for key, words in (
        ({}, "An API key is needed"),
        ({"api_key": "wrong"}, "Invalid API key"),
        ({"api_key": 5}, "Invalid API key"),
    ):
        found = client.post("/translate", json={**asked, **key})
        assert (found.status_code, words in found.json()["error"]) == (403, True)
    assert client.get("/frontend/settings").json()["keyRequired"]
    assert client.get("/health").json() == {"status": "ok"}
    line = f"name {'0' * 64}\n"
    for text, words in (
        ("name abc\n", "keys:1: a line has a name"),
        ("# none\n", "has no keys"),
        (2 * line, "keys:2: name has a key already"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=words):
            ApiKeys.read(file)


def test_a_busy_server_says_when_to_come_again(serve, translator):
    client = serve(max_waiting_tokens=-1)
    found = client.post("/translate", json={"q": "a", **EN_DE})
    assert (found.status_code, found.headers["retry-after"]) == (429, "1")
    assert found.json()["error"].startswith("Slowdown: ")


def test_a_sentence_that_fails_and_a_bug(serve, translator, caplog):
    def decode(sentences):
        if any(sentence.segment.text == "bad" for sentence in sentences):
            raise RuntimeError("inside")
        return translator.decode(sentences)

    client = serve(served(translator, decode=decode))
    found = client.post("/translate", json={"q": "bad", **EN_DE})
    assert (found.status_code, found.json()) == (500, {"error": "A sentence cannot be translated."})
    assert client.post("/translate", json={"q": "a b c", **EN_DE}).json()["translatedText"] == lines_of("a b c")[0]
    # What its log says is not for clients.
    assert "inside" in caplog.text


def test_what_is_late(serve, translator):
    from threading import Event

    may_go = Event()

    def decode(sentences):
        may_go.wait(60)
        return translator.decode(sentences)

    client = serve(served(translator, decode=decode), timeout=0.05)
    found = client.post("/translate", json={"q": "a", **EN_DE})
    may_go.set()
    assert (found.status_code, found.json()["error"]) == (504, "The translation took too long.")


def test_a_dead_engine(serve, translator):
    def decode(sentences):
        raise SystemExit

    client = serve(served(translator, decode=decode))
    assert client.get("/health").status_code == 200
    for _ in range(2):
        assert client.post("/translate", json={"q": "a", **EN_DE}).status_code == 503
    assert client.get("/health").status_code == 503


def test_what_is_switched_off(serve):
    client = serve()
    assert client.post("/suggest", data={"q": "a"}).status_code == 403
    assert client.get("/translate").status_code == 405


def test_json_that_is_called_a_form(serve):
    """curl -d sends it so without a header."""
    headers = {"content-type": "application/x-www-form-urlencoded"}
    refusal = serve().post("/translate", content=b'{"q": "a"}', headers=headers)
    assert refusal.status_code == 400
    assert "Content-Type: application/json" in refusal.json()["error"]


def test_other_hosts_and_origins(serve):
    client = serve(hosts=["testserver"], cors_origins=["https://good.example"])
    for path, field in (("/health", "error"), ("/v2/usage", "message")):
        refusal = client.get(path, headers={"host": "evil.example"})
        assert refusal.status_code == 400
        assert "--allowed_hosts" in refusal.json()[field]
    for origin, allowed in (("https://good.example", "https://good.example"), ("https://evil.example", None)):
        assert client.get("/health", headers={"origin": origin}).headers.get("access-control-allow-origin") == allowed


def test_the_log_has_no_texts_and_no_keys(serve, caplog):
    client = serve(keys=ApiKeys({"friend": DIGEST}))
    with caplog.at_level(logging.INFO, "hf_capsule_mt.serving"):
        client.post("/translate?api_key=secret", json={"q": "a private text", **EN_DE})
        client.post("/translate?api_key=wrong", json={"q": "a private text", **EN_DE})
    lines = [record.getMessage() for record in caplog.records if record.name == "hf_capsule_mt.serving.calls"]
    assert len(lines) == 2
    assert "en-de 200 texts=1 characters=14 sentences=1" in lines[0]
    assert "key=friend" in lines[0]
    assert " 403 " in lines[1]
    assert "private" not in caplog.text
    assert "secret" not in caplog.text
    assert "wrong" not in caplog.text


def described(**changes):
    """Return a glossary for the languages of the server."""
    return {"name": "n", "source_lang": "en", "target_lang": "de", "entries_format": "tsv", **changes}


FILE = {"file": ("private.xyz", b"private")}


@pytest.mark.parametrize(
    ("path", "sent", "logged_path", "reason"),
    [
        ("/translate", {"json": {"q": "private", "source": "en", "target": "private"}}, None, "No model translates"),
        ("/translate", {"json": {"private": 1}}, None, "a field is not supported"),
        ("/translate", {"json": {"q": "private", "format": "private", **EN_DE}}, None, "format is neither"),
        ("/translate", {"json": {"q": ["a"] * 60, **EN_DE}}, None, "over 50 texts"),
        ("/translate_file", {"files": FILE, "data": EN_DE}, None, "The format of the file is not"),
        ("/v2/document", {"files": FILE, "data": {"target_lang": "DE"}}, None, "The format of the file is not"),
        ("/v2/glossaries", {"json": described(target_lang="private", entries="a\tb")}, None, "No model obeys"),
        ("/v2/glossaries", {"json": described(entries="private")}, None, "not valid. The answer says why"),
        ("/v2/document/private/result", {}, "/v2/document/{number}/result", "Document not found."),
        ("/download_file/private", {"method": "GET"}, "/download_file/{secret}", "There is no such file."),
        ("/download_file/a-private-name-that-is-long", {}, "/download_file/…", "Method Not Allowed"),
        ("/api/v2/translate/private", {}, "/api/v2/…", "Not Found"),
        ("/private text", {}, "/…", "Not Found"),
        ("/health", {"headers": {"host": "private.example"}}, "/health", "--allowed_hosts"),
    ],
)
def test_the_log_says_why_a_request_failed(serve, caplog, path, sent, logged_path, reason):
    """It never has words of the client."""
    client = serve(hosts=["testserver"])
    caplog.set_level(logging.INFO, "hf_capsule_mt.serving")
    answer = client.request(sent.get("method", "POST"), path, **{k: v for k, v in sent.items() if k != "method"})
    assert 400 <= answer.status_code < 500
    [record] = [record for record in caplog.records if record.name == "hf_capsule_mt.serving.calls"]
    fields = record.args
    assert (fields["status"], fields["path"]) == (answer.status_code, logged_path or path)
    assert reason in fields["reason"]
    assert f"path={fields['path']} reason={fields['reason']!r}" in record.getMessage()
    assert "private" not in record.getMessage()


def test_texts_in_the_log_if_asked(serve, caplog):
    with caplog.at_level(logging.INFO, "hf_capsule_mt.serving"):
        serve(log_texts=True).post("/translate", json={"q": "a\nb", **EN_DE})
    assert "en-de 'a\\nb' -> '" in caplog.text


def test_numbers(translator):
    keys = ApiKeys({"friend": DIGEST})
    app = build_app([served(translator)], ServerSettings(keys=keys), Metrics())
    with TestClient(app) as client:
        client.post("/translate", json={"q": ["a b", "c"], "api_key": "secret", **EN_DE})
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic secret"}):
            assert client.get("/metrics", headers=headers).status_code == 401
        text = client.get("/metrics", headers={"authorization": "Bearer secret"}).text
    for line in (
        'hf_capsule_mt_requests_total{api="libretranslate",key="friend",pair="en-de",status="200"} 1.0',
        'hf_capsule_mt_request_seconds_count{api="libretranslate",pair="en-de"} 1.0',
        'hf_capsule_mt_sentences_total{pair="en-de"} 2.0',
        'hf_capsule_mt_source_tokens_total{pair="en-de"} 5.0',
        'hf_capsule_mt_batch_seconds_count{pair="en-de"} 1.0',
        "hf_capsule_mt_waiting_sentences 0.0",
        'hf_capsule_mt_batch_sentences_bucket{le="2.0"} 1.0',
    ):
        assert line in text
    assert re.search(r"^process_resident_memory_bytes [1-9]", text, re.MULTILINE)
    assert re.search(r"^process_cpu_seconds_total [0-9]*[1-9.]", text, re.MULTILINE)


def test_clients_make_no_new_labels(translator, monkeypatch):
    """Neither by keys and languages that nobody knows, nor by the order of texts in several languages."""
    models = [served(translator, source="en"), served(translator, source="fr"), served(translator, source="es")]
    app = build_app(models, ServerSettings(keys=ApiKeys({"friend": DIGEST})), Metrics())

    def best(detector, texts):
        return [Detected(text, 100.0) for text in texts]

    monkeypatch.setattr(LanguageDetector, "best", best)
    with TestClient(app) as client:
        for number in range(3):
            client.post("/translate", json={"q": "a", "api_key": f"unknown {number}", **EN_DE})
            fields = {"source": f"x{number}", "target": "de", "api_key": "secret"}
            client.post("/translate", json={"q": "a", **fields})
        for texts in (["en", "fr"], ["fr", "en"], ["en", "fr", "es"]):
            fields = {"q": texts, "source": "auto", "target": "de", "api_key": "secret"}
            assert client.post("/translate", json=fields).status_code == 200
        text = client.get("/metrics", headers={"authorization": "Bearer secret"}).text
    requests = [line for line in text.splitlines() if line.startswith("hf_capsule_mt_requests_total")]
    assert requests == [
        'hf_capsule_mt_requests_total{api="libretranslate",key="-",pair="-",status="403"} 3.0',
        'hf_capsule_mt_requests_total{api="libretranslate",key="friend",pair="-",status="400"} 3.0',
        'hf_capsule_mt_requests_total{api="libretranslate",key="friend",pair="several",status="200"} 3.0',
    ]


@pytest.mark.parametrize(
    ("specification", "expected"),
    [
        ("en-de=owner/name", ("en", "de", "owner/name", "en", "de")),
        ("en-pt=owner/name:pt_BR", ("en", "pt", "owner/name", "en", "pt_BR")),
        ("en-de=owner/name:eng_Latn:deu_Latn", ("en", "de", "owner/name", "eng_Latn", "deu_Latn")),
        (r"en-de=C:\models\x", ("en", "de", r"C:\models\x", "en", "de")),
        ("en-pt-BR=run", ("en", "pt-BR", "run", "en", "pt-BR")),
    ],
)
def test_how_models_are_named(specification, expected):
    assert _parsed(specification) == expected


@pytest.mark.parametrize("specification", ["en-de", "en=x", "-de=x", "en-de="])
def test_wrong_names_of_models(specification):
    with pytest.raises(UserError, match="is no pair with its model"):
        _parsed(specification)


@pytest.mark.parametrize(("split", "count"), [("lines", 3), ("paragraphs", 2), ("never", 1)])
def test_where_a_text_is_cut(translator, split, count):
    model = served(translator)
    text = "A b\nc d! E f?"
    assert len(model.prepare(text, TextOptions(split=split)).sentences) == count
    # Except where the model could not read it.
    longer = "A b c! " * 20
    assert len(model.prepare(longer, TextOptions(split=split)).sentences) == 20
    unknown = ServedModel("en", "de", translator, translator.decode, None)
    with pytest.raises(UserError, match="too long for the model"):
        unknown.prepare("a " * 40, TextOptions(split=split))
