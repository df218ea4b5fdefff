"""Several source languages: texts without one are detected, or refused with a reason."""

import pytest
from starlette.testclient import TestClient
from tiny_marian import tiny_model, tiny_tokenizer

from hf_capsule_mt.serving import detection
from hf_capsule_mt.serving.app import build_app
from hf_capsule_mt.serving.models import ServedModel
from hf_capsule_mt.translation.text_translator import TextTranslator

ENGLISH = "The dog runs through the snow."
GERMAN = "Der Hund läuft durch den Schnee."


def client_of(*pairs):
    translator = TextTranslator(tiny_model(), tiny_tokenizer())
    return TestClient(build_app([ServedModel(*pair, translator, translator.decode, pair[0][:2]) for pair in pairs]))


@pytest.fixture
def several():
    with client_of(("fr", "de"), ("en_GB", "de"), ("de", "en_GB"), ("en_GB", "fr"), ("de", "fr")) as client:
        yield client


def test_the_language_of_a_text(several):
    ranked = several.post("/detect", json={"q": GERMAN}).json()
    assert ranked[0]["language"] == "de"
    assert ranked[0]["confidence"] > 90
    assert len(ranked) == 3
    assert several.post("/detect", json={"q": "1984"}).json() == [{"confidence": 0.0, "language": "fr"}]
    assert several.post("/detect", json={"q": [GERMAN]}).status_code == 400


def test_each_text_has_its_own_language(several):
    texts = [ENGLISH, GERMAN, ENGLISH]
    found = several.post("/translate", json={"q": texts, "source": "auto", "target": "fr"}).json()
    assert [each["language"] for each in found["detectedLanguage"]] == ["en_GB", "de", "en_GB"]
    named = []
    for text, source in zip(texts, ("en", "de", "en"), strict=True):
        asked = {"q": text, "source": source, "target": "fr"}
        named.append(several.post("/translate", json=asked).json()["translatedText"])
    assert found["translatedText"] == named
    found = several.post("/v2/translate", json={"text": texts, "target_lang": "FR"}).json()["translations"]
    assert [each["detected_source_language"] for each in found] == ["EN_GB", "DE", "EN_GB"]


def test_a_pair_that_there_is_not(several):
    found = several.post("/translate", json={"q": GERMAN, "source": "auto", "target": "de"})
    assert (found.status_code, "de to de is not supported" in found.json()["error"]) == (400, True)


def test_files_name_their_language(several):
    found = several.post("/translate_file", files={"file": ("a.txt", b"a")}, data={"source": "auto", "target": "de"})
    assert (found.status_code, "one of fr, en_GB, de. It is not detected in files" in found.json()["error"]) == (
        400,
        True,
    )


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("en", "de"), ("tlh", "de")], "lingua does not know tlh"),
        ([("pt-BR", "de"), ("pt-PT", "de")], "pt-PT is not told from another variant"),
    ],
)
def test_languages_that_cannot_be_told(pairs, words):
    with client_of(*pairs) as client:
        found = client.post("/translate", json={"q": ENGLISH, "source": "auto", "target": "de"})
    assert found.status_code == 400
    assert words in found.json()["error"]


def test_without_the_library(monkeypatch):
    monkeypatch.setattr(detection, "is_installed", lambda package: False)
    with client_of(("en", "de"), ("fr", "de")) as client:
        found = client.post("/translate", json={"q": ENGLISH, "source": "auto", "target": "de"})
        assert found.status_code == 400
        assert "one of en, fr. It is not detected: lingua is not installed" in found.json()["error"]
        assert client.post("/detect", json={"q": ENGLISH}).json() == [{"confidence": 0.0, "language": "en"}]


def test_one_source_language():
    """It is taken for every text, and nobody has looked whether it is right."""
    with client_of(("en", "de")) as client:
        assert client.post("/detect", json={"q": "Le chien court."}).json() == [{"confidence": 0.0, "language": "en"}]
        found = client.post("/translate", json={"q": "a", "source": "auto", "target": "de"})
    assert found.status_code == 200
    assert found.json()["detectedLanguage"] == {"confidence": 0.0, "language": "en"}
