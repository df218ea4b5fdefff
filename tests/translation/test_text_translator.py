"""One object for texts of any kind: what is prepared, decoded with others, and joined again."""

import re

import pytest
import tiny_multilingual
import torch
from tiny_marian import marian_tokenizer, tiny_model, tiny_tokenizer
from transformers import pipeline

from hf_capsule_mt import preset_config
from hf_capsule_mt.data.languages import Direction
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.preparation import TextOptions, TextReader, TooLong
from hf_capsule_mt.translation.tags.markup import read_markup
from hf_capsule_mt.translation.tags.segments import marked_segments
from hf_capsule_mt.translation.text.words import keep_pattern
from hf_capsule_mt.translation.text_translator import TextTranslator
from hf_capsule_mt.translation.translation import Sentence

TAGS = TextOptions(tags=True, keep=keep_pattern(r"\{\w\}"))


@pytest.fixture(scope="module")
def model():
    model = tiny_model()
    model.generation_config.max_new_tokens = 20
    # generate() writes it as the last token, where the command lets the model choose.
    model.generation_config.forced_eos_token_id = None
    return model


@pytest.fixture(scope="module")
def translator(model):
    return TextTranslator(model, tiny_tokenizer())


def translated(translator, text, options=None, **arguments):
    """One text by itself."""
    prepared = translator.reader.prepare(text, options, **arguments)
    return together(translator, [prepared])[0]


def together(translator, texts):
    """Texts whose sentences are decoded in one batch, as a server does."""
    ranked = iter(translator.decode([sentence for text in texts for sentence in text.sentences]))
    return [translator.join(text, [next(ranked) for _ in text.sentences]).text for text in texts]


def test_sentences_of_many_texts_are_decoded_together(translator):
    texts = [
        ("a b c", None),
        ("<p>a <b>c</b> {x}</p><p>d</p>", TAGS),
        ("1984", None),
        ("e <i>f g</i>", TAGS),
        ("", None),
    ]
    prepared = [translator.reader.prepare(text, options) for text, options in texts]
    one_by_one = [translated(translator, text, options) for text, options in texts]
    assert together(translator, prepared) == one_by_one
    assert one_by_one[2:5:2] == ["1984", ""]
    assert one_by_one[1].startswith("<p>")
    assert "{x}" in one_by_one[1]


def test_the_command_and_the_pipeline_say_the_same(model, translator):
    ours = pipeline("translation", model=model, tokenizer=tiny_tokenizer(), device="cpu")
    for text, options in (("a b c", {}), ("<p>a <b>c d</b> e</p> f <i>g</i>", {"tags": True})):
        assert translated(translator, text, TextOptions(**options)) == ours(text, **options)[0]["translation_text"]


def test_a_copy_keeps_its_tags(tmp_path):
    """A text that is only a code and numbers is not decoded."""
    tokenizer = marian_tokenizer(tmp_path, False)
    reader = TextReader(tiny_model().config, tokenizer)
    prepared = reader.prepare(
        "<p>>>de<< <b>1984</b></p>".replace(">>de<<", "&gt;&gt;de&lt;&lt;"), TextOptions(tags=True)
    )
    assert [sentence.token_ids for sentence in prepared.sentences] == [[]]
    [sentence] = prepared.sentences
    assert prepared.join([sentence.unread()]).text == "<p><b>1984</b></p>"


def test_attention_is_that_of_the_sentence(translator):
    """Of a batch in which the first sentence needs none."""
    sentences = [
        translator.reader.prepare(text, TAGS).sentences[0] for text in ("a b", "c <b>d e</b> f", "a b", "g <i>h</i> i")
    ]
    found = [ranked[0].forced for ranked in translator.decode(sentences)]
    assert (found[0], found[2]) == (None, None)
    for row in (1, 3):
        [[alone]] = translator.decode([sentences[row]])
        torch.testing.assert_close(found[row].attention, alone.forced.attention)
    assert found[1].attention.shape != found[3].attention.shape or not torch.allclose(
        found[1].attention, found[3].attention
    )


