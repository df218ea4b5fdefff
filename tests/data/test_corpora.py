import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import datasets
import pytest
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq

from hf_capsule_mt.data import arrow_cache as corpus_module
from hf_capsule_mt.data.arrow_cache import Sentences, read_corpus, read_hub_corpus, tokenize_corpus
from hf_capsule_mt.data.batching import TokenBudgetBatchSampler, longest_sides
from hf_capsule_mt.data.corpus_files import Columns, find_corpora
from hf_capsule_mt.data.tokenizer import train_joint_bpe
from hf_capsule_mt.files import hash_text

SOURCES = ["the old house is green", "two dogs", "a child sees two old dogs", "the house", "two old dogs"]
TARGETS = ["das alte Haus ist grün", "zwei Hunde", "ein Kind", "das Haus", "zwei alte Hunde sehen das Haus"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Every test begins with an empty one."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache" / "hf_capsule_mt"


@pytest.fixture(scope="module")
def tokenizer():
    return train_joint_bpe(SOURCES + TARGETS, 300)


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "train.tsv", SOURCES, TARGETS)


def write(path, sources, targets):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in zip(sources, targets)))
    return path


def read(file):
    [corpus] = find_corpora([file], Columns())
    return read_corpus(corpus, Columns())


class ReadAgainError(Exception):
    """Something was read or tokenised that was in the cache."""


def forbid_reading(monkeypatch):
    """From here on nothing is read or tokenised: what is there comes from the cache."""

    def read_again(*_, **__):
        raise ReadAgainError

    monkeypatch.setattr(corpus_module, "read_shard", read_again)
    monkeypatch.setattr(corpus_module, "hub_pairs", read_again)
    monkeypatch.setattr(datasets.Dataset, "_map_single", read_again)


def test_items_are_the_tokenizers(tokenizer, file):
    pairs = tokenize_corpus(read(file), tokenizer)
    expected = [
        {"input_ids": tokenizer(source)["input_ids"], "labels": tokenizer(text_target=target)["input_ids"]}
        for source, target in zip(SOURCES, TARGETS)
    ]
    assert list(pairs) == expected
    lengths = longest_sides(pairs)
    assert lengths.tolist() == [max(len(pair["input_ids"]), len(pair["labels"])) for pair in expected]
    assert longest_sides(expected).tolist() == lengths.tolist()


def test_targets_are_tokenised_as_targets(marian, file):
    """A target read with the source's model or vocabulary would be full of <unk>."""
    pairs = tokenize_corpus(read(file), marian)
    target_ids = marian.target_encoder if marian.separate_vocabs else marian.encoder
    for pair, source, target in zip(pairs, SOURCES, TARGETS):
        source_pieces, target_pieces = (
            [*model.encode(text, out_type=str), "</s>"]
            for model, text in ((marian.spm_source, source), (marian.spm_target, target))
        )
        assert pair["input_ids"] == [marian.encoder[piece] for piece in source_pieces]
        assert pair["labels"] == [target_ids[piece] for piece in target_pieces]
        assert marian.decode(pair["labels"], skip_special_tokens=True, use_source_tokenizer=False) == target
    assert marian(SOURCES)["input_ids"] == list(pairs["input_ids"])


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
def test_pairs_over_a_limit_are_left_out(limits, kept, file):
    words = train_joint_bpe([*SOURCES, *TARGETS] * 10, 1000)
    assert [len(ids) for ids in words(SOURCES)["input_ids"]] == [6, 3, 7, 3, 4]
    assert [len(ids) for ids in words(TARGETS)["input_ids"]] == [6, 3, 3, 3, 7]
    pairs = tokenize_corpus(read(file), words, *limits)
    texts = words.batch_decode(list(pairs["input_ids"]), skip_special_tokens=True)
    assert texts == [SOURCES[i] for i in kept]


def test_long_segments_are_neither_truncated_nor_warned_about(tokenizer, tmp_path, caplog):
    long = "two dogs " * 1000
    pairs = tokenize_corpus(read(write(tmp_path / "long.tsv", [long], [long])), tokenizer)
    assert longest_sides(pairs)[0] > tokenizer.model_max_length
    assert tokenizer.decode(pairs[0]["labels"], skip_special_tokens=True) == long
    assert not caplog.records


