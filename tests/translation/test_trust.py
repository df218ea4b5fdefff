"""Scores are those of `generate()`, attention is that of the model, and signals tell what is wrong."""

import json
from dataclasses import replace

import pytest
import tiny_multilingual
import torch
from attention_of_model import cross_attention
from ending_models import STORED
from tiny_checkpoints import tiny_checkpoint
from tiny_marian import tiny_model, tiny_tokenizer

from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.loading import load_model
from hf_capsule_mt.translation.alignment import forced as forced_module
from hf_capsule_mt.translation.alignment.forced import ForcedTarget, behind_start, forced_pass, teacher_force
from hf_capsule_mt.translation.generation.decoder import Decoded, before_end
from hf_capsule_mt.translation.preparation import TextOptions, TextReader
from hf_capsule_mt.translation.quality import signals
from hf_capsule_mt.translation.quality.judge import judge
from hf_capsule_mt.translation.quality.signals import read_signals
from hf_capsule_mt.translation.quality.surface import compare_numbers, copied_share, wrong_script
from hf_capsule_mt.translation.terms.forcing import PlacedTerm
from hf_capsule_mt.translation.terms.glossary import Entry, Glossary
from hf_capsule_mt.translation.text.words import keep_pattern

PLACEHOLDERS = [
    "{name} has invited you to the meeting.",
    "My name is {name}.",
    "You have {count} new messages.",
    "{name} likes to swim.",
    "The file {file} is too large.",
    "Hello {user}, how are you?",
    "I saw {name} at the station yesterday.",
    "Please open {file} and read it.",
    "Tom gave {count} books to {name}.",
    "It costs {price} to go to {city}.",
    "We arrived in {city} at {time}.",
    "{user} is my best friend.",
    "Do you know {name}?",
    "She wrote a letter to {name}.",
    "The train to {city} is late.",
    "He has lived in {city} for {count} years.",
    "{count} people were there.",
    "I have never been to {city}.",
    "Wait for {name} at the door.",
    "The meeting begins at {time}.",
]


def scores_of(model, sources, targets):
    return [forced.mean_log_probability for forced in forced_pass(model, sources, targets)]


def translated(model, tokenizer, texts, **options):
    """The token ids of texts and of their translations by `generate()`, and the scores of the translations."""
    sources = tokenizer(texts)["input_ids"]
    batch = tokenizer.pad({"input_ids": sources}, return_tensors="pt")
    options = {"num_beams": 2, "length_penalty": 1.0, **options}
    output = model.generate(**batch, **options, output_scores=True, return_dict_in_generate=True)
    limit = options["max_new_tokens"]
    written = [before_end(row, model.generation_config, limit) for row in output.sequences.tolist()]
    return sources, [row.ids for row in written], output.sequences_scores


@pytest.mark.parametrize("most", [1, 1 << 25])
def test_scores_are_those_of_generate(monkeypatch, most):
    monkeypatch.setattr(forced_module, "_MOST_SCORES", most)
    model = tiny_model()
    texts = ["a b c d e f", "g h"]
    sources, targets, expected = translated(model, tiny_tokenizer(), texts, max_new_tokens=40)
    # The end that generate() forces at the limit has the probability of 1 there.
    ends = [len(target) < 40 for target in targets]
    assert any(ends)
    scores = torch.tensor(scores_of(model, sources, targets))
    torch.testing.assert_close(scores[ends], expected[ends])


@pytest.mark.parametrize("kind", ["mbart", "nllb"])
def test_a_forced_code_of_the_language_does_not_count(kind):
    """generate() counts it with a score of 0, since nothing else can stand there."""
    model, tokenizer = getattr(tiny_multilingual, kind)()
    code = {"mbart": "de_DE", "nllb": "deu_Latn"}[kind]
    model.generation_config.forced_bos_token_id = tokenizer.convert_tokens_to_ids(code)
    texts = ["the old house", "two dogs see the house"]
    options = {"max_new_tokens": 30, "forced_eos_token_id": None}
    sources, targets, scores = translated(model, tokenizer, texts, **options)
    assert {target[0] for target in targets} == {model.generation_config.forced_bos_token_id}
    lengths = torch.tensor([len(target) for target in targets])
    expected = scores * lengths / (lengths - 1)
    torch.testing.assert_close(torch.tensor(scores_of(model, sources, targets)), expected)


