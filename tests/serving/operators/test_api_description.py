"""The description of the server says what its routes are and which fields they take."""

import pytest
from starlette.testclient import TestClient
from tiny_marian import tiny_model, tiny_tokenizer

from hf_capsule_mt.serving.app import build_app
from hf_capsule_mt.serving.models import ServedModel
from hf_capsule_mt.serving.operators.api_description import description
from hf_capsule_mt.serving.operators.metrics import Metrics
from hf_capsule_mt.serving.protocols import deepl, deepl_documents, libretranslate
from hf_capsule_mt.translation.text_translator import TextTranslator


@pytest.fixture(scope="module")
def app():
    translator = TextTranslator(tiny_model(), tiny_tokenizer())
    return build_app([ServedModel("en", "<b>", translator, translator.decode, None)], metrics=Metrics())


def fields_of(path):
    [content] = description()["paths"][path]["post"]["requestBody"]["content"].values()
    return set(content["schema"]["properties"])


def test_its_routes_are_those_of_the_server(app):
    served: dict[str, set[str]] = {}
    for route in app.routes:
        methods = {method.lower() for method in route.methods} - {"head"}
        served.setdefault(route.path, set()).update(methods)
    del served["/"]
    described = {path: set(methods) for path, methods in description()["paths"].items()}
    assert set(described) == set(served)
    for path, methods in described.items():
        # Some clients send a POST where others send a GET.
        assert methods == served[path] or methods | {"post"} == served[path], path


def test_its_fields_are_those_of_the_server():
    assert fields_of("/translate") == libretranslate._FIELDS
    assert fields_of("/detect") == libretranslate._FIELDS_OF_DETECTION
    assert fields_of("/translate_file") == libretranslate._FIELDS_OF_FILE | {"file"}
    assert fields_of("/v2/translate") == deepl._FIELDS | deepl._WITHOUT_EFFECT
    assert fields_of("/v2/document") == deepl_documents._FIELDS | {"file"}


def test_pages(app):
    with TestClient(app) as client:
        assert client.get("/spec").json() == description()
        found = client.get("/")
        assert found.url.path == "/docs"
        page = found.text
    for words in ("POST /v2/translate", "ignore_tags", "English to &lt;b&gt;"):
        assert words in page
    assert "//" not in page.replace("http://127.0.0.1:5000", "")
