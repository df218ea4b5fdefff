"""Requests byte by byte as Weblate, Mastodon and Discourse send them, over a real connection."""

import json
import re

import pytest
from running_server import connected, running
from tiny_marian import tiny_model, tiny_tokenizer
from translated_lines import translate_lines

from hf_capsule_mt.serving.app import build_app
from hf_capsule_mt.serving.models import ServedModel
from hf_capsule_mt.serving.settings import ServerSettings
from hf_capsule_mt.translation.text.words import keep_pattern
from hf_capsule_mt.translation.text_translator import TextTranslator

JSON = "Content-Type: application/json"
FORM = "Content-Type: application/x-www-form-urlencoded"
OF_REQUESTS = ("User-Agent: Weblate/5.15", "Accept-Encoding: gzip, deflate, br, zstd", "Accept: */*")
"""Headers of Weblate, which calls with the library requests."""
OF_MASTODON = ("User-Agent: Mastodon/4.5.0 (http.rb/5.3.1; +https://example.org/)", "Accept-Encoding: gzip")
OF_DISCOURSE = ("User-Agent: excon/1.2.8",)


@pytest.fixture(scope="module")
def port():
    translator = TextTranslator(tiny_model(), tiny_tokenizer())
    settings = ServerSettings(keep=keep_pattern(r"\[X\d+X\]"), hosts=["localhost"])
    with running(build_app([ServedModel("en", "de", translator, translator.decode, "en")], settings)) as port:
        yield port


def asked(port, method, path, headers=(), body=""):
    """Send a request, and return the status and the fields of its answer."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers, f"Content-Length: {len(body.encode())}"]
    with connected(port) as connection:
        connection.sendall("\r\n".join([*lines, "Connection: close", "", body]).encode())
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    head, _, found = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    return int(head.split()[1]), json.loads(found)


def lines_of(*lines):
    return translate_lines(tiny_model(), tiny_tokenizer(), lines)


def test_weblate_as_a_client_of_libretranslate(port):
    """It asks for the languages, then sends lists with placeholders, and a key that may be empty."""
    status, languages = asked(port, "GET", "/languages", OF_REQUESTS)
    pairs = [(entry["code"], target) for entry in languages for target in entry["targets"]]
    assert (status, pairs) == (200, [("en", "de")])
    assert "de" in [entry["code"] for entry in languages]
    body = '{"api_key": "", "q": ["a b c", "d [X5X] e"], "source": "en", "target": "de"}'
    status, found = asked(port, "POST", "/translate", (*OF_REQUESTS, JSON), body)
    assert status == 200
    first, second = found["translatedText"]
    assert first == lines_of("a b c")[0]
    assert second.count("[X5X]") == 1


def test_weblate_as_a_client_of_deepl(port):
    headers = (*OF_REQUESTS, "Authorization: DeepL-Auth-Key x")
    for kind, code in (("source", "EN"), ("target", "DE")):
        status, found = asked(port, "GET", f"/v2/languages?type={kind}", headers)
        assert (status, [entry["language"] for entry in found]) == (200, [code])
    status, found = asked(port, "GET", "/v2/glossary-language-pairs", headers)
    assert (status, found) == (200, {"supported_languages": [{"source_lang": "en", "target_lang": "de"}]})
    body = {"name": "weblate:1", "source_lang": "EN", "target_lang": "DE", "entries": "c\tq", "entries_format": "tsv"}
    status, made = asked(port, "POST", "/v2/glossaries", (*headers, JSON), json.dumps(body))
    assert status == 201
    status, found = asked(port, "GET", "/v2/glossaries", headers)
    assert [each["glossary_id"] for each in found["glossaries"]] == [made["glossary_id"]]
    body = {
        "text": ["a b c", 'd <x id="5"></x> e'],
        "source_lang": "EN",
        "target_lang": "DE",
        "formality": "default",
        "tag_handling": "xml",
        "ignore_tags": ["x"],
        "context": "a page",
        "glossary_id": made["glossary_id"],
        "model_type": "prefer_quality_optimized",
    }
    status, found = asked(port, "POST", "/v2/translate", (*headers, JSON), json.dumps(body))
    assert status == 200
    with_term, with_placeholder = [each["text"] for each in found["translations"]]
    assert "q" in with_term.split()
    assert with_placeholder.count('<x id="5"></x>') == 1
    # A formality that the server does not have is refused, and not left out.
    status, found = asked(port, "POST", "/v2/translate", (*headers, JSON), json.dumps({**body, "formality": "less"}))
    assert (status, "formality" in found["message"]) == (400, True)


def test_mastodon(port):
    """A post in HTML, its content warning and a poll are a list. The language may be unknown, and the key is null."""
    status, languages = asked(port, "GET", "/languages", OF_MASTODON)
    assert (status, all("targets" in entry for entry in languages)) == (200, True)
    body = (
        '{"q":["\\u003cp\\u003ea b \\u003ca href=\\"https://example.org/tags/c\\" class=\\"mention hashtag\\" '
        'rel=\\"tag\\"\\u003e#\\u003cspan\\u003ec\\u003c/span\\u003e\\u003c/a\\u003e\\u003c/p\\u003e","d"],'
        '"source":"auto","target":"de","format":"html","api_key":null}'
    )
    status, found = asked(port, "POST", "/translate", (*OF_MASTODON, JSON), body)
    assert status == 200
    post, warning = found["translatedText"]
    assert re.fullmatch(r"<p>.*<a href=\"https://example.org/tags/c\".*<span>.*</span></a>.*</p>", post)
    assert warning == lines_of("d")[0]
    assert [each["language"] for each in found["detectedLanguage"]] == ["en", "en"]


def test_discourse(port):
    """It asks for the language of the text without tags before each translation."""
    status, found = asked(port, "POST", "/detect", (*OF_DISCOURSE, FORM), "q=a+b+c&api_key=")
    assert (status, found[0]["language"]) == (200, "en")
    status, languages = asked(port, "GET", "/languages", OF_DISCOURSE)
    assert {"en", "de"} <= {entry["code"] for entry in languages}
    body = "q=%3Cp%3Ea+%3Cb%3Eb%3C%2Fb%3E+c%3C%2Fp%3E%0A&source=en&target=de&format=html&api_key="
    status, found = asked(port, "POST", "/translate", (*OF_DISCOURSE, FORM), body)
    assert status == 200
    assert re.fullmatch(r"<p>.*<b>.*</b>.*</p>\n", found["translatedText"])
