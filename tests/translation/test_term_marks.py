"""Marks of terms in sources: where they stand, which sources get them, and models that learn them."""

import json
import shutil

import pytest
import torch
from ending_models import STORED
from tiny_run import arguments
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer

import hf_capsule_mt
from hf_capsule_mt.cli.train import main
from hf_capsule_mt.cli.translate import main as translate
from hf_capsule_mt.training.arguments import DataArguments, TranslationTrainingArguments
from hf_capsule_mt.training.training_data import load_data
from hf_capsule_mt.translation import texts
from hf_capsule_mt.translation.glossary import Entry, Glossary
from hf_capsule_mt.translation.term_marks import MARKS, SourceMarker, TermMarks, add_marks, base_form, make_room
from hf_capsule_mt.translation.text_reader import TextOptions, TextReader

MODEL = STORED / "tatoeba-en-de-transformer"


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    assert TermMarks.of(tokenizer) is None
    add_marks(tokenizer)
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


def test_which_sources_are_marked_follows_from_the_seed(tokenizer):
    glossary = glossary_of(dog="Hund|Hunde|Hunden|Köter", cat="Katze")
    source = "I see dogs, a dog and a cat."
    ids = tokenizer(source)["input_ids"]
    marker = SourceMarker(tokenizer, glossary, 0.5, seed=3)
    draws = [marker(number, source, "Ich sehe einen Hunden.", ids) for number in range(400)]
    assert draws == [marker(number, source, "Ich sehe einen Hunden.", ids) for number in range(400)]
    other = SourceMarker(tokenizer, glossary, 0.5, seed=4)
    assert draws != [other(number, source, "Ich sehe einen Hunden.", ids) for number in range(400)]
    texts = [tokenizer.decode(draw) for draw in draws if draw != ids]
    assert 160 < len(texts) < 240
    # Half of them show the base form, and a term that the target lacks is not marked.
    bases = [text for text in texts if "⟨is⟩ Hund⟨/term⟩" in text]
    assert 0.4 < len(bases) / len(texts) < 0.6
    assert all("⟨is⟩ Hunden⟨/term⟩" in text for text in texts if text not in bases)
    assert not any("Katze" in text for text in texts)
    assert marker(0, source, "Nichts.", ids) == ids


def test_whatever_decides_which_sources_are_marked_is_in_the_identity(tokenizer):
    """A resumed run compares it."""
    plain = AutoTokenizer.from_pretrained(MODEL)
    terms = glossary_of(dog="Hund")
    markers = [SourceMarker(tokenizer, terms, 0.5, 3), SourceMarker(plain, terms, 0.5, 3)]
    markers += [SourceMarker(tokenizer, terms, 0.25, 3), SourceMarker(tokenizer, terms, 0.5, 4)]
    markers += [SourceMarker(tokenizer, glossary_of(**entry), 0.5, 3) for entry in ({"dogs": "Hund"}, {"dog": "Hunde"})]
    assert len({marker.identity for marker in markers}) == len(markers)
    assert SourceMarker(tokenizer, glossary_of(dog="Hund"), 0.5, 3).identity == markers[0].identity


def test_a_base_form_is_of_the_same_word():
    forms = ("Mantel", "Jacke", "Jacken")
    assert [base_form(forms, form) for form in forms] == ["Mantel", "Jacke", "Jacke"]
    # Other words may begin alike.
    for others in (("Vertrag", "Verteidigung"), ("Hut", "Hund")):
        assert base_form(others, others[1]) == others[1]


def test_at_most_three_terms_of_a_source_are_marked(tokenizer):
    glossary = glossary_of(dog="Hund", cat="Katze", cow="Kuh", horse="Pferd")
    source = "A dog, a cat, a cow and a horse."
    target = "Ein Hund, eine Katze, eine Kuh und ein Pferd."
    marker = SourceMarker(tokenizer, glossary, 1.0, seed=0)
    ids = tokenizer(source)["input_ids"]
    start = TermMarks.of(tokenizer).start
    numbers = [marker(number, source, target, ids).count(start) for number in range(100)]
    assert {*numbers} == {1, 2, 3}
    # As often each.
    assert all(20 < numbers.count(number) < 47 for number in (1, 2, 3))


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