def test_attention_is_that_of_the_translation(model):
    """Of a pipeline that returns several translations of each sentence of a batch."""
    translate = pipeline("translation", model=model, tokenizer=tiny_tokenizer(), device="cpu")
    sentences = [
        next(translate.preprocess(text, tags=True))["sentence"] for text in ("c <b>d e</b> f", "g <i>h</i> i j")
    ]
    options = {"num_beams": 3, "num_return_sequences": 2}
    both = translate._forward({"sentences": sentences}, **options)["decoded"]
    for sentence, decoded in zip(sentences, both, strict=True):
        [alone] = translate._forward({"sentences": [sentence]}, **options)["decoded"]
        for one, other in zip(decoded, alone, strict=True):
            torch.testing.assert_close(one.forced.attention, other.forced.attention)
        assert alone[0].token_ids != alone[1].token_ids


def test_attention_of_sentences_with_different_counts(model):
    """Sentences of one batch have as many translations as each was asked for. Tags follow those of their own row."""
    translator = TextTranslator(model, tiny_tokenizer())
    texts = ["a b c", "d <b>e</b> f", "<i>g h</i> i"]
    prepared = [translator.reader.prepare(text, TAGS) for text in texts]
    sentences = [text.sentences[0] for text in prepared]
    counts = [1, 3, 2]
    together = translator.decode(sentences, num_beams=4, num_return_sequences=counts)
    assert [len(ranked) for ranked in together] == counts
    for sentence, found in zip(sentences[1:], together[1:]):
        [alone] = translator.decode([sentence], num_beams=4)
        assert found[0].text == alone[0].text
        weights = weights_of(translator, found[0], sentence)
        assert weights == pytest.approx(weights_of(translator, alone[0], sentence), abs=1e-4)


def test_sentences_of_several_batches_with_different_counts(translator):
    sentences = [translator.reader.prepare(text).sentences[0] for text in ("a b c", "d e f", "g h i")]
    counts = [1, 3, 2]
    batches = translator.decode_batches(sentences, [[2, 0], [1]], num_beams=4, num_return_sequences=counts)
    found = {}
    for batch in batches:
        found.update(batch)
    assert [len(found[index]) for index in range(3)] == counts
    assert found[1][0].text == translator.decode([sentences[1]], num_beams=4)[0][0].text


def weights_of(translator, decoded, sentence):
    """How much each word of a translation belongs to each word of its sentence."""
    words = [(match.start(), match.end()) for match in re.finditer(r"\S+", decoded.text)]
    assert words
    weights = translator.align(sentence, decoded, None)(sentence.segment.words, words)
    return [float(weight) for row in weights for weight in row]


@pytest.mark.parametrize("kind", ["mbart", "nllb"])
def test_languages(kind):
    """Each text may be in another language, but a batch writes only one."""
    model, tokenizer = getattr(tiny_multilingual, kind)()
    english, german = {"mbart": ("en_XX", "de_DE"), "nllb": ("eng_Latn", "deu_Latn")}[kind]
    model.generation_config.decoder_start_token_id = 2
    model.generation_config.forced_eos_token_id = None
    translator = TextTranslator(model, tokenizer)
    languages = translator.reader.languages
    options = {"direction": languages.direction(english, german)}
    prepared = translator.reader.prepare("the old house", **options)
    [sentence] = prepared.sentences
    assert sentence.direction.first_token == tokenizer.convert_tokens_to_ids(german)
    generated = model.generate(
        torch.tensor([sentence.token_ids]), forced_bos_token_id=sentence.direction.first_token, max_new_tokens=6
    )
    [[translation]] = translator.decode([sentence], max_new_tokens=6)
    assert translation.text == tokenizer.decode(generated[0], skip_special_tokens=True)
    [cut] = translator.reader.prepare("the old house " * 90, too_long=TooLong.CUT, **options).sentences
    assert cut.is_cut
    assert len(cut.token_ids) == translator.reader.limit
    assert cut.direction.first_token == sentence.direction.first_token
    [other] = translator.reader.prepare("two dogs", direction=languages.direction(german, english)).sentences
    with pytest.raises(ValueError, match="too many values to unpack"):
        translator.decode([sentence, other])


