"""Glossaries of DeepL's protocol: clients make them, and their translations have the terms."""

import gc
import hashlib
import json
import tracemalloc

import deepl
import pytest
import torch
from ending_models import STORED
from running_server import running
from starlette.testclient import TestClient
from tiny_marian import tiny_model, tiny_tokenizer

from hf_capsule_mt.serving import glossaries
from hf_capsule_mt.serving.app import build_app
from hf_capsule_mt.serving.models import ServedModel
from hf_capsule_mt.serving.settings import ApiKeys, ServerSettings
from hf_capsule_mt.translation.generation.model_options import DecodingOptions
from hf_capsule_mt.translation.text_translator import TextTranslator

KEYS = ApiKeys({name: hashlib.sha256(name.encode()).hexdigest() for name in ("ann", "bob")})
ANN = {"authorization": "DeepL-Auth-Key ann"}
BOB = {"authorization": "DeepL-Auth-Key bob"}
TERMS = {
    "name": "terms",
    "source_lang": "en",
    "target_lang": "de",
    "entries": "coat\tJacke\nold dog\tKöter",
    "entries_format": "tsv",
}


@pytest.fixture(scope="module")
def models():
    translator = TextTranslator(*DecodingOptions(str(STORED / "tatoeba-en-de-transformer")).load(torch.device("cpu")))
    pairs = [("en", "de"), ("en", "pt-BR"), ("fr", "de")]
    served = [ServedModel(source, target, translator, translator.decode, "en") for source, target in pairs]
    unable = ServedModel("de", "en", translator, translator.decode, "de", obeys_glossaries=False)
    return [*served, unable]


@pytest.fixture
def client(models):
    with TestClient(build_app(models, ServerSettings(keys=KEYS)), headers=ANN) as client:
        yield client


def create(client, **change):
    return client.post("/v2/glossaries", json={**TERMS, **change})


def test_translations_have_the_terms(client):
    number = create(client).json()["glossary_id"]
    asked = {"text": ["Where did you buy that coat?", "The old dog sleeps."], "source_lang": "EN", "target_lang": "DE"}
    plain = client.post("/v2/translate", json=asked).json()["translations"]
    with_terms = client.post("/v2/translate", json={**asked, "glossary_id": number}).json()["translations"]
    assert "Jacke" not in plain[0]["text"]
    assert "Jacke" in with_terms[0]["text"]
    assert "Köter" in with_terms[1]["text"]
    one = client.post("/v2/translate", json={**asked, "glossary_ids": [number]}).json()["translations"]
    assert one == with_terms


def test_a_term_without_room_is_a_warning(client, caplog):
    number = create(client, entries="dog\t" + "Quark " * 40).json()["glossary_id"]
    asked = {"text": "The dog.", "source_lang": "EN", "target_lang": "DE", "glossary_id": number}
    assert "Quark Quark Quark" not in client.post("/v2/translate", json=asked).json()["translations"][0]["text"]
    assert "1 terms of the glossary are missing" in caplog.text


def test_what_is_known_of_a_glossary(client):
    made = create(client)
    assert made.status_code == 201
    described = made.json()
    number = described.pop("glossary_id")
    assert described.pop("creation_time").endswith("+00:00")
    assert described == {
        "name": "terms",
        "ready": True,
        "source_lang": "en",
        "target_lang": "de",
        "entry_count": 2,
    }
    assert client.get(f"/v2/glossaries/{number}").json() == made.json()
    assert client.get("/v2/glossaries").json() == {"glossaries": [made.json()]}
    entries = client.get(f"/v2/glossaries/{number}/entries")
    assert entries.text == TERMS["entries"]
    assert entries.headers["content-type"].startswith("text/tab-separated-values")
    assert client.delete(f"/v2/glossaries/{number}").status_code == 204
    assert client.get("/v2/glossaries").json() == {"glossaries": []}
    pairs = client.get("/v2/glossary-language-pairs").json()["supported_languages"]
    assert [(pair["source_lang"], pair["target_lang"]) for pair in pairs] == [("en", "de"), ("en", "pt"), ("fr", "de")]


