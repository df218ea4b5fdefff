"""Marks of terms in sources: where they stand, which sources get them, and models that learn them."""

import pytest
import torch
from ending_models import STORED
from transformers import AutoTokenizer

import hf_capsule_mt
from hf_capsule_mt.translation.glossary import Entry, Glossary
from hf_capsule_mt.translation.term_marks import MARKS, TermMarks
from hf_capsule_mt.translation.text_reader import TextOptions, TextReader

MODEL = STORED / "tatoeba-en-de-transformer"


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    assert TermMarks.of(tokenizer) is None
    tokenizer.add_tokens(list(MARKS), special_tokens=True)
    return tokenizer


def glossary_of(**entries):
    return Glossary([Entry((source,), tuple(forms.split("|")), source) for source, forms in entries.items()])


def marked(tokenizer, text, glossary):
    forms = {term: term.entry.targets[0] for term in glossary.terms(text)}
    return TermMarks.of(tokenizer).marked(tokenizer, text, tokenizer(text)["input_ids"], forms)


def test_marks_stand_around_terms_and_the_source_stays(tokenizer):
    text = "The dog, a big dog, hears music."
    ids = marked(tokenizer, text, glossary_of(dog="Hund", music="Musik"))
    pieces = tokenizer.convert_ids_to_tokens(ids)
    readable = "".join(pieces).replace("Ġ", " ")
    assert readable.count("⟨term⟩ dog⟨is⟩ Hund⟨/term⟩") == 2
    assert readable.endswith(" hears⟨term⟩ music⟨is⟩ Musik⟨/term⟩.</s>")
    kept, _ = TermMarks.of(tokenizer).without(ids, torch.ones(1, len(ids)))
    assert kept == tokenizer(text)["input_ids"]


def test_a_text_that_spells_marks_is_text(tokenizer):
    assert not set(tokenizer("a ⟨term⟩ b ⟨is⟩ c")["input_ids"]) & set(tokenizer.convert_tokens_to_ids(list(MARKS)))


def test_attention_to_a_form_goes_to_its_term(tokenizer):
    ids = marked(tokenizer, "Hear music now.", glossary_of(music="Musik"))
    marks = TermMarks.of(tokenizer)
    attention = torch.zeros(2, len(ids))
    attention[0, ids.index(marks.middle) + 1] = 1
    attention[1, -1] = 1
    kept, folded = marks.without(ids, attention)
    assert folded.shape == (2, len(kept))
    assert tokenizer.decode(kept[folded[0].argmax()]).strip() == "music"
    assert folded[1].argmax() == len(kept) - 1
    assert folded.sum(1).tolist() == [1, 1]
    # A mark in front of the first token counts for it.
    ids = marked(tokenizer, "music now.", glossary_of(music="Musik"))
    assert ids[0] == marks.start
    kept, folded = marks.without(ids, torch.eye(1, len(ids)))
    assert kept == tokenizer("music now.")["input_ids"]
    assert folded.tolist() == [[1, *[0] * (len(kept) - 1)]]


def test_a_source_has_marks_if_they_fit(tokenizer):
    text = "The dog hears music."
    # The first form is shown.
    options = TextOptions(glossary=glossary_of(dog="Hund|Hunde", music="Musik"))
    whole = marked(tokenizer, text, options.glossary)
    for limit, expected in ((len(whole), whole), (len(whole) - 1, tokenizer(text)["input_ids"])):
        config = hf_capsule_mt.preset_config("transformer", "tiny", max_position_embeddings=limit)
        reader = TextReader(config, tokenizer)
        [sentence] = reader.prepare(text, options).sentences
        assert sentence.token_ids == expected
        assert [term.source for term in sentence.terms] == ["dog", "music"]
