"""`pipeline("translation")`: its results are generate()'s, for our models and for those Transformers has."""

import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

import pytest
import tiny_multilingual
import torch
from tiny_marian import WORDS, marian_tokenizer, save_tiny_marian, tiny_model, tiny_tokenizer
from transformers import GenerationConfig, MarianConfig, MarianMTModel, StoppingCriteriaList, pipeline
from transformers.utils import logging
from translated_lines import translate_lines

import hf_capsule_mt
from hf_capsule_mt import CapsuleAggregatedMarianForConditionalGeneration, TranslationPipeline, preset_config
from hf_capsule_mt.cli import translate
from hf_capsule_mt.decoding import Engine
from hf_capsule_mt.decoding.products import int8
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation import portable_pipeline as pipeline_translation
from hf_capsule_mt.translation.generation.decoder import Decoder
from hf_capsule_mt.translation.pipeline import _warn_of_lost_sentences
from hf_capsule_mt.translation.terms.glossary import Entry, Glossary

SENTENCES = ["a b c", "d", "e f g h i j", "k l"]


def expected(model, tokenizer, text, **arguments):
    """What a user would compute by hand for one sentence."""
    words = model.generate(**tokenizer(text, return_tensors="pt"), **arguments)
    return [{"translation_text": tokenizer.decode(row, skip_special_tokens=True)} for row in words]


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    folder = save_tiny_marian(tmp_path_factory.mktemp("marian"))
    GenerationConfig.from_pretrained(folder, max_new_tokens=20).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def translator(marian):
    return pipeline("translation", model=str(marian), device="cpu")


class TextsWithoutEnd(torch.utils.data.Dataset):
    """As in the examples of Transformers: it has a length, and a text at any index."""

    def __len__(self):
        return len(SENTENCES)

    def __getitem__(self, index):
        return SENTENCES[index % len(SENTENCES)]


def test_a_data_set_ends_where_its_length_says(translator):
    assert list(islice(translator(TextsWithoutEnd()), 9)) == [[one] for one in translator(SENTENCES)]


def test_a_string_and_a_list(translator):
    assert type(translator) is TranslationPipeline
    one_by_one = [expected(translator.model, translator.tokenizer, text) for text in SENTENCES]
    assert len({tuple(result[0].values()) for result in one_by_one}) > 1
    assert [translator(text) for text in SENTENCES] == one_by_one
    assert translator(SENTENCES) == [result[0] for result in one_by_one]
    assert translator(tuple(SENTENCES)) == [result[0] for result in one_by_one]
    assert translator([]) == []
    for batch_size in (2, 8):
        assert translator(SENTENCES, batch_size=batch_size) == translator(SENTENCES)


def test_generation_arguments(marian, translator):
    arguments = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 5}
    by_hand = [expected(translator.model, translator.tokenizer, text, **arguments) for text in SENTENCES]
    assert translator(SENTENCES, **arguments) == by_hand
    assert translator(SENTENCES[0], generation_config=GenerationConfig(**arguments, decoder_start_token_id=0)) == (
        expected(translator.model, translator.tokenizer, SENTENCES[0], **arguments)
    )
    assert translator(SENTENCES, **arguments, return_dict_in_generate=True, output_scores=True) == by_hand
    made_so = pipeline("translation", model=str(marian), device="cpu", **arguments)
    assert made_so(SENTENCES, batch_size=4) == by_hand
    assert made_so(SENTENCES[0], num_return_sequences=1) == by_hand[0][:1]