def test_version_3(client):
    names = ("source_lang", "target_lang", "entries", "entries_format")
    german = {name: TERMS[name] for name in names}
    dictionaries = [german, {**german, "target_lang": "pt", "entries": '"snow","Eis, viel"', "entries_format": "csv"}]
    made = client.post("/v3/glossaries", json={"name": "two", "dictionaries": dictionaries}).json()
    counts = [(each["target_lang"], each["entry_count"]) for each in made["dictionaries"]]
    assert counts == [("de", 2), ("pt", 1)]
    path = f"/v3/glossaries/{made['glossary_id']}"
    assert client.get(path).json() == client.get("/v3/glossaries").json()["glossaries"][0] == made
    [found] = client.get(f"{path}/entries?source_lang=EN&target_lang=PT").json()["dictionaries"]
    assert (found["entries"], found["entries_format"]) == ("snow\tEis, viel", "tsv")
    # It has no place in version 2.
    assert client.get("/v2/glossaries").json() == {"glossaries": []}
    assert client.get(f"/v2/glossaries/{made['glossary_id']}").status_code == 404
    asked = {"text": "A dog runs through the snow.", "source_lang": "EN", "target_lang": "PT-BR"}
    asked["glossary_id"] = made["glossary_id"]
    assert "Eis, viel" in client.post("/v2/translate", json=asked).json()["translations"][0]["text"]
    twice = client.post("/v3/glossaries", json={"name": "two", "dictionaries": [german, german]})
    assert (twice.status_code, "two dictionaries" in twice.json()["message"]) == (400, True)
    changed = client.patch(path, json={"name": "three"})
    assert (changed.status_code, changed.json()["message"]) == (405, f"PATCH {path} is not supported.")


def test_half_of_a_character_in_a_dictionary(client):
    dictionary = {"source_lang": "en", "target_lang": "de", "entries": "coat\t\ud800", "entries_format": "tsv"}
    body = json.dumps({"name": "half", "dictionaries": [dictionary]})
    refused = client.post("/v3/glossaries", content=body, headers={"content-type": "application/json"})
    assert refused.status_code == 400
    assert "half of a surrogate pair" in refused.json()["message"]


def test_others_see_nothing(client):
    number = create(client).json()["glossary_id"]
    asked = {"text": "a", "source_lang": "EN", "target_lang": "DE", "glossary_id": number}
    assert client.post("/v2/translate", json=asked, headers=BOB).status_code == 404
    assert client.get(f"/v2/glossaries/{number}", headers=BOB).status_code == 404
    assert client.delete(f"/v2/glossaries/{number}", headers=BOB).status_code == 404
    assert client.get("/v2/glossaries", headers=BOB).json() == {"glossaries": []}
    assert client.get("/v2/glossaries", headers={"authorization": ""}).status_code == 403
    assert len(client.get("/v2/glossaries").json()["glossaries"]) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": ""}, "'name' not supported"),
        ({"target_lang": "fr"}, "from en to fr are not supported"),
        # Its model does not obey glossaries.
        ({"source_lang": "de", "target_lang": "en"}, "from de to en are not supported"),
        ({"entries": "\n"}, "'entries' not supported"),
        ({"entries": "a"}, "Entry 1: a line has a source, one tab, and a target. This one has 1 parts"),
        ({"entries": "a\tb\n\nc\td\te"}, "Entry 3: a line has a source, one tab, and a target. This one has 3 parts"),
        ({"entries": "a\tb\na\tc"}, "Entry 2: the glossary has 'a' twice"),
        ({"entries": "a\t"}, "Entry 1: the target is empty"),
        ({"entries": "dog\tb\n" + "a " * 51 + "\tb"}, "Entry 2: the source is too long"),
        ({"entries": "a\t" + "b" * 501}, "Entry 1: the target is too long"),
        ({"name": "a" * 1001}, "The name has over 1000 characters"),
        ({"entries_format": "tbx"}, "'entries_format' not supported"),
        ({"entries_format": "csv", "entries": "a,b,c"}, "This one has 3 fields"),
        ({"entries_format": "csv", "entries": '"a'}, "Entry 1: "),
        ({"entries_format": "csv", "entries": "a,b,en,fr"}, "Entry 1 is for other languages"),
        ({"ready": True}, "'ready' is not supported"),
    ],
)
def test_wrong_glossaries(client, change, words):
    found = create(client, **change)
    assert found.status_code == 400
    assert words in found.json()["message"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source_lang": None}, "'source_lang' is needed with a glossary"),
        ({"source_lang": "FR"}, "is for en to de, not for FR to DE"),
        ({"target_lang": "PT-BR"}, "is for en to de, not for EN to PT-BR"),
        ({"glossary_ids": ["x"]}, "'glossary_ids' is only supported with one"),
        ({"glossary_id": 5}, "'glossary_id' not supported"),
    ],
)
def test_wrong_uses(client, change, words):
    number = create(client).json()["glossary_id"]
    asked = {"text": "a", "source_lang": "EN", "target_lang": "DE", "glossary_id": number, **change}
    found = client.post("/v2/translate", json=asked)
    assert found.status_code == 400
    assert words in found.json()["message"]


