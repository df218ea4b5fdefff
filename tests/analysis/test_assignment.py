"""Entropy, diversity and means of assignments, against sums written out."""

import itertools
import math

import pytest
import torch

from hf_capsule_mt.analysis.statistics import AssignmentSums, diversities, entropies


def random_assignment(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(shape, generator=generator, dtype=torch.float64)).softmax(-1)


def entropy_of(row):
    return -sum(float(c) * math.log(float(c)) for c in row if c > 0)


def diversity_of(matrix):
    """Of the columns of `[inputs, N]`."""
    columns = [matrix[:, n].tolist() for n in range(matrix.shape[1])]
    cosines = []
    for one, other in itertools.combinations(columns, 2):
        norms = math.sqrt(sum(c * c for c in one)) * math.sqrt(sum(c * c for c in other))
        cosines.append(sum(c * d for c, d in zip(one, other)) / norms if norms else 0.0)
    return 1 - sum(cosines) / len(cosines) if cosines else 0.0


@pytest.mark.parametrize("shape", [(3, 2, 4, 5), (1, 3, 1, 2), (2, 1, 6, 1)])
def test_entropies_and_diversities(shape):
    assignment = random_assignment(*shape)
    assignment[0, 0, :, 0] = 0  # a capsule that gets nothing
    found = entropies(assignment), diversities(assignment)
    for routing, iteration in itertools.product(*map(range, shape[:2])):
        for row in range(shape[2]):
            expected = entropy_of(assignment[routing, iteration, row])
            assert float(found[0][routing, iteration, row]) == pytest.approx(expected, abs=1e-12)
        expected = diversity_of(assignment[routing, iteration])
        assert float(found[1][routing, iteration]) == pytest.approx(expected, abs=1e-12)


def test_what_the_paper_reports_of_the_first_iteration():
    uniform = torch.full((1, 1, 6, 512), 1 / 512)
    assert float(entropies(uniform).mean()) == pytest.approx(6.24, abs=5e-3)
    assert float(diversities(uniform)) == pytest.approx(0.0, abs=1e-9)


def test_what_does_not_exist_counts_for_nothing():
    assignment, mask = random_assignment(2, 3, 5, 4), torch.tensor([[1, 1, 0, 1, 0], [1, 0, 0, 0, 0]]).bool()
    filled = assignment.masked_fill(~mask[:, None, :, None], 7.0)
    for row in range(2):
        alone = diversities(assignment[row : row + 1, :, mask[row]])
        torch.testing.assert_close(diversities(filled, mask)[row : row + 1], alone)


def sums_of(parts, keep_inputs):
    sums = AssignmentSums(keep_inputs)
    for assignment, mask in parts:
        sums.add(assignment, mask)
    return sums


def test_means_over_words_of_several_batches():
    parts = [(random_assignment(2, 3, 4, 5), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool())]
    # A sentence without words is none.
    parts.append((random_assignment(2, 3, 3, 5, seed=1), torch.tensor([[1, 1, 1], [0, 0, 0]]).bool()))
    sums = sums_of(parts, keep_inputs=False)
    sentences = [one[:, there] for assignment, mask in parts for one, there in zip(assignment, mask) if there.any()]
    assert (sums.routings, sums.inputs) == (3, 9)
    for iteration in range(3):
        rows = [row for sentence in sentences for row in sentence[iteration]]
        assert sums.entropy[iteration] == pytest.approx(sum(map(entropy_of, rows)) / 9)
        mean = sum(diversity_of(sentence[iteration]) for sentence in sentences) / 3
        assert sums.diversity[iteration] == pytest.approx(mean)
        torch.testing.assert_close(sums.mean_assignment[iteration, 0], torch.stack(rows).mean(0))


def test_layers_have_means_of_their_own():
    parts = [(random_assignment(4, 2, 3, 5, seed=seed), None) for seed in range(2)]
    sums = sums_of(parts, keep_inputs=True)
    whole = torch.cat([assignment for assignment, _ in parts])
    assert (sums.routings, sums.inputs) == (8, 24)
    torch.testing.assert_close(sums.mean_assignment, whole.mean(0))
    torch.testing.assert_close(torch.tensor(sums.entropy).double(), entropies(whole).mean((0, 2)), rtol=1e-6, atol=0)
