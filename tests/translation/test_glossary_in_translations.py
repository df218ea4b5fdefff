"""Glossaries in the pipeline, the command and the report."""

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from ending_models import STORED
from interrupted_translation import interrupt_after
from tiny_marian import tiny_tokenizer
from tokenizers import Tokenizer, models
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

import hf_capsule_mt
from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.data.encoding import tokenize_lines
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.generation.decoder import Decoded, Decoder
from hf_capsule_mt.translation.preparation import TextOptions
from hf_capsule_mt.translation.terms.forcing import TermWriter, check_glossary, token_spellings, word_boundaries
from hf_capsule_mt.translation.terms.glossary import Entry, Glossary

MODEL = STORED / "tatoeba-en-de-transformer"
LINES = [
    "Where did you buy that coat?",
    "I like music.",
    "1984",
    "The old dog sleeps.",
    "A dog and a dog.",
    "He bought the coat for his dog.",
]
TERMS = "coat\tJacke|Jacken\ndog\tHund\nold\tbetagte|betagter\n"


@pytest.fixture(scope="module")
def translator():
    return hf_capsule_mt.pipeline(MODEL, device="cpu", num_beams=4)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "in.en").write_text("".join(f"{line}\n" for line in LINES))
    (tmp_path / "terms.tsv").write_text(TERMS)
    return tmp_path


def translate(folder, *options):
    output = folder / "out.de"
    main(["--model", str(MODEL), "--num_beams", "4", "--input_file", str(folder / "in.en"), *options])
    return output.read_text().splitlines()


def test_terms_are_there_and_nothing_else_changes(files):
    output = ["--output_file", str(files / "out.de")]
    plain = translate(files, *output)
    report = files / "report.jsonl"
    found = translate(files, *output, "--glossary", str(files / "terms.tsv"), "--report_file", str(report))
    assert "Jacke" in found[0]
    assert "Jacke" not in plain[0]
    # Without a term, and with terms that the model writes by itself.
    assert [found[index] for index in (1, 2, 4)] == [plain[index] for index in (1, 2, 4)]
    rows = [json.loads(line) for line in report.read_text().splitlines()]
    states = [[term["state"] for term in row.get("terms", [])] for row in rows]
    assert states == [["forced"], [], [], ["forced", "model"], ["model", "model"], ["forced", "model"]]
    jacket = {"source": "coat", "target": "Jacke", "form": "Jacke", "state": "forced", "copies": 0, "aligned": True}
    assert rows[0]["terms"] == [jacket]


def test_the_report_says_whether_a_term_looks_at_its_source(files):
    """The model writes "schläft" for "sleeps", so it is at a wrong place as a translation of "old"."""
    (files / "in.en").write_text("The old dog sleeps.\n")
    (files / "terms.tsv").write_text("dog\tHund\nold\tschläft\n")
    report = files / "report.jsonl"
    options = ["--output_file", str(files / "out.de"), "--glossary", str(files / "terms.tsv")]
    translate(files, *options, "--report_file", str(report))
    [row] = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(term["target"], term["state"], term["aligned"]) for term in row["terms"]] == [
        ("schläft", "model", False),
        ("Hund", "model", True),
    ]


def test_the_pipeline_writes_as_the_command(files, translator):
    lines = translate(files, "--output_file", str(files / "out.de"), "--glossary", str(files / "terms.tsv"))
    results = translator(LINES, glossary=str(files / "terms.tsv"), batch_size=3)
    assert [result["translation_text"] for result in results] == lines
    with pytest.raises(UserError, match="A glossary gives one translation"):
        translator(LINES[0], glossary=str(files / "terms.tsv"), num_return_sequences=2)
    with pytest.raises(UserError, match="A glossary needs engine 'fast'"):
        translator(LINES[0], glossary=str(files / "terms.tsv"), engine="transformers")


