import json
from collections import Counter

import numpy as np
import pytest
from datasets import Dataset
from reference.bpe_dropout import segmentations
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

from hf_capsule_mt.data.batching import TokenBudgetBatchSampler, longest_sides
from hf_capsule_mt.data.bpe_dropout import BPEDropout, ResegmentedPairs
from hf_capsule_mt.data.tokenizer import train_joint_bpe
from hf_capsule_mt.errors import UserError

TEXTS = ["the old house is green", "das alte Haus ist grün", "two dogs see the house", "zwei Hunde sehen das Haus"] * 9
ODD = [" two  spaces ", "Größe, naïve", "中文 🐕‍🦺", "</s> is text", "don't"]
ODD += ["", "tab\tnewline\n", "e\u0301", ">>pt<< the"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_joint_bpe([*TEXTS, ">>pt<< house"], 400)


def drawn(tokenizer, texts, probability, limit=1000):
    rows = [{"input_ids": ids, "labels": ids} for ids in tokenizer(texts)["input_ids"]]
    return [row["input_ids"] for row in BPEDropout(tokenizer, probability, (limit, limit))(rows, limit * len(rows))]


@pytest.mark.parametrize("probability", [0.1, 0.9])
def test_any_text_is_kept_and_the_tokenizer_stays(tokenizer, probability):
    texts = [*TEXTS[:4], *ODD]
    ids = tokenizer(texts)["input_ids"]
    others = drawn(tokenizer, texts, probability)
    assert tokenizer.batch_decode(others) == tokenizer.batch_decode(ids)
    assert sum(map(len, others)) > sum(map(len, ids))
    # A language code and the end of the sentence are no text.
    assert others[-1][0] == tokenizer.convert_tokens_to_ids(">>pt<<")
    assert all(each[-1] == tokenizer.eos_token_id for each in others)
    assert tokenizer(texts)["input_ids"] == ids


def test_segmentations_are_as_frequent_as_in_the_paper(tokenizer):
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    expected = segmentations(tuple("Ġhouse"), {tuple(merge): rank for rank, merge in enumerate(merges)}, 0.3)
    draws = 5000
    found = Counter(
        tuple(tokenizer.convert_ids_to_tokens(ids[:-1])) for ids in drawn(tokenizer, ["house"] * draws, 0.3)
    )
    assert set(found) <= set(expected)
    for pieces, share in expected.items():
        assert found[pieces] / draws == pytest.approx(share, abs=5 * (share * (1 - share) / draws) ** 0.5 + 1e-9)


def test_a_pair_that_would_be_too_long_keeps_its_ids(tokenizer):
    ids = tokenizer(TEXTS[0])["input_ids"]
    assert drawn(tokenizer, TEXTS[:1], 0.9, limit=len(ids)) == [ids]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_epochs_of_other_segmentations_in_the_same_batches_within_the_budget(tokenizer, num_workers):
    encoded = tokenizer(TEXTS, text_target=TEXTS[::-1])
    dataset = Dataset.from_dict({"input_ids": encoded["input_ids"], "labels": encoded["labels"]})
    pairs = ResegmentedPairs(dataset, BPEDropout(tokenizer, 0.2, (16, 16)), 64)
    assert (pairs.lengths() >= longest_sides(dataset)).all()
    assert len(pairs) == len(dataset)
    assert pairs[0].keys() == dataset[0].keys()

    def epoch(number):
        sampler = TokenBudgetBatchSampler(pairs.lengths(), 64, seed=3)
        sampler.set_epoch(number)
        return list(DataLoader(pairs, batch_sampler=sampler, collate_fn=list, num_workers=num_workers))

    def texts(batches):
        return [[tokenizer.decode(row["input_ids"]) for row in batch] for batch in batches]

    first, again = epoch(0), epoch(0)
    assert texts(first) == texts(again)
    # Workers that are forked begin with the same draws.
    assert num_workers or first != again
    assert texts(epoch(1)) != texts(first)
    rows = [row for batch in first for row in batch]
    assert sorted(text for batch in texts(first) for text in batch) == sorted(
        tokenizer.batch_decode(encoded["input_ids"])
    )
    assert np.mean([row["input_ids"] not in encoded["input_ids"] for row in rows]) > 0.1
    for batch in first:
        assert len(batch) * max(max(len(row["input_ids"]), len(row["labels"])) for row in batch) <= 64
        assert all(len(row[side]) <= 16 for row in batch for side in row)


@pytest.mark.parametrize("probability", [-0.1, 0.0, 1.0, 1.5])
def test_only_a_probability_is_taken(tokenizer, probability):
    with pytest.raises(UserError, match=f"bpe_dropout is {probability}. It must be between 0 and 1"):
        BPEDropout(tokenizer, probability, (16, 16))


def test_another_kind_of_tokenizer_is_refused():
    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0}, unk_token="a")))
    with pytest.raises(UserError, match="needs a byte-level BPE tokenizer"):
        BPEDropout(words, 0.1, (16, 16))


def test_batches_are_cut_for_longer_pairs(tokenizer):
    """No length is over the budget, except that of a pair that was."""
    dropout = BPEDropout(tokenizer, 0.2, (100, 100))
    assert dropout.lengths(np.array([5, 20, 50, 70]), 64).tolist() == [9, 36, 64, 70]


def test_each_side_has_a_limit_of_its_own(tokenizer):
    ids = tokenizer(TEXTS[0])["input_ids"]
    rows = [{"input_ids": ids, "labels": ids}] * 20
    for limits in ((len(ids), 1000), (1000, len(ids))):
        for row in BPEDropout(tokenizer, 0.5, limits)(rows, 1000 * len(rows)):
            assert len(row["input_ids"]) <= limits[0]
            assert len(row["labels"]) <= limits[1]