def test_scores_of_t5():
    """Its states are scaled before the output projection."""
    model, tokenizer = tiny_multilingual.t5()
    texts = ["the old house", "two dogs see the house"]
    sources, targets, expected = translated(model, tokenizer, texts, max_new_tokens=30)
    torch.testing.assert_close(torch.tensor(scores_of(model, sources, targets)), expected)


def test_a_target_that_is_only_a_code_of_a_language():
    """It has the score of this token, which is all that it has."""
    model = tiny_model()
    [plain] = forced_pass(model, [[5, 6, 2]], [[7]])
    [coded] = forced_pass(model, [[5, 6, 2]], [[7]], first_token=7)
    assert coded.log_probabilities == plain.log_probabilities
    assert len(coded.log_probabilities) == 1
    [longer] = forced_pass(model, [[5, 6, 2]], [[7, 8]], first_token=7)
    assert len(longer.log_probabilities) == 1


def test_a_target_without_tokens_scores_nothing():
    model, ends = tiny_model(), [7, 8, 2]
    [alone] = scores_of(model, [[5, 6, 2]], [ends])
    assert scores_of(model, [[5, 6, 2]] * 2, [[], ends]) == [0, pytest.approx(alone, rel=1e-5)]
    assert scores_of(model, [[5, 6, 2]] * 2, [[], []]) == [0, 0]


@pytest.mark.parametrize(("of_generation", "of_model"), [(0, 5), (None, 0)])
def test_words_are_read_behind_the_start_of_generate(of_generation, of_model):
    """Of which 0 is one."""
    model, pair = tiny_model(), ([[5, 6, 2]], [[7, 8, 2]])
    assert model.generation_config.decoder_start_token_id == model.config.decoder_start_token_id == 0
    score, states = scores_of(model, *pair), teacher_force(model, *pair).output.last_hidden_state
    model.generation_config.decoder_start_token_id = of_generation
    model.config.decoder_start_token_id = of_model
    assert scores_of(model, *pair) == score
    assert torch.equal(teacher_force(model, *pair).output.last_hidden_state, states)
    # A model without its head has no generation config.
    model.config.decoder_start_token_id = 0
    assert torch.equal(teacher_force(model.base_model, *pair).output.last_hidden_state, states)


@pytest.mark.parametrize("most", [1, 1 << 25])
@pytest.mark.parametrize("family", ["capsule_aggregated_marian", "rnmt"])
def test_one_pass_gives_the_attention_of_tags(monkeypatch, family, most):
    """Whatever shares a batch, and without padding."""
    monkeypatch.setattr(forced_module, "_MOST_SCORES", most)
    model = load_model(tiny_checkpoint(family)).eval()
    sources = [[5, 6, 7, 8, 2], [9, 2]]
    targets = [[10, 2], [11, 12, 13, 2]]
    for forced, source, target in zip(forced_pass(model, sources, targets), sources, targets):
        sequences = behind_start(model, torch.tensor([target]))
        [attention] = cross_attention(model, sequences, input_ids=torch.tensor([source]))
        torch.testing.assert_close(forced.attention, attention)
        torch.testing.assert_close(forced.mean_attention, attention)


def test_the_mean_of_one_token_and_of_none():
    assert ForcedTarget([-0.5]).mean_log_probability == -0.5
    assert ForcedTarget([]).mean_log_probability == 0


def test_a_model_without_attention_has_scores():
    model = load_model(tiny_checkpoint("caps_nmt")).eval()
    [forced] = forced_pass(model, [[5, 6, 2]], [[7, 2]])
    assert forced.mean_log_probability < 0
    signals = read_signals(forced, tiny_tokenizer(), ("c d", [5, 6, 2]), ("e", [7]), has_end=True)
    assert (signals.coverage, signals.uncovered, signals.entropy) == (None, None, None)
    assert signals.lowest == round(min(forced.log_probabilities), 4)