LONG = [
    "HP-LaserJet 4200dtn",
    "Rhabarberbarbara",
    "Geschäft (GmbH)",
    "Node.js 18.x",
    "Rindfleischetikettierung",
    "IEC 60601-1-2:2014",
]


@pytest.mark.parametrize("num_beams", [1, 2, 4, 8])
def test_long_terms_are_written_with_any_number_of_beams(translator, num_beams):
    for form in LONG:
        glossary = Glossary([Entry(("house",), (form,), "x:1")])
        results = translator(
            ["The house.", "Tom gave Mary the house."], glossary=glossary, num_beams=num_beams, batch_size=2
        )
        assert all(form in result["translation_text"] for result in results)


def test_several_long_terms_of_one_sentence_are_written(translator):
    sources = ["printer", "dog", "law"]
    chosen = [LONG[0], LONG[1], LONG[4]]
    glossary = Glossary([Entry((source,), (form,), "x:1") for source, form in zip(sources, chosen)])
    [result] = translator("I saw the printer, the dog and the <b>law</b> in the shop.", glossary=glossary, tags=True)
    assert all(form in result["translation_text"] for form in chosen)


def test_fifteen_terms_of_one_sentence_are_written(translator):
    animals = ["dog", "cat", "fish", "bird"]
    food = ["bread", "milk", "cheese", "apple"]
    words = [*animals, *food, "book", "table", "chair", "door", "window", "tree", "car"]
    glossary = Glossary([Entry((word,), (f"Quark{word}",), "x:1") for word in words])
    [result] = translator(f"I have a {', a '.join(words)}.", glossary=glossary)
    assert all(f"Quark{word}" in result["translation_text"] for word in words)


def test_a_term_without_room_is_a_warning_and_missing_in_the_report(files, translator, caplog):
    (files / "in.en").write_text("The house.\n")
    (files / "terms.tsv").write_text(f"house\t{LONG[0]}\n")
    warning = "1 terms of the glossary are missing"
    result = translator("The house.", glossary=str(files / "terms.tsv"), max_new_tokens=5)
    assert LONG[0] not in result[0]["translation_text"]
    assert warning in caplog.text
    caplog.clear()
    translator("The house.", glossary=str(files / "terms.tsv"))
    assert not caplog.text
    report = files / "report.jsonl"
    options = ["--output_file", str(files / "out.de"), "--report_file", str(report), "--max_new_tokens", "5"]
    translate(files, *options, "--glossary", str(files / "terms.tsv"))
    [row] = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(term["form"], term["state"]) for term in row["terms"]] == [(None, "missing")]
    assert warning in caplog.text


def test_the_score_is_that_of_the_translation_with_its_terms(translator):
    glossary = Glossary([Entry(("dog",), ("Tier",), "x:1")])
    options = {"glossary": glossary, "return_scores": True, "length_penalty": 1.0}
    [result] = translator("A dog and a dog.", return_tensors=True, **options)
    written = result["translation_token_ids"]
    source = translator.tokenizer("A dog and a dog.", return_tensors="pt")
    with torch.no_grad():
        loss = translator.model(**source, labels=written[None, 1:]).loss
    assert result["score"] == pytest.approx(-loss.item(), abs=1e-4)


def test_a_sentence_with_its_terms_is_not_searched_again(translator, monkeypatch):
    searched = []
    complete = TermWriter._search
    monkeypatch.setattr(TermWriter, "_search", lambda *args: (searched.append(len(args[2])), complete(*args))[1])
    glossary = Glossary([Entry(("dog",), ("Hund",), "x:1")])
    translator("A dog and a dog.", glossary=glossary)
    assert searched == []
    translator("A dog and a dog.", glossary=Glossary([Entry(("dog",), ("Tier",), "x:1")]))
    assert searched == [1]


