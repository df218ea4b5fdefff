"""The best words are found without sorting all of them."""

import pytest
import torch

from hf_capsule_mt.decoding.vocabulary import Vocabulary, best_of


def _vocabulary(size, with_bias, width=8):
    generator = torch.Generator().manual_seed(size)
    weight = torch.randn(size, width, generator=generator)
    bias = torch.randn(size, generator=generator) if with_bias else None
    hidden = 3 * torch.randn(12, width, generator=generator)
    before = torch.randn(3, 4, generator=generator)
    before[1, 1:] = -1e9
    logits = hidden @ weight.t() + (0 if bias is None else bias)
    return Vocabulary(weight, bias), hidden, before, logits


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("size", [9, 31, 511, 512, 513, 1000, 5003])
def test_candidates(size, with_bias):
    vocabulary, hidden, before, logits = _vocabulary(size, with_bias)
    buffers = vocabulary.buffers(20)
    for suppressed in (None, torch.tensor([0, size - 1]), torch.arange(2, 7)):
        log_probabilities = logits.log_softmax(-1)
        if suppressed is not None:
            log_probabilities[:, suppressed] = -torch.inf
        expected = best_of(log_probabilities, before, 8)
        found = vocabulary.best(hidden, before, 8, suppressed, buffers)
        torch.testing.assert_close(found.scores, expected.scores)
        certain = expected.scores > -1e8
        assert torch.equal(found.words[certain], expected.words[certain])
        assert torch.equal(found.beams[certain], expected.beams[certain])
        assert (found.words < size).all()
    assert torch.equal(vocabulary.best_word(hidden, None, buffers), logits.argmax(-1))
    logits[:, 3] = -torch.inf
    assert torch.equal(vocabulary.best_word(hidden, torch.tensor([3]), buffers), logits.argmax(-1))


def test_scores_far_from_zero():
    vocabulary, hidden, before, logits = _vocabulary(700, True)
    expected = best_of((100 * (logits - vocabulary._product.bias[:700])).log_softmax(-1), before[:1].expand(3, 4), 8)
    plain = Vocabulary(100 * vocabulary._product.weight.t()[:700])
    found = plain.best(hidden, before[:1].expand(3, 4), 8, None, plain.buffers(12))
    torch.testing.assert_close(found.scores, expected.scores, rtol=1e-4, atol=1e-2)