def test_signs_of_a_translation():
    """Three tokens of a source: the translation attends to one, half to the other, and not at all to the last."""
    tokenizer = tiny_tokenizer()
    attention = torch.tensor([[0.9, 0.1, 0.0, 0.0], [0.5, 0.3, 0.1, 0.1], [0.0, 0.1, 0.0, 0.9]])
    forced = ForcedTarget([-0.5, -2.25, -0.125], mean_attention=attention)
    source = "a b c", tokenizer("a b c")["input_ids"]
    signals = read_signals(forced, tokenizer, source, ("d e", tokenizer("d e")["input_ids"][:2]), has_end=True)
    assert (signals.lowest, signals.lowest_word, signals.end) == (-2.25, "e", -0.125)
    # The first token has more than 1, which counts as 1. The ends of both sentences do not count.
    assert signals.coverage == pytest.approx((1 * 0.4 * 0.1) ** (1 / 3), abs=1e-4)
    assert signals.uncovered == [{"word": "c", "start": 4, "end": 5}]
    by_step = [torch.distributions.Categorical(row).entropy().item() for row in attention]
    assert signals.entropy == pytest.approx(sum(by_step) / 3, abs=1e-4)
    unfinished = read_signals(
        ForcedTarget([-0.5, -2.25]), tokenizer, source, ("d e", tokenizer("d e")["input_ids"][:2]), has_end=False
    )
    assert (unfinished.lowest_word, unfinished.end, unfinished.coverage) == ("e", None, None)


def test_the_lowest_word_behind_a_code_of_the_language():
    """The code is a token of the translation, and has no score."""
    tokenizer = tiny_tokenizer()
    source = "a b c", tokenizer("a b c")["input_ids"]
    target = "d e f", tokenizer("g d e f")["input_ids"][:4]
    signals = read_signals(ForcedTarget([-0.5, -2.0, -0.25, -0.125]), tokenizer, source, target, has_end=True)
    assert signals.lowest_word == "e"


def test_what_is_judged_is_what_is_written():
    """A kept part has replaced "e e e e e e", so nobody reads the least likely token, nor a repetition."""
    tokenizer = tiny_tokenizer()
    reader = TextReader(tiny_model().config, tokenizer)
    [sentence] = reader.prepare("a b c", TextOptions(keep=keep_pattern("b"))).sentences
    written = "d e e e e e e f"
    attention = torch.tensor([[0.9, 0.0, 0.1, 0.0], *[[0.2, 0.2, 0.6, 0.0]] * 6, [0.5, 0.0, 0.5, 0.0], [0.25] * 4])
    forced = ForcedTarget([-0.5, *[-9.0] * 6, -1.5, -0.25], attention, attention)
    decoded = Decoded(tokenizer(written)["input_ids"][:-1], 2, text=written, forced=forced)
    owners = [[1.0, 0.0, 0.0], *[[0.0, 1.0, 0.0]] * 6, [0.0, 0.0, 1.0]]

    text, places = sentence.segment.restored(written, lambda source, target: owners)
    judgement = judge(reader, sentence, decoded, text, places)

    assert text == "d b f"
    assert judgement.score == pytest.approx(-(0.5 + 1.5 + 0.25) / 3, abs=1e-4)
    assert (judgement.signals.lowest, judgement.signals.lowest_word, judgement.signals.end) == (-1.5, "f", -0.25)
    # The kept part is there in any case, so it is no source that a translation must cover.
    assert judgement.signals.coverage == pytest.approx((1.0 * 0.6) ** 0.5, abs=1e-4)
    assert judgement.signals.uncovered == []
    assert "repeats" not in judgement.faults
    assert "repeats" in judge(reader, sentence, decoded).faults


