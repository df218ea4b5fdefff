"""Alignment by attention against one sentence at a time, for every family."""

import pytest
import tiny_multilingual
import torch
from attention_of_model import cross_attention
from tiny_marian import tiny_model, tiny_tokenizer
from transformers import AutoModelForSeq2SeqLM, T5Config

from hf_capsule_mt import preset_config
from hf_capsule_mt.evaluation.alignment import align_by_attention
from hf_capsule_mt.translation.alignment.words import attended_span

SOURCES = ["a b c", "d e", "", "f g h i j k", "l ? m", "n"]
TOKENS = {"vocab_size": 29, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}
STREAMS = [["n o", "p q r s", "t", "", "u v", "w"], ["o n o", "s", "t u v", "a", "v ?", "n n n n n n"]]


def of_preset(method):
    return of_config(preset_config(method, "tiny", d_model=16, **TOKENS))


def of_config(config):
    torch.manual_seed(1)
    model = AutoModelForSeq2SeqLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Attention that differs from place to place.
            parameter.mul_(3)
    return model


def t5():
    return of_config(T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=3, num_heads=2, initializer_factor=3.0, **TOKENS))


MODELS = {
    "marian": tiny_model,
    "em-routing": lambda: of_preset("em-routing"),
    "rnmt": lambda: of_preset("rnmt"),
    "t5": t5,
}


def expected(model, tokenizer, source, target):
    """The source position of each target token, of an unpadded sentence, from the layer that is looked at."""
    source, target = tokenizer(source)["input_ids"], tokenizer(text_target=target)["input_ids"]
    # Encoder and decoder of T5 have configurations of their own, which old versions of Transformers leave as they are.
    for part in (model, model.get_encoder(), model.get_decoder()):
        part.set_attn_implementation("eager")
    output = model(
        input_ids=torch.tensor([source]),
        decoder_input_ids=torch.tensor([[model.config.decoder_start_token_id, *target[:-1]]]),
        output_attentions=True,
    )
    layers = output.cross_attentions
    attended = torch.stack(list(layers[-2:])).mean(0)[0].mean(0).argmax(-1).tolist()
    # The last token of either side is the end of the sentence.
    return tuple((place, index) for index, place in enumerate(attended[:-1]) if place < len(source) - 1)


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_batches_give_what_single_sentences_give(kind):
    model, tokenizer = MODELS[kind](), tiny_tokenizer()
    backend = model.config._attn_implementation
    model.train()
    passes = []
    model.base_model.register_forward_hook(lambda *_: passes.append(None))
    found = align_by_attention(model, tokenizer, SOURCES, STREAMS, max_tokens_per_batch=40)
    assert model.training
    assert model.config._attn_implementation == backend
    assert len(passes) > 1
    model.eval()
    links = 0
    for stream, alignments in zip(STREAMS, found, strict=True):
        for source, target, alignment in zip(SOURCES, stream, alignments, strict=True):
            assert alignment.source_words == len(source.split())
            assert len(alignment.target) == len(target.split())
            blank = not (source and target)
            assert alignment.links == (() if blank else expected(model, tokenizer, source, target))
            links += len(alignment.links)
    assert links > 5
    assert found[1][5].target == (16,) * 6


@torch.no_grad()
def test_words_behind_the_code_of_their_language():
    model, tokenizer = tiny_multilingual.nllb()
    tokenizer.src_lang, tokenizer.tgt_lang = "eng_Latn", "deu_Latn"
    source = tokenizer("the old house")["input_ids"]
    target = tokenizer(text_target="das alte Haus")["input_ids"]
    codes = tokenizer.convert_tokens_to_ids(["eng_Latn", "deu_Latn"])
    assert [source[0], target[0]] == codes
    [[found]] = align_by_attention(model, tokenizer, ["the old house"], [["das alte Haus"]])
    model.set_attn_implementation("eager")
    start = model.config.decoder_start_token_id
    decoder_input = torch.tensor([[start, *target[:-1]]])
    output = model(input_ids=torch.tensor([source]), decoder_input_ids=decoder_input, output_attentions=True)
    attention = output.cross_attentions[-1][0].mean(0)
    # The first token of either side is the code, and the last one is the end.
    links = []
    for word, weights in enumerate(attention[1:-1]):
        place = int(weights.argmax())
        if 0 < place < len(source) - 1:
            links.append((place - 1, word))
    assert found.target == tuple(target[1:-1])
    assert found.source_words == len(source) - 2
    assert len(links) > 3
    assert found.links == tuple(links)


def test_transformers_says_which_attention_a_model_uses():
    """The name is not public. `attending` reads it."""
    model = tiny_model()
    for name in ("sdpa", "eager"):
        model.set_attn_implementation(name)
        assert model.config._attn_implementation == name
    # A family that knows only one is of this kind from the beginning.
    assert of_preset("rnmt").config._attn_implementation == "eager"


@pytest.mark.parametrize("kind", ["caps_nmt", "marian"])
def test_a_model_without_cross_attention(kind):
    """Of a family that has none, or of another, whose output has none."""
    model = of_preset("capsnmt") if kind == "caps_nmt" else tiny_model()
    model.train().base_model.register_forward_hook(lambda *passed: passed[-1] | {"cross_attentions": None})
    with pytest.raises(ValueError, match=f"{kind} model has no attention"):
        align_by_attention(model, tiny_tokenizer(), SOURCES, STREAMS)
    assert model.training


def test_the_source_token_that_words_attend_to_most():
    """The end of the source is no word."""
    tokenizer = tiny_tokenizer()
    source = "a b", tokenizer("a b")["input_ids"]
    target_ids = tokenizer("c d")["input_ids"][:2]
    attention = torch.tensor([[0.1, 0.3, 0.6], [0.5, 0.1, 0.4]])
    places = [(0, 1), (2, 3), (0, 3), (4, 5)]
    spans = [attended_span(attention, tokenizer, source, target_ids, place) for place in places]
    assert spans == [(2, 3), (0, 1), (0, 1), None]
    only_end = attended_span(torch.ones(2, 1), tokenizer, ("a b", source[1][-1:]), target_ids, (0, 1))
    assert only_end is None


def test_padding_of_a_model_without_padding():
    """Transformers fills up with -1, which is no token."""
    model = tiny_model()
    source = torch.tensor([[5, 6, 2]])
    whole = cross_attention(model, torch.tensor([[0, 7, 8, 9]]), input_ids=source)
    filled = cross_attention(model, torch.tensor([[0, 7, 8, -1, -1]]), input_ids=source)
    torch.testing.assert_close(filled[:, :3], whole)
