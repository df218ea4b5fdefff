"""Alignment by attention against one sentence at a time, for every family."""

import pytest
import torch
from tiny_marian import tiny_model, tiny_tokenizer
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt import preset_config
from hf_capsule_mt.evaluation.alignment import align_by_attention

SOURCES = ["a b c", "d e", "", "f g h i j k", "l ? m", "n"]
STREAMS = [["n o", "p q r s", "t", "", "u v", "w"], ["o n o", "s", "t u v", "a", "v ?", "n n n n n n"]]


def of_preset(method):
    torch.manual_seed(1)
    tokens = {"vocab_size": 29, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}
    model = AutoModelForSeq2SeqLM.from_config(preset_config(method, "tiny", d_model=16, **tokens)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Attention that differs from place to place.
            parameter.mul_(3)
    return model


MODELS = {"marian": tiny_model, "em-routing": lambda: of_preset("em-routing"), "rnmt": lambda: of_preset("rnmt")}


def expected(model, tokenizer, source, target):
    """The source position of each target token, of an unpadded sentence, from the layer that is looked at."""
    source, target = tokenizer(source)["input_ids"], tokenizer(text_target=target)["input_ids"]
    model.set_attn_implementation("eager")
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


@pytest.mark.parametrize("kind", ["caps_nmt", "marian"])
def test_a_model_without_cross_attention(kind):
    """Of a family that has none, or of another, whose output has none."""
    model = of_preset("capsnmt") if kind == "caps_nmt" else tiny_model()
    model.train().base_model.register_forward_hook(lambda *passed: passed[-1] | {"cross_attentions": None})
    with pytest.raises(ValueError, match=f"{kind} model has no attention"):
        align_by_attention(model, tiny_tokenizer(), SOURCES, STREAMS)
    assert model.training
