"""The generated tasks are what they say: every label is computed again from the text, by other means."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from benchmarks.probing.data import format_probing_data
from benchmarks.probing.generators import GENERATED, SplitSizes, generate_task, unique_sentences

SIZES = SplitSizes(120, 30, 24)
WORDS = [f"{first}{second}{'en' * (number % 3)}" for number, first in enumerate("bdfgklm") for second in "aeiou"]
MARKS = [".", ",", "&apos;", "-"]


def random_text(lengths, size=2000, seed=0):
    """Sentences of words of very different frequency, some with marks, capitals, quotes or a word said twice."""
    rng = random.Random(seed)
    weights = [1 / (rank + 2) for rank in range(len(WORDS))]
    text = []
    for _ in range(size):
        tokens = rng.choices(WORDS, weights, k=rng.choice(lengths))
        tokens[0] = tokens[0].capitalize()
        if rng.random() < 0.5:
            tokens[rng.randrange(len(tokens))] = rng.choice([*MARKS, "&quot;", '"'])
        text.append("  ".join(tokens))
    return [*text, "", *text[:100]]


TEXT = random_text(range(3, 31))
SENTENCES = unique_sentences(TEXT)
# As a text whose sentences were cut.
CUT = [" ".join([f"w{number}", *"abcdefgh"[: number // 100]]) for number in range(2000)]


def generate(name, sentences=SENTENCES, sizes=SIZES, num_words=6, seed=0):
    return generate_task(name, sentences, sizes, num_words=num_words, seed=seed)


def examples(data):
    return [*data.train, *data.validation, *data.test]


def test_unique_sentences():
    assert unique_sentences(["a  b", "", "c\u2028d ", " \t", "a b"]) == ["a b", "c d"]
    assert len(SENTENCES) < len(TEXT) - 100


@pytest.mark.parametrize("name", GENERATED)
def test_splits_are_balanced_and_share_nothing(name):
    data, _ = generate(name)
    assert [len(split) for split in data.splits.values()] == [120, 30, 24]
    for split in data.splits.values():
        counts = Counter(label for label, _ in split)
        assert sorted(counts) == data.labels
        assert len(set(counts.values())) == 1
    sentences = [sentence for _, sentence in examples(data)]
    assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize("name", GENERATED)
def test_a_seed_gives_the_same_file(name):
    def text(seed):
        return format_probing_data(generate(name, seed=seed).data)

    assert text(3) == text(3) != text(4)


def test_sizes_are_rounded_down_to_the_same_number_of_every_class():
    data, _ = generate("sentence_length", sizes=SplitSizes(65, 13, 6))
    assert [len(split) for split in data.splits.values()] == [60, 12, 6]


def test_sentence_length_has_the_published_bins():
    data, choice = generate("sentence_length")
    # Conneau et al. 2018; the README of SentEval's data.
    published = {"0": (5, 8), "1": (9, 12), "2": (13, 16), "3": (17, 20), "4": (21, 25), "5": (26, 28)}
    for label, sentence in examples(data):
        first, last = published[label]
        assert first <= len(sentence.split()) <= last
        assert sentence in SENTENCES
    assert choice == "lengths 5-8, 9-12, 13-16, 17-20, 21-25, 26-28 (as published)"


def test_sentence_length_of_a_text_without_long_sentences():
    sentences = unique_sentences(random_text(range(4, 16)))
    data, choice = generate("sentence_length", sentences)
    bins = [{len(sentence.split()) for name, sentence in examples(data) if name == label} for label in "012345"]
    assert all(max(shorter) < min(longer) for shorter, longer in pairwise(bins))
    assert set.union(*bins) == set(range(4, 16))
    assert choice.startswith("lengths 4-")
    assert "-15 (quantiles of the text" in choice


def test_word_content_asks_for_the_only_word():
    data, _ = generate("word_content")
    words = set(data.labels)
    assert len(words) == 6
    for word in words:
        assert len(word) >= 4
        assert word in WORDS
    for label, sentence in examples(data):
        assert sentence in SENTENCES
        tokens = sentence.split()
        assert tokens.count(label) == 1
        assert not (words - {label}) & {token.lower() for token in tokens}
        assert label.capitalize() not in tokens


def ranked_text(targets):
    """2,000 words of three letters, four times each; then the targets, three times each, in sentences of their own."""
    letters = "abcdefghijklmnop"
    frequent = [a + b + c for a in letters for b in letters for c in letters][:2000]
    lines = [" ".join([frequent[i], *frequent[i : i + 100]]) for i in range(0, 2000, 100)]
    lines += [" ".join([number, *frequent]) for number in ("1", "2")]
    return lines + [f"{word} {frequent[number]}" for word in targets for number in range(3)]


def test_word_content_begins_at_rank_2001():
    words = [f"word{letter}" for letter in "abcde"]
    data, choice = generate("word_content", ranked_text(words), SplitSizes(3, 3, 3), num_words=3)
    assert data.labels == words[:3]
    assert choice == "3 words of frequency rank 2001 to 2003"


def test_word_content_goes_up_in_rank_where_it_must():
    # 60 words of four letters, the first the most frequent; those after the third have too few sentences.
    names = [f"{first}{second}xx" for first in "abcdef" for second in "abcdefghij"]
    text = [f"{name} {number}" for rank, name in enumerate(names) for number in range(9 if rank < 3 else 2)]
    data, choice = generate("word_content", text, SplitSizes(9, 3, 3), num_words=3)
    assert data.labels == names[:3]
    assert "of frequency rank 1 to" in choice


def test_word_content_passes_over_a_word_that_is_never_alone():
    text = [f"left right {number}" for number in range(9)]
    text += [f"{word} {number}" for word in ("left", "front", "back") for number in range(6)]
    data, _ = generate("word_content", text, SplitSizes(12, 3, 3), num_words=3)
    # "right" is more frequent than "front" and "back", but always beside "left".
    assert data.labels == ["back", "front", "left"]


def swaps(sentence):
    tokens = sentence.split()
    for place in range(len(tokens) - 1):
        first, second = tokens[place : place + 2]
        yield place, first, second, " ".join([*tokens[:place], second, first, *tokens[place + 2 :]])


def test_bigram_shift_inverts_two_words():
    data, _ = generate("bigram_shift")
    originals = {sentence for label, sentence in examples(data) if label == "O"}
    assert originals <= set(SENTENCES)
    for label, sentence in examples(data):
        assert '"' not in sentence
        assert "&quot;" not in sentence
        if label == "I":
            assert sentence not in SENTENCES
            undone = [swap for swap in swaps(sentence) if swap[3] in SENTENCES]
            assert undone
            assert not originals & {swap[3] for swap in undone}
            assert any(
                place > 0 and first.lower() != second.lower() and not {first, second} & set(MARKS)
                for place, first, second, _ in undone
            )
        else:
            assert any(
                place > 0 and first.lower() != second.lower() and not {first, second} & set(MARKS)
                for place, first, second, _ in swaps(sentence)
            )


def test_an_inversion_that_somebody_said_is_not_one():
    text = [f"{number} {a} {b}" for number in range(50) for a, b in (("x", "y"), ("y", "x"))]
    with pytest.raises(ValueError, match=r"bigram_shift: the text gives 0 sentences of class I, and 3 are needed"):
        generate("bigram_shift", text, SplitSizes(2, 2, 2))


@pytest.mark.parametrize(
    ("line", "suitable"),
    [("a b c", 1), ("A b c .", 1), ("a &apos;s c", 1)]
    + [
        (line, 0)
        for line in ("a . b", "A b", "a b b", "a b B", 'a b c "', "a `` b c ''", "a b &quot; c d", "a b &apos;")
    ],
)
def test_what_can_be_inverted(line, suitable):
    with pytest.raises(ValueError, match=f"the text gives {suitable} sentences of class I"):
        generate("bigram_shift", [line], SplitSizes(2, 2, 2))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tree_depth", {}, "unknown task 'tree_depth'; from plain text there are sentence_length, word_content"),
        ("word_content", {"num_words": 1}, "num_words is 1; it must be at least 2"),
        ("word_content", {"num_words": 25}, "num_test is 24, but there are 25 classes; each needs a sentence"),
        ("word_content", {"num_words": 24}, "word_content: the text has no 24 words of 4 letters or more"),
        ("sentence_length", {"sentences": []}, "sentence_length: the text gives 0 sentences of class 0, and 29 are"),
        ("sentence_length", {"sentences": ["a"]}, "sentence_length: the text gives 0 sentences of class 0"),
        ("sentence_length", {"sentences": ["a b", "c d", "a"]}, "sentence_length: the text gives "),
        (
            "sentence_length",
            {"sentences": CUT},
            "no 6 classes .*, for 1200 of 2000 have 9 words; take text of more diff",
        ),
        ("sentence_length", {"sizes": SplitSizes(6000, 6, 6)}, "lower num_train, num_validation and num_test"),
        ("bigram_shift", {"sentences": []}, "bigram_shift: the text gives 0 sentences of class I, and 87 are needed"),
    ],
)
def test_what_a_text_cannot_give(name, options, message):
    with pytest.raises(ValueError, match=message):
        generate(name, **options)


def test_sizes_that_are_too_small():
    with pytest.raises(ValueError, match="num_validation is 0; it must be at least 1"):
        SplitSizes(validation=0)