@pytest.mark.parametrize(
    ("arguments", "used"),
    [
        ({}, True),
        ({"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.5}, True),
        ({"generation_config": GenerationConfig(num_beams=2, decoder_start_token_id=0, max_new_tokens=5)}, True),
        ({"engine": "transformers"}, False),
        # What only the loops of generate() can do, or are given.
        ({"do_sample": True, "top_k": 1}, False),
        ({"prompt_lookup_num_tokens": 2}, False),
        ({"synced_gpus": False}, False),
        ({"custom_generate": lambda model, *_, **__: torch.tensor([[0, 5, 2]])}, False),
    ],
)
def test_the_engine_decodes_what_it_can(translator, monkeypatch, arguments, used):
    decoded = []
    translate = Engine.translate
    monkeypatch.setattr(Engine, "translate", lambda *args: decoded.append(args) or translate(*args))
    found = [translator(text, **arguments) for text in SENTENCES]
    assert bool(decoded) == used
    options = {name: value for name, value in arguments.items() if name != "engine"}
    assert found == [expected(translator.model, translator.tokenizer, text, **options) for text in SENTENCES]


def test_token_ids(translator):
    [result] = translator(SENTENCES[0], return_tensors=True)
    text = translator.tokenizer.decode(result["translation_token_ids"], skip_special_tokens=True)
    assert [{"translation_text": text}] == translator(SENTENCES[0])


def test_truncation(translator, monkeypatch):
    long = " ".join("abcdefgh" * 10)
    carried = pipeline_translation.SentenceTranslationPipeline(
        model=translator.model, tokenizer=translator.tokenizer, task="translation", device="cpu"
    )
    cut = " ".join(("abcdefgh" * 10)[:31])
    # The model has 64 positions, and its tokenizer cuts at 32, as `translate` does.
    for each in (translator, carried):
        for text in (long, " ".join("abcdefgh" * 4)):
            with pytest.raises(ValueError, match="the model reads 32"):
                each(text)
        assert each(long, truncation=True) == translator(cut)
    # 0 and -1 are no limit.
    for no_limit in (0, -1):
        monkeypatch.setattr(translator.tokenizer, "model_max_length", no_limit)
        assert translator(" ".join("abcdefgh" * 4)) == carried(" ".join("abcdefgh" * 4))
        # Positions are one.
        assert translator(long, truncation=True) == carried(long, truncation=True)
    monkeypatch.setattr(translator.tokenizer, "model_max_length", 1)
    with pytest.raises(UserError, match="reads 1 token at most"):
        translator("a b")


def test_the_side_of_padding_is_of_no_account(translator, monkeypatch):
    """Positions would count it on the left."""
    expected = translator(SENTENCES)
    monkeypatch.setattr(translator.tokenizer, "padding_side", "left")
    assert translator(SENTENCES, batch_size=4) == expected
    carried = pipeline_translation.SentenceTranslationPipeline(
        model=translator.model, tokenizer=translator.tokenizer, task="translation", device="cpu"
    )
    with pytest.raises(ValueError, match=r"Set tokenizer\.padding_side = 'right'"):
        carried(SENTENCES)


def test_our_models(tmp_path):
    fields = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 29, "init_std": 0.7}
    config = preset_config("em-routing", "tiny", head_aggregation="em_routing", **fields)
    torch.manual_seed(0)
    model = CapsuleAggregatedMarianForConditionalGeneration(config).eval()
    model.generation_config.max_new_tokens = 7
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    ours = pipeline("translation", model=str(tmp_path), device="cpu")
    assert type(ours.model) is CapsuleAggregatedMarianForConditionalGeneration
    results = [expected(model, tiny_tokenizer(), text)[0] for text in SENTENCES]
    assert ours(SENTENCES, batch_size=4) == results
    ours.save_pretrained(tmp_path / "saved")
    sources = [file.read_text() for file in (tmp_path / "saved").glob("*.py")]
    assert sources
    assert all(source.startswith("# Copyright 2026 The hf-capsule-mt authors") for source in sources)
    assert pipeline("translation", model=str(tmp_path / "saved"), device="cpu")(SENTENCES) == results


@pytest.mark.parametrize("separate_vocabs", [False, True])
def test_opus_mt_tokenizers(tmp_path, separate_vocabs):
    tokenizer = marian_tokenizer(tmp_path, separate_vocabs)
    sizes = {"vocab_size": tokenizer.vocab_size}
    if separate_vocabs:
        sizes |= {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": len(tokenizer.target_encoder)}
    fields = {**tiny_model().config.to_dict(), **sizes, "pad_token_id": 2, "eos_token_id": 0, "forced_eos_token_id": 0}
    torch.manual_seed(0)
    model = MarianMTModel(MarianConfig(**{**fields, "decoder_start_token_id": 2})).eval()
    model.generation_config.max_new_tokens = 6
    translator = pipeline("translation", model=model, tokenizer=tokenizer, device="cpu")
    text = ">>de<< the old house"
    assert translator(text) == expected(model, tokenizer, text)
    assert translator("the old house", tgt_lang="de") == translator(text)
    assert translator(f"{text}\n---") == expected(model, tokenizer, f"{text} ---")
    with pytest.raises(ValueError, match="tgt_lang is 'fr'"):
        translator("the old house", tgt_lang="fr")
    named = pipeline("translation_en_to_de", model=model, tokenizer=tokenizer, device="cpu")
    assert named("the old house") == translator(text)
    # What the user asks for comes before the name of the task.
    other = next(named.preprocess("the old house", tgt_lang="pt_BR"))["sentence"]
    assert other.segment.source == ">>pt_BR<< the old house"


def test_t5_gets_its_prefix_and_settings_from_the_task(caplog):
    model, tokenizer = tiny_multilingual.t5()
    logging.enable_propagation()
    plain = pipeline("translation", model=model, tokenizer=tokenizer, device="cpu")
    logging.disable_propagation()
    assert "pipeline('translation_en_to_de')" in caplog.text
    # Its positions are relative.
    tokenizer.padding_side = "left"
    assert plain(["the house", "a"], batch_size=2)[0] == plain("the house")[0]
    tokenizer.padding_side = "right"
    assert plain("the house") == expected(model, tokenizer, "the house")
    german = pipeline("translation_en_to_de", model=model, tokenizer=tokenizer, device="cpu")
    settings = {"num_beams": 2, "max_length": 9, "max_new_tokens": None}
    by_hand = expected(model, tokenizer, "translate English to German: the house", **settings)
    assert german("the house", max_new_tokens=None) == by_hand
    assert german("the house", max_new_tokens=None) != plain("the house", max_new_tokens=None, max_length=9)
    model.generation_config.max_new_tokens = None
    assert german("the house") == by_hand


def test_options_of_a_call_replace_the_settings_of_the_task():
    model, tokenizer = tiny_multilingual.t5()
    german = pipeline("translation_en_to_de", model=model, tokenizer=tokenizer, device="cpu")
    prefixed = "translate English to German: the house"
    for options in ({"max_length": 5}, {"num_beams": 3, "num_return_sequences": 3}):
        settings = {"num_beams": 2, "max_length": 9, "max_new_tokens": None, **options}
        assert german("the house", max_new_tokens=None, **options) == expected(model, tokenizer, prefixed, **settings)


def test_a_generation_config_replaces_the_settings_of_the_task():
    model, tokenizer = tiny_multilingual.t5()
    german = pipeline("translation_en_to_de", model=model, tokenizer=tokenizer, device="cpu")
    # The settings of the task have two beams.
    config = GenerationConfig(num_beams=3, num_return_sequences=3, max_new_tokens=5, decoder_start_token_id=0)
    found = german("the house", generation_config=config)
    prefixed = "translate English to German: the house"
    assert found == expected(model, tokenizer, prefixed, generation_config=config)


KINDS = {"mbart": ("en_XX", "de_DE"), "nllb": ("eng_Latn", "deu_Latn"), "m2m100": ("en", "de")}


@pytest.fixture(params=KINDS)
def multilingual(request, tmp_path):
    arguments = (tmp_path,) if request.param == "m2m100" else ()
    model, tokenizer = getattr(tiny_multilingual, request.param)(*arguments)
    return model, tokenizer, *KINDS[request.param]


def test_languages_as_arguments(multilingual):
    model, tokenizer, source, target = multilingual
    texts = ["the old house", "two dogs", "a child sees"]
    tokenizer.src_lang = source
    code = getattr(tokenizer, "lang_code_to_token", {}).get(target, target)
    first = {"forced_bos_token_id": tokenizer.convert_tokens_to_ids(code)}
    by_hand = [expected(model, tokenizer, text, **first)[0] for text in texts]
    translator = pipeline("translation", model=model, tokenizer=tokenizer, device="cpu")
    languages = {"src_lang": source, "tgt_lang": target}
    assert translator(texts, **languages) == by_hand
    assert translator(texts, **languages, batch_size=3) == by_hand
    made_so = pipeline("translation", model=model, tokenizer=tokenizer, device="cpu", **languages)
    assert made_so(texts) == by_hand
    # Beams of a batch, and the other direction.
    other = {"src_lang": target, "tgt_lang": source}
    beams = {"num_beams": 2, "num_return_sequences": 2}
    assert made_so(texts, **other, **beams, batch_size=3) == [made_so(text, **other, **beams) for text in texts]
    # The tokenizer's own is the default of the next call too.
    assert tokenizer.src_lang == source
    assert translator(texts, tgt_lang=target) == by_hand


def test_a_forced_first_token_replaces_that_of_the_language(multilingual):
    model, tokenizer, source, target = multilingual
    tokenizer.src_lang = source
    translator = pipeline("translation", model=model, tokenizer=tokenizer, device="cpu", src_lang=source)
    first = {"forced_bos_token_id": tokenizer.convert_tokens_to_ids("e")}
    by_hand = expected(model, tokenizer, "two dogs", **first)
    assert translator("two dogs", tgt_lang=target, **first) == by_hand
    assert translator("two dogs", tgt_lang=target) != by_hand


def test_languages_in_threads(multilingual):
    """A tokenizer has one source language at a time."""
    model, tokenizer, source, target = multilingual
    translator = pipeline("translation", model=model, tokenizer=tokenizer, device="cpu")
    both = [{"src_lang": source, "tgt_lang": target}, {"src_lang": target, "tgt_lang": source}] * 100

    def encoded(languages):
        return next(translator.preprocess("the old house", **languages))["sentence"].token_ids

    expected = [encoded(languages) for languages in both]
    assert expected[0] != expected[1]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(encoded, both)) == expected


def test_languages_in_the_name_of_the_task(tmp_path):
    model, tokenizer = tiny_multilingual.m2m100(tmp_path)
    named = pipeline("translation_en_to_de", model=model, tokenizer=tokenizer, device="cpu")
    plain = pipeline("translation", model=model, tokenizer=tokenizer, device="cpu")
    assert named("the house") == plain("the house", src_lang="en", tgt_lang="de")
    assert named("the house", tgt_lang="fr") == plain("the house", src_lang="en", tgt_lang="fr")
    with pytest.raises(ValueError, match="tgt_lang is 'xx'"):
        named("the house", tgt_lang="xx")


DOCUMENT = "  A b c? D e!\nF g\nh i.\n \n\n\tJ k? L m.\n"


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_document_keeps_its_paragraphs(translator, batch_size):
    parts = [translator(text)[0]["translation_text"] for text in ("A b c?", "D e!", "F g h i.", "J k?", "L m.")]
    expected = "  {} {}\n{}\n \n\n\t{} {}\n".format(*parts)
    options = {"documents": "en", "batch_size": batch_size}
    assert translator(DOCUMENT, **options) == [{"translation_text": expected}]
    alone = translator("j k?")[0]["translation_text"]
    assert translator([DOCUMENT, "j k?"], **options) == [{"translation_text": text} for text in (expected, alone)]
    streamed = translator((text for text in (DOCUMENT, "j k?")), documents=True, src_lang="en_XX")
    assert [result[0]["translation_text"] for result in streamed] == [expected, alone]


def test_a_sentence_of_a_document_that_is_too_long(translator):
    # The tokenizer's limit is 32 tokens, of which one is the end.
    words = " ".join("abcdefgh" * 5)
    clauses = f"{words[:40]}, {words[40:]} , k"
    parts = [f"{words[:40]},", f"{words[40:]} , k", words[:62].strip(), words[62:]]
    expected = [translator(part)[0]["translation_text"] for part in parts]
    [found, cut] = translator([clauses, words], documents="en", batch_size=4)
    assert found["translation_text"] == " ".join(expected[:2])
    assert cut["translation_text"] == " ".join(expected[2:])


@pytest.mark.parametrize("text", ["---", "♪", "1984 " * 100, "[1]", "  ", "\u200b"])
def test_a_text_without_letters_is_copied(translator, text):
    """A model would invent a translation."""
    assert translator([text, "a b"], batch_size=2)[0] == {"translation_text": text.strip()}


@pytest.mark.parametrize("engine", ["fast", "transformers"])
def test_one_rule_of_length(engine):
    """A translation has twice the tokens of its source and 20 more at most, in a batch too, as with `translate`."""
    model = tiny_model(max_position_embeddings=128)
    model.final_logits_bias[:, model.config.eos_token_id] = -100
    translator = pipeline("translation", model=model, tokenizer=tiny_tokenizer(), device="cpu", engine=engine)
    carried = pipeline_translation.SentenceTranslationPipeline(
        model=model, tokenizer=tiny_tokenizer(), task="translation", device="cpu"
    )
    for max_length in (None, 128):
        model.generation_config.max_length = max_length
        for each in (translator, carried):
            found = [len(result["translation_text"].split()) for result in each(SENTENCES, batch_size=4)]
            assert found == [2 * (len(text.split()) + 1) + 20 for text in SENTENCES]
        assert [result["translation_text"] for result in translator(SENTENCES)] == translate_lines(
            model, tiny_tokenizer(), SENTENCES
        )
    model.generation_config.max_length = 9
    assert len(translator("a b")[0]["translation_text"].split()) <= 8
    assert len(translator("a b", max_new_tokens=40)[0]["translation_text"].split()) == 39


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (["a", 5], {}, "5 is not a text"),
        ("<b>a", {"tags": True}, "is not closed"),
        ("a", {"keep": "["}, r"keep is '\[', which is not a regular expression"),
        ("a", {"keep": ["a", "b"]}, r"keep is \['a', 'b'\]. Give one regular expression, such as keep='one|another'"),
        ("a", {"engine": "slow"}, "engine must be one of fast, transformers"),
        ("a", {"tgt_lang": "fr"}, "one target language"),
        (DOCUMENT, {"documents": True}, "The source language is missing. Give documents its two letters"),
        (DOCUMENT, {"documents": "cz"}, "'cz'"),
        (DOCUMENT, {"documents": "en", "return_tensors": True}, "Leave out return_tensors"),
    ],
)
def test_what_is_refused(translator, text, options, words):
    with pytest.raises(ValueError, match=words):
        translator(text, **options)