def test_forced_terms_have_no_score():
    """The search had to write "e e", so the model says nothing about them. Their words are covered all the same."""
    tokenizer = tiny_tokenizer()
    reader = TextReader(tiny_model().config, tokenizer)
    glossary = Glossary([Entry(("b",), ("e e",))])
    [sentence] = reader.prepare("a b c", TextOptions(glossary=glossary)).sentences
    attention = torch.tensor([[0.9, 0.0, 0.1, 0.0], [0.0, 0.9, 0.1, 0.0], [0.0, 0.9, 0.1, 0.0], [0.2, 0.0, 0.8, 0.0]])
    attention = torch.cat([attention, torch.full((1, 4), 0.25)])
    forced = ForcedTarget([-0.5, -9.0, -8.0, -1.5, -0.25], attention, attention)
    [term] = [PlacedTerm("b", "e e", "e e", "forced", 0)]
    decoded = Decoded(tokenizer("d e e f")["input_ids"][:-1], 2, text="d e e f", forced=forced, terms=(term,))

    judgement = judge(reader, sentence, decoded)
    by_itself = judge(reader, sentence, replace(decoded, terms=(replace(term, state="model"),)))

    assert judgement.score == pytest.approx(-(0.5 + 1.5 + 0.25) / 3, abs=1e-4)
    assert (judgement.signals.lowest, judgement.signals.lowest_word) == (-1.5, "f")
    assert judgement.signals.coverage == by_itself.signals.coverage
    assert (by_itself.signals.lowest, by_itself.signals.lowest_word) == (-9.0, "e")


def test_each_lowest_word_stands_in_the_translation(tmp_path):
    """Whether the model has copied a placeholder, or another word was replaced by it."""
    source = tmp_path / "in.txt"
    source.write_text("".join(f"{line}\n" for line in PLACEHOLDERS))
    files = ["--input_file", str(source), "--output_file", str(tmp_path / "out"), "--report_file", str(tmp_path / "r")]

    main(["--model", str(STORED / "tatoeba-en-de-transformer"), "--keep", r"\{\w+\}", *files])

    records = [json.loads(line) for line in (tmp_path / "r").read_text().splitlines()]
    assert len(records) == len(PLACEHOLDERS)
    for record in records:
        words = record["translation"].split()
        is_end = record["lowest_word"] == "" and record["lowest"] == record["end"]
        assert is_end or record["lowest_word"] in words