def test_a_model_without_positions_reads_all():
    """The tokenizer's limit is not the model's."""
    config = preset_config("rnmt", "tiny", d_model=16, vocab_size=29)
    reader = TextReader(config, tiny_tokenizer(model_max_length=8))
    [sentence] = reader.prepare("a " * 5000).sentences
    assert len(sentence.token_ids) == 5001
    assert not sentence.is_cut


def test_a_prefix_stays_in_front_of_a_text_that_is_cut():
    tokenizer = tiny_tokenizer()
    reader = TextReader(tiny_model().config, tokenizer, prefix="c d ")
    [sentence] = reader.prepare("a " * 40, too_long=TooLong.CUT).sentences
    whole = tokenizer("c d " + "a " * 40)["input_ids"]
    assert sentence.is_cut
    assert sentence.token_ids == [*whole[: reader.limit - 1], tokenizer.eos_token_id]


@pytest.mark.parametrize("limit", range(6, 11))
def test_a_part_of_a_document_has_room_for_its_prefix(limit):
    config = preset_config("transformer", "tiny", max_position_embeddings=limit)
    reader = TextReader(config, tiny_tokenizer(), prefix="c d ")
    text = " ".join("abcefghijklmnop")
    sentences = reader.prepare(text, TextOptions("en")).sentences
    assert " ".join(sentence.segment.text for sentence in sentences) == text
    lengths = [len(sentence.token_ids) for sentence in sentences]
    # All but the last part are as long as fits: the prefix, the words, and the end.
    assert {*lengths[:-1]} == {limit}


def test_what_is_refused():
    reader = TextReader(tiny_model().config, tiny_tokenizer())
    with pytest.raises(UserError, match="the model reads 32"):
        reader.prepare("a " * 40)
    with pytest.raises(UserError, match="is not closed"):
        reader.prepare("<b>a", TextOptions(tags=True))
    with pytest.raises(ValueError, match="5 is not a text"):
        reader.prepare(5)


def test_tags_around_what_was_not_decoded():
    [segment] = marked_segments("<td><b>&lt;s&gt;</b></td>", read_markup("<td><b>&lt;s&gt;</b></td>"), None, None)
    assert Sentence(segment, []).unread().text == "<b></b>"


@pytest.mark.parametrize("limit", range(6, 14))
def test_a_part_of_a_document_has_room_for_its_code(tmp_path, limit):
    """Otherwise a part that just fits would lose its last words."""
    tokenizer = marian_tokenizer(tmp_path, False)
    reader = TextReader(preset_config("transformer", "tiny", max_position_embeddings=limit), tokenizer)
    text = "the old house is green " * 6
    sentences = reader.prepare(text, TextOptions("en"), direction=Direction(">>de<<")).sentences
    assert len(sentences) > 1
    lengths = [len(sentence.token_ids) for sentence in sentences]
    assert max(lengths) <= limit


def test_a_translation_is_one_line(translator, monkeypatch):
    """Otherwise the lines behind it would be those of other sources."""
    sentences = translator.reader.prepare("a b c").sentences
    monkeypatch.setattr(translator.tokenizer, "batch_decode", lambda rows, **_: ["x\ny\r\nz"] * len(rows))
    assert translator.decode(sentences)[0][0].text == "x y z"


class Interrupted(TextTranslator):
    """Another thread asks for a decoder while this one looks whether the last one has the options that it wants."""

    interruptions = ()

    @property
    def model(self):
        if self.interruptions and self.interruptions.pop():
            self.decoder(num_beams=2)
        return self._model

    @model.setter
    def model(self, model):
        self._model = model


def test_each_thread_gets_a_decoder_with_its_options(model):
    translator = Interrupted(model, tiny_tokenizer())
    for place in range(4):
        assert translator.decoder(num_beams=1).settings.num_beams == 1
        translator.interruptions = [True, *[False] * place]
        assert translator.decoder(num_beams=2).settings.num_beams == 2
        translator.interruptions = []