@pytest.fixture
def warned(caplog):
    """What is logged, of what was logged before again."""
    logging.get_logger().warning_once.__func__.cache_clear()
    logging.enable_propagation()
    yield caplog
    logging.disable_propagation()


def test_a_paragraph_that_loses_sentences(translator, warned):
    """Most models translate only the first one."""
    translator("A b. C d! E f?", max_new_tokens=3)
    translator("A b. C d! E f?", max_new_tokens=3)
    assert warned.text.count("has several sentences, and its translation has fewer") == 1
    assert "documents='en'" in warned.text
    with pytest.raises(UserError, match=r"documents='en', to translate its sentences one by one"):
        translator("a " * 99)


@pytest.mark.parametrize(("source", "translation"), [("A b.", "x"), ("A b. C d!", "X. (Y?) "), ("3.5 and 4.5", "x")])
def test_texts_that_lose_no_sentence(warned, source, translation):
    _warn_of_lost_sentences(source, translation)
    assert not warned.text


def test_what_a_pipeline_does_not_return(translator, warned):
    found = translator("a b", return_dict_in_generate=True, output_scores=True)
    assert found == translator("a b")
    assert "output_scores has no effect. Call generate()" in warned.text
    for name in ("output_logits", "output_attentions", "output_hidden_states"):
        assert translator("a b", return_dict_in_generate=True, **{name: True}) == found
        assert f"{name} has no effect. Call generate()" in warned.text
    warned.clear()
    translator("a b", output_scores=False)
    assert not warned.text


