"""Codes of the target language, as multilingual OPUS-MT reads them: in front of all that is translated at a time."""

import json

import pytest
import torch
from tiny_marian import marian_tokenizer, tiny_model, tiny_tokenizer
from transformers import MarianConfig, MarianMTModel, pipeline
from transformers.utils import logging

from hf_capsule_mt import TranslationPipeline
from hf_capsule_mt.cli import evaluate
from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.data.languages import LanguageCodes
from hf_capsule_mt.decoding import Engine
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.options import DataArguments
from hf_capsule_mt.training.training_data import load_data
from hf_capsule_mt.translation import portable_pipeline as pipeline_translation
from hf_capsule_mt.translation import preparation
from hf_capsule_mt.translation.generation.model_options import DecodingOptions
from hf_capsule_mt.translation.quality.judge import judge
from hf_capsule_mt.translation.text.segments import Segment, segments_with_codes
from hf_capsule_mt.translation.text_translator import TextTranslator

LIMIT = ["--max_new_tokens", "6"]
# Of which the last is the end, which this model is made to write there.
ONE_MORE = {"max_new_tokens": 7}
PAGE = "<h1>The <b>old</b> house</h1>\n<p>A dog. The house is old.</p>\n"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("multilingual")
    tokenizer = marian_tokenizer(folder, False)
    own = {"vocab_size": tokenizer.vocab_size, "pad_token_id": 2, "eos_token_id": 0, "forced_eos_token_id": 0}
    torch.manual_seed(0)
    model = MarianMTModel(MarianConfig(**{**tiny_model().config.to_dict(), **own, "decoder_start_token_id": 2})).eval()
    model.generation_config.max_new_tokens = 6
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def translator(checkpoint):
    return pipeline("translation", model=str(checkpoint), device="cpu")


@pytest.fixture
def read(monkeypatch):
    """What models read, of each sentence its words."""
    found = []

    def generate(model, *args, input_ids, **kwargs):
        # The decoder only asks what Transformers makes of its options.
        if "custom_generate" not in kwargs:
            found.extend(input_ids.tolist())
        return plain_generate(model, *args, input_ids=input_ids, **kwargs)

    def encode(engine, input_ids, **kwargs):
        found.extend(input_ids.tolist())
        return plain_encode(engine, input_ids, **kwargs)

    plain_generate = MarianMTModel.generate
    plain_encode = Engine.encode
    monkeypatch.setattr(MarianMTModel, "generate", generate)
    monkeypatch.setattr(Engine, "encode", encode)
    return found


def first_words(tokenizer, read):
    return {tokenizer.convert_ids_to_tokens(ids[0]) for ids in read}


def test_what_a_tokenizer_knows(translator):
    codes = LanguageCodes(translator.tokenizer)
    assert codes.languages == ["de", "pt_BR"]
    assert not LanguageCodes(tiny_tokenizer())
    assert codes.of("pt_BR", "tgt_lang") == codes.of(">>pt_BR<<", "tgt_lang") == ">>pt_BR<<"
    with pytest.raises(ValueError, match="tgt_lang is 'fr'"):
        codes.of("fr", "tgt_lang")
    with pytest.raises(ValueError, match="no code >>fr<<"):
        LanguageCodes(tiny_tokenizer()).of("fr", "tgt_lang")
    assert codes.at_head(">>pt_BR<< the house") == ">>pt_BR<<"
    assert codes.at_head(">> the house <<") == codes.at_head("the >>de<<") == ""
    with pytest.raises(ValueError, match="'>>fr<< the house' begins with a code"):
        codes.at_head(">>fr<< the house")
    assert LanguageCodes(tiny_tokenizer()).at_head(">>fr<< the house") == ""


def test_a_code_holds_up_to_the_next(translator):
    texts = ["the house", ">>pt_BR<< a dog", "the dog", "", ">>de<<", "a house"]
    segments = [Segment(" ", text, " \n") for text in texts]
    put = segments_with_codes(LanguageCodes(translator.tokenizer), segments, ">>de<<")
    sources = [">>de<< the house", ">>pt_BR<< a dog", ">>pt_BR<< the dog", "", ">>de<< a house"]
    assert [segment.source for segment in put] == sources
    assert [segment.around("x") for segment in put] == [*[" x \n"] * 4, " \n x \n"]