def test_the_second_time_nothing_is_read_or_tokenised(tokenizer, file, monkeypatch):
    text = read(write(file, [*SOURCES, ""], [*TARGETS, "nichts"]))
    first = tokenize_corpus(text, tokenizer, 9, 9, num_proc=2)
    assert vars(text.report) == {"read": 6, "kept": 5, "empty": 1, "invalid_utf8": 0}
    assert text.sha256 == {"source": hash_text(SOURCES), "target": hash_text(TARGETS)}
    forbid_reading(monkeypatch)
    again = read(file)
    assert (again.report, again.sha256) == (text.report, text.sha256)
    second = tokenize_corpus(again, pickle.loads(pickle.dumps(tokenizer)), 9, 9)
    assert list(second) == list(first)
    assert 0 < len(first) < 5
    with pytest.raises(ReadAgainError):
        tokenize_corpus(again, tokenizer, 9, 8)
    with pytest.raises(ReadAgainError):
        tokenize_corpus(again, train_joint_bpe(SOURCES, 290), 9, 9)


def test_a_changed_file_is_read_again_even_where_size_and_time_stay(file):
    assert len(read(file).dataset) == 5
    stamp = file.stat()
    write(file, ["Two dogs", *SOURCES[1:]], ["das alte Haus ist grün..............", *TARGETS[1:]])
    assert file.stat().st_size == stamp.st_size
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert file.stat().st_mtime_ns == stamp.st_mtime_ns
    assert read(file).dataset[0]["source"] == "Two dogs"


def test_processes_wait_for_the_one_that_reads(tokenizer, file, monkeypatch):
    """Threads here: a lock of a file is as closed to them."""
    reads, shard = [], corpus_module.read_shard
    monkeypatch.setattr(corpus_module, "read_shard", lambda *args: reads.append(args) or shard(*args))
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: list(read(file).dataset["source"]), range(8)))
    assert found == [SOURCES] * 8
    assert len(reads) == 1


def test_a_line_that_is_wrong_leaves_nothing(tmp_path, file, cache):
    file.write_text("a\tb\nc\n")
    with pytest.raises(ValueError, match=r"train\.tsv:2: 1 columns"):
        read(file)
    assert [path for path in cache.iterdir() if path.suffix != ".lock"] == []
    file.write_text("\n")
    with pytest.raises(ValueError, match=r"training data .*train\.tsv\) holds no usable pair: 1 pairs read"):
        read(file)
    assert [path for path in cache.iterdir() if path.suffix != ".lock"] == []


def test_processes_wait_for_the_one_that_tokenises(tokenizer, file, monkeypatch):
    text, maps, map_single = read(file), [], datasets.Dataset._map_single
    monkeypatch.setattr(
        datasets.Dataset, "_map_single", lambda *args, **kw: maps.append(args) or map_single(*args, **kw)
    )
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: list(tokenize_corpus(text, tokenizer)["labels"]), range(4)))
    assert found == [tokenizer(text_target=TARGETS)["input_ids"]] * 4
    assert len(maps) == 1


def test_a_corpus_is_read_and_written_in_parts(file, monkeypatch):
    monkeypatch.setattr(corpus_module, "_CHUNK", 2)
    text = read(file)
    assert list(text.sources()) == SOURCES
    assert list(text.dataset["target"]) == TARGETS
    assert text.sha256 == {"source": hash_text(SOURCES), "target": hash_text(TARGETS)}
    assert list(Sentences([text])) == [*SOURCES, *TARGETS]