def test_a_precision_that_only_the_engine_has(translator, warned):
    translator("a b", dtype="bfloat16", do_sample=True, max_new_tokens=4)
    assert "dtype bfloat16 is only for engine fast" in warned.text


@pytest.mark.parametrize("in_checkpoint", [{"max_length": 30}, {"max_new_tokens": 29}], ids=["length", "new_tokens"])
@pytest.mark.parametrize("limit", [{"max_length": 4}, {"max_new_tokens": 3}], ids=["to_length", "to_new_tokens"])
def test_a_limit_of_the_caller_is_the_only_one(warned, in_checkpoint, limit):
    """Transformers warns of two in every batch, and takes `max_new_tokens`."""
    model = tiny_model()
    model.final_logits_bias[:, model.config.eos_token_id] = -100
    model.generation_config.update(**in_checkpoint)
    translator = pipeline("translation", model=model, tokenizer=tiny_tokenizer(), device="cpu")
    carried = pipeline_translation.SentenceTranslationPipeline(
        model=model, tokenizer=tiny_tokenizer(), task="translation", device="cpu"
    )

    translations = [
        translator("a b", **limit, engine="fast"),
        translator("a b", **limit, engine="transformers"),
        carried("a b", **limit),
    ]

    assert not [record for record in warned.records if "max_length" in record.getMessage()]
    # The last of three tokens is forced to be an end.
    assert [len(found[0]["translation_text"].split()) for found in translations] == [2, 2, 2]


