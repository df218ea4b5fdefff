"""Pages with every construct of CommonMark, GFM, MkDocs Material and Docusaurus: each word is translated or counted."""

import re
from pathlib import Path

import pytest
from stand_in_translator import UpperCase

from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.formats import FORMATS

PAGES = Path(__file__).parent / "pages"
NO_LANGUAGE = {
    "commonmark": "https code address html png svg name link align p center href src alt div b i em br dl dt dd nav a "
    "table tr td title details summary pre script style img quot copy",
    "gfm": "title description https code address html mail long list p align center href src png img br summary "
    "details a b h kbd mermaid warning smile x",
    "mkdocs_material": "code title note tip danger warning question example py linenums material account fontawesome "
    "brands x twitter md address html button png width caption figure markdown span figcaption div class grid cards "
    "clock fast lg middle octicons arrow right options include operatorname",
    "docusaurus": "id Tabs Highlight code import from export const note tip info warning danger title details group js "
    "groupId value label color c a jsx summary div br truncate b bold",
}
KEPT = {
    "commonmark": {"link titles": 2, "image texts": 1, "attributes": 2, "comments": 2},
    "gfm": {"diagrams": 1, "attributes": 1},
    "mkdocs_material": {"attributes": 2, "edits": 2},
    "docusaurus": {"front matter": 1, "attributes": 2, "components": 3, "comments": 3},
}


def small_words(text):
    """Words that have small letters: those that a translator into upper case has not written."""
    return {word for word in re.findall(r"[^\W\d_]+", text) if word != word.upper()}


@pytest.mark.parametrize("name", KEPT)
def test_each_word_is_translated_or_counted(name, tmp_path, caplog):
    path = PAGES / f"{name}.md"

    translated = translate_file(UpperCase(), path, tmp_path / "b.md", "en")

    kept = FORMATS["markdown"].read(path.read_bytes()).kept
    counted = small_words(" ".join(part.text for part in kept))
    written = (tmp_path / "b.md").read_text()
    assert written == (PAGES / f"{name}.translated.md").read_text()
    left = small_words(written)
    assert left - counted - small_words(NO_LANGUAGE[name]) == set()
    assert {reason: len(lines) for reason, lines in translated.kept.items()} == KEPT[name]
    assert translated.left == []
    for reason, number in KEPT[name].items():
        assert f"not translated: {reason}: {number}. " in caplog.text
