"""Products, and the best words, which are found without sorting all of them."""

import pytest
import torch

from hf_capsule_mt.decoding.models.target_cache import TargetCache
from hf_capsule_mt.decoding.products import products
from hf_capsule_mt.decoding.products.products import plain_map
from hf_capsule_mt.decoding.products.vocabulary import Vocabulary, best_of
from hf_capsule_mt.errors import UserError


def _vocabulary(size, with_bias, width=8):
    generator = torch.Generator().manual_seed(size)
    weight = torch.randn(size, width, generator=generator)
    bias = torch.randn(size, generator=generator) if with_bias else None
    hidden = 3 * torch.randn(12, width, generator=generator)
    before = torch.randn(3, 4, generator=generator)
    before[1, 1:] = -1e9
    logits = hidden @ weight.t() + (0 if bias is None else bias)
    return Vocabulary(weight, bias), hidden, before, logits


@pytest.mark.parametrize("few", [0, 1 << 15])
@pytest.mark.parametrize("at_a_time", [7 << 20, 1, 2 * 4 * 1024], ids=["all", "one", "two"])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("size", [9, 31, 511, 512, 513, 1000, 5003])
def test_candidates(size, with_bias, at_a_time, few, monkeypatch):
    """Of three sentences, or of two or one of them at a time where there are as many words. In groups or without."""
    monkeypatch.setattr("hf_capsule_mt.decoding.products.vocabulary._FEW", few)
    monkeypatch.setattr("hf_capsule_mt.decoding.products.vocabulary._LARGEST", at_a_time)
    vocabulary, hidden, before, logits = _vocabulary(size, with_bias)
    for suppressed in (None, torch.tensor([0, size - 1]), torch.arange(2, 7)):
        log_probabilities = logits.log_softmax(-1)
        if suppressed is not None:
            log_probabilities[:, suppressed] = -torch.inf
        for renormalizes in (False, True):
            wanted = log_probabilities.log_softmax(-1) if renormalizes else log_probabilities
            expected = best_of(wanted, before, 8)
            found = vocabulary.best(hidden, before, 8, suppressed, renormalizes)
            torch.testing.assert_close(found.scores, expected.scores)
            certain = expected.scores > -1e8
            assert torch.equal(found.tokens[certain], expected.tokens[certain])
            assert torch.equal(found.beams[certain], expected.beams[certain])
            assert (found.tokens < size).all()
    assert torch.equal(vocabulary.best_token(hidden, None), logits.argmax(-1))
    logits[:, 3] = -torch.inf
    assert torch.equal(vocabulary.best_token(hidden, torch.tensor([3])), logits.argmax(-1))


@pytest.mark.parametrize("block", [5, 31, 512, 700, 2002])
@pytest.mark.parametrize("count", [1, 8, 40])
@pytest.mark.parametrize("size", [31, 1000, 2003])
def test_candidates_of_blocks(size, count, block, monkeypatch):
    """Against all log-probabilities in float64. Blocks do not divide the vocabulary, and can be smaller than K."""
    monkeypatch.setattr("hf_capsule_mt.decoding.products.vocabulary._BLOCK", block)
    for rows_at_a_time in (7 << 20, 1):
        monkeypatch.setattr("hf_capsule_mt.decoding.products.vocabulary._LARGEST", rows_at_a_time)
        vocabulary, hidden, before, logits = _vocabulary(size, with_bias=True)
        # In every block.
        in_each_block = torch.arange(0, size, min(block, 3))
        for suppressed in (None, in_each_block, torch.arange(min(block, size - 1))):
            for renormalizes in (False, True):
                exact = logits.double()
                if renormalizes and suppressed is not None:
                    exact[:, suppressed] = -torch.inf
                log_probabilities = exact.log_softmax(-1)
                if suppressed is not None:
                    log_probabilities[:, suppressed] = -torch.inf
                expected = best_of(log_probabilities, before.double(), count)
                found = vocabulary.best(hidden, before, count, suppressed, renormalizes)
                torch.testing.assert_close(found.scores.double(), expected.scores, atol=1e-5, rtol=1e-6)
                certain = expected.scores > -1e8
                assert torch.equal(found.tokens[certain], expected.tokens[certain])
                assert torch.equal(found.beams[certain], expected.beams[certain])
                assert ((found.tokens >= 0) & (found.tokens < size)).all()
            best = logits.clone()
            if suppressed is not None:
                best[:, suppressed] = -torch.inf
            assert torch.equal(vocabulary.best_token(hidden, suppressed), best.argmax(-1))
        torch.testing.assert_close(vocabulary.scores(hidden), logits)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("token", [0, 599])