def test_the_end_of_a_source_that_was_cut_is_not_uncovered():
    """The model did not read it, and `source_cut` says so."""
    tokenizer = tiny_tokenizer()
    forced = ForcedTarget([-0.5, -0.5], mean_attention=torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    source = "a b c d", [*tokenizer("a b")["input_ids"][:2], 2]
    signals = read_signals(forced, tokenizer, source, ("d", tokenizer("d")["input_ids"][:1]), has_end=True)
    assert [word["word"] for word in signals.uncovered] == ["b"]


def test_the_lowest_word_is_whole():
    """Not only the token, and nothing for the end."""
    tokenizer = tiny_multilingual.mbart()[1]
    ids = tokenizer("two dogs see the house")["input_ids"]
    text = tokenizer.decode(ids, skip_special_tokens=True)
    words = {signals._word_of(tokenizer, ids, index) for index in range(len(ids))} - {""}
    assert words <= set(text.split())
    assert {"dogs", "house"} <= words
    assert signals._word_of(tokenizer, ids, len(ids)) == ""


def test_copies():
    assert copied_share("Tom saw the old dog.", "Tom sah the OLD Hund.") == 0.6
    assert copied_share("a", "...") is None
    # A kept part is no copy, and a second one is.
    assert copied_share("Delete {name}?", "{name} löschen?", ["{name}"]) == 0
    assert copied_share("Delete {name}?", "{name} {name} löschen?", ["{name}"]) == 0.5


@pytest.mark.parametrize(
    ("source", "translation", "new", "missing"),
    [
        ("He has 3 dogs.", "Er hat 4 Hunde.", ["4"], ["3"]),
        ("He has three dogs.", "Er hat 3 Hunde.", ["3"], []),
        ("1,000.50 dollars", "1.000,50 Dollar", [], []),
        ("at 2:30", "um 2 Uhr 30", [], []),
        ("It is 2:30.", "Es ist halb drei.", [], ["2:30"]),
        ("007", "7", [], []),
        ("He has 10 dogs.", "Er hat 1 Hund.", ["1"], ["10"]),
        ("٣ كلاب", "3 Hunde", [], []),
        ("in 2010.", "im Jahr 2011.", ["2011"], ["2010"]),
    ],
)
def test_numbers(source, translation, new, missing):
    assert compare_numbers(source, translation) == (new, missing)


@pytest.mark.parametrize(
    ("translation", "language", "script"),
    [
        ("Привет, Tom", "de", "Cyrillic"),
        ("Hallo, Tom", "de", None),
        ("Hallo, Tom", "de_DE", None),
        ("Hallo, du da", "ru", "Latin"),
        ("Hallo, du da", "srp_Cyrl", "Latin"),
        # Serbian has two scripts, and nobody said which.
        ("Hallo, du da", "sr", None),
        ("Hallo, du da", None, None),
        # Names are copied.
        ("Microsoft Windows 是", "zh", None),
        ("ウィンドウズ", "ja", None),
        ("ウィンドウズ", "zh", "Katakana"),
        ("OK", "zh", None),
        # Four letters are enough.
        ("Hund", "ru", "Latin"),
        ("Kuh", "ru", None),
    ],
)
def test_scripts(translation, language, script):
    assert wrong_script("Microsoft Windows", translation, language) == script


def test_what_has_no_tokens_has_no_signs():
    tokenizer = tiny_tokenizer()
    nothing = read_signals(ForcedTarget([]), tokenizer, ("a 7", [5, 2]), ("", []), has_end=False)
    assert (nothing.lowest, nothing.lowest_word, nothing.end) == (None, None, None)
    assert nothing.missing_numbers == ["7"]
    # Only the end of the source was read.
    forced = ForcedTarget([-0.5, -0.25], mean_attention=torch.tensor([[1.0], [1.0]]))
    unread = read_signals(forced, tokenizer, ("a", [2]), ("d", [6]), has_end=True)
    assert (unread.coverage, unread.uncovered) == (None, [])


def test_how_many_translations_are_forced_together():
    """Scores of 29 words, and weights of one layer with two heads for sources of 5 tokens and translations of 4."""
    config = tiny_model().config
    assert forced_module._rows_in_memory(config, 5, 4, has_scores=True) == (1 << 25) // (4 * (29 + 2 * 9))
    assert forced_module._rows_in_memory(config, 5, 4, has_scores=False) == (1 << 25) // (4 * 2 * 9)


@pytest.mark.parametrize(
    ("script", "language", "text"),
    [
        ("Cyrillic", "uk", "добрий"),
        ("Arabic", "fa", "سلام دوست"),
        ("Greek", "el", "καλημέρα"),
        ("Hebrew", "he", "שלום רב"),
        ("Armenian", "hy", "բարեւ"),
        ("Georgian", "ka", "გამარჯობა"),
        ("Devanagari", "hi", "नमस्ते दोस्त"),
        ("Bengali", "bn", "নমস্কার"),
        ("Tamil", "ta", "வணக்கம்"),
        ("Telugu", "te", "నమస్కారం"),
        ("Thai", "th", "สวัสดี"),
        ("Hangul", "ko", "안녕하세요"),
        ("Han", "ja", "漢字漢字"),
        ("Hiragana", "ja", "こんにちは"),
    ],
)
def test_every_script(script, language, text):
    assert wrong_script("", text, "de") == script
    assert wrong_script("", text, language) is None
    assert wrong_script("", "das alte Haus", language) == "Latin"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        *(("Cyrl", "добрий"), ("Arab", "سلام دوست"), ("Grek", "καλημέρα"), ("Hebr", "שלום רב"), ("Deva", "नमस्ते दोस्त")),
        *(
            ("Hans", "漢字漢字"),
            ("Hant", "漢字漢字"),
            ("Jpan", "こんにちは"),
            ("Hang", "안녕하세요"),
            ("Latn", "das alte Haus"),
        ),
    ],
)
def test_scripts_of_codes(code, text):
    """Of a language whose own script nobody knows."""
    assert wrong_script("", text, f"xyz_{code}") is None
    assert wrong_script("", "das alte Haus" if code != "Latn" else "добрий", f"xyz_{code}") is not None
