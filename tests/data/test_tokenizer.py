import copy
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.normalizers import Lowercase
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, MarianConfig, PreTrainedTokenizerFast

from hf_capsule_mt.data.tokenizer import check_tokenizer, save_tokenizer, tokenizer_hash, train_joint_bpe

TEXTS = ["the old house is green", "das alte Haus ist grün", "two dogs see the house", "zwei Hunde"] * 5 + [
    "house Haus"
] * 20
VOCAB_SIZE = 300


@pytest.fixture(scope="module")
def tokenizer():
    return train_joint_bpe(TEXTS, VOCAB_SIZE)


@pytest.fixture(scope="module")
def reloaded(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def tiny_config(**fields):
    sizes = {
        f"{side}_{name}": 1 for side in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")
    }
    ids = {"vocab_size": VOCAB_SIZE, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}
    return MarianConfig(**{**sizes, "d_model": 8, **ids, "forced_eos_token_id": None, **fields})


@given(st.text())
@example("the old house")
@example("  two  dogs ")
@example("Größe, naïve, Ærøskøbing")
@example("中文翻译 日本語の文 한국어")
@example("🐕‍🦺 \U0001f468\u200d\U0001f469\u200d\U0001f466 🇩🇪")
@example("tab\tnewline\nreturn\r nul\0 separator\u2028 bom\ufeff")
@example("e\u0301 is not \u00e9")
@example("don 't , stop . n't")
@example("a text with </s> and <pad> and <unk> in it")
def test_any_text_comes_back(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.decode(ids) == f"{text}</s>"
    assert tokenizer.unk_token_id not in ids


def test_autotokenizer_loads_what_was_trained(tokenizer, reloaded):
    assert isinstance(reloaded, PreTrainedTokenizerFast)
    assert reloaded.get_vocab() == tokenizer.get_vocab()
    assert (reloaded.pad_token_id, reloaded.unk_token_id, reloaded.eos_token_id) == (0, 1, 2)
    assert reloaded.bos_token_id is None
    assert reloaded.model_max_length == 512
    text = " zwei </s>  Hünde 🐕 ."
    assert reloaded(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert reloaded.decode(reloaded(text)["input_ids"], skip_special_tokens=True) == text


def test_first_word_is_like_any_other(tokenizer):
    house, eos = tokenizer("house")["input_ids"]
    assert tokenizer("the house house")["input_ids"][-3:] == [house, house, eos]


def test_vocabulary_is_joint_and_of_the_size_asked_for(tokenizer):
    assert len(tokenizer) == tokenizer.vocab_size == VOCAB_SIZE
    for word in ("house", "Haus"):
        assert len(tokenizer(word)["input_ids"]) == 2


def test_language_codes_are_one_token():
    texts = [f">>pt<< {text}" for text in TEXTS] + [">>cmn_Hans<< two", ">>hello<< two"]
    tokenizer = train_joint_bpe(texts, 300)
    assert len(tokenizer) == 300
    for code in (">>pt<<", ">>cmn_Hans<<"):
        ids = tokenizer(f"{code} the house")["input_ids"]
        assert ids[0] == tokenizer.convert_tokens_to_ids(code)
        assert ids[1:] == tokenizer("the house")["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=True) == f"{code} the house"
    assert ">>hello<<" not in tokenizer.get_vocab()


@pytest.mark.parametrize("fields", [{"pad_token_id": 3}, {"eos_token_id": 1}, {"vocab_size": 299}], ids=str)
def test_check_refuses_another_models_tokenizer(tokenizer, fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        check_tokenizer(tokenizer, tiny_config(**fields))


def test_check_counts_a_vocabulary_with_gaps_to_its_largest_id(tokenizer):
    """An embedding for each token would be too few, and an index error far from its cause."""
    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    last = max(settings["model"]["vocab"], key=settings["model"]["vocab"].get)
    settings["model"]["vocab"][last] = VOCAB_SIZE
    backend = Tokenizer.from_str(json.dumps(settings))
    gapped = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="</s>")
    assert len(gapped) == VOCAB_SIZE
    with pytest.raises(ValueError, match=f"vocab_size is {VOCAB_SIZE} in the model's config. The tokenizer needs 301"):
        check_tokenizer(gapped, tiny_config())
    check_tokenizer(gapped, tiny_config(vocab_size=VOCAB_SIZE + 1))


def test_check_refuses_a_tokenizer_without_pad_or_final_eos(tokenizer):
    bare = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, eos_token="</s>")
    with pytest.raises(ValueError, match="pad token"):
        check_tokenizer(bare, tiny_config(pad_token_id=None))
    endless = copy.deepcopy(tokenizer)
    endless.backend_tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    with pytest.raises(ValueError, match="could never stop"):
        check_tokenizer(endless, tiny_config())


def test_the_hash_is_of_all_that_decides_token_ids(tokenizer, reloaded):
    """However the tokenizer was called before."""
    expected = tokenizer_hash(tokenizer)
    called = copy.deepcopy(reloaded)
    called("a", truncation=True, max_length=2, padding="max_length")
    assert tokenizer_hash(called) == expected
    called.backend_tokenizer.normalizer = Lowercase()
    assert tokenizer_hash(called) != expected
    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    settings["model"]["merges"].reverse()
    other = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(settings)))
    assert other.get_vocab() == tokenizer.get_vocab()
    assert tokenizer_hash(other) != expected


def test_a_tokenizer_that_does_not_fit(tokenizer, tmp_path, monkeypatch):
    def full(folder):
        raise Exception("No space left on device (os error 28)")

    monkeypatch.setattr(tokenizer, "save_pretrained", full)
    with pytest.raises(OSError, match="No space left"):
        save_tokenizer(tokenizer, tmp_path)