def test_other_columns_of_a_file_are_another_corpus(tmp_path, file, monkeypatch):
    """A file of lines has none, and is not read again."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"en": "a dog", "de": "ein Hund", "fr": "un chien"}) + "\n")
    sides = {}
    for path in (rows, file):
        for target in ("de", "fr"):
            columns = Columns("en", target)
            [corpus] = find_corpora([path], columns)
            sides[path, target] = read_corpus(corpus, columns).dataset[0]["target"]
            if path == file:
                forbid_reading(monkeypatch)
    assert [sides[rows, target] for target in ("de", "fr")] == ["ein Hund", "un chien"]
    assert [sides[file, target] for target in ("de", "fr")] == [TARGETS[0]] * 2


def test_there_are_no_more_processes_than_pairs(tokenizer, tmp_path, caplog):
    """A warning of `datasets` would say so."""
    text = read(write(tmp_path / "two.tsv", SOURCES[:2], TARGETS[:2]))
    assert len(tokenize_corpus(text, tokenizer, num_proc=3)) == 2
    assert not [record for record in caplog.records if "num_proc" in record.getMessage()]


def test_splits_and_columns_of_a_data_set_are_corpora_of_their_own(tmp_path):
    (tmp_path / "pairs").mkdir()
    for split in ("train", "validation"):
        row = {"en": f"a {split}", "de": f"ein {split}"}
        (tmp_path / "pairs" / f"{split}.jsonl").write_text(json.dumps(row) + "\n")
    for split in ("train", "validation"):
        for languages, expected in ((("en", "de"), f"a {split}"), (("de", "en"), f"ein {split}")):
            text = read_hub_corpus(str(tmp_path / "pairs"), None, split, Columns(*languages))
            assert text.dataset[0]["source"] == expected


@pytest.mark.parametrize("streaming", [False, True])
def test_a_data_set_of_the_hub(tmp_path, monkeypatch, streaming):
    (tmp_path / "pairs").mkdir()
    rows = [{"english": source, "deutsch": target} for source, target in zip([*SOURCES, ""], [*TARGETS, "x"])]
    (tmp_path / "pairs" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = str(tmp_path / "pairs"), None, "train", Columns("en", "de", "english", "deutsch")
    text = read_hub_corpus(*arguments, streaming=streaming)
    assert list(zip(text.dataset["source"], text.dataset["target"])) == list(zip(SOURCES, TARGETS))
    assert (text.report.read, text.report.kept) == (6, 5)
    forbid_reading(monkeypatch)
    assert list(read_hub_corpus(*arguments, streaming=streaming).dataset) == list(text.dataset)


def test_sentences(tmp_path, file):
    other = write(tmp_path / "other.tsv", ["one"], ["eins"])
    texts = [read(file), read(other)]
    every = Sentences(texts)
    for _ in range(2):
        assert list(every) == [*SOURCES, "one", *TARGETS, "eins"]
    # More than there are is all.
    assert list(Sentences(texts, 14)) == list(every)
    some = list(Sentences(texts, 7))
    pairs = list(zip([*SOURCES, "one"], [*TARGETS, "eins"]))
    assert len(set(some)) == 6
    assert set(zip(some[:3], some[3:])) < set(pairs)
    assert some != list(Sentences(texts, 7, seed=1))


def test_batches_of_the_collator_stay_within_the_budget(tokenizer, file):
    pairs = tokenize_corpus(read(file), tokenizer)
    lengths = longest_sides(pairs)
    budget = int(lengths.max()) * 2
    sampler = TokenBudgetBatchSampler(lengths, budget)
    batches = list(DataLoader(pairs, batch_sampler=sampler, collate_fn=DataCollatorForSeq2Seq(tokenizer)))
    assert sum(len(batch["labels"]) for batch in batches) == 5
    for batch in batches:
        assert max(batch["input_ids"].numel(), batch["labels"].numel()) <= budget
        assert batch["input_ids"].eq(tokenizer.pad_token_id).equal(batch["attention_mask"].eq(0))
        assert batch["labels"].ne(tokenizer.pad_token_id).all()


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_very_long_line_is_left_out_without_being_read_in_full(tokenizer, tmp_path, monkeypatch, side):
    texts, call = [], type(tokenizer).__call__

    def counted(self, text=None, *args, **options):
        for given in (text, options.get("text_target")):
            texts.extend([given] if isinstance(given, str) else given or [])
        return call(self, text, *args, **options)

    monkeypatch.setattr(type(tokenizer), "__call__", counted)
    long = "two dogs " * 100_000
    sides = {"source": ["b", "b"], "target": ["b", "b"], side: [long, "a"]}
    text = read(write(tmp_path / "long.tsv", sides["source"], sides["target"]))
    # The limit of the other side is too large to cut this one.
    limits = {"source": 10**6, "target": 10**6, side: 9}
    assert len(tokenize_corpus(text, tokenizer, limits["source"], limits["target"])) == 1
    assert max(map(len, texts)) < 1000
