"""Models with fewer words, of each family: the translations of the whole model with a shortlist of the same words."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import ctranslate2
import pytest
import torch
from ctranslate2.converters import TransformersConverter
from starlette.testclient import TestClient
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig, LogitsProcessorList
from whole_checkpoints import ENGLISH, GERMAN, KINDS, LANGUAGES, save_whole

import hf_capsule_mt
from hf_capsule_mt.data.languages import language_ids
from hf_capsule_mt.data.shortlists import write_shortlist
from hf_capsule_mt.data.smaller_tokenizer import TokenizerFiles
from hf_capsule_mt.data.tokenizer import check_special_ids, vocabulary_of
from hf_capsule_mt.decoding import ShortlistLogitsProcessor, generate
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.hub.token_settings import check_token_settings, needed_ids, renumber
from hf_capsule_mt.hub.trimming import WordChoice, trim_checkpoint
from hf_capsule_mt.loading import load_model, load_tokenizer
from hf_capsule_mt.serving.app import build_app
from hf_capsule_mt.serving.models import load_models
from hf_capsule_mt.serving.settings import ServerSettings
from hf_capsule_mt.training.new_languages import add_languages
from hf_capsule_mt.translation.generation.model_options import DecodingOptions

SOURCES = sorted(set(ENGLISH))
TRANSLATIONS = sorted(set(GERMAN))


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@dataclass
class Pair:
    """A whole model, and a smaller one made of it."""

    whole: Path
    smaller: Path
    result: object

    def tokenizers(self):
        return AutoTokenizer.from_pretrained(self.whole), AutoTokenizer.from_pretrained(self.smaller)

    def models(self):
        # Whatever reads them finds all weights.
        return load_model(self.whole).eval(), load_model(self.smaller).eval()

    def new_ids(self, side):
        """The new ids of tokens by their old ones."""
        old, new = (vocabulary_of(tokenizer, side) for tokenizer in self.tokenizers())
        return {old[token]: token_id for token, token_id in new.items()}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    return write(folder / "en", ENGLISH), write(folder / "de", GERMAN)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory, texts):
    """Makes each pair once."""
    made = {}

    def make(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            whole = save_whole(kind, folder / "whole")
            choice = WordChoice(LANGUAGES.get(kind, []), texts)
            made[kind] = Pair(whole, folder / "smaller", trim_checkpoint(whole, folder / "smaller", choice))
        return made[kind]

    return make


def ids_of(tokenizer, lines, side):
    if hasattr(tokenizer, "src_lang"):
        # Old and new one may come with other languages.
        tokenizer.tgt_lang = tokenizer.src_lang
    return [tokenizer(**{side: line})["input_ids"] for line in lines]


def batch(rows, padding):
    """Rows of token ids with padding on the right, and their mask."""
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), padding)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row)
    lengths = torch.tensor([[len(row)] for row in rows])
    return {"input_ids": ids, "attention_mask": (torch.arange(longest) < lengths).long()}


def forced(tokenizer, kind):
    """The option that makes translations begin with German, for models with such languages."""
    if not hasattr(tokenizer, "src_lang"):
        return {}
    name = LANGUAGES[kind][1]
    token = tokenizer.get_lang_token(name) if hasattr(tokenizer, "get_lang_token") else name
    return {"forced_bos_token_id": tokenizer.convert_tokens_to_ids(token)}


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_cut_as_before(kind, pairs):
    pair = pairs(kind)
    old, new = pair.tokenizers()
    for side, lines in (("text", SOURCES), ("text_target", TRANSLATIONS)):
        new_ids = pair.new_ids(side)
        expected = [[new_ids[token_id] for token_id in row] for row in ids_of(old, lines, side)]
        assert ids_of(new, lines, side) == expected
        # Or there would be nothing to see.
        assert len(new_ids) < len(vocabulary_of(old, side))
        if side == "text_target":
            assert [new.decode(row) for row in expected] == [old.decode(row) for row in ids_of(old, lines, side)]
    assert pair.result.held_out.lines == 8
    assert pair.result.held_out.changed == 0
    assert type(new) is type(old)


@pytest.mark.parametrize("engine", ["engine", "transformers"])
@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_translations_are_those_with_a_shortlist(kind, num_beams, engine, pairs, engine_calls):
    pair = pairs(kind)
    old, new = pair.tokenizers()
    whole, smaller = pair.models()
    assert type(smaller) is type(whole)
    source_ids, target_ids = pair.new_ids("text"), pair.new_ids("text_target")
    only = LogitsProcessorList([ShortlistLogitsProcessor(target_ids)])
    decoded = {"custom_generate": generate} if engine == "engine" else {}
    options = {"num_beams": num_beams, "max_new_tokens": 9, **decoded}
    rows = ids_of(old, SOURCES, "text")
    found = smaller.generate(
        **batch([[source_ids[token_id] for token_id in row] for row in rows], new.pad_token_id),
        **options,
        **forced(new, kind),
    )
    # Not by `suppress_tokens` of the configuration, whose order differs.
    expected = whole.generate(**batch(rows, old.pad_token_id), **options, **forced(old, kind), logits_processor=only)
    assert found.tolist() == [[target_ids[token_id] for token_id in row] for row in expected.tolist()]
    assert len({tuple(row) for row in found.tolist()}) > 1
    assert len(engine_calls) == (2 if engine == "engine" else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_that_nothing_stands_for_are_gone(kind, pairs):
    pair = pairs(kind)
    whole, smaller = pair.models()
    _, new = pair.tokenizers()
    assert smaller.get_input_embeddings().weight.shape[0] == len(vocabulary_of(new))
    assert smaller.get_output_embeddings().weight.shape[0] == len(vocabulary_of(new, "text_target"))
    assert sorted(vocabulary_of(new).values()) == list(range(len(vocabulary_of(new))))
    assert pair.result.before.words == whole.config.vocab_size
    assert pair.result.after.words == smaller.config.vocab_size
    assert pair.result.after.target_words == smaller.get_output_embeddings().out_features
    assert pair.result.after.parameters < pair.result.before.parameters
    assert pair.result.after.num_bytes == 4 * pair.result.after.parameters
    assert whole.dtype == smaller.dtype


@pytest.mark.parametrize("kind", KINDS)
def test_settings_name_the_same_tokens(kind, pairs):
    pair = pairs(kind)
    whole, smaller = pair.models()
    new_ids = pair.new_ids("text_target")
    number = 0
    for old, new in ((whole.config, smaller.config), (whole.generation_config, smaller.generation_config)):
        old_fields, new_fields = old.to_dict(), new.to_dict()
        for name, value in old_fields.items():
            if name.endswith("_token_id") and value is not None:
                number += 1
                assert new_fields[name] == new_ids[value], name
    assert number >= 4
    # Also with two vocabularies, whose lengths changed.
    check_special_ids(pair.tokenizers()[1], smaller.config)


def test_lists_of_tokens_in_settings(pairs):
    pair = pairs("marian")
    whole, smaller = pair.models()
    new_ids = pair.new_ids("text")
    [padding, sequence] = whole.generation_config.bad_words_ids
    [unknown, gone] = whole.generation_config.suppress_tokens
    assert gone in sequence
    assert gone not in new_ids
    assert smaller.generation_config.bad_words_ids == [[new_ids[padding[0]]]]
    assert smaller.generation_config.suppress_tokens == [new_ids[unknown]]
    [padding] = padding
    assert smaller.generation_config.begin_suppress_tokens == [new_ids[padding]]
    biases = [[[new_ids[unknown]], -2.0], [[new_ids[padding], new_ids[unknown]], -1.5]]
    assert smaller.generation_config.sequence_bias == biases
    of_task = {"bad_words_ids": [[new_ids[padding], new_ids[unknown]]], "num_beams": 1}
    assert smaller.config.task_specific_params == {"short": of_task}


def test_words_that_a_translation_must_have_stay():
    """Whatever else is left out: generate() would fail without them."""
    settings = GenerationConfig(
        force_words_ids=[[7, 8], [[9], [11, 7]]],
        forced_decoder_ids=[[1, 8], [2, None]],
        sequence_bias={(7,): 1.0, (7, 10): 2.0},
        forced_eos_token_id=[11, 9],
    )
    check_token_settings(settings, 12)
    assert needed_ids(settings) == {7, 8, 9, 11}

    renumber(settings, {7: 0, 8: 1, 9: 2, 11: 3})

    assert settings.force_words_ids == [[0, 1], [[2], [3, 0]]]
    assert settings.forced_decoder_ids == [[1, 1], [2, None]]
    assert settings.sequence_bias == {(0,): 1.0}
    assert settings.forced_eos_token_id == [3, 2]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sep_token_id", 5000, "config.json: sep_token_id is 5000, which is no token"),
        ("sep_token_id", -1, "sep_token_id is -1"),
        ("sep_token_id", "</s>", "sep_token_id is '</s>'"),
        ("mask_token_id", [1, 5000], "mask_token_id is [1, 5000]"),
        ("lang_to_id", {"de": 4}, "lang_to_id may have token ids"),
        ("always_tokens", [4], "always_tokens may have token ids"),
        ("voice_id", 4, "voice_id may have token ids"),
        ("bad_words_ids", [4], "generation_config.json: bad_words_ids has another form"),
        ("sequence_bias", {"(4,)": 1.0}, "generation_config.json: sequence_bias has another form"),
        ("task_specific_params", {"short": {"sep_token_id": 5000}}, "sep_token_id is 5000"),
    ],
)
def test_settings_that_cannot_get_new_numbers_are_refused(tmp_path, texts, name, value, message):
    whole = save_whole("marian", tmp_path / "whole")
    file = whole / ("generation_config.json" if message.startswith("generation_config") else "config.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), name: value}))
    with pytest.raises(UserError, match=re.escape(message)):
        trim_checkpoint(whole, tmp_path / "smaller", WordChoice([], texts))
    assert not (tmp_path / "smaller").exists()


def test_other_languages_are_gone(pairs):
    _, new = pairs("nllb").tokenizers()
    translator = hf_capsule_mt.pipeline(str(pairs("nllb").smaller), src_lang="eng_Latn", tgt_lang="deu_Latn")
    assert translator("the old house")[0]["translation_text"]
    with pytest.raises(UserError, match="It has deu_Latn, eng_Latn"):
        translator("the old house", tgt_lang="fra_Latn")
    assert pairs("nllb").result.fixed_languages == 0
    assert new("fra_Latn")["input_ids"][1:-1] != [new.unk_token_id]
    assert ">>es<<" not in vocabulary_of(pairs("capsules").tokenizers()[1])
    # Transformers numbers those of M2M-100 when it loads them.
    assert pairs("m2m100").result.fixed_languages == 100
    for kind in ("mbart", "mbart_25"):
        assert pairs(kind).result.fixed_languages == 0
        assert sorted(language_ids(load_tokenizer(pairs(kind).smaller))) == ["de_DE", "en_XX"]


def test_a_tokenizer_that_is_set_to_another_language(tmp_path, texts):
    whole = save_whole("nllb", tmp_path / "whole")
    tokenizer = AutoTokenizer.from_pretrained(whole, src_lang="fra_Latn", tgt_lang="spa_Latn")
    tokenizer.save_pretrained(whole)
    trim_checkpoint(whole, tmp_path / "smaller", WordChoice(["deu_Latn", "eng_Latn"], texts))
    smaller = AutoTokenizer.from_pretrained(tmp_path / "smaller")
    assert smaller.src_lang == "deu_Latn"
    assert smaller.tgt_lang is None
    first, *_ = smaller("das")["input_ids"]
    assert smaller.convert_ids_to_tokens(first) == "deu_Latn"


def test_a_language_that_the_settings_name_stays(tmp_path, texts):
    """As after fine-tuning. Otherwise translations would begin with another token."""
    whole = save_whole("nllb", tmp_path / "whole")
    french = AutoTokenizer.from_pretrained(whole).convert_tokens_to_ids("fra_Latn")
    model = AutoModelForSeq2SeqLM.from_pretrained(whole)
    model.generation_config.forced_bos_token_id = french
    model.save_pretrained(whole)
    trim_checkpoint(whole, tmp_path / "smaller", WordChoice(["deu_Latn", "eng_Latn"], texts))
    smaller = AutoTokenizer.from_pretrained(tmp_path / "smaller")
    settings = json.loads((tmp_path / "smaller" / "generation_config.json").read_text())
    assert smaller.convert_ids_to_tokens(settings["forced_bos_token_id"]) == "fra_Latn"


def test_the_prefix_of_a_task_is_read_as_before(pairs):
    pair = pairs("t5")
    old, new = pair.tokenizers()
    new_ids = pair.new_ids("text")
    text = "translate English to German: the old house"
    assert new(text)["input_ids"] == [new_ids[token_id] for token_id in old(text)["input_ids"]]


@pytest.mark.parametrize("kind", ["nllb", "marian", "t5"])
def test_pipeline_and_server(kind, pairs, tmp_path):
    pair = pairs(kind)
    tokenizer, _ = pair.tokenizers()
    words = tmp_path / "words"
    write_shortlist(words, tokenizer, dict.fromkeys(pair.new_ids("text"), 1))
    languages = {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"} if kind == "nllb" else {}
    translated, answers = [], []
    for folder, vocabulary in ((pair.whole, words), (pair.smaller, None)):
        translator = hf_capsule_mt.pipeline(str(folder), device="cpu", vocabulary=vocabulary, **languages)
        translated.append(translator(SOURCES, num_beams=3, max_new_tokens=9))
        specification = f"en-de={folder}" + (":eng_Latn:deu_Latn" if kind == "nllb" else "")
        options = DecodingOptions(str(folder), num_beams=3, max_new_tokens=9, vocabulary=vocabulary)
        models = load_models([specification], options, torch.device("cpu"))
        with TestClient(build_app(models, ServerSettings())) as client:
            answers.append(client.post("/translate", json={"q": SOURCES, "source": "en", "target": "de"}).json())
    assert translated[1] == translated[0]
    assert answers[1] == answers[0]
    # With random weights a translation may be empty.
    assert any(answers[0]["translatedText"])


@pytest.mark.parametrize("kind", ["nllb", "m2m100", "mbart", "marian"])
def test_the_converter_of_ctranslate2(kind, pairs, tmp_path):
    pair = pairs(kind)
    _, tokenizer = pair.tokenizers()
    _, model = pair.models()
    TransformersConverter(str(pair.smaller)).convert(str(tmp_path / "converted"))
    translator = ctranslate2.Translator(str(tmp_path / "converted"), compute_type="float32")
    rows = ids_of(tokenizer, SOURCES, "text")
    begin = forced(tokenizer, kind)
    first = [tokenizer.convert_ids_to_tokens(begin["forced_bos_token_id"])] if begin else []
    # The settings of the model that CTranslate2 does not read.
    model.generation_config.suppress_tokens = None
    model.generation_config.forced_eos_token_id = None
    found = translator.translate_batch(
        [tokenizer.convert_ids_to_tokens(row) for row in rows],
        target_prefix=[first] * len(rows) if first else None,
        beam_size=1,
        max_decoding_length=7,
    )
    expected = model.generate(**batch(rows, tokenizer.pad_token_id), max_new_tokens=7, num_beams=1, **begin)
    special = {tokenizer.pad_token, tokenizer.eos_token}
    for result, row in zip(found, expected.tolist(), strict=True):
        tokens = tokenizer.convert_ids_to_tokens(row[1:])
        assert result.hypotheses[0] == [token for token in tokens if token not in special]
    assert len({tuple(result.hypotheses[0]) for result in found}) > 1


@pytest.mark.parametrize(
    ("kind", "code", "like", "other"),
    [
        ("nllb", "dsb_Latn", "deu_Latn", "eng_Latn"),
        ("m2m100", "dsb", "de", "en"),
        ("mbart", "dsb_DE", "de_DE", "en_XX"),
    ],
)
def test_a_language_that_was_added(kind, code, like, other, tmp_path, texts):
    folder = save_whole(kind, tmp_path / "before")
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    add_languages(model, tokenizer, {code: like})
    model.save_pretrained(tmp_path / "whole")
    tokenizer.save_pretrained(tmp_path / "whole")
    trim_checkpoint(tmp_path / "whole", tmp_path / "smaller", WordChoice([code, other], texts))
    whole, smaller = load_model(tmp_path / "whole"), load_model(tmp_path / "smaller")
    row = language_ids(load_tokenizer(tmp_path / "whole"))[code]
    new_row = language_ids(load_tokenizer(tmp_path / "smaller"))[code]
    assert torch.equal(smaller.lm_head.weight[new_row], whole.lm_head.weight[row])
    translator = hf_capsule_mt.pipeline(str(tmp_path / "smaller"), src_lang=other, tgt_lang=code)
    tokens = translator("the old house", return_tensors=True, max_new_tokens=5)[0]["translation_token_ids"]
    assert tokens[-1] != new_row
    assert (like in language_ids(load_tokenizer(tmp_path / "smaller"))) == (kind == "m2m100")


def test_files_as_nllb_has_them_on_the_hub(tmp_path, texts):
    """The mask is the last token, and no language stands in the vocabulary of BPE."""
    whole = save_whole("nllb", tmp_path / "whole")
    settings = json.loads((whole / "tokenizer.json").read_text())
    added = [token for token in settings["added_tokens"] if token["content"] != "<mask>"]
    [mask] = [token for token in settings["added_tokens"] if token["content"] == "<mask>"]
    added.append(mask)
    first = len(settings["model"]["vocab"])
    for number, token in enumerate(added[4:]):
        token["id"] = first + number
    settings["added_tokens"] = added
    settings["post_processor"] = None
    (whole / "tokenizer.json").write_text(json.dumps(settings))
    config = json.loads((whole / "tokenizer_config.json").read_text())
    config["additional_special_tokens"] = config.pop("extra_special_tokens")
    config["added_tokens_decoder"] = {str(token.pop("id")): token for token in added}
    (whole / "tokenizer_config.json").write_text(json.dumps(config))
    old = AutoTokenizer.from_pretrained(whole)
    assert old.mask_token_id == len(old) - 1
    trim_checkpoint(whole, tmp_path / "smaller", WordChoice(["eng_Latn", "deu_Latn"], texts))
    new = AutoTokenizer.from_pretrained(tmp_path / "smaller")
    assert new.convert_ids_to_tokens([len(new) - 3, len(new) - 2, len(new) - 1]) == ["deu_Latn", "eng_Latn", "<mask>"]
    for line in SOURCES:
        assert new.convert_ids_to_tokens(new(line)["input_ids"]) == old.convert_ids_to_tokens(old(line)["input_ids"])


def test_a_class_that_adds_tokens_when_it_is_read(tmp_path, texts, monkeypatch):
    """As that of M2M-100 adds its languages. Their ids would be those of no rows."""
    whole = save_whole("m2m100", tmp_path / "whole")
    monkeypatch.setattr(TokenizerFiles, "numbers_languages", False)
    with pytest.raises(UserError, match="which has other tokens when it is read again"):
        trim_checkpoint(whole, tmp_path / "smaller", WordChoice(["en", "de"], texts))
    assert not (tmp_path / "smaller").exists()


def test_a_checkpoint_of_this_package_carries_its_code(pairs):
    names = {file.name for file in pairs("capsules").smaller.iterdir()}
    assert "modeling_capsule_aggregated_marian.py" in names
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= names
    plain = {file.name for file in pairs("nllb").smaller.iterdir()}
    assert not [name for name in plain if name.endswith(".py")]
