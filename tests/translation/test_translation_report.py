"""Scores are those of `generate()`, and what repeats is told from what does not."""

import pytest
import tiny_multilingual
import torch
from tiny_marian import tiny_model, tiny_tokenizer

from hf_capsule_mt.translation import translation_report
from hf_capsule_mt.translation.attention import teacher_force
from hf_capsule_mt.translation.translation_report import Judgement, judge, repeated_tokens, sequence_scores
from hf_capsule_mt.translation.translator import words_before_end


@pytest.mark.parametrize("most", [1, 1 << 25])
def test_scores_are_those_of_generate(monkeypatch, most):
    monkeypatch.setattr(translation_report, "_MOST_SCORES", most)
    model, tokenizer = tiny_model(), tiny_tokenizer()
    sources = tokenizer(["a b c d e f", "g h"])["input_ids"]
    batch = tokenizer.pad({"input_ids": sources}, return_tensors="pt")
    options = {"num_beams": 2, "length_penalty": 1.0, "max_new_tokens": 40}
    found = model.generate(**batch, **options, output_scores=True, return_dict_in_generate=True)
    written = words_before_end(found.sequences, model.generation_config, [options["max_new_tokens"]] * len(sources))
    targets = [each.ids for each in written]
    # The end that generate() forces at the limit has the probability of 1 there.
    ends = [len(target) < 40 for target in targets]
    assert any(ends)
    scores = torch.tensor(sequence_scores(model, sources, targets))
    torch.testing.assert_close(scores[ends], found.sequences_scores[ends])


@pytest.mark.parametrize("kind", ["mbart", "nllb"])
def test_a_forced_code_of_the_language_does_not_count(kind):
    """generate() counts it with a score of 0, since nothing else can stand there."""
    model, tokenizer = getattr(tiny_multilingual, kind)()
    code = {"mbart": "de_DE", "nllb": "deu_Latn"}[kind]
    model.generation_config.forced_bos_token_id = tokenizer.convert_tokens_to_ids(code)
    sources = tokenizer(["the old house", "two dogs see the house"])["input_ids"]
    batch = tokenizer.pad({"input_ids": sources}, return_tensors="pt")
    options = {"num_beams": 2, "length_penalty": 1.0, "max_new_tokens": 30, "forced_eos_token_id": None}
    found = model.generate(**batch, **options, output_scores=True, return_dict_in_generate=True)
    written = words_before_end(found.sequences, model.generation_config, [options["max_new_tokens"]] * len(sources))
    targets = [each.ids for each in written]
    assert {target[0] for target in targets} == {model.generation_config.forced_bos_token_id}
    lengths = torch.tensor([len(target) for target in targets])
    by_generate = found.sequences_scores * lengths / (lengths - 1)
    torch.testing.assert_close(torch.tensor(sequence_scores(model, sources, targets)), by_generate)


def test_a_target_without_tokens_scores_nothing():
    model, ends = tiny_model(), [7, 8, 2]
    [alone] = sequence_scores(model, [[5, 6, 2]], [ends])
    assert sequence_scores(model, [[5, 6, 2]] * 2, [[], ends]) == [0, pytest.approx(alone)]
    assert sequence_scores(model, [[5, 6, 2]] * 2, [[], []]) == [0, 0]


@pytest.mark.parametrize(("of_generation", "of_model"), [(0, 5), (None, 0)])
def test_words_are_read_behind_the_start_of_generate(of_generation, of_model):
    """Of which 0 is one."""
    model, pair = tiny_model(), ([[5, 6, 2]], [[7, 8, 2]])
    assert model.generation_config.decoder_start_token_id == model.config.decoder_start_token_id == 0
    score, states = sequence_scores(model, *pair), teacher_force(model, *pair).output.last_hidden_state
    model.generation_config.decoder_start_token_id = of_generation
    model.config.decoder_start_token_id = of_model
    assert sequence_scores(model, *pair) == score
    assert torch.equal(teacher_force(model, *pair).output.last_hidden_state, states)
    # A model without its head has no generation config.
    model.config.decoder_start_token_id = 0
    assert torch.equal(teacher_force(model.base_model, *pair).output.last_hidden_state, states)


@pytest.mark.parametrize(
    ("ids", "copies"),
    [("", 0), ("abcabc", 0), ("abcabcabc", 6), ("xaaaay", 3), ("aa", 0), ("ababab", 4), ("abcabcabcab", 8)],
)
def test_repetitions(ids, copies):
    assert repeated_tokens(list(map(ord, ids))) == copies


def test_judgements():
    plain = {"ended": True, "text": "x", "score": -1.23456}
    assert judge([5, 6, 2], [7], **plain) == Judgement(-1.2346, 0.5)
    assert judge([5, 2], [7, 8] * 4, **plain) == Judgement(-1.2346, 8.0, repeats=True)
    # As its source does.
    assert judge([*[5, 6] * 4, 2], [7, 8] * 4, **plain) == Judgement(-1.2346, 1.0)
    assert judge([5, 2], [7], **{**plain, "ended": False}).limit_reached
    assert judge([5, 2], [], **{**plain, "text": " "}).empty
    assert judge([5] * 20 + [2], [7] * 2, **plain).too_short
    # Ten tokens are long, and three are less than 0.4 of them.
    assert judge([*range(10), 2], [7, 8, 9], **plain).too_short
    assert not judge([*range(10), 2], [7, 8, 9, 7], **plain).too_short
    assert not judge([*range(9), 2], [7, 8, 9], **plain).too_short
    assert not judge([5] * 5 + [2], [7], **plain).too_short