@pytest.mark.parametrize("kind", [TranslationPipeline, pipeline_translation.SentenceTranslationPipeline])
def test_stopping_criteria_of_the_caller_are_the_only_limit(translator, kind):
    translate = kind(model=translator.model, tokenizer=translator.tokenizer, task="translation", device="cpu")
    stops = StoppingCriteriaList([lambda tokens, scores, **_: torch.full((len(tokens),), tokens.shape[1] > 3)])
    [found] = translate(SENTENCES[2], stopping_criteria=stops, min_new_tokens=6)
    assert len(found["translation_text"].split()) == 3


def test_the_name_of_the_task_says_whose_sentences_are_found(marian, translator):
    named = pipeline("translation_en_to_de", model=str(marian), device="cpu")
    assert named(DOCUMENT, documents=True) == translator(DOCUMENT, documents="en")


def test_the_name_of_the_task_says_which_columns_of_a_glossary_are_read(marian, tmp_path):
    named = pipeline("translation_en_to_de", model=str(marian), device="cpu", num_beams=2)
    glossary = tmp_path / "terms.csv"
    glossary.write_text("a,x,en,fr\na,q,en,de\n")
    for given in (glossary, str(glossary)):
        assert "q" in named("a b c", glossary=given)[0]["translation_text"].split()


