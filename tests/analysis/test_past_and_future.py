"""PAST and FUTURE before and after translation, and the overlap of their bags, against loops."""

import pytest
import torch
from aggregated_models import aggregated

from hf_capsule_mt.analysis.past_and_future import FARTHEST, PastAndFutureSums, attended_words, bag_overlaps

SOURCES, TARGETS = [5, 3, 4], [4, 16, 2]


def masks():
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None] for lengths in (SOURCES, TARGETS))


def batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    source_mask, target_mask = masks()
    shape = (3, max(TARGETS), max(SOURCES))
    shares = torch.rand(*shape, 2, generator=generator)
    aligned = torch.rand(shape, generator=generator) < 0.2
    # What follows is farther away than steps are told one by one.
    aligned[1, 3:], aligned[1, 2, 0] = False, True
    inner = (torch.arange(shape[2]) < source_mask.sum(1, keepdim=True) - 1)[:, None]
    return shares, aligned & inner & target_mask[:, :, None], source_mask, target_mask


def loop(shares, aligned):
    """Means before, after, and by step, of lists of (past, future)."""
    before, after, around, words = [], [], {}, 0
    for row, (sources, targets) in enumerate(zip(SOURCES, TARGETS)):
        for source in range(sources - 1):
            writing = [target for target in range(targets) if aligned[row, target, source]]
            words += bool(writing)
            for step in range(targets) if writing else ():
                pair = tuple(shares[row, step, source].tolist())
                if step <= writing[0]:
                    before.append(pair)
                    around.setdefault(step - writing[0], []).append(pair)
                elif step > writing[-1]:
                    after.append(pair)
                    around.setdefault(step - writing[-1], []).append(pair)
    return before, after, around, words


def assert_means(found, pairs):
    assert found["assignments"] == len(pairs)
    for side, values in zip(("past", "future"), zip(*pairs)):
        assert found[side] == pytest.approx(sum(values) / len(values), rel=1e-6)


def test_before_and_after_translation():
    shares, aligned, *both = batch()
    sums = PastAndFutureSums()
    # What is padding may be anything.
    hidden = ~(both[0][:, None, :, None] & both[1][:, :, None, None])
    sums.add(shares.masked_fill(hidden, 1e3), aligned, *both)
    found = sums.result()
    before, after, around, words = loop(shares, aligned)
    assert (found["words"], found["aligned_words"]) == (sum(SOURCES) - 3, words)
    assert_means(found["before"], before)
    assert_means(found["after"], after)
    near = {step: pairs for step, pairs in around.items() if abs(step) <= FARTHEST}
    assert len(near) < len(around)
    assert [one["step"] for one in found["around"]] == sorted(near)
    for one in found["around"]:
        assert_means(one, near[one["step"]])


def test_nothing_aligned():
    shares, aligned, *both = batch()
    sums = PastAndFutureSums()
    sums.add(shares, torch.zeros_like(aligned), *both)
    nothing = {"past": None, "future": None, "assignments": 0}
    assert sums.result() == {"words": 9, "aligned_words": 0, "before": nothing, "after": nothing, "around": []}


def overlap_loop(scores, words, future):
    """Zheng et al.'s r_OL of one sentence, of scores `[target, vocabulary]`."""
    rates = []
    for step in range(len(words)):
        bag = words[step:] if future else words[:step]
        if bag:
            best = sorted(range(scores.shape[1]), key=lambda word: -float(scores[step, word]))[: 5 * len(bag)]
            rates.append(len(set(best) & set(bag)) / len(set(bag)))
    return sum(rates) / len(rates)


@pytest.mark.parametrize("kind", ["everything", "guided_classifier"])
def test_overlap_of_the_bags(kind):
    model = aggregated(kind, vocab_size=60)
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([7, 4, 2])
    targets = torch.randint(3, 12, (3, 7), generator=generator)
    guided = model.config.num_past_capsules + model.config.num_future_capsules
    capsules = torch.randn(3, 7, guided, 4, generator=generator)
    mask = torch.arange(7) < lengths[:, None]
    losses, embedding = model.guided_losses, model.get_output_embeddings().weight
    found = bag_overlaps(losses, capsules, embedding, targets, mask)
    for row, length in enumerate(lengths.tolist()):
        words = targets[row, :length].tolist()
        past, future = capsules[row, :length].split([losses.num_past, capsules.shape[2] - losses.num_past], dim=1)
        for column, (part, head) in enumerate([(past, losses.past_bow), (future, losses.future_bow)]):
            scores = (head(part.flatten(1)) @ embedding.t()).detach()
            assert float(found[row, column]) == pytest.approx(overlap_loop(scores, words, future=column == 1))
    assert 0 < float(found.mean()) < 1


SOURCE_MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
TARGET_MASK = torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()


def attentions(layers=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(2, 2, 3, 4, generator=generator) for _ in range(layers)]


def expected(weights):
    """The argmax of the mean over heads, among the words of the sentence; ends of sentences are left out."""
    aligned = torch.zeros(2, 3, 4, dtype=torch.bool)
    for row, (sources, targets) in enumerate(zip(SOURCE_MASK.sum(1).tolist(), TARGET_MASK.sum(1).tolist())):
        for target in range(targets - 1):
            means = [float(weights[row, :, target, source].mean()) for source in range(sources)]
            best = means.index(max(means))
            aligned[row, target, best] = best < sources - 1
    return aligned


@pytest.mark.parametrize(("layers", "used"), [(1, [0]), (2, [0, 1]), (6, [4, 5])])
def test_alignment_by_attention(layers, used):
    given = attentions(layers, seed=layers)
    aligned = attended_words(given, SOURCE_MASK, TARGET_MASK)
    assert torch.equal(aligned, expected(torch.stack([given[place] for place in used]).mean(0)))
    assert aligned.any()
