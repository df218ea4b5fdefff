"""Tokens that are dropped from tokenizers: a text whose tokens all stay is cut as before."""

import json
import random

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerFast
from transformers.models.byt5 import ByT5Tokenizer
from whole_checkpoints import ENGLISH, GERMAN, KINDS, OTHERS, save_whole

from hf_capsule_mt.data.smaller_tokenizer import TokenizerFiles, TokenizerJson, joined_parts
from hf_capsule_mt.data.tokenizer import vocabulary_of
from hf_capsule_mt.errors import UserError

TEXTS = sorted({*ENGLISH, *GERMAN, *OTHERS})


def random_texts(number):
    """Texts of pieces of words, with letters that no tokenizer knows."""
    generator = random.Random(0)
    words = " ".join(TEXTS).split() + ["☃", "Q"]
    texts = []
    for _ in range(number):
        pieces = [generator.choice(words)[: generator.randint(1, 6)] for _ in range(generator.randint(1, 6))]
        texts.append("".join(piece + generator.choice(["", "", " "]) for piece in pieces).strip())
    return texts


def dropped_at_random(files, tokenizer, side, share):
    """Token ids that stay, with all that they need."""
    generator = random.Random(1)
    vocabulary = files.of_side(side)
    special = {token_id for token, token_id in vocabulary.token_ids.items() if token.startswith((">>", "__", "<"))}
    special |= {vocabulary.token_ids[token] for token in tokenizer.all_special_tokens}
    # The library gives the tokens in another order in each process.
    every_id = sorted(vocabulary.token_ids.values())
    chosen = [token_id for token_id in every_id if generator.random() < share]
    kept = special | set(vocabulary.always) | set(chosen)
    for token_id in chosen:
        kept.update(vocabulary.parts_of(token_id))
    return kept


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_whose_tokens_stay_is_cut_as_before(kind, tmp_path):
    save_whole(kind, tmp_path / "whole")
    whole = AutoTokenizer.from_pretrained(tmp_path / "whole")
    files = TokenizerFiles(whole, tmp_path)
    new_ids = {side: files.new_ids(dropped_at_random(files, whole, side, 0.5), side) for side in files.sides}
    files.keep(new_ids)
    smaller = AutoTokenizer.from_pretrained(tmp_path)
    for tokenizer in (whole, smaller):
        tokenizer.tgt_lang = getattr(tokenizer, "src_lang", None)
    cut_as_before = others = 0
    for side in ("text", "text_target"):
        ids_of_side = new_ids[side] if side in new_ids else new_ids["text"]
        assert vocabulary_of(smaller, side) == {
            token: ids_of_side[old] for token, old in vocabulary_of(whole, side).items() if old in ids_of_side
        }
        for text in [*TEXTS, *random_texts(600)]:
            before = whole(**{side: text})["input_ids"]
            after = smaller(**{side: text})["input_ids"]
            if set(before) <= ids_of_side.keys():
                assert after == [ids_of_side[token_id] for token_id in before], text
                cut_as_before += 1
            else:
                others += 1
    assert cut_as_before > 20
    assert others > 20


def test_the_parts_of_a_token_of_bpe():
    ranks = {("a", "b"): 0, ("c", "d"): 1, ("ab", "cd"): 2, ("b", "c"): 3, ("a", "bcd"): 4, ("x", "y"): 5}

    def rank(left, right):
        return ranks.get((left, right))

    assert joined_parts("abcd", rank) == {"a", "b", "c", "d", "ab", "cd", "abcd"}
    assert joined_parts("a", rank) == {"a"}
    # Nothing joins these letters.
    assert joined_parts("ax", rank) == set()
    assert joined_parts("xyab", rank) == set()


def test_rules_without_their_tokens_are_gone(tmp_path):
    vocabulary = {token: index for index, token in enumerate(["<unk>", "a", "b", "c", "ab", "bc", "abc"])}
    merges = [("b", "c"), ("a", "b"), ("a", "bc")]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>")), unk_token="<unk>"
    )
    files = TokenizerFiles(tokenizer, tmp_path)
    assert files.of_side("text").parts_of(vocabulary["abc"]) == [1, 2, 3, 5, 6]
    files.keep({"text": files.new_ids([0, 1, 2, 3, 4, 6], "text")})
    written = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
    assert written["merges"] == [["a", "b"]]
    assert written["vocab"] == {"<unk>": 0, "a": 1, "b": 2, "c": 3, "ab": 4, "abc": 5}


@pytest.mark.parametrize(
    "processor",
    [
        processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 4)]),
        processors.RobertaProcessing(("</s>", 4), ("<s>", 0)),
        processors.Sequence([processors.BertProcessing(("</s>", 4), ("<s>", 0))]),
    ],
    ids=["template", "roberta", "sequence"],
)
def test_special_tokens_around_a_text(processor, tmp_path):
    vocabulary = {token: index for index, token in enumerate(["<s>", "<unk>", "a", "b", "</s>"])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processor
    special = {"unk_token": "<unk>", "eos_token": "</s>", "bos_token": "<s>"}
    whole = PreTrainedTokenizerFast(tokenizer_object=backend, **special)
    files = TokenizerFiles(whole, tmp_path)
    files.keep({"text": files.new_ids([0, 1, 3, 4], "text")})
    smaller = AutoTokenizer.from_pretrained(tmp_path)
    ids = smaller("b")["input_ids"]
    assert smaller.convert_ids_to_tokens(ids) == whole.convert_ids_to_tokens(whole("b")["input_ids"])
    assert ids[-2:] == [2, 3]


def test_unknown_letters_keep_their_score(tmp_path):
    """They cost a fixed sum more than the least likely piece. Without it, "ab☃" would be cut in another way."""
    pieces = [("<unk>", 0.0), ("a", -1.0), ("b", -1.0), ("q", -30.0), ("b☃", -35.0)]
    backend = Tokenizer(models.Unigram(pieces, unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    whole = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    files = TokenizerFiles(whole, tmp_path)
    always = files.of_side("text").always
    assert whole.convert_ids_to_tokens(always) == ["b☃"]
    files.keep({"text": files.new_ids([0, 1, 2, *always], "text")})
    smaller = AutoTokenizer.from_pretrained(tmp_path)
    assert smaller.tokenize("ab☃ a☃") == whole.tokenize("ab☃ a☃") == ["a", "b☃", "a", "☃"]


def test_tokenizers_of_other_kinds(tmp_path):
    with pytest.raises(UserError, match="Tokens cannot be dropped from a ByT5Tokenizer"):
        TokenizerFiles(ByT5Tokenizer(), tmp_path)
    bert = BertTokenizer(vocab={"[UNK]": 0, "[SEP]": 1, "[CLS]": 2, "[PAD]": 3, "[MASK]": 4, "a": 5, "##b": 6})
    with pytest.raises(UserError, match="cuts words by WordPiece"):
        TokenizerFiles(bert, tmp_path)
    with_ends = Tokenizer(models.BPE(vocab={"a</w>": 0}, merges=[], end_of_word_suffix="</w>"))
    with_ends.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match="BPE with marks"):
        TokenizerJson(tmp_path / "tokenizer.json")
