"""DeepL's protocol, as its client and Weblate use it, without a network."""

import hashlib

import deepl
import pytest
from running_server import running
from starlette.testclient import TestClient
from tiny_marian import tiny_model, tiny_tokenizer
from translated_lines import translate_lines

from hf_capsule_mt.serving.app import build_app
from hf_capsule_mt.serving.models import ServedModel
from hf_capsule_mt.serving.settings import ApiKeys, ServerSettings
from hf_capsule_mt.translation.text_translator import TextTranslator

KEYS = ApiKeys({"friend": hashlib.sha256(b"secret").hexdigest()})
HEADER = {"authorization": "DeepL-Auth-Key secret"}


@pytest.fixture(scope="module")
def app():
    translator = TextTranslator(tiny_model(), tiny_tokenizer())
    models = [ServedModel("en", target, translator, translator.decode, "en") for target in ("de", "pt-BR")]
    return models


@pytest.fixture
def client(app):
    with TestClient(build_app(app, ServerSettings(keys=KEYS)), headers=HEADER) as client:
        yield client


def lines_of(*lines):
    return translate_lines(tiny_model(), tiny_tokenizer(), lines)


def test_texts(client):
    one, two = lines_of("a b c", "d")
    expected = [
        {"detected_source_language": "EN", "text": one, "billed_characters": 5},
        {"detected_source_language": "EN", "text": two, "billed_characters": 1},
    ]
    fields = {"text": ["a b c", "d"], "target_lang": "DE", "show_billed_characters": True, "context": "x"}
    assert client.post("/v2/translate", json=fields).json() == {"translations": expected}
    # Old clients send a form.
    fields = {"text": ["a b c", "d"], "target_lang": "PT-BR", "source_lang": "EN"}
    assert client.post("/v2/translate", data=fields).json() == {"translations": expected}
    assert client.get("/v2/usage").json()["character_count"] == 12


def test_where_texts_are_cut(client):
    def translated(text, **fields):
        answer = client.post("/v2/translate", json={"text": [text], "target_lang": "DE", **fields}).json()
        return answer["translations"][0]["text"]

    text = "A b c? D e f!\ng h"
    first, second, third = lines_of("A b c?", "D e f!", "g h")
    assert translated(text) == translated(text, split_sentences="1") == f"{first} {second}\n{third}"
    joined = lines_of("g h i j")[0]
    assert translated("g h\ni j", split_sentences="nonewlines") == joined
    for never in ("0", 0):
        assert translated("A b c? D e f!", split_sentences=never) == lines_of("A b c? D e f!")[0]
    assert translated(text, split_sentences=1) == translated(text, split_sentences="") == translated(text)


def test_weblate(client):
    """Its placeholders are elements without content."""
    fields = {"text": ['a <x id="5"></x> b'], "target_lang": "DE", "tag_handling": "xml", "ignore_tags": ["x"]}
    found = client.post("/v2/translate", json=fields).json()["translations"][0]["text"]
    assert found.count('<x id="5"></x>') == 1
    assert [entry["language"] for entry in client.get("/v2/languages?type=source").json()] == ["EN"]
    assert client.get("/v2/languages?type=target").json() == [
        {"language": "DE", "name": "German", "supports_formality": False},
        {"language": "PT-BR", "name": "Portuguese (Brazil)", "supports_formality": False},
    ]
    # deepl's own client sends a GET with a form.
    assert client.request("GET", "/v2/languages", data={"type": "target"}).json()[0]["language"] == "DE"


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"text": None}, 400, "'text' not specified"),
        ({"text": ["a", 5]}, 400, "'text' not specified"),
        ({"target_lang": None}, 400, "'target_lang' not supported"),
        ({"target_lang": "ZZ"}, 400, "en to ZZ is not supported"),
        ({"source_lang": 5}, 400, "'source_lang' not supported"),
        ({"formality": "more"}, 400, "'formality' is not supported"),
        ({"glossary_id": "x", "source_lang": "EN"}, 404, "Glossary not found"),
        ({"splitting_tags": ["p"]}, 400, "'splitting_tags' is not supported"),
        ({"tag_handling": "rtf"}, 400, "'tag_handling' not supported"),
        ({"split_sentences": "2"}, 400, "'split_sentences' not supported"),
        ({"tag_handling": "xml", "text": "<b>a"}, 400, "is not closed"),
        ({"tag_handling": "xml", "text": "<x>a", "ignore_tags": "x"}, 400, "is not closed"),
        ({"ignore_tags": "x"}, 400, "'ignore_tags' needs 'tag_handling'"),
        ({"ignore_tags": [5], "tag_handling": "xml"}, 400, "'ignore_tags' not supported"),
        ({"unheard_of": "x"}, 400, "'unheard_of' is not supported"),
    ],
)
def test_mistakes(client, change, status, words):
    fields = {"text": "a", "target_lang": "DE", **change}
    found = client.post("/v2/translate", json=fields)
    assert found.status_code == status
    assert words in found.json()["message"]


def test_elements_that_are_ignored(client):
    """Their words come back as they are, where the model writes them."""
    fields = {"text": "a <X n='1'>C d</X> b", "target_lang": "DE", "tag_handling": "xml", "ignore_tags": ["x", "y"]}
    translated = client.post("/v2/translate", json=fields).json()["translations"][0]["text"]
    assert translated.count("<X n='1'>C d</X>") == 1
    del fields["ignore_tags"]
    assert "C d" not in client.post("/v2/translate", json=fields).json()["translations"][0]["text"]


def test_what_is_taken_without_effect(client):
    fields = {"text": "a", "target_lang": "DE", "formality": "prefer_less", "preserve_formatting": True}
    fields |= {"model_type": "quality_optimized", "outline_detection": False, "tag_handling": None}
    assert client.post("/v2/translate", json=fields).status_code == 200


def test_keys(client):
    for headers in ({"authorization": "DeepL-Auth-Key wrong"}, {"authorization": ""}):
        found = client.post("/v2/translate", json={"text": "a", "target_lang": "DE"}, headers=headers)
        assert found.status_code == 403
        assert "message" in found.json()
    fields = {"text": "a", "target_lang": "DE", "auth_key": "secret"}
    assert client.post("/v2/translate", json=fields, headers={"authorization": ""}).status_code == 200


def test_the_client_of_deepl(app):
    """Unchanged, over loopback."""
    with running(build_app(app, ServerSettings(keys=KEYS))) as port:
        client = deepl.Translator("secret", server_url=f"http://127.0.0.1:{port}")
        found = client.translate_text(["a b c", "d"], target_lang="DE")
        assert [each.text for each in found] == lines_of("a b c", "d")
        assert found[0].detected_source_lang == "EN"
        assert [language.code for language in client.get_source_languages()] == ["EN"]
        assert [language.code for language in client.get_target_languages()] == ["DE", "PT-BR"]
        assert client.get_usage().character.count == 6
        with pytest.raises(deepl.DeepLException, match="is not supported"):
            client.translate_text("a", target_lang="FR")
        with pytest.raises(deepl.AuthorizationException):
            deepl.Translator("wrong", server_url=f"http://127.0.0.1:{port}").translate_text("a", target_lang="DE")