def test_tags_and_kept_parts_stay_outside(translator):
    glossary = Glossary([Entry(("coat",), ("Jacke",), "x:1"), Entry(("dog",), ("Tier",), "x:2")])
    text = "<p>Where did you buy that <b>coat</b>?</p>"
    [result] = translator(text, glossary=glossary, tags=True)
    assert "<b>Jacke</b>" in result["translation_text"]
    [kept] = translator("The dog sleeps.", glossary=glossary, keep="dog")
    assert "Tier" not in kept["translation_text"]
    # Next to a kept part is outside of it.
    for text in ("The dog{x} sleeps.", "The {x}dog sleeps."):
        [result] = translator(text, glossary=glossary, keep=r"\{x\}")
        assert "Tier" in result["translation_text"]


def test_a_kept_part_takes_no_place_of_a_term(translator):
    """The model knows no such word, and writes the term where the name should stand."""
    glossary = Glossary([Entry(("friend",), ("Kumpel",), "x:1")])
    [result] = translator("{user} is my best friend.", glossary=glossary, keep=r"\{\w+\}")
    assert "Kumpel" in result["translation_text"]
    assert "{user}" in result["translation_text"]


def test_the_least_copies_win(translator):
    """The search also finds a translation that has the word twice."""
    glossary = Glossary([Entry(("music",), ("Lärm",), "x:1")])
    [result] = translator("I like music very much.", glossary=glossary)
    assert result["translation_text"].count("Lärm") == 1


def test_another_glossary_does_not_continue(files, capsys):
    unfinished = files / "out.de.unfinished"
    options = ["--output_file", str(files / "out.de"), "--chunk_size", "2", "--glossary", str(files / "terms.tsv")]
    whole = translate(files, *options)
    assert not unfinished.exists()
    (files / "terms.tsv").write_text("coat\tMantel\n")
    assert translate(files, *options) != whole


@pytest.mark.parametrize("options", [["--dtype", "int8"], ["--num_beams", "1"], ["--num_beams", "6"]])
def test_terms_are_there_in_other_searches(files, options):
    found = translate(files, "--output_file", str(files / "out.de"), "--glossary", str(files / "terms.tsv"), *options)
    assert "Jacke" in found[0]
    assert "etagte" in found[3]
    assert found[4].count("Hund") == 2


def search_for_terms(monkeypatch, write):
    """Let searches with terms call `write`. What it returns, if anything, is what they find."""
    decode = Decoder.decode

    def decode_or_write(decoder, sources, count=1, *, terms=None, **options):
        found = None if terms is None else write(sources, terms)
        return found or decode(decoder, sources, count, terms=terms, **options)

    monkeypatch.setattr(Decoder, "decode", decode_or_write)


def test_sentences_that_are_searched_in_several_batches(translator, monkeypatch):
    """A search with terms has more hypotheses of a sentence than the first one, so a batch has fewer sentences."""
    sizes = []
    search_for_terms(monkeypatch, lambda sources, terms: sizes.append(len(sources)))
    lines = ["The dog sleeps.", "I see a dog.", "He has a dog.", "A dog runs.", "My dog is old.", "The dog eats."]
    options = {"glossary": Glossary([Entry(("dog",), ("Tier", "Tieres", "Tiere"), "x:1")])}
    together = translator(lines, batch_size=len(lines), **options)
    # Of the six hypotheses of a sentence as many as the 24 of six sentences with four beams.
    assert sizes == [4, 2]
    assert together == [translator(line, **options)[0] for line in lines]
    assert all("Tier" in result["translation_text"] for result in together)


def test_what_is_copied_needs_no_terms(translator):
    options = TextOptions(glossary=Glossary([Entry(("1984",), ("Tier",), "x:1")]))
    [copied] = translator.texts.reader.prepare("1984", options).sentences
    assert (copied.copy, copied.terms) == ("1984", ())
    [sentence] = translator.texts.reader.prepare("In 1984.", options).sentences
    assert [term.source for term in sentence.terms] == ["1984"]


def test_no_room_for_a_term_is_reported(translator):
    glossary = Glossary([Entry(("coat",), ("Handelskammerpräsidentin",), "x:1")])
    [result] = translator("Where did you buy that coat?", glossary=glossary, max_new_tokens=3)
    assert "Handelskammerpräsidentin" not in result["translation_text"]