def test_blocks_with_a_score_that_is_not_finite(token, value, monkeypatch):
    monkeypatch.setattr("hf_capsule_mt.decoding.products.vocabulary._BLOCK", 100)
    weight = torch.randn(600, 8)
    weight[token] = value
    for decode in (
        lambda vocabulary: vocabulary.best(torch.ones(4, 8), torch.zeros(1, 4), 8, None).tokens,
        lambda vocabulary: vocabulary.best_token(torch.ones(4, 8), None),
        lambda vocabulary: vocabulary.scores(torch.ones(4, 8)).argmax(-1),
    ):
        vocabulary = Vocabulary(weight)
        assert (decode(vocabulary) < 600).all()
        with pytest.raises(UserError, match="not finite"):
            vocabulary.finite_sum.check("a model", "float32")


@pytest.mark.parametrize("has_onednn", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 7), (300, 700)])
def test_products(shape, with_bias, has_onednn, monkeypatch):
    if not has_onednn:
        monkeypatch.setattr(products, "has_onednn", lambda: False)
    weight, bias = torch.randn(shape), torch.randn(shape[1]) if with_bias else None
    product = plain_map(weight, bias)
    for rows in (1, 4, 20000 // shape[0]):
        inputs = torch.randn(rows, shape[0])
        expected = inputs.double() @ weight.double() + (0 if bias is None else bias.double())
        # Float32, whatever multiplies.
        torch.testing.assert_close(product(inputs).double(), expected, atol=2e-4, rtol=1e-5)


BEAMS = 4


def _follow(cache, steps, at_once, parents_of):
    """Write the number of each step and beam as its key; require that beams see those of all their ancestors.

    Their positions are the steps.
    """
    lines = [[[] for _ in range(BEAMS)] for _ in range(cache.sentences)]
    for step in range(steps):
        if step % at_once == 0:
            cache.reserve(min(at_once, steps - step), steps - step)
        mask = cache.begin_step(step if at_once == 1 else torch.tensor([step]))
        numbers = 1 + step * BEAMS + torch.arange(BEAMS)
        cache.layers[0][0, : cache.sentences, 0, cache.new_slots, 0] = numbers.float()
        lines = [[line + [number] for line, number in zip(beams, numbers.tolist())] for beams in lines]
        seen = cache.layers[0][0, : cache.sentences, 0, cache.read_slots, 0]
        positions = cache.positions[:, cache.read_slots]
        for sentence, beams in enumerate(lines):
            for beam, line in enumerate(beams):
                assert sorted(positions[sentence][mask[sentence, 0, beam] == 0].tolist()) == list(range(step + 1))
                assert sorted(seen[sentence][mask[sentence, 0, beam] == 0].tolist()) == line
        cache.end_step()
        parents = parents_of()
        cache.reorder(parents)
        lines = [[beams[parent] for parent in row] for beams, row in zip(lines, parents.tolist())]


@pytest.mark.parametrize("at_once", [1, 5])
def test_beams_attend_to_their_ancestors(at_once):
    torch.manual_seed(0)
    cache = TargetCache(1, torch.zeros(3, 1, 2, 1), BEAMS, keeps_positions=True)
    _follow(cache, 60, at_once, lambda: torch.randint(BEAMS, (3, BEAMS)))
    # As many as there were at first.
    assert cache.layers[0].shape[3] == 32 * BEAMS


def test_slots_are_freed_once_a_quarter_of_them_is():
    """The last beam always ends, so a quarter is free when all slots are taken. Then it is less, and more are made."""
    cache = TargetCache(1, torch.zeros(3, 1, 2, 1), BEAMS, keeps_positions=True)
    _follow(cache, 60, 1, lambda: torch.tensor([0, 1, 2, 0]).expand(3, -1))
    # After 32 steps 8 of them are freed, and after 40 there are 20 to come.
    assert cache.layers[0].shape[3] == 52 * BEAMS


def test_beams_that_stay_apart_need_a_slot_for_every_step():
    cache = TargetCache(1, torch.zeros(3, 1, 2, 1), BEAMS, keeps_positions=True)
    _follow(cache, 40, 1, lambda: torch.arange(BEAMS).expand(3, -1))
    assert cache.layers[0].shape[3] == 40 * BEAMS
