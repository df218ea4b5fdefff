"""Tokens that a model keeps or gets, in all families, with tied and untied weights and two vocabularies."""

import pytest
import torch
from aggregated_models import VOCABULARY
from families import each_family, translator
from tiny_marian import SHAPE
from transformers import (
    AutoModelForSeq2SeqLM,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from hf_capsule_mt.modeling.token_rows import take_token_rows

KEPT = [0, 1, 2, 5, 9, 11, 20, 30]
"""Token ids that are kept. The special ones stay where they are."""
SOURCE = torch.tensor([[5, 9, 30, 2]])
TARGET = torch.tensor([[0, 11, 5, 20]])
T5_SHAPE = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "initializer_factor": 20.0}


def plain(family, tied):
    sizes = {"vocab_size": VOCABULARY, "tie_word_embeddings": tied}
    classes = {
        "m2m100": (M2M100ForConditionalGeneration, M2M100Config(**SHAPE, **sizes)),
        "mbart": (MBartForConditionalGeneration, MBartConfig(**SHAPE, **sizes)),
        "marian": (MarianMTModel, MarianConfig(**SHAPE, **sizes, pad_token_id=0, decoder_start_token_id=0)),
        "t5": (T5ForConditionalGeneration, T5Config(**T5_SHAPE, **sizes, decoder_start_token_id=0)),
    }
    model_class, config = classes[family]
    torch.manual_seed(0)
    model = model_class(config).eval()
    if not tied:
        # T5 is made tied, whatever its configuration says. That of v1.1 is untied when it is loaded.
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    return model


def logits(model, source, target):
    with torch.no_grad():
        return model(input_ids=source, decoder_input_ids=target).logits


def assert_near(actual, expected):
    """Products with fewer rows round differently."""
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def new_ids(old_ids, kept):
    """Token ids by their places among those that are kept."""
    return torch.tensor([[kept.index(token_id) for token_id in row] for row in old_ids.tolist()])


def number_of_weights(model):
    return len(list(model.parameters()))


def check_kept(model, folder):
    before = logits(model, SOURCE, TARGET)
    weights = number_of_weights(model)
    take_token_rows(model, KEPT)
    kept = new_ids(SOURCE, KEPT), new_ids(TARGET, KEPT)
    assert_near(logits(model, *kept), before[..., KEPT])
    # Weights that were one are one.
    assert number_of_weights(model) == weights
    assert model.config.vocab_size == len(KEPT)
    assert {layer.weight.shape[0] for layer in (model.get_input_embeddings(), model.lm_head)} == {len(KEPT)}
    assert model.lm_head.out_features == model.get_input_embeddings().num_embeddings == len(KEPT)
    model.save_pretrained(folder)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert_near(logits(loaded, *kept), before[..., KEPT])


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("family", ["m2m100", "mbart", "marian", "t5"])
def test_kept_tokens_of_transformers(family, tied, tmp_path):
    check_kept(plain(family, tied), tmp_path)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@each_family
def test_kept_tokens_of_this_package(name, tied, tmp_path):
    check_kept(translator(name, tie_word_embeddings=tied), tmp_path)


@pytest.mark.parametrize("family", ["m2m100", "mbart", "marian", "t5"])
def test_a_token_that_begins_as_another(family):
    model = plain(family, tied=True)
    before = logits(model, SOURCE, TARGET)
    take_token_rows(model, [*range(VOCABULARY), 9])
    after = logits(model, torch.where(SOURCE == 9, VOCABULARY, SOURCE), TARGET)
    assert_near(after[..., :VOCABULARY], before)
    assert_near(after[..., VOCABULARY], before[..., 9])
    model(input_ids=SOURCE, labels=TARGET).loss.backward()
    assert model.get_input_embeddings().weight.grad.shape[0] == VOCABULARY + 1


def test_a_vocabulary_for_each_side(tmp_path):
    sizes = {"vocab_size": VOCABULARY, "decoder_vocab_size": 23, "share_encoder_decoder_embeddings": False}
    torch.manual_seed(0)
    model = MarianMTModel(MarianConfig(**SHAPE, **sizes, pad_token_id=0, decoder_start_token_id=0)).eval()
    model.final_logits_bias.normal_()
    before = logits(model, SOURCE, TARGET)
    target_kept = [0, 2, 5, 11, 20]
    take_token_rows(model, target_kept, KEPT)
    kept = new_ids(SOURCE, KEPT), new_ids(TARGET, target_kept)
    assert_near(logits(model, *kept), before[..., target_kept])
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert_near(logits(loaded, *kept), before[..., target_kept])
    assert loaded.config.vocab_size == len(KEPT)
    assert loaded.config.decoder_vocab_size == len(target_kept)