def test_terms_at_the_beginning_after_quotes_and_in_one_another(translator):
    entries = {"music": "rote Kunst", "art": "Kunst", "quiet": "leise"}
    glossary = Glossary([Entry((source,), (target,), source) for source, target in entries.items()])
    [result] = translator("Music and art.", glossary=glossary)
    assert result["translation_text"].count("Kunst") == 2
    assert "ote Kunst" in result["translation_text"]
    [result] = translator('He said, "Quiet!"', glossary=glossary)
    assert "eise" in result["translation_text"]


@pytest.mark.parametrize(("num_beams", "widths"), [(1, [1]), (4, [3, 8])])
def test_beam_search_tries_again_with_more_hypotheses(translator, monkeypatch, num_beams, widths):
    """Greedy search does not, which is for those who want little work."""
    searched = []
    search_for_terms(monkeypatch, lambda sources, terms: searched.append(terms.width))
    glossary = Glossary([Entry(("coat",), ("Handelskammerpräsidentin",), "x:1")])
    translator("Where did you buy that coat?", glossary=glossary, num_beams=num_beams, max_new_tokens=3)
    assert searched == widths


def test_of_several_translations_the_one_with_least_copies_is_taken(translator, monkeypatch):
    """The search ranks by score, and counts no copies."""
    written = []
    for text in ("Ich mag Lärm und Lärm.", "Ich mag Lärm.", "Ich mag Lärm, sehr."):
        token_ids = translator.tokenizer(text_target=text, add_special_tokens=False)["input_ids"]
        written.append(Decoded(token_ids, translator.tokenizer.eos_token_id))
    search_for_terms(monkeypatch, lambda sources, terms: [written])
    glossary = Glossary([Entry(("music",), ("Lärm",), "x:1")])
    [result] = translator("I like music.", glossary=glossary)
    assert result["translation_text"] == "Ich mag Lärm."


def written_by_search(translator, monkeypatch, texts_of_width):
    """Let the search with terms write these texts, by the number of its hypotheses."""
    tokenizer = translator.tokenizer

    def write(sources, terms):
        written = []
        for text in texts_of_width[terms.width]:
            token_ids = tokenizer(text_target=text, add_special_tokens=False)["input_ids"]
            written.append(Decoded(token_ids, tokenizer.eos_token_id))
        return [written]

    search_for_terms(monkeypatch, write)


def test_a_translation_with_its_terms_is_taken_in_spite_of_copies(translator, monkeypatch):
    texts = ["Ich mag Musik.", "Ich mag Lärm und Lärm.", "Ich mag alles."]
    written_by_search(translator, monkeypatch, {3: texts, 8: texts})
    glossary = Glossary([Entry(("music",), ("Lärm",), "x:1")])
    assert translator("I like music.", glossary=glossary)[0]["translation_text"] == "Ich mag Lärm und Lärm."


def test_a_second_try_that_finds_less_is_not_taken(translator, monkeypatch):
    """Of two terms, the first try has one and the second try none."""
    texts = {3: ["Ich mag Lärm."] * 3, 8: ["Ich mag alles."] * 4}
    written_by_search(translator, monkeypatch, texts)
    glossary = Glossary([Entry(("music",), ("Lärm",), "x:1"), Entry(("dog",), ("Köter",), "x:2")])
    assert translator("The dog likes music.", glossary=glossary)[0]["translation_text"] == "Ich mag Lärm."


@pytest.mark.parametrize("terms", [{"dog": "Hund", "music": "Lärm"}, {"music": "Lärm"}], ids=["less", "no more"])
def test_a_second_search_that_finds_no_more_is_not_taken(translator, monkeypatch, terms):
    """It has room for 15 terms, and may lose others that the model has written by itself."""
    nothing = Decoded([], None)
    monkeypatch.setattr(TermWriter, "_search", lambda self, decoder, sentences, *_: [nothing] * len(sentences))
    glossary = Glossary([Entry((source,), (target,), source) for source, target in terms.items()])
    [plain] = translator("The dog likes music.")
    [result] = translator("The dog likes music.", glossary=glossary)
    assert result["translation_text"] == plain["translation_text"]


