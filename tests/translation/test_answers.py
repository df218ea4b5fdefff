"""Scores, alternatives and alignments of translations, by the engine and by `generate()`."""

import re

import pytest
import tiny_multilingual
import torch
from stand_in_translator import in_order
from tiny_marian import tiny_model, tiny_tokenizer
from transformers import pipeline

from hf_capsule_mt import preset_config
from hf_capsule_mt.decoding import generate
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.modeling.modeling_caps_nmt import CapsNMTForConditionalGeneration
from hf_capsule_mt.translation.alignment.links import WordLink, copied_words, linked_words, pharaoh_links
from hf_capsule_mt.translation.preparation import TextOptions
from hf_capsule_mt.translation.quality.judge import aligned_terms
from hf_capsule_mt.translation.terms.glossary import Entry, Glossary
from hf_capsule_mt.translation.text.segments import Segment
from hf_capsule_mt.translation.text.words import word_spans
from hf_capsule_mt.translation.text_translator import TextTranslator
from hf_capsule_mt.translation.translation import PreparedText, Sentence, Translation, score_of_text

TEXTS = ["a b c", "d", "e f g h i j", "k l"]
BEAMS = {"num_beams": 4, "num_return_sequences": 3, "max_new_tokens": 6}


@pytest.fixture(scope="module")
def model():
    model = tiny_model()
    model.generation_config.max_new_tokens = 12
    # Its log-probability is not that of the model.
    model.generation_config.forced_eos_token_id = None
    return model


@pytest.fixture(scope="module")
def translator(model):
    return pipeline("translation", model=model, tokenizer=tiny_tokenizer(), device="cpu")


def scores_of_transformers(translator, text, **options):
    """The scores that Transformers' own loop returns."""
    source = translator.tokenizer(text, return_tensors="pt")
    found = translator.model.generate(**source, **options, return_dict_in_generate=True, output_scores=True)
    return found.sequences_scores.tolist()


def scores(results):
    return [result["score"] for result in results]