def test_a_language_for_the_code(translator, read):
    by_code = translator(">>pt_BR<< the house")
    assert translator("the house", tgt_lang="pt_BR") == by_code
    # What a text says comes first.
    assert translator(">>pt_BR<< the house", tgt_lang="de") == by_code
    assert first_words(translator.tokenizer, read) == {">>pt_BR<<"}
    with pytest.raises(ValueError, match="tgt_lang is 'fr'"):
        translator("the house", tgt_lang="fr")


@pytest.mark.parametrize("kind", [TranslationPipeline, pipeline_translation.SentenceTranslationPipeline])
def test_a_language_in_the_name_of_the_task(checkpoint, read, kind):
    """In the pipeline that saved models carry, too."""
    named = {"model": str(checkpoint), "device": "cpu", "pipeline_class": kind}
    translator = pipeline("translation_en_to_de", **named)
    translator(["the house", "a dog"], batch_size=2)
    assert first_words(translator.tokenizer, read) == {">>de<<"}
    # The name of a task says less than a code: Chinese is cmn_Hans.
    translator = pipeline("translation_en_to_fr", **named)
    read.clear()
    translator("the house")
    translator(">>pt_BR<< the house")
    assert len(first_words(translator.tokenizer, read)) == 2
    with pytest.raises(ValueError, match="tgt_lang is 'fr'"):
        translator("the house", tgt_lang="fr")


@pytest.fixture
def warned(caplog):
    """What is logged, of what was logged before again."""
    logging.get_logger().warning_once.__func__.cache_clear()
    logging.enable_propagation()
    yield caplog
    logging.disable_propagation()


def test_a_text_that_says_no_language(checkpoint, warned):
    translator = pipeline("translation", model=str(checkpoint), device="cpu")
    translator([">>de<< the house", "", " >>de<< a dog"])
    assert "which language to write" not in warned.text
    translator(["the house", "a dog"])
    assert warned.text.count("which language to write (de, pt_BR)") == 1
    assert "tgt_lang='de'" in warned.text


def test_training_text_that_says_no_language(checkpoint, translator, warned, tmp_path):
    (tmp_path / "en").write_text(">>de<< the house\n>>pt_BR<< a dog\n")
    (tmp_path / "plain").write_text(">>de<< the house\na dog\n")
    (tmp_path / "other").write_text(">>de<< the house\na dog\n>>fr<< a dog\n")
    (tmp_path / "de").write_text("dogs\nin dogs\n")
    (tmp_path / "three").write_text("dogs\nin dogs\ndogs\n")

    def load(source, target="de"):
        files = [str(tmp_path / name) for name in (source, target)]
        options = {"max_tokens_per_batch": 60, "max_steps": 1, "use_cpu": True, "generation_max_length": 60}
        args = TranslationTrainingArguments(str(tmp_path / "run"), **options)
        data = DataArguments(files, max_source_length=60, max_target_length=60)
        load_data(data, args, translator.tokenizer, translator.model.config)

    load("en")
    assert not warned.records
    load("plain")
    assert f"{tmp_path / 'de'}), source 2, 'a dog': a text does not say" in warned.text
    with pytest.raises(ValueError, match="source 3: the text '>>fr<< a dog' begins with a code"):
        load("other", "three")


def test_a_sentence_fits_together_with_its_code(translator, read, monkeypatch):
    tokenizer = translator.tokenizer
    monkeypatch.setattr(tokenizer, "model_max_length", len(tokenizer("the old house")["input_ids"]))
    translator("the old house", documents="en", tgt_lang="de")
    assert len(read) == 2
    assert max(map(len, read)) <= tokenizer.model_max_length