def test_missing_terms_come_first(translator, monkeypatch):
    """So they are among the 15 that the search has room for."""
    searched = []
    best = TermWriter._best

    def recorded(self, decoder, sentences, terms, *rest):
        searched.extend(terms)
        return best(self, decoder, sentences, terms, *rest)

    monkeypatch.setattr(TermWriter, "_best", recorded)
    glossary = Glossary([Entry(("dog",), ("Hund",), "x:1"), Entry(("music",), ("Lärm",), "x:2")])
    translator("The dog likes music.", glossary=glossary)
    assert [term.source for term in searched[0]] == ["music", "dog"]


def test_tokens_that_the_tokenizer_does_not_know(tmp_path):
    """Many models have a few more, so that a size is a multiple of 8."""
    model = AutoModelForSeq2SeqLM.from_pretrained(MODEL)
    model.resize_token_embeddings(model.config.vocab_size + 6, mean_resizing=False)
    with torch.no_grad():
        # They are likely.
        model.final_logits_bias[0, -6:] = 20
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    assert len(word_boundaries(tokenizer, len(tokenizer) + 6).ends_inside) == len(tokenizer) + 6
    wide = hf_capsule_mt.pipeline(model=model, tokenizer=tokenizer, device="cpu", num_beams=4, max_new_tokens=5)
    wide("Where did you buy that coat?", glossary=Glossary([Entry(("coat",), ("Jacke",), "x:1")]))


def test_a_glossary_without_a_match_changes_nothing(files):
    lines = [f"nothing{number}\tnichts{number}\n" for number in range(10_000)]
    (files / "many.tsv").write_text("".join(lines))
    plain = translate(files, "--output_file", str(files / "out.de"))
    assert translate(files, "--output_file", str(files / "out.de"), "--glossary", str(files / "many.tsv")) == plain


def test_an_interrupted_run_continues_with_its_glossary(files, monkeypatch, capsys):
    options = ["--output_file", str(files / "out.de"), "--chunk_size", "2"]
    rows = [line.split("\t") for line in (files / "terms.tsv").read_text().splitlines()]
    lines = [f"{source},{target},en,de\n" for source, target in rows]
    (files / "terms.csv").write_text("".join([*lines, "a,b,en,fr\n"]))
    glossary = ["--glossary", str(files / "terms.csv"), "--glossary_languages", "en"]
    whole = translate(files, *options, *glossary, "de")
    (files / "out.de").unlink()
    stop = interrupt_after(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        translate(files, *options, *glossary, "de")
    stop()
    for others in ([], [*glossary, "fr"]):
        with pytest.raises(SystemExit):
            translate(files, *options, *others)
        assert "with another glossary" in capsys.readouterr().err
    # The file may move.
    glossary[1] = str((files / "terms.csv").rename(files / "moved.csv"))
    assert translate(files, *options, *glossary, "de") == whole


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("coat\n", "terms.tsv:1: a line has a source, one tab"),
        ("coat\t\n", "terms.tsv:1: the target is empty"),
    ],
)
def test_a_wrong_glossary_ends_before_the_work(files, capsys, terms, message):
    (files / "terms.tsv").write_text(terms)
    with pytest.raises(SystemExit):
        translate(files, "--output_file", str(files / "out.de"), "--glossary", str(files / "terms.tsv"))
    assert message in capsys.readouterr().err