def test_a_translation_with_terms_begins_with_its_language():
    model, tokenizer = tiny_multilingual.nllb()
    model.generation_config.decoder_start_token_id = 2
    options = {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn", "num_beams": 2, "max_new_tokens": 8}
    translator = pipeline("translation", model=model, tokenizer=tokenizer, device="cpu", **options)
    glossary = Glossary([Entry(("house",), ("a",), "x:1")])
    [result] = translator("the old house", glossary=glossary, return_tensors=True)
    token_ids = result["translation_token_ids"]
    assert token_ids[1] == tokenizer.convert_tokens_to_ids("deu_Latn")
    assert "a" in tokenizer.decode(token_ids, skip_special_tokens=True)


def test_a_generation_config_has_all_settings(marian, caplog):
    """Transformers will refuse it beside others. It stays as it is."""
    translator, given = pipeline("translation", model=marian, device="cpu"), GenerationConfig(num_beams=2)
    translator.model.generation_config.max_new_tokens = None
    logging.enable_propagation()
    assert translator("a b c", generation_config=given) == translator("a b c", num_beams=2)
    logging.disable_propagation()
    assert "deprecated" not in caplog.text
    assert given.max_length is None


def test_the_limit_of_a_generation_config_is_the_only_one():
    """Twice the source and 20 is less."""
    model = tiny_model()
    model.final_logits_bias[:, model.config.eos_token_id] = -100
    given = GenerationConfig(max_new_tokens=50, decoder_start_token_id=0, forced_eos_token_id=None)
    for kind in (TranslationPipeline, pipeline_translation.SentenceTranslationPipeline):
        translate = kind(model=model, tokenizer=tiny_tokenizer(), task="translation", device="cpu")
        [found] = translate("a b c", generation_config=given)
        # The model's own settings fill up what is not given, so the last token is the forced end.
        assert len(found["translation_text"].split()) == 49


def test_what_travels_translates_as_what_stays(translator):
    """The pipeline that saved models carry."""
    texts = [*SENTENCES, "---"]
    carried = pipeline_translation.SentenceTranslationPipeline(
        model=translator.model, tokenizer=translator.tokenizer, task="translation", device="cpu"
    )
    for options in ({}, {"batch_size": 3}, {"num_beams": 2, "num_return_sequences": 2}, {"return_tensors": True}):
        assert str(carried(texts, **options)) == str(translator(texts, **options))


@pytest.fixture
def engine_dtypes(monkeypatch):
    """The precisions of all engines that are made."""
    made, make = [], Engine.__init__

    def recorded(engine, model, dtype, *choice):
        made.append(dtype)
        make(engine, model, dtype, *choice)

    monkeypatch.setattr(Engine, "__init__", recorded)
    return made


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", torch.bfloat16])
@pytest.mark.parametrize("make", [partial(pipeline, "translation"), hf_capsule_mt.pipeline])
def test_the_precision_of_the_constructor_is_the_engines(marian, engine_dtypes, make, dtype):
    translator = make(model=str(marian), device="cpu", dtype=dtype)
    name = str(dtype).removeprefix("torch.")
    translator("a b")
    assert engine_dtypes == [name]
    # That of a call comes first.
    translator("a b", dtype="float32")
    assert engine_dtypes == [name, "float32"]
    assert translator.model.dtype == torch.float32


@pytest.mark.skipif(not int8._int8_backends(), reason="this machine has no product in int8")
def test_int8_writes_the_words_of_the_command(tmp_path):
    """The encoder is in int8 too."""
    folder = save_tiny_marian(tmp_path / "marian")
    generator = random.Random(0)
    lines = [" ".join(generator.choices(WORDS, k=15)) for _ in range(30)]
    source = tmp_path / "in"
    source.write_text("\n".join(lines) + "\n")
    target = tmp_path / "out"
    # A batch of one line, as in the pipeline: the sentences of a batch share their scales.
    options = ["--dtype", "int8", "--device", "cpu", "--max_tokens_per_batch", "16"]
    translate.main(["--model", str(folder), "--input_file", str(source), "--output_file", str(target), *options])
    translator = hf_capsule_mt.pipeline(folder, device="cpu", dtype="int8")
    texts = [result["translation_text"] for result in translator(lines)]
    assert texts == target.read_text().splitlines()
    # Otherwise these lines would show nothing.
    assert texts != [result["translation_text"] for result in translator(lines, dtype="float32")]


@pytest.mark.parametrize("engine", ["fast", "transformers"])
def test_a_batch_that_does_not_fit_in_memory_is_halved(marian, monkeypatch, engine):
    translator = pipeline("translation", model=str(marian), device="cpu", engine=engine, num_beams=2)
    options = {"batch_size": 4, "return_scores": True, "num_return_sequences": 2}
    expected_results = translator(SENTENCES, **options)
    owner, name = (Engine, "translate") if engine == "fast" else (type(translator.model), "generate")
    decode = getattr(owner, name)
    sizes = []

    def in_little_memory(self, *arguments, **options):
        sizes.append(len(options["input_ids"]) if name == "generate" else len(arguments[3]))
        if sizes[-1] > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return decode(self, *arguments, **options)

    monkeypatch.setattr(owner, name, in_little_memory)
    most = 2
    results = translator(SENTENCES, **options)
    assert sizes == [4, 2, 2]
    for result, ranked in zip(results, expected_results, strict=True):
        assert [row["translation_text"] for row in result] == [row["translation_text"] for row in ranked]
        assert [row["score"] for row in result] == pytest.approx([row["score"] for row in ranked], abs=1e-5)
    most = 0
    with pytest.raises(torch.OutOfMemoryError):
        translator(SENTENCES, **options)


def test_sentences_of_several_texts_share_batches(translator, monkeypatch):
    """Texts are read as they are translated, no more of them than a batch needs."""
    sizes = []
    decode = Decoder.decode

    def counting(decoder, sources, *arguments, **options):
        sizes.append(len(sources))
        return decode(decoder, sources, *arguments, **options)

    monkeypatch.setattr(Decoder, "decode", counting)
    documents = ["A b? C d? E f?", "G h?", "I j? K l?", "M n?"]
    expected_results = [translator(document, documents="en") for document in documents]
    assert sizes == [1] * 7
    sizes.clear()
    read = []
    texts = (read.append(document) or document for document in documents)
    results = translator(texts, documents="en", batch_size=2)
    assert next(results) == expected_results[0]
    assert (sizes, len(read)) == ([2, 2], 2)
    assert [*results] == expected_results[1:]
    assert (sizes, len(read)) == ([2, 2, 2, 1], 4)
    with pytest.raises(UserError, match="batch_size is 0"):
        translator(documents, batch_size=0)


@pytest.mark.parametrize("engine", ["fast", "transformers"])
def test_the_tokenizer_of_another_model_is_refused(marian, translator, engine):
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["straße"])
    foreign = pipeline("translation", model=translator.model, tokenizer=tokenizer, device="cpu", engine=engine)
    with pytest.raises(UserError, match=r"has only 29 embeddings. The tokenizer is another model's"):
        foreign("a straße")