def translate(checkpoint, folder, text, *options):
    (folder / "in").write_text(text)
    files = ["--input_file", f"{folder}/in", "--output_file", f"{folder}/out"]
    main(["--model", str(checkpoint), *LIMIT, *files, *options])
    return (folder / "out").read_text()


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("The house\n\nA dog\n\u200b\n", []),
        ("The <b>house</b>\n<p>A</p><p>dog</p>\n", ["--tags"]),
        ("A dog. The house.\n\nA dog.\n", ["--documents", "en"]),
        (PAGE, ["--documents", "en", "--tags"]),
    ],
)
def test_the_command(checkpoint, translator, tmp_path, text, options):
    found = translate(checkpoint, tmp_path, text, "--target_lang", "de", *options)
    kwargs = {"tags": "--tags" in options, "documents": "--documents" in options and "en", "tgt_lang": "de", **ONE_MORE}
    texts = text.splitlines(keepends=True) if not kwargs["documents"] else [text]
    parts = [translator(part.rstrip("\n") if len(texts) > 1 else part, **kwargs)[0] for part in texts]
    by_pipeline = "\n".join(part["translation_text"] for part in parts)
    assert found.rstrip("\n") == by_pipeline.rstrip("\n")
    assert found.count("\n") == text.count("\n")
    heads = [f">>de<< {line}" if line.strip() else line for line in texts]
    assert translate(checkpoint, tmp_path, "".join(heads), *options) == found
    # What stands in front of a line or a document comes first.
    assert translate(checkpoint, tmp_path, "".join(heads), "--target_lang", "pt_BR", *options) == found


def test_the_command_and_languages_that_it_is_not_told(checkpoint, tmp_path, capsys, caplog):
    translate(checkpoint, tmp_path, ">>de<< The house\n\n")
    assert "which language to write" not in caplog.text
    translate(checkpoint, tmp_path, ">>de<< The house\nA dog\nA dog\n", "--chunk_size", "1")
    # Once for all windows.
    assert caplog.text.count("--target_lang de") == 1
    with pytest.raises(SystemExit):
        translate(checkpoint, tmp_path, "The house\n", "--target_lang", "fr")
    assert "target_lang is 'fr'" in capsys.readouterr().err


def test_a_kept_window_leaves_its_code_to_the_next(checkpoint, tmp_path, monkeypatch):
    text = "A dog.\n\n>>pt_BR<< The house.\n\nA dog.\n\nThe house is old.\n"
    options = ["--documents", "en", "--target_lang", "de", "--chunk_size", "2"]
    whole = translate(checkpoint, tmp_path, text, *options)
    (tmp_path / "out").unlink()
    windows = []

    decode_batches = TextTranslator.decode_batches

    def stop(*args, **kwargs):
        windows.append(args)
        if len(windows) == 3:
            raise KeyboardInterrupt
        return decode_batches(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(TextTranslator, "decode_batches", stop)
        with pytest.raises(KeyboardInterrupt):
            translate(checkpoint, tmp_path, text, *options)
    read = []
    plain = preparation.tokenize_lines
    monkeypatch.setattr(
        preparation, "tokenize_lines", lambda own, lines, most: read.append(lines) or plain(own, lines, most)
    )
    assert translate(checkpoint, tmp_path, text, *options) == whole
    assert read[-1] == [">>pt_BR<< The house is old."]
    assert len(read) < 4


@pytest.mark.parametrize("target", ["de", None])
def test_judgements_know_the_language_of_a_code(checkpoint, target):
    """Otherwise that of the tokenizer counts."""
    model, tokenizer = DecodingOptions(str(checkpoint)).load(torch.device("cpu"))
    tokenizer.target_lang = "ru"
    translator = TextTranslator(model, tokenizer)
    direction = translator.reader.languages.direction(None, target)
    [sentence] = translator.reader.prepare("the house", direction=direction).sentences
    [[translation]] = translator.decode([sentence], rereads=True, max_new_tokens=30)
    assert sum(map(str.isalpha, translation.text)) > 9
    assert judge(translator.reader, sentence, translation).signals.script == (None if target == "de" else "Latin")


def test_alignment_by_attention(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = ["--model", str(checkpoint), "--adequacy", "--aligner", "attention", "--references", "ref"]
    texts = {"in": "the house\na dog\n", "coded": ">>de<< the house\n>>de<< a dog\n", "ref": "in\ndogs\n"}
    for name, text in {**texts, "out": "dogs\nin dogs\n"}.items():
        (tmp_path / name).write_text(text)
    for name, options in {"in": ["--target_lang", "de"], "coded": []}.items():
        judged = ["--hypotheses", "out", "--input_file", name, "--output_file", f"{name}.json"]
        evaluate.main([*model, *judged, *options])
    one, two = (json.loads((tmp_path / f"{name}.json").read_text())["adequacy"]["systems"] for name in ("in", "coded"))
    assert one == two
