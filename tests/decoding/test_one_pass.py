"""Every method as its preset makes it: what decoding scores step by step is what one pass scores, as in training."""

from functools import cache

import pytest
import torch
from tiny_marian import tiny_tokenizer
from tiny_run import small

from hf_capsule_mt import METHODS
from hf_capsule_mt.decoding import generate
from hf_capsule_mt.training.build import build_model
from hf_capsule_mt.training.options import ModelArguments

LONGEST = 8
LENGTH_PENALTY = 0.7
BEAMS = {"num_beams": 4, "num_return_sequences": 4, "length_penalty": LENGTH_PENALTY}
every_method = pytest.mark.parametrize("method", METHODS)


@cache
def model_of(method):
    """A model of `method` as a training run begins with it, larger than at its start so that its scores differ."""
    overrides = [*small(method), "decoder_layers=2"]
    if method.startswith(("rnmt", "capsnmt-hybrid")):
        overrides.remove("decoder_layers=2")
    torch.manual_seed(0)
    model = build_model(
        ModelArguments(method=method, size="tiny", tokenizer_name="tokenizer", config_overrides=overrides),
        tiny_tokenizer(),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3)
    # Sequences would end with a token that the model did not choose.
    model.generation_config.forced_eos_token_id = None
    return model.eval()


def source_of(model):
    """Sentences of two lengths, with padding behind the shorter ones."""
    pad, eos = model.config.pad_token_id, model.config.eos_token_id
    rows = [[5, 9, 4, 17, eos], [7, 11, eos, pad, pad], [6, eos, pad, pad, pad]]
    input_ids = torch.tensor(rows)
    return {"input_ids": input_ids, "attention_mask": (input_ids != pad).long()}


@torch.no_grad()
def scores_of_one_pass(model, source, sequences):
    """The sum of the log probabilities of each sequence up to its end, and how many tokens these are."""
    times = len(sequences) // len(source["input_ids"])
    repeated = {name: value.repeat_interleave(times, 0) for name, value in source.items()}
    logits = model(**repeated, decoder_input_ids=sequences[:, :-1], use_cache=False).logits
    chosen = logits.log_softmax(-1).gather(-1, sequences[:, 1:, None])[..., 0]

    ends = (sequences[:, 1:] == model.config.eos_token_id).cumsum(1)
    is_written = (ends == 0) | ((ends == 1) & (sequences[:, 1:] == model.config.eos_token_id))
    return (chosen * is_written).sum(1), is_written.sum(1)


@every_method
def test_each_step_of_greedy_decoding_is_that_of_one_pass(method):
    model = model_of(method).double()
    source = source_of(model)
    options = {"num_beams": 1, "max_new_tokens": LONGEST, "output_logits": True, "return_dict_in_generate": True}
    found = model.generate(**source, **options)

    with torch.no_grad():
        expected = model(**source, decoder_input_ids=found.sequences[:, :-1], use_cache=False).logits

    steps = torch.stack(found.logits, 1)
    is_written = (found.sequences[:, :-1] == model.config.eos_token_id)[:, 1:].cumsum(1) == 0
    is_written = torch.cat([torch.ones_like(is_written[:, :1]), is_written], 1)
    # `generate()` keeps what it scores in float32.
    torch.testing.assert_close(steps[is_written], expected[is_written].float())


@every_method
def test_the_scores_of_beam_search_are_those_of_one_pass(method):
    model = model_of(method).double()
    source = source_of(model)
    options = {**BEAMS, "max_new_tokens": LONGEST, "output_scores": True, "return_dict_in_generate": True}
    found = model.generate(**source, **options)

    scores, lengths = scores_of_one_pass(model, source, found.sequences)

    expected = scores / lengths**LENGTH_PENALTY
    torch.testing.assert_close(found.sequences_scores, expected.float())


@every_method
def test_the_scores_of_the_engine_are_those_of_one_pass(method, engine_calls):
    model = model_of(method).float()
    source = source_of(model)
    sequences = model.generate(**source, **BEAMS, max_new_tokens=LONGEST, custom_generate=generate)
    found = torch.cat([translation.scores for translation in engine_calls[-1]])

    scores, lengths = scores_of_one_pass(model.double(), source, sequences)

    torch.testing.assert_close(found.double(), scores / lengths**LENGTH_PENALTY, atol=1e-4, rtol=1e-5)