def test_terms_are_written_in_the_precision_of_the_engine(marian, engine_dtypes):
    translator = pipeline("translation", model=str(marian), device="cpu", dtype="bfloat16", num_beams=2)
    [result] = translator("a b", glossary=Glossary([Entry(("a",), ("q",), "x:1")]))
    assert "q" in result["translation_text"].split()
    assert engine_dtypes == ["bfloat16"]


def test_other_precisions_are_those_of_the_weights(marian):
    def dtype_of(**arguments):
        return pipeline("translation", model=str(marian), device="cpu", **arguments).model.dtype

    assert dtype_of(dtype="float16") == torch.float16
    assert dtype_of(dtype="bfloat16", engine="transformers") == torch.bfloat16
    assert dtype_of(model_kwargs={"dtype": torch.float16}) == torch.float16
    with pytest.raises(UserError, match=r"dtype int8 needs a CPU, engine fast, .* Here Transformers computes"):
        dtype_of(dtype="int8", engine="transformers")


def test_the_model_of_a_user_keeps_its_precision():
    for dtype in ("auto", "bfloat16", "float32"):
        model = tiny_model().half()
        pipeline("translation", model=model, tokenizer=tiny_tokenizer(), device="cpu", dtype=dtype)
        assert model.dtype == torch.float16