def test_a_term_that_the_model_cannot_write():
    translator = TextTranslator(tiny_model(), tiny_tokenizer())
    with TestClient(build_app([ServedModel("en", "de", translator, translator.decode, "en")])) as client:
        found = create(client)
    assert (found.status_code, "cannot write 'Jacke'" in found.json()["message"]) == (400, True)


def test_too_many(client, monkeypatch):
    monkeypatch.setattr(glossaries, "MOST_GLOSSARIES", 1)
    assert create(client).status_code == 201
    assert create(client).status_code == 456
    assert client.post("/v2/glossaries", json=TERMS, headers=BOB).status_code == 201


@pytest.mark.parametrize(("limit", "most"), [("MOST_ENTRIES", 5), ("MOST_CHARACTERS", 45)])
def test_glossaries_that_are_too_large_together(client, monkeypatch, limit, most):
    """Each has 2 entries with 20 characters."""
    monkeypatch.setattr(glossaries, limit, most)
    number = create(client).json()["glossary_id"]
    assert create(client).status_code == 201
    refused = create(client)
    assert (refused.status_code, "All glossaries together" in refused.json()["message"]) == (456, True)
    assert client.post("/v2/glossaries", json=TERMS, headers=BOB).status_code == 201
    client.delete(f"/v2/glossaries/{number}")
    assert create(client).status_code == 201


def test_refused_glossaries_leave_nothing(client):
    entries = ["!" * 120_000 + "\tb", "a\t" + "b" * 120_000]
    tracemalloc.start()
    try:
        create(client, entries=entries[0])
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(20):
            for refused in entries:
                assert create(client, entries=refused).status_code == 400
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 500_000


def test_the_client_of_deepl(models):
    """Unchanged, over loopback: with the classes of both versions."""
    with running(build_app(models, ServerSettings(keys=KEYS))) as port:
        client = deepl.DeepLClient("ann", server_url=f"http://127.0.0.1:{port}")
        made = client.create_glossary("terms", "EN", "DE", {"coat": "Jacke", "old dog": "Köter"})
        assert client.get_glossary(made.glossary_id).entry_count == 2
        assert [each.name for each in client.list_glossaries()] == ["terms"]
        assert client.get_glossary_entries(made) == {"coat": "Jacke", "old dog": "Köter"}
        found = client.translate_text("Where did you buy that coat?", source_lang="EN", target_lang="DE", glossary=made)
        assert "Jacke" in found.text
        pairs = [(pair.source_lang, pair.target_lang) for pair in client.get_glossary_languages()]
        assert ("en", "pt") in pairs
        client.delete_glossary(made)
        with pytest.raises(deepl.GlossaryNotFoundException):
            client.get_glossary(made.glossary_id)
        terms = deepl.api_data.MultilingualGlossaryDictionaryEntries("EN", "PT", {"coat": "Jacke"})
        several = client.create_multilingual_glossary("two", [terms])
        assert [each.name for each in client.list_multilingual_glossaries()] == ["two"]
        entries = client.get_multilingual_glossary_entries(several, "EN", "PT").dictionaries[0].entries
        assert entries == "coat\tJacke"
        found = client.translate_text(
            "Where did you buy that coat?", source_lang="EN", target_lang="PT-BR", glossary=several
        )
        assert "Jacke" in found.text
        client.delete_multilingual_glossary(several)
