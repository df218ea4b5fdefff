"""Buckets by hand, and their scores against those of the sentences in them."""

from hypothesis import given
from hypothesis import strategies as st

from hf_capsule_mt.evaluation.length import quantile_edges, score_by_length
from hf_capsule_mt.evaluation.scores import score_translations

SOURCES = ["a b c", "a", "a b", "a b c d e", "a, b. c"]
SYSTEMS = {
    "one": ["u v w x y", "v", "w x", "p q r s t u", "u v w x z z"],
    "two": ["u v w x", "v v", "w", "p q r s", "u v w"],
}
REFERENCE = ["u v w x y", "v", "w x y", "p q r s t", "u v w x y"]


def test_scores_of_buckets():
    first, second, third = score_by_length(SYSTEMS, [REFERENCE], [len(line.split()) for line in SOURCES], [2, 3])
    assert [(bucket["name"], bucket["sentences"]) for bucket in (first, second, third)] == [
        ("≤ 2", 2),
        ("3", 2),
        ("> 3", 1),
    ]
    for bucket, members in ((first, [1, 2]), (second, [0, 4]), (third, [3])):
        for name, translations in SYSTEMS.items():
            expected = score_translations([translations[i] for i in members], [[REFERENCE[i] for i in members]])
            assert bucket["systems"][name]["bleu"] == expected["bleu"]["score"]
    # The words of "u v w x y" and "u v w x z z", on average, and all of them to ten of references.
    assert [second["systems"]["one"][name] for name in ("words", "ratio")] == [5.5, 1.1]
    assert [third["systems"]["two"][name] for name in ("words", "ratio")] == [4, 0.8]


def test_quantiles():
    assert quantile_edges(range(1, 13), 4) == [3, 6, 9]
    # Ties stay together: half of the sentences have one word.
    assert quantile_edges([1] * 6 + [2, 3, 4, 5, 6, 7], 4) == [1, 4]
    # Blank lines do not make a bucket of their own.
    assert quantile_edges([0, 10, 12, 0, 9, 20, 0, 8, 7], 3) == [8, 10]


@given(st.lists(st.integers(0, 30), min_size=2), st.integers(2, 8))
def test_quantile_buckets_are_not_empty(lengths, num_buckets):
    try:
        edges = quantile_edges(lengths, num_buckets)
    except ValueError:
        words = [length for length in lengths if length]
        assert not words or words.count(max(words)) > len(words) / num_buckets
        return
    assert edges == sorted(set(edges))
    assert len(edges) < num_buckets
    for low, high in zip([-1, *edges], [*edges, max(lengths)]):
        assert any(low < length <= high for length in lengths)
