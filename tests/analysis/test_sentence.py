"""The routing of one sentence is that of forced decoding, with its words."""

import pytest
import torch
from routed_models import KINDS, TOKENIZER, read_pair, routed
from tiny_marian import marian_tokenizer, tiny_model
from translated_lines import translate_lines

from hf_capsule_mt.analysis.sentence import read_sentence
from hf_capsule_mt.analysis.subwords import END, source_subwords, target_subwords
from hf_capsule_mt.data.tokenizer import train_joint_bpe

EOS, PAD = 2, 0


@pytest.mark.parametrize("kind", ["everything", "guided_classifier", "guided_attention"])
def test_against_forced_decoding(kind):
    model = routed(kind)
    routing = read_pair(model, "a b c", "d e")
    source, sequence = TOKENIZER("a b c", return_tensors="pt"), torch.tensor([[PAD, 6, 7, EOS]])
    expected = model.force_decode(sequence, output_routing="all", **source)
    assert (routing.source_words, routing.target_words) == (("a", "b", "c", END), ("d", "e", END))
    pairs = [
        (routing.encoder_layers, expected.encoder_layer_routing),
        (routing.decoder_layers, expected.decoder_layer_routing),
        (routing.guided, expected.guided_routing),
        *((routing.heads[place], each) for place, each in (expected.head_routing or {}).items()),
    ]
    for found, other in pairs:
        assert (found is None) == (other is None)
        if found is not None:
            assert found.dtype == torch.float32
            torch.testing.assert_close(found, other[0])
    assert routing.heads.keys() == (expected.head_routing or {}).keys()


@pytest.mark.parametrize(
    ("kind", "groups", "columns"),
    [
        ("everything", (2, 2), 6),
        ("guided_classifier", (1, 1), 3),
        ("guided_attention", (1, 1), 2),
        ("capsule", (0, 0), 0),
    ],
)
def test_groups_of_guided_routing(kind, groups, columns):
    routing = read_pair(routed(kind), "a b", "c")
    assert (routing.num_past, routing.num_future) == groups
    assert (0 if routing.guided is None else routing.guided.shape[-1]) == columns


@pytest.mark.parametrize("kind", KINDS)
def test_translates_by_itself(kind):
    model = routed(kind)
    routing = read_sentence(model, TOKENIZER, "a b c d", max_new_tokens=6, num_beams=2)
    expected = translate_lines(model, TOKENIZER, ["a b c d"], max_new_tokens=6, num_beams=2)
    assert [routing.translation] == expected
    words = [word for word in routing.target_words if word not in (END, *TOKENIZER.all_special_tokens)]
    assert " ".join(words) == routing.translation
    if routing.sentence is not None:
        source = TOKENIZER("a b c d", return_tensors="pt")
        start = torch.tensor([[PAD]])
        expected = model(**source, decoder_input_ids=start, output_routing="all").sentence_routing[0]
        torch.testing.assert_close(routing.sentence, expected)


def test_a_model_without_routing_only_translates():
    routing = read_pair(tiny_model(), "a b c", "d")
    assert (routing.target_words, routing.translation) == (("d", END), "d")
    assert routing.heads == {}
    assert routing.encoder_layers is routing.decoder_layers is routing.guided is routing.sentence is None


def test_pieces_of_bytes():
    tokenizer = train_joint_bpe(["an old house", "the old house"], 280)
    pieces = source_subwords(tokenizer, tokenizer("old hüte")["input_ids"])
    # Of a letter of two bytes, neither is a letter.
    assert as_text(pieces) == "old h��te (end)"


@pytest.mark.parametrize("separate_vocabs", [False, True])
def test_pieces_of_sentencepiece(tmp_path, separate_vocabs):
    tokenizer = marian_tokenizer(tmp_path, separate_vocabs)
    source, target = tokenizer("the old house")["input_ids"], tokenizer(text_target="das alte Haus")["input_ids"]
    assert as_text(source_subwords(tokenizer, source)) == "the old house (end)"
    assert as_text(target_subwords(tokenizer, target)) == "das alte Haus (end)"


def as_text(words):
    """Words in pieces as text, with a space before each word."""
    return " ".join(words).replace(" -", "").replace("(space) ", "")
