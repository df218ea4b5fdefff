"""Streams: batches within the budget, each pair once a pass, no overlap between processes, resumed to the batch."""

import json
import random
import threading
from collections import Counter
from itertools import islice, product, takewhile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from tiny_marian import WORDS, tiny_tokenizer
from transformers import DataCollatorForSeq2Seq

from hf_capsule_mt.data import streaming
from hf_capsule_mt.data.batching import tokenize_batch
from hf_capsule_mt.data.bpe_dropout import BPEDropout
from hf_capsule_mt.data.corpus_files import Columns, find_corpora
from hf_capsule_mt.data.streaming import TokenBudgetStream, file_rows, hub_rows, stream_loader
from hf_capsule_mt.data.tokenizer import train_joint_bpe

PAIRS, MAX_TOKENS, LIMITS, WINDOW = 30, 60, (10, 10), 25
FILES = {
    "one": ["p-a.tsv"],
    "shards": ["p-*.tsv"],
    "three": ["p-a.tsv", "p-b.tsv", "p-c.tsv"],
    "mixed": ["p-*.tsv", "q.tsv"],
}
WEIGHTS = {"mixed": (3, 1)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of pairs of different sentences; of the four of p the last pair of each is too long."""
    folder, generator = tmp_path_factory.mktemp("stream"), random.Random(0)
    for name in ("p-a", "p-b", "p-c", "p-d", "q"):
        lengths = [generator.randint(1, 9) for _ in range(PAIRS - 1)] + [10]
        sources = [[name[-1], *generator.choices(WORDS, k=length - 1)] for length in lengths]
        lines = [" ".join(words) + "\t" + " ".join(reversed(words)) + "\n" for words in sources]
        (folder / f"{name}.tsv").write_text("".join(lines) + "\t\n")
    return folder


@pytest.fixture(autouse=True)
def data_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)


def stream(kind, seed=1, **options):
    rows = file_rows(find_corpora(FILES[kind], Columns()), Columns(), WEIGHTS.get(kind, ()), seed=seed)
    return TokenBudgetStream(rows, tiny_tokenizer(), MAX_TOKENS, limits=LIMITS, window=WINDOW, seed=seed, **options)


def first_pass(stream):
    """The batches of the first pass, and the first of the next."""
    batches = []
    for batch in stream:
        batches.append(batch)
        if json.loads(batch.state)["pass"]:
            return batches[:-1], batches[-1]


def pairs_of(batches):
    return [(tuple(pair["input_ids"]), tuple(pair["labels"])) for batch in batches for pair in batch.pairs]


def pairs_in(names):
    tokenizer = tiny_tokenizer()
    lines = [line.split("\t") for name in names for line in Path(f"{name}.tsv").read_text().splitlines()]
    ids = [(tuple(tokenizer(source)["input_ids"]), tuple(tokenizer(target)["input_ids"])) for source, target in lines]
    return Counter(pair for pair in ids if 1 < len(pair[0]) <= 10)


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize(("kind", "names"), [("one", ["p-a"]), ("shards", ["p-a", "p-b", "p-c", "p-d"])])
def test_a_pass_has_every_pair_once_among_all_processes(kind, names, world_size):
    passes = [first_pass(stream(kind, rank=rank, world_size=world_size))[0] for rank in range(world_size)]
    assert Counter(pair for batches in passes for pair in pairs_of(batches)) == pairs_in(names)
    assert all(passes)
    for batches in passes:
        for batch in batches:
            longest = max(max(len(pair["input_ids"]), len(pair["labels"])) for pair in batch.pairs)
            assert longest * len(batch.pairs) <= MAX_TOKENS


def test_what_is_dropped_is_said_after_each_pass(tmp_path, capsys):
    (tmp_path / "odd.tsv").write_bytes(b"a\tb\n\xff\tc\n\td\n" + b"e " * 20 + b"\tf\n")
    rows = file_rows(find_corpora([tmp_path / "odd.tsv"], Columns()), Columns())
    list(islice(TokenBudgetStream(rows, tiny_tokenizer(), MAX_TOKENS, limits=LIMITS), 2))
    assert capsys.readouterr().out.splitlines()[0] == (
        "training data, pass 1: 4 pairs read, 2 kept, 1 dropped with an empty side, 1 dropped as invalid UTF-8, "
        "1 over the length limit left out"
    )


def test_a_pass_that_is_resumed_is_not_counted(tmp_path, capsys):
    """Only a part of it is read."""
    rows = file_rows(find_corpora(["p-a.tsv"], Columns()), Columns())

    def stream_from(state):
        stream = TokenBudgetStream(rows, tiny_tokenizer(), MAX_TOKENS, limits=LIMITS, window=10)
        stream.load_state(state)
        return stream

    batches, following = first_pass(stream_from(None))
    assert "pass 1: 31 pairs read" in capsys.readouterr().out
    assert next(islice(stream_from(batches[-2].state), 1, None)) == following
    assert "pass 1:" not in capsys.readouterr().out


def test_passes_differ_and_repeat():
    batches = list(islice(stream("shards"), 60))
    assert batches == list(islice(stream("shards"), 60))
    assert batches != list(islice(stream("shards", seed=2), 60))
    first, following = first_pass(stream("shards"))
    assert following.pairs not in [batch.pairs for batch in first]
    # The order of the files is another, too.
    letters = [
        [tokens[0] for tokens, _ in pairs_of(part)] for part in (batches[:3], batches[len(first) : len(first) + 3])
    ]
    assert len({frozenset(each) for each in letters}) == 2


def test_windows_of_a_pass_have_orders_of_their_own(tmp_path):
    """Here the same pairs are in both."""
    (tmp_path / "twice.tsv").write_text("".join(f"{word}\t{word}\n" for word in WORDS[:10]) * 2)
    rows = file_rows(find_corpora([tmp_path / "twice.tsv"], Columns()), Columns())
    stream = TokenBudgetStream(rows, tiny_tokenizer(), MAX_TOKENS, limits=LIMITS, window=10)
    first, second = (pairs_of([batch]) for batch in islice(stream, 2))
    assert sorted(first) == sorted(second)
    assert first != second


def test_whoever_ends_a_stream_does_not_wait_for_the_window_ahead(monkeypatch):
    others, windows, waited = set(threading.enumerate()), [], []
    is_begun, go_on = threading.Event(), threading.Event()

    def tokenize(batch, *args):
        windows.append(batch)
        if len(windows) == 2:
            is_begun.set()
            waited.append(go_on.wait(60))
        return tokenize_batch(batch, *args)

    monkeypatch.setattr(streaming, "tokenize_batch", tokenize)
    batches = iter(stream("shards"))
    next(batches)
    is_begun.wait()
    batches.close()
    assert waited == []
    [thread] = set(threading.enumerate()) - others
    go_on.set()
    thread.join(60)
    assert not thread.is_alive()
    assert len(windows) == 2


def test_weights():
    """Of four files of p and one of q three pairs in four are of p, and a pass ends when both have been read."""
    q = tiny_tokenizer()("q")["input_ids"][0]
    [batches, _] = first_pass(stream("mixed"))
    from_q = sum(source[0] == q for source, _ in pairs_of(batches))
    assert from_q / len(pairs_of(batches)) == pytest.approx(0.25, abs=0.08)
    assert set(pairs_in(["p-a", "p-b", "p-c", "p-d", "q"])) == set(pairs_of(batches))


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("kind", FILES)
def test_a_stream_goes_on_behind_any_batch(kind, world_size):
    for rank in range(world_size):
        options = {"rank": rank, "world_size": world_size}
        whole = list(islice(stream(kind, **options), 44))
        for done in (1, 21, 40):
            resumed = stream(kind, **options)
            resumed.load_state(whole[done - 1].state)
            rest = list(islice(resumed, 44 - done))
            assert rest == whole[done:]
            # And from there once more, from within the window that was resumed.
            again = stream(kind, **options)
            again.load_state(rest[0].state)
            assert next(iter(again)) == whole[done + 1]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_gives_the_same_batches(num_workers):
    options = {"num_workers": num_workers}
    loader = stream_loader(stream("mixed"), DataCollatorForSeq2Seq(tiny_tokenizer()), torch.device("cpu"), **options)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    for batch, expected in zip(islice(loader, 30), stream("mixed")):
        assert batch["labels"].shape[0] == len(expected.pairs)
        assert batch["input_ids"][0][batch["attention_mask"][0] == 1].tolist() == expected.pairs[0]["input_ids"]
        assert batch["stream_state"] == expected.state
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_data_set_of_the_hub(tmp_path, suffix):
    sides = [" ".join(word) for word in ("ab", "cde", "f")], [" ".join(word) for word in ("BA", "EDC", "F")]
    rows = [{"translation": {"en": source, "de": target}} for source, target in zip(*sides)] + [
        {"translation": {"en": "a", "de": None}}
    ]
    data = Dataset.from_list(rows)
    getattr(data, {"jsonl": "to_json"}.get(suffix, f"to_{suffix}"))(tmp_path / f"train.{suffix}")
    found = hub_rows(str(tmp_path), None, "train", Columns("en", "de"))
    batches, _ = first_pass(TokenBudgetStream(found, tiny_tokenizer(), MAX_TOKENS, limits=LIMITS))
    expected = [tuple(tiny_tokenizer()(source)["input_ids"]) for source in sides[0]]
    assert sorted(source for source, _ in pairs_of(batches)) == sorted(expected)
    rows = hub_rows(str(tmp_path), None, "train", Columns("en", "fr"))
    with pytest.raises(ValueError, match='"fr"'):
        next(iter(TokenBudgetStream(rows, None, 9, limits=(9, 9))))


def test_processes_read_a_small_file_of_the_hub_no_more_often(tmp_path):
    """Whoever is done with it first goes on with the large one."""
    for number, count in enumerate((40, 4)):
        rows = [{"en": "ab"[number] + " c" * (index % 9), "de": "d"} for index in range(count)]
        Dataset.from_list(rows).to_json(tmp_path / f"train-{number}.jsonl")
    found = hub_rows(str(tmp_path), None, "train", Columns(source_column="en", target_column="de"))
    b = tiny_tokenizer()("b")["input_ids"][0]
    for rank in range(2):
        stream = TokenBudgetStream(found, tiny_tokenizer(), MAX_TOKENS, limits=LIMITS, rank=rank, world_size=2)
        batches = takewhile(lambda batch: json.loads(batch.state)["pass"] < 4, stream)
        assert Counter(source[0] == b for source, _ in pairs_of(batches)) == {False: 80, True: 8}


def test_a_file_without_a_pair_ends_no_stream(tmp_path):
    (tmp_path / "a.tsv").write_text("a b\tb a\n" * 3)
    (tmp_path / "b.tsv").write_text("\t\n")
    rows = file_rows(find_corpora([tmp_path / "a.tsv", tmp_path / "b.tsv"], Columns()), Columns())
    for rank in range(2):
        stream = TokenBudgetStream(rows, tiny_tokenizer(), MAX_TOKENS, limits=LIMITS, rank=rank, world_size=2)
        assert len(pairs_of(islice(stream, 20))) == 60
    (tmp_path / "a.tsv").write_text("\t\n")
    with pytest.raises(ValueError, match="no usable pair for process 0: pass 16, its share of 2: 1 pairs read, 0 kept"):
        next(iter(TokenBudgetStream(rows, tiny_tokenizer(), MAX_TOKENS, limits=LIMITS, rank=0, world_size=2)))


def test_other_processes_go_on_behind_what_has_been_read():
    states = [list(islice(stream("shards", rank=rank, world_size=2), 40))[-1].state for rank in range(2)]
    reached = {name: max(json.loads(state)[name] for state in states) for name in ("pass", "window")}
    alone = stream("shards")
    alone.begin_behind([*states, '{"pass": 0, "window": 0}'])
    first = next(iter(alone))
    assert json.loads(first.state)["pass"] == reached["pass"] + 1
    assert json.loads(first.state)["window"] == reached["window"] + 1
    stream("shards").load_state(first.state)
    alone.begin_behind([])
    assert next(iter(alone)).state == next(iter(stream("shards"))).state


def test_a_stream_refuses_to_go_on_in_other_processes():
    state = next(iter(stream("one"))).state
    with pytest.raises(ValueError, match="1 processes, now there are 2"):
        stream("one", world_size=2).load_state(state)


def test_another_text_or_cut_is_told(tmp_path):
    """A resumed run compares it."""

    def of(text="a", columns=Columns("en", "de"), weights=(), **options):  # noqa: B008
        (tmp_path / "a.jsonl").write_text(text)
        rows = file_rows(find_corpora([tmp_path / "a.jsonl"], columns), columns, weights)
        own = {"max_tokens": MAX_TOKENS, "limits": LIMITS, "window": WINDOW, **options}
        return TokenBudgetStream(rows, tiny_tokenizer(), **own).cut()

    texts = [of("ab"), of(columns=Columns("en", "fr")), of(weights=(1,))]
    cuts = [of(max_tokens=9), of(limits=(9, 10)), of(window=9), of(seed=2), of(dropout=SimpleNamespace(probability=1))]
    assert of() == of()
    assert all(other != of() for other in texts + cuts)


def test_a_text_is_the_same_in_another_folder(tmp_path):
    """A run may be resumed on another machine."""
    (tmp_path / "p-a.tsv").write_text(Path("p-a.tsv").read_text())
    moved = file_rows(find_corpora([tmp_path / "p-a.tsv"], Columns()), Columns())
    assert moved.text == file_rows(find_corpora(["p-a.tsv"], Columns()), Columns()).text


def test_splits_and_columns_of_a_data_set_are_other_texts(tmp_path):
    for split in ("train", "test"):
        Dataset.from_list([{"en": "a", "de": "b", "fr": "c"}]).to_json(tmp_path / f"{split}.jsonl")
    texts = set()
    for split, target in product(("train", "test"), ("de", "fr")):
        texts.add(hub_rows(str(tmp_path), None, split, Columns("en", target)).text)
    assert len(texts) == 4


def test_the_first_process_tells_of_a_pass(tmp_path, capsys):
    for rank in range(2):
        first_pass(stream("shards", rank=rank, world_size=2))
        assert ("pass 1, its share of 2: " in capsys.readouterr().out) == (rank == 0)


def test_dropout_leaves_the_batches_as_they_are(tmp_path):
    """So that a resumed run has the rest of a window, though it draws other segmentations."""
    words = ["the old house", "das alte Haus", "two dogs", "zwei Hunde"]
    tokenizer = train_joint_bpe(words * 9, 300)
    (tmp_path / "a.tsv").write_text("".join(f"{number} {words[0]}\t{words[1]} {number}\n" for number in range(40)))
    rows = file_rows(find_corpora([tmp_path / "a.tsv"], Columns()), Columns())

    def texts(state, number):
        dropout = BPEDropout(tokenizer, 0.2, (40, 40))
        stream = TokenBudgetStream(rows, tokenizer, 100, limits=(40, 40), dropout=dropout)
        stream.load_state(state)
        batches = list(islice(stream, number))
        for batch in batches:
            assert len(batch.pairs) * max(len(side) for pair in batch.pairs for side in pair.values()) <= 100
        return [tokenizer.batch_decode([pair["labels"] for pair in batch.pairs]) for batch in batches], batches[2].state

    whole, state = texts(None, 20)
    assert texts(state, 17)[0] == whole[3:]