def test_a_model_has_room_for_marks_and_never_writes_them(tokenizer):
    model = AutoModelForSeq2SeqLM.from_pretrained(MODEL)
    model.generation_config.suppress_tokens = [5]
    make_room(model, tokenizer)
    ids = tokenizer.convert_tokens_to_ids(list(MARKS))
    assert model.get_input_embeddings().weight.shape[0] == max(ids) + 1
    assert model.generation_config.suppress_tokens == [5, *ids]
    with torch.no_grad():
        # The model wants nothing more than to write marks.
        model.final_logits_bias[:, ids] = 100
    source = tokenizer("I like music.", return_tensors="pt")
    for options in ({}, {"custom_generate": hf_capsule_mt.decoding.generate}):
        assert not set(model.generate(**source, num_beams=2, **options)[0].tolist()) & set(ids)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that begins with the stored model, and its folder of files."""
    folder = tmp_path_factory.mktemp("soft")
    lines = {"en": "I see the dog.\nThe cat sleeps.\n", "de": "Ich sehe den Hund.\nDie Katze schläft.\n"}
    for side, text in lines.items():
        (folder / f"train.{side}").write_text(text * 8)
    (folder / "terms.tsv").write_text("dog\tHund|Hunde\ncat\tKatze\n")
    train(folder)
    return folder


def train(folder, **changes):
    options = {
        "model": MODEL,
        "train_file": [folder / "train.en", folder / "train.de"],
        "glossary": folder / "terms.tsv",
        "term_rate": 0.5,
        "output_dir": folder / "run",
        "max_steps": 2,
        "save_strategy": "steps",
        "save_steps": 1,
    }
    nothing = {"method": None, "size": None, "tokenizer_name": None, "config_overrides": None}
    options |= changes
    main(arguments(folder, options.pop("output_dir"), **nothing, **options))


def test_a_checkpoint_says_that_it_reads_marks(trained, monkeypatch):
    tokenizer = AutoTokenizer.from_pretrained(trained / "run")
    assert TermMarks.of(tokenizer) is not None
    (trained / "in.en").write_text("I like the cat.\n")
    report = trained / "report.jsonl"
    options = ["--num_beams", "2", "--input_file", str(trained / "in.en"), "--output_file", str(trained / "out.de")]
    glossary = ["--glossary", str(trained / "terms.tsv"), "--report_file", str(report)]
    read = []
    generate_batches = texts.generate_batches
    monkeypatch.setattr(
        texts, "generate_batches", lambda *args, **kw: (read.extend(args[1]), generate_batches(*args, **kw))[1]
    )
    translate(["--model", str(trained / "run"), *options, *glossary])
    assert "cat⟨is⟩ Katze⟨/term⟩" in tokenizer.decode(read[0])
    assert "Katze" in (trained / "out.de").read_text()
    assert "⟨" not in (trained / "out.de").read_text()
    # The length of the source counts no marks.
    assert json.loads(report.read_text())["source_length"] == len(tokenizer("I like the cat.")["input_ids"]) - 1


def test_the_data_seed_decides_which_sources_have_marks(trained, tokenizer, tmp_path):
    """Those of validation have none."""
    config = AutoConfig.from_pretrained(MODEL)
    config.vocab_size = len(tokenizer)
    sides = [str(trained / f"train.{side}") for side in ("en", "de")]
    glossary = {"glossary": str(trained / "terms.tsv"), "term_rate": 0.5}
    data_args = DataArguments(sides, validation_file=sides, **glossary)
    marks = set(tokenizer.convert_tokens_to_ids(list(MARKS)))
    marked_sources = []
    for seeds in ({"data_seed": 3}, {"data_seed": 3, "seed": 8}, {"data_seed": 4}):
        args = TranslationTrainingArguments(tmp_path, report_to="none", use_cpu=True, **seeds)
        data = load_data(data_args, args, tokenizer, config)
        marked_sources.append([bool(marks & set(ids)) for ids in data.train["input_ids"]])
        assert not any(marks & set(ids) for ids in data.validation["input_ids"])
    assert marked_sources[0] == marked_sources[1] != marked_sources[2]
    assert 0 < sum(marked_sources[0]) < len(marked_sources[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"term_rate": 0.25}, "had glossary"),
        ({"term_rate": 0.0}, "term_rate is 0.0"),
        ({"streaming": True}, "Leave out streaming and bpe_dropout"),
        ({"lora_rank": 2}, "cannot learn the marks"),
    ],
)
def test_refusals(trained, tmp_path, capsys, changes, message):
    if "had" in message:
        shutil.copytree(trained / "run", tmp_path / "run")
        shutil.rmtree(tmp_path / "run" / "checkpoint-2")
        changes = {**changes, "output_dir": tmp_path / "run", "resume_from_checkpoint": "last"}
    with pytest.raises(SystemExit):
        train(trained, **{"output_dir": tmp_path / "other", **changes})
    assert message in capsys.readouterr().err
