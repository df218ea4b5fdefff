"""Alignments of words: from attention, and from a file."""

import pytest
import torch

from hf_capsule_mt.analysis.word_alignment import align_subwords, attended_words, read_alignments

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


@pytest.mark.parametrize(
    ("layers", "layer", "used"), [(1, None, [0]), (2, None, [0, 1]), (6, None, [4, 5]), (3, 2, [2])]
)
def test_by_attention(layers, layer, used):
    given = attentions(layers, seed=layers)
    aligned = attended_words(given, SOURCE_MASK, TARGET_MASK, layer)
    assert torch.equal(aligned, expected(torch.stack([given[place] for place in used]).mean(0)))
    assert aligned.any()


def test_pieces_of_linked_words():
    source, target = ("▁the", "▁ho", "use", "▁is", "</s>"), ("▁das", "▁H", "aus", "</s>")
    aligned = align_subwords(frozenset({(0, 0), (1, 1)}), source, target)
    assert aligned.int().tolist() == [[1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]


def test_a_word_that_there_is_not():
    with pytest.raises(ValueError, match="0-2 links word 2"):
        align_subwords(frozenset({(0, 2)}), ("▁a", "</s>"), ("▁b", "▁c", "</s>"))


def test_a_file(tmp_path):
    (tmp_path / "links").write_text("0-0 1-2\n\n3-1\n")
    assert read_alignments(tmp_path / "links") == [{(0, 0), (1, 2)}, set(), {(3, 1)}]
