import pickle

import pytest
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq

from hf_capsule_mt.data import tokenized
from hf_capsule_mt.data.batching import TokenBudgetBatchSampler
from hf_capsule_mt.data.parallel_text import ParallelText
from hf_capsule_mt.data.tokenized import tokenize_pairs
from hf_capsule_mt.data.tokenizer import train_joint_bpe

SOURCES = ["the old house is green", "two dogs", "a child sees two old dogs", "the house", "two old dogs"]
TARGETS = ["das alte Haus ist grün", "zwei Hunde", "ein Kind", "das Haus", "zwei alte Hunde sehen das Haus"]
TEXT = ParallelText(SOURCES, TARGETS)


@pytest.fixture(scope="module")
def tokenizer():
    return train_joint_bpe(SOURCES + TARGETS, 300)


@pytest.mark.parametrize("chunk", [1, 2, 5, 10_000])
def test_items_are_the_tokenizers(tokenizer, monkeypatch, chunk):
    monkeypatch.setattr(tokenized, "CHUNK", chunk)
    pairs = tokenize_pairs(TEXT, tokenizer)
    expected = [
        {"input_ids": tokenizer(source)["input_ids"], "labels": tokenizer(text_target=target)["input_ids"]}
        for source, target in zip(SOURCES, TARGETS)
    ]
    assert [pairs[i] for i in range(len(pairs))] == expected
    assert pairs.lengths == [(len(pair["input_ids"]), len(pair["labels"])) for pair in expected]
    assert pairs.too_long == 0


def test_targets_are_tokenised_as_targets(marian):
    """A target read with the source's model or vocabulary would be full of <unk>."""
    pairs = tokenize_pairs(TEXT, marian)
    target_ids = marian.target_encoder if marian.separate_vocabs else marian.encoder
    for i, (source, target) in enumerate(zip(SOURCES, TARGETS)):
        source_pieces, target_pieces = (
            [*model.encode(text, out_type=str), "</s>"]
            for model, text in ((marian.spm_source, source), (marian.spm_target, target))
        )
        assert pairs[i]["input_ids"] == [marian.encoder[piece] for piece in source_pieces]
        assert pairs[i]["labels"] == [target_ids[piece] for piece in target_pieces]
        assert marian.decode(pairs[i]["labels"], skip_special_tokens=True, use_source_tokenizer=False) == target
    assert marian(SOURCES)["input_ids"] == [pairs[i]["input_ids"] for i in range(len(pairs))]


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ((6, 6), [0, 1, 3]),
        ((7, 6), [0, 1, 2, 3]),
        ((3, None), [1, 3]),
        ((None, 3), [1, 2, 3]),
        ((None, None), range(5)),
    ],
)
def test_pairs_over_a_limit_are_left_out_and_counted(limits, kept):
    words = train_joint_bpe([*SOURCES, *TARGETS] * 10, 1000)
    assert [len(ids) for ids in words(SOURCES)["input_ids"]] == [6, 3, 7, 3, 4]
    assert [len(ids) for ids in words(TARGETS)["input_ids"]] == [6, 3, 3, 3, 7]
    pairs = tokenize_pairs(TEXT, words, *limits)
    assert [words.decode(pairs[i]["input_ids"], skip_special_tokens=True) for i in range(len(pairs))] == [
        SOURCES[i] for i in kept
    ]
    assert pairs.too_long == len(SOURCES) - len(kept)


def test_nothing_left(tokenizer):
    with pytest.raises(ValueError, match="All 5 pairs are longer than max_source_length=2 or max_target_length=9"):
        tokenize_pairs(TEXT, tokenizer, 2, 9)


def test_long_segments_are_neither_truncated_nor_warned_about(tokenizer, caplog):
    long = "two dogs " * 1000
    pairs = tokenize_pairs(ParallelText([long], [long]), tokenizer)
    assert pairs.lengths[0][0] > tokenizer.model_max_length
    assert tokenizer.decode(pairs[0]["labels"], skip_special_tokens=True) == long
    assert not caplog.records


def test_indices_outside_are_errors(tokenizer):
    pairs = tokenize_pairs(TEXT, tokenizer)
    for index in (5, -1):
        with pytest.raises(IndexError, match=f"index {index}"):
            pairs[index]
    assert len(list(pairs)) == 5


def test_travels_to_worker_processes(tokenizer):
    pairs = tokenize_pairs(TEXT, tokenizer)
    copy = pickle.loads(pickle.dumps(pairs))
    assert list(copy) == list(pairs)
    assert copy.lengths == pairs.lengths


def test_batches_of_the_collator_stay_within_the_budget(tokenizer):
    pairs = tokenize_pairs(TEXT, tokenizer)
    budget = max(max(lengths) for lengths in pairs.lengths) * 2
    sampler = TokenBudgetBatchSampler(pairs.lengths, budget)
    batches = list(DataLoader(pairs, batch_sampler=sampler, collate_fn=DataCollatorForSeq2Seq(tokenizer)))
    assert sum(len(batch["labels"]) for batch in batches) == 5
    for batch in batches:
        assert max(batch["input_ids"].numel(), batch["labels"].numel()) <= budget
        assert batch["input_ids"].eq(tokenizer.pad_token_id).equal(batch["attention_mask"].eq(0))
        assert batch["labels"].ne(tokenizer.pad_token_id).all()