def test_a_form_with_a_suppressed_token_names_its_line(files, capsys, translator):
    """In a file before the model is loaded, and in a call with its own settings at the first sentence that needs it."""
    tokenizer = translator.tokenizer
    [first, *_] = tokenizer("Jacken", add_special_tokens=False)["input_ids"]
    folder = files / "model"
    shutil.copytree(MODEL, folder)
    config = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**config, "bad_words_ids": [[0], [first]]}))
    (files / "terms.tsv").write_text("dog\tHund\ncoat\tJacken\n")
    (folder / "model.safetensors").unlink()
    with pytest.raises(SystemExit):
        main(["--model", str(folder), "--input_file", str(files / "in.en"), "--glossary", str(files / "terms.tsv")])
    assert f"{files / 'terms.tsv'}:2: the model's generation config suppresses a token of 'Jacken'" in (
        capsys.readouterr().err
    )
    glossary = Glossary([Entry(("coat",), ("Jacken",), "x:1")])
    with pytest.raises(UserError, match=r"x:1: .* suppresses a token of 'Jacken'"):
        translator(LINES[0], glossary=glossary, suppress_tokens=[first])


class OneThreadAtATime:
    """A tokenizer that fails if two threads are in it, because it has one way to spell for all of them."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.threads = 0
        self.most_threads = 0

    def __call__(self, *args, **options):
        self.threads += 1
        self.most_threads = max(self.most_threads, self.threads)
        time.sleep(0.02)
        self.threads -= 1
        return self.tokenizer(*args, **options)

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)


def test_terms_are_spelled_while_no_other_thread_reads_a_text():
    tokenizer = OneThreadAtATime(AutoTokenizer.from_pretrained(MODEL))
    glossary = Glossary([Entry(("house",), ("Haus",), "x:1")])
    with ThreadPoolExecutor(3) as pool:
        jobs = [
            pool.submit(tokenize_lines, tokenizer, ["a house"] * 2),
            pool.submit(token_spellings, tokenizer, "Haus"),
            pool.submit(check_glossary, glossary, tokenizer, GenerationConfig()),
        ]
    for job in jobs:
        job.result()
    assert tokenizer.most_threads == 1


def test_spellings_of_a_form():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    boundaries = word_boundaries(tokenizer, len(tokenizer))
    spellings = token_spellings(tokenizer, "haus")
    texts = {tokenizer.decode(list(spelling)).strip() for spelling in spellings}
    assert texts == {"haus", "Haus"}
    inside, behind_space = (
        [spelling for spelling in spellings if begins(spelling)]
        for begins in (
            lambda spelling: boundaries.begins_inside[spelling[0]],
            lambda spelling: not boundaries.begins_inside[spelling[0]],
        )
    )
    assert inside
    assert behind_space
    assert all(boundaries.ends_inside[spelling[-1]] for spelling in spellings)
    assert not boundaries.begins_inside[tokenizer.eos_token_id]


def test_a_letter_of_two_tokens_is_one_letter():
    """A tokenizer of bytes writes rare letters in parts, and a term neither begins nor ends between them."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    boundaries = word_boundaries(tokenizer, len(tokenizer))
    *first, last = tokenizer(text_target="ő", add_special_tokens=False)["input_ids"]
    assert first
    assert boundaries.ends_inside[first[-1]]
    assert boundaries.begins_inside[last]


def test_spellings_that_the_tokenizer_lacks_are_left_out():
    """It has no capitals and no brackets."""
    tokenizer = tiny_tokenizer()
    assert token_spellings(tokenizer, "b") == [(tokenizer.convert_tokens_to_ids("b"),)]


def test_a_token_of_a_bracket_and_a_letter_has_no_spelling_behind_it():
    """Without its first letter the form would be another word."""
    vocabulary = {token: number for number, token in enumerate(["<unk>", "a", "b", "(", "(a", "ab", "A"])}
    bpe = Tokenizer(models.BPE(vocabulary, [("(", "a"), ("a", "b")], unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, unk_token="<unk>")
    assert tokenizer("(ab")["input_ids"] == [4, 2]
    assert (2,) not in token_spellings(tokenizer, "ab")