def test_the_pipeline_of_the_package(marian, translator):
    """It needs no task of Transformers."""
    for model in (marian, translator.model):
        ours = hf_capsule_mt.pipeline(model, tokenizer=translator.tokenizer, device="cpu", num_beams=2)
        assert type(ours) is TranslationPipeline
        assert ours(SENTENCES) == translator(SENTENCES, num_beams=2)
    with pytest.raises(UserError, match=r"A model has no tokenizer. Give tokenizer="):
        hf_capsule_mt.pipeline(translator.model)
    with pytest.raises(OSError, match=r"There is no folder absent/model, and no model of this name on the Hub"):
        hf_capsule_mt.pipeline("absent/model")


@pytest.mark.parametrize("task", ["translation", "translation_en_to_de"])
def test_a_pipeline_without_a_model(task):
    with pytest.raises(UserError, match="No model is named"):
        pipeline(task)


def test_another_model_for_a_pipeline(marian, translator):
    """As for an adapter that was trained meanwhile."""
    changing = pipeline("translation", model=str(marian), device="cpu")
    other = tiny_model(seed=1)
    other.generation_config.max_new_tokens = 20
    changing.model = other
    assert changing("a b c") == expected(other, translator.tokenizer, "a b c") != translator("a b c")
    changing.tokenizer = tiny_tokenizer(model_max_length=3)
    with pytest.raises(UserError, match="the model reads 3"):
        changing("a b c")


def test_a_byte_order_mark_is_no_word(translator):
    assert translator("\ufeffa b c") == translator("a b c")


@pytest.mark.parametrize("make", [partial(pipeline, "translation"), hf_capsule_mt.pipeline])
def test_a_model_of_a_pipeline_is_the_users_in_the_next(marian, engine_dtypes, make):
    """The first one asked for no precision, and left nothing on the model."""
    first = make(model=str(marian), device="cpu")
    assert not {"asked_dtype", "unfit_weights", "loaded_from"} & set(vars(first.model))
    first.model.half()

    second = make(model=first.model, tokenizer=first.tokenizer, device="cpu")
    assert second.model.dtype == torch.float16

    first.model.float()
    make(model=first.model, tokenizer=first.tokenizer, device="cpu", dtype="bfloat16")("a b")
    assert engine_dtypes == ["bfloat16"]