@pytest.mark.parametrize("length_penalty", [1.0, 0.5])
@pytest.mark.parametrize("engine", ["fast", "transformers"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_scores_are_those_of_transformers(translator, engine, length_penalty, batch_size):
    options = {**BEAMS, "length_penalty": length_penalty}
    results = translator(TEXTS, return_scores=True, engine=engine, batch_size=batch_size, **options)
    for text, of_text in zip(TEXTS, results, strict=True):
        expected = scores_of_transformers(translator, text, **options)
        assert expected == sorted(expected, reverse=True)
        assert len(set(expected)) > 1
        assert scores(of_text) == pytest.approx(expected, abs=1e-5)


def test_the_engine_returns_its_scores(translator, engine_calls):
    source = translator.tokenizer(TEXTS[2], return_tensors="pt")
    found = translator.model.generate(**source, **BEAMS, custom_generate=generate, return_scores=True)
    assert len(engine_calls) == 1
    assert found.sequences.tolist() == translator.model.generate(**source, **BEAMS).tolist()
    assert found.sequences_scores.tolist() == pytest.approx(scores_of_transformers(translator, TEXTS[2], **BEAMS))
    # Otherwise they could not be used with autograd.
    assert not found.sequences.is_inference()
    assert not found.sequences_scores.is_inference()
    greedy = translator.model.generate(**source, max_new_tokens=6, custom_generate=generate, return_scores=True)
    assert greedy.sequences_scores is None


@pytest.mark.parametrize("engine", ["fast", "transformers"])
def test_the_score_of_greedy_search(translator, engine):
    """The mean log-probability of the tokens with the end, also of one that stops at its limit."""
    for text in TEXTS:
        [result] = translator(text, return_scores=True, engine=engine)
        source = translator.tokenizer(text, return_tensors="pt")
        found = translator.model.generate(**source, return_dict_in_generate=True, output_logits=True)
        logs = [
            logits[0].log_softmax(-1)[token].item()
            for logits, token in zip(found.logits, found.sequences[0, 1:], strict=True)
        ]
        assert result["score"] == pytest.approx(sum(logs) / len(logs), abs=1e-5)
    alone = translator(TEXTS, return_scores=True, engine=engine)
    assert scores(translator(TEXTS, return_scores=True, engine=engine, batch_size=4)) == pytest.approx(
        scores(alone), abs=1e-5
    )


def test_a_translation_at_its_limit_has_no_end():
    """Next to a longer one, it is filled up with ends."""
    model = tiny_model()
    model.generation_config.forced_eos_token_id = None
    model.final_logits_bias[:, 2] = -100
    translator = pipeline("translation", model=model, tokenizer=tiny_tokenizer(), device="cpu")
    options = {"return_scores": True, "engine": "transformers", "num_beams": 2}
    alone = [translator(text, **options)[0] for text in ("a", "a b c")]
    assert scores(translator(["a", "a b c"], batch_size=2, **options)) == pytest.approx(scores(alone), abs=1e-4)


def test_a_forced_code_of_a_language_counts_as_a_token():
    model, tokenizer = tiny_multilingual.nllb()
    model.generation_config.decoder_start_token_id = 2
    model.generation_config.forced_eos_token_id = None
    languages = {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"}
    options = {"num_beams": 3, "max_new_tokens": 5}
    code = tokenizer.convert_tokens_to_ids("deu_Latn")
    translator = pipeline("translation", model=model, tokenizer=tokenizer, device="cpu")
    expected = scores_of_transformers(translator, "the old house", forced_bos_token_id=code, **options)
    for engine in ("fast", "transformers"):
        found = translator("the old house", return_scores=True, engine=engine, **languages, **options)
        assert scores(found) == pytest.approx(expected, abs=1e-5)


def test_sentences_that_are_decoded_together(translator, model):
    """As a server does."""
    together = TextTranslator(model, tiny_tokenizer())
    sentences = [together.reader.prepare(text).sentences[0] for text in TEXTS]
    found = together.decode(sentences, return_scores=True, return_alignments=True, **BEAMS)
    for text, sentence, decoded in zip(TEXTS, sentences, found, strict=True):
        translation = together.finish(sentence, decoded, has_links=True)
        expected = translator.translate(text, return_alignments=True, **BEAMS)
        ranked = [translation, *translation.alternatives]
        for one, other in zip(ranked, [expected, *expected.alternatives], strict=True):
            assert (one.text, one.links) == (other.text, other.links)
            assert one.score == pytest.approx(other.score, abs=1e-5)
    assert len(together.decode(sentences, max_new_tokens=3)[0]) == 1


def test_sentences_count_by_their_tokens():
    assert score_of_text([-1.0, None, -4.0], [1, 5, 2]) == -3
    assert score_of_text([None], [0]) is None


def test_a_document_has_the_mean_score_of_its_sentences(translator):
    text = "A b c d e. \n\n F g!"
    options = {**BEAMS, "return_alignments": True}
    [first, second] = translator.translate(["A b c d e.", "F g!"], **options)
    found = translator.translate(text, documents="en", **options)
    for number in range(3):
        parts = first.number(number), second.number(number)
        assert found.number(number).text == f"{parts[0].text} \n\n {parts[1].text}"
        # With the ends of the sources there are 6 and 3 tokens.
        assert found.number(number).score == pytest.approx((6 * parts[0].score + 3 * parts[1].score) / 9)
    assert len(found.links) == len(first.links) + len(second.links)


def test_characters_and_words_of_a_text_in_segments(model):
    translator = TextTranslator(model, tiny_tokenizer())
    text = "  A  bc, d.\n e. \n\n12 %\n\nF\ng!\n\n= 7\n"
    prepared = translator.reader.prepare(text, TextOptions(language="en"))
    translations = []
    for sentence in prepared.sentences:
        # Longer than the source.
        words = re.sub("[a-z]", lambda letter: 2 * letter[0].upper(), sentence.segment.text, flags=re.IGNORECASE)
        links = linked_words(sentence.segment.text, words, in_order)
        read = Translation(words, -1.0, links)
        translations.append(read if sentence.token_ids else sentence.unread(has_links=True))
    found = prepared.join(translations, has_links=True)
    pairs = [(text[slice(*link.source_span)], found.text[slice(*link.target_span)]) for link in found.links]
    sources = ["A", "bc", ",", "d", ".", "e", ".", "12", "%", "F", "g", "!", "=", "7"]
    targets = ["AA", "BBCC", ",", "DD", ".", "EE", ".", "12", "%", "FF", "GG", "!", "=", "7"]
    assert pairs == list(zip(sources, targets, strict=True))
    assert [link.source for link in found.links] == [*range(14)]
    assert [link.target for link in found.links] == [*range(14)]


def test_a_sentence_with_fewer_translations_repeats_its_last():
    sentences = [Sentence(Segment("", "A.", " "), [5]), Sentence(Segment("", "B.", ""), [5])]
    first = Translation("a", alternatives=(Translation("b"), Translation("c")))
    second = Translation("x", alternatives=(Translation("y"),))
    found = PreparedText(sentences).join([first, second])
    assert [found.text, *(each.text for each in found.alternatives)] == ["a x", "b y", "c y"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't, it’s well-known.", ["Don't", ",", "it’s", "well-known", "."]),
        ("a.b 3.5 a_b -c d' (e)", ["a.b", "3.5", "a_b", "-", "c", "d", "'", "(", "e", ")"]),
        ("cafe\u0301 n\u0303a", ["cafe\u0301", "n\u0303a"]),
        # Scripts without spaces, with the marks of a letter.
        ("a漢字b", ["a", "漢", "字", "b"]),
        *((text, list(text)) for text in ("ひら", "カナ", "กข", "ກຂ", "កខ", "ကခ")),
        ("กีข", ["กี", "ข"]),
    ],
)
def test_what_a_word_is(text, words):
    assert [text[start:end] for start, end in word_spans(text)] == words


def test_a_word_that_belongs_to_none_has_no_link():
    links = linked_words("a b", "x y z", lambda source, target: [[0.0, 0.0], [0.2, 0.8], [0.5, 0.5]])
    # Of two words that it belongs to as much, it has the first.
    assert links == (WordLink(1, 1, (2, 3), (2, 3)), WordLink(0, 2, (0, 1), (4, 5)))


def test_a_kept_part_is_one_word():
    assert word_spans("a {x y}b", [(2, 7)]) == [(0, 1), (2, 7), (7, 8)]


def test_a_copy_that_looks_like_its_code():
    """It stands behind the code."""
    assert copied_words(">>de<< <", "<") == (WordLink(5, 0, (7, 8), (0, 1)),)


def test_pairs_of_words_are_sorted_by_the_words_of_the_source():
    links = [WordLink(2, 0, (4, 5), (0, 1)), WordLink(0, 1, (0, 2), (1, 2)), WordLink(1, 2, (2, 3), (3, 5))]
    # The first two words of the source have no space between them, as the first two of the translation.
    assert pharaoh_links(links, "ab, c", "x. yz") == [(0, 0), (0, 1), (1, 0)]


def test_the_pipeline_returns_pairs(translator):
    [result] = translator("a b c", return_alignments=True)
    assert list(result) == ["translation_text", "word_alignment", "character_alignment"]
    target = result["translation_text"]
    words = target.split()
    assert [number for _, number in result["word_alignment"]] == [*range(len(words))]
    for (source, number), (source_span, target_span) in zip(result["word_alignment"], result["character_alignment"]):
        assert "a b c"[slice(*source_span)] == "abc"[source]
        assert target[slice(*target_span)] == words[number]
    links = translator.translate("a b c", return_alignments=True).links
    assert [(link.source, link.target) for link in links] == result["word_alignment"]


@pytest.mark.parametrize("text", ["1984 - 5", ""])
def test_a_text_that_is_not_decoded_has_no_score(translator, text):
    options = {"return_scores": True, "return_alignments": True, "num_beams": 2, "num_return_sequences": 2}
    numbers = [(number, number) for number in range(len(text.split()))]
    for result in translator(text, **options):
        assert result["translation_text"] == text
        assert result["score"] is None
        assert result["word_alignment"] == numbers
    assert translator.translate(text, **options).alternatives[0].text == text
    assert translator.translate([], **options) == []


def test_what_is_refused(translator):
    for options in ({"tags": True}, {"keep": "b"}):
        with pytest.raises(UserError, match="Alignments are for texts without tags and kept parts"):
            translator("a <b>c</b> b", return_alignments=True, **options)
    by_default = pipeline(
        "translation", model=translator.model, tokenizer=translator.tokenizer, device="cpu", tags=True
    )
    for text in ("a <b>c</b> d", "a &amp; b"):
        with pytest.raises(UserError, match="Alignments are for texts without tags and kept parts"):
            by_default(text, return_alignments=True)
    with pytest.raises(UserError, match="Alignments are between texts"):
        translator("a", return_alignments=True, return_tensors=True)
    # But a text with tags has scores.
    [result] = translator("a <b>c</b> d", tags=True, return_scores=True)
    assert scores([result]) == pytest.approx(scores(translator("a c d", return_scores=True)), abs=1e-5)


def test_a_model_without_attention():
    config = preset_config("capsnmt", "tiny", d_model=16, vocab_size=29)
    translator = pipeline(
        "translation", model=CapsNMTForConditionalGeneration(config).eval(), tokenizer=tiny_tokenizer(), device="cpu"
    )
    with pytest.raises(UserError, match="has no attention"):
        translator("a b", return_alignments=True)
    assert isinstance(translator.translate("a b", max_new_tokens=3).score, float)


def test_a_model_without_attention_does_not_say_what_a_term_looked_at(model):
    config = preset_config("capsnmt", "tiny", d_model=16, vocab_size=29)
    options = TextOptions(glossary=Glossary([Entry(("a",), ("q",), "x:1")]))
    without_attention = CapsNMTForConditionalGeneration(config).eval()
    cases = ((without_attention, True, None), (model, False, None), (model, True, bool))
    for each, rereads, kind in cases:
        texts = TextTranslator(each, tiny_tokenizer())
        [sentence] = texts.reader.prepare("a b", options).sentences
        [[found]] = texts.decode([sentence], rereads=rereads, num_beams=2, max_new_tokens=6)
        assert "q" in found.text.split()
        [term] = aligned_terms(texts.reader, sentence, found)
        assert term.aligned is None if kind is None else isinstance(term.aligned, bool)


def test_a_program_gets_objects(translator):
    found = translator.translate(TEXTS, batch_size=2, **BEAMS)
    plain = translator(TEXTS, **BEAMS)
    for translation, results in zip(found, plain, strict=True):
        ranked = [translation, *translation.alternatives]
        assert [each.text for each in ranked] == [result["translation_text"] for result in results]
        assert all(each.alternatives == () for each in translation.alternatives)
    assert torch.is_grad_enabled()
