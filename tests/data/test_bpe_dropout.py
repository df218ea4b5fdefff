import json
import random
from collections import Counter

import numpy as np
import pytest
from datasets import Dataset
from reference.bpe_dropout import segmentations
from tiny_marian import tiny_tokenizer
from torch.utils.data import DataLoader

from hf_capsule_mt.data.bpe_dropout import BPEDropout, EpochIndexSampler, ResegmentedPairs
from hf_capsule_mt.data.rows import longest_sides
from hf_capsule_mt.data.tokenizer import train_joint_bpe

TEXTS = ["the old house is green", "das alte Haus ist grün", "two dogs see the house", "zwei Hunde sehen das Haus"] * 9
ODD = [
    " two  spaces ",
    "Größe, naïve",
    "中文 🐕‍🦺",
    "</s> is text",
    "don't",
    "",
    "tab\tnewline\n",
    ">>pt<< the house",
    "e\u0301",
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_joint_bpe([*TEXTS, ">>pt<< house"], 400)


@pytest.fixture(scope="module")
def ids(tokenizer):
    return tokenizer([*TEXTS[:4], *ODD])["input_ids"]


def test_next_to_no_dropout_changes_nothing(tokenizer, ids):
    dropout = BPEDropout(tokenizer, 1e-12)
    assert [dropout.segment(each, random.Random(0)) for each in ids] == ids


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_any_text_is_kept(tokenizer, ids, probability):
    dropout = BPEDropout(tokenizer, probability)
    others = [dropout.segment(each, random.Random(7)) for each in ids]
    assert tokenizer.batch_decode(others) == tokenizer.batch_decode(ids)
    assert sum(map(len, others)) > sum(map(len, ids))
    # A language code and the end of the sentence are no text.
    assert others[-2][0] == ids[-2][0] == tokenizer.convert_tokens_to_ids(">>pt<<")
    assert all(each[-1] == tokenizer.eos_token_id for each in others)


@pytest.mark.parametrize("probability", [0.1, 0.6])
def test_segmentations_are_as_frequent_as_in_the_paper(tokenizer, probability):
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    ranks = {tuple(merge): rank for rank, merge in enumerate(merges)}
    expected = segmentations(tuple("Ġhouse"), ranks, probability)
    assert len(expected) > 5
    assert sum(expected.values()) == pytest.approx(1)
    dropout, generator, draws = BPEDropout(tokenizer, probability), random.Random(0), 5000
    word = tokenizer("house")["input_ids"]
    found = Counter(tuple(tokenizer.convert_ids_to_tokens(dropout.segment(word, generator)[:-1])) for _ in range(draws))
    assert set(found) <= set(expected)
    for pieces, share in expected.items():
        assert found[pieces] / draws == pytest.approx(share, abs=5 * (share * (1 - share) / draws) ** 0.5 + 1e-9)


def test_draws_follow_from_their_numbers(tokenizer, ids):
    one, two = BPEDropout(tokenizer, 0.3), BPEDropout(tokenizer, 0.3)
    assert one(ids[0], ids[1], (99, 99), (3, 4)) == two(ids[0], ids[1], (99, 99), (3, 4))
    epochs = {repr(one(ids[0], ids[1], (99, 99), (epoch, 4))) for epoch in range(5)}
    assert len(epochs) > 2
    assert BPEDropout(tokenizer, 0.3, seed=1)(ids[0], ids[1], (99, 99), (3, 4)) != one(ids[0], ids[1], (99, 99), (3, 4))


def test_a_pair_that_would_be_too_long_keeps_its_ids(tokenizer, ids):
    dropout = BPEDropout(tokenizer, 0.9)
    assert dropout(ids[0], ids[1], (len(ids[0]), 99), (0,)) == (ids[0], ids[1])
    assert dropout(ids[0], ids[1], (99, len(ids[1])), (0,)) == (ids[0], ids[1])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_epochs_of_other_segmentations_within_the_budget(tokenizer, num_workers):
    encoded = tokenizer(TEXTS, text_target=TEXTS[::-1])
    dataset = Dataset.from_dict({"input_ids": encoded["input_ids"], "labels": encoded["labels"]})
    pairs = ResegmentedPairs(dataset, BPEDropout(tokenizer, 0.2), (16, 16))
    lengths = pairs.lengths(64)
    assert (lengths >= longest_sides(dataset)).all()

    def epoch(number):
        sampler = EpochIndexSampler(lengths, 64, seed=3)
        sampler.set_epoch(number)
        options = {"collate_fn": list, "num_workers": num_workers}
        return list(DataLoader(pairs.rows(64), batch_sampler=sampler, **options)), len(sampler)

    first, size = epoch(0)
    assert (first, size) == epoch(0)
    assert len(first) == size == len(epoch(1)[0])
    rows = [row for batch in first for row in batch]
    assert Counter(tokenizer.decode(row["input_ids"]) for row in rows) == Counter(
        tokenizer.batch_decode(encoded["input_ids"])
    )
    changed = np.mean([row["input_ids"] not in encoded["input_ids"] for row in rows])
    assert changed > 0.5
    for batch in first:
        assert len(batch) * max(max(len(row["input_ids"]), len(row["labels"])) for row in batch) <= 64
        assert all(len(row[side]) <= 16 for row in batch for side in row)
    by_text = [
        {tokenizer.decode(row["input_ids"]): row["input_ids"] for batch in epoch(number)[0] for row in batch}
        for number in (0, 1)
    ]
    assert by_text[0] != by_text[1]


def test_bytes_that_are_no_text_keep_their_ids(tokenizer):
    """Such as a character that was cut in two."""
    ids = tokenizer("Haus 中")["input_ids"][:-2]
    assert BPEDropout(tokenizer, 0.5).segment(ids, random.Random(0)) == ids


def test_other_tokenizers_and_probabilities(tokenizer, marian):
    for other in (tiny_tokenizer(), marian):
        with pytest.raises(
            ValueError, match="bpe_dropout needs a byte-level BPE tokenizer, as hf-capsule-mt train_token"
        ):
            BPEDropout(other, 0.1)
    for probability in (0, 1, -0.1):
        with pytest.raises(ValueError, match=rf"bpe_dropout is {probability}; it must be in \(0, 1\)"):
            BPEDropout(tokenizer, probability)
