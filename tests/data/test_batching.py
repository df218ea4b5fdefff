from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from accelerate import skip_first_batches
from accelerate.data_loader import prepare_data_loader
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from tiny_marian import tiny_tokenizer
from torch.utils.data import DataLoader
from transformers import TrainerState

from hf_capsule_mt.data import batching
from hf_capsule_mt.data.batching import TokenBudgetBatchSampler, longest_sides, tokenize_batch
from hf_capsule_mt.training.callbacks import RunEvents

LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60)


def random_lengths(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [tuple(pair) for pair in torch.randint(1, 30, (count, 2), generator=generator).tolist()]


def epoch_of(sampler, epoch):
    sampler.set_epoch(epoch)
    return list(sampler)


def prepared(sampler, num_processes=1, process_index=0):
    """The dataloader that accelerate makes for one process; its batches are lists of indices."""
    loader = DataLoader(range(len(sampler.longest)), batch_sampler=sampler, collate_fn=list)
    return prepare_data_loader(loader, num_processes=num_processes, process_index=process_index)


@given(LENGTHS, st.integers(30, 200), st.integers(0, 5), st.booleans())
def test_every_pair_once_within_the_budget(lengths, max_tokens, seed, shuffle):
    sampler = TokenBudgetBatchSampler(lengths, max_tokens, seed=seed, shuffle=shuffle)
    for epoch in range(3):
        batches = epoch_of(sampler, epoch)
        assert len(batches) == len(sampler)
        assert Counter(index for batch in batches for index in batch) == Counter(range(len(lengths)))
        for batch in batches:
            longest_source = max(lengths[index][0] for index in batch)
            longest_target = max(lengths[index][1] for index in batch)
            assert len(batch) * max(longest_source, longest_target) <= max_tokens


@given(LENGTHS, st.integers(30, 200))
def test_similar_lengths_are_together_and_batches_are_full(lengths, max_tokens):
    batches = list(TokenBudgetBatchSampler(lengths, max_tokens, shuffle=False))
    for batch, following in pairwise(batches):
        assert max(lengths[batch[0]]) * (len(batch) + 1) > max_tokens
        assert min(max(lengths[i]) for i in batch) >= max(max(lengths[i]) for i in following)


@given(LENGTHS, st.integers(30, 200), st.integers(1, 4))
def test_replicas_get_the_same_number_of_batches(lengths, max_tokens, num_replicas):
    fewest = len(TokenBudgetBatchSampler(lengths, max_tokens))
    enough = -(-fewest // num_replicas) * num_replicas
    if enough > len(lengths):
        with pytest.raises(ValueError, match=f"{len(lengths)} pairs .* {num_replicas} processes"):
            TokenBudgetBatchSampler(lengths, max_tokens, num_replicas=num_replicas)
        return
    sampler = TokenBudgetBatchSampler(lengths, max_tokens, num_replicas=num_replicas)
    shares = [list(prepared(sampler, num_replicas, rank)) for rank in range(num_replicas)]
    assert [len(share) for share in shares] == [enough // num_replicas] * num_replicas
    dealt = Counter(index for share in shares for batch in share for index in batch)
    assert dealt == Counter(range(len(lengths)))
    assert all(len(batch) * max(max(lengths[i]) for i in batch) <= max_tokens for share in shares for batch in share)


def test_the_largest_batches_are_split():
    lengths = [(20, 1)] * 3 + [(2, 1)] * 30
    sampler = TokenBudgetBatchSampler(lengths, 60, num_replicas=4, shuffle=False)
    assert [len(batch) for batch in sampler] == [3, 7, 8, 15]


def test_epochs_differ_and_repeat():
    lengths = random_lengths(300)
    one, two = (TokenBudgetBatchSampler(lengths, 100, seed=7) for _ in range(2))
    first, second = epoch_of(one, 0), epoch_of(one, 1)
    assert first != second
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}
    assert [len(batch) for batch in first] != sorted(len(batch) for batch in first)
    assert epoch_of(two, 1) == second
    assert epoch_of(one, 0) == first
    other = TokenBudgetBatchSampler(lengths, 100, seed=8)
    assert epoch_of(other, 0) not in (first, second)


def test_order_does_not_depend_on_or_touch_the_global_generator():
    sampler = TokenBudgetBatchSampler(random_lengths(100), 100)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = list(sampler)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert list(sampler) == first


def test_without_shuffling_the_longest_come_first_in_every_epoch():
    sampler = TokenBudgetBatchSampler([(1, 1), (5, 9), (2, 1), (9, 3), (1, 2)], 18, shuffle=False)
    assert epoch_of(sampler, 0) == epoch_of(sampler, 4) == [[1, 3], [2, 4, 0]]


@pytest.mark.parametrize("num_processes", [1, 2])
@pytest.mark.parametrize("done", [0, 1, 5])
def test_resuming_in_the_middle_of_an_epoch(num_processes, done):
    lengths = random_lengths(200)
    for rank in range(num_processes):

        def fresh_loader(rank=rank):
            sampler = TokenBudgetBatchSampler(lengths, 100, num_replicas=num_processes, seed=1)
            return prepared(sampler, num_processes, rank)

        uninterrupted = fresh_loader()
        epochs = [list(uninterrupted) for _ in range(4)]
        resumed = fresh_loader()
        resumed.set_epoch(2)
        assert list(skip_first_batches(resumed, done)) == epochs[2][done:]
        resumed.set_epoch(3)
        assert list(resumed) == epochs[3]


def test_a_run_that_is_resumed_tells_its_epoch_before_batches_are_skipped():
    """accelerate's own `set_epoch` does not reach through what deals batches to several processes."""
    lengths = random_lengths(200)
    whole = prepared(TokenBudgetBatchSampler(lengths, 100, num_replicas=2), num_processes=2)
    epochs = [list(whole) for _ in range(3)]
    resumed = prepared(TokenBudgetBatchSampler(lengths, 100, num_replicas=2), num_processes=2)
    state = TrainerState(epoch=2.4)
    RunEvents(trainer=None).on_epoch_begin(None, state, None, train_dataloader=resumed)
    assert list(skip_first_batches(resumed, 3)) == epochs[2][3:]


def test_without_a_shuffle_equally_long_pairs_keep_their_order():
    """So that batches of evaluation do not depend on the machine."""
    lengths = [(3 + number % 3, 2) for number in range(300)]
    sampler = TokenBudgetBatchSampler(lengths, 60, shuffle=False)
    order = [index for batch in sampler for index in batch]
    assert order == sorted(range(300), key=lambda index: -lengths[index][0])


@pytest.mark.parametrize(("longest", "kind"), [(2**16 - 1, np.uint16), (2**16, np.int32)])
def test_lengths_take_little_memory_and_are_not_cut(longest, kind):
    lengths = longest_sides([{"input_ids": range(3), "labels": range(longest)}, {"input_ids": [2], "labels": []}])
    assert lengths.tolist() == [longest, 1]
    assert lengths.dtype == kind


def test_empty_pairs_take_a_place_each():
    sizes = [len(batch) for batch in TokenBudgetBatchSampler([(0, 0)] * 9, 4, shuffle=False)]
    assert sizes == [4, 4, 1]


def test_a_pair_over_either_limit_is_left_out():
    texts = {"source": ["a", "a b c d", "a"], "target": ["x", "x", "x y z"]}
    found = tokenize_batch(texts, tiny_tokenizer(), (3, 3))
    assert found == {"input_ids": [[3, 2]], "labels": [[26, 2]]}


def test_the_lengths_of_a_data_set_are_those_of_all_its_parts(monkeypatch):
    """It is read in parts, and may have none."""
    monkeypatch.setattr(batching, "_CHUNK", 2)
    pairs = {"input_ids": [[3] * length for length in (1, 5, 2, 9, 4)], "labels": [[3] * 3] * 5}
    dataset = Dataset.from_dict(pairs)
    assert longest_sides(dataset).tolist() == [3, 5, 3, 9, 4]
    assert longest_sides(dataset.select([])).tolist() == []
