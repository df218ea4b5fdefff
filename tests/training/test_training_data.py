"""One corpus through every door of training: the same batches, and the same run after a kill."""

import gzip
import hashlib
import json
import multiprocessing
from itertools import islice

import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from tiny_run import SMALL, arguments, files, stop_at, write_corpus
from transformers import set_seed

from hf_capsule_mt import preset_config
from hf_capsule_mt.cli.train import main
from hf_capsule_mt.data import arrow_cache as corpus_module
from hf_capsule_mt.data.batching import TokenBudgetBatchSampler, longest_sides
from hf_capsule_mt.data.lines import ReadReport
from hf_capsule_mt.data.tokenizer import train_joint_bpe
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import hash_text
from hf_capsule_mt.loading import load_tokenizer
from hf_capsule_mt.training import training_data as data_module
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.build import build_model
from hf_capsule_mt.training.options import DataArguments, ModelArguments
from hf_capsule_mt.training.trainer import TranslationTrainer
from hf_capsule_mt.training.training_data import TrainingData, load_data

BATCHES = 25
LANGUAGES = {"source_lang": "en", "target_lang": "de"}
STREAM = {"streaming": True, "max_source_length": 30, "max_target_length": 30}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same pairs in files of every kind."""
    folder = write_corpus(tmp_path_factory.mktemp("corpus"))
    sides = [file.read_text().splitlines() for file in files(folder, "train")]
    lines = ["\t".join(pair) + "\n" for pair in zip(*sides)]
    (folder / "train.tsv.gz").write_bytes(gzip.compress("".join(lines).encode()))
    for number in range(3):
        (folder / f"part-{number}.tsv").write_text("".join(lines[20 * number : 20 * (number + 1)]))
    rows = [dict(zip(("en", "de"), pair)) for pair in zip(*sides)]
    (folder / "flat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "hub").mkdir()
    (folder / "hub" / "train.jsonl").write_text("".join(json.dumps({"translation": row}) + "\n" for row in rows))
    pq.write_table(Dataset.from_list(rows).data.table.rename_columns(["from", "to"]), folder / "train.parquet")
    train_joint_bpe([*sides[0], *sides[1]], 280).save_pretrained(folder / "bpe")
    return folder


@pytest.fixture
def trainer_of(folder, tmp_path, monkeypatch):
    """A function that makes a trainer of the options of the data, or of a data set."""
    monkeypatch.chdir(folder)
    set_seed(0)
    model_args = ModelArguments("em-routing", "tiny", tokenizer_name=str(folder / "tokenizer"), config_overrides=SMALL)
    tokenizer = load_tokenizer(*model_args.tokenizer())
    model = build_model(model_args, tokenizer)

    def make(options, args=None):
        args = TranslationTrainingArguments(
            str(tmp_path), max_tokens_per_batch=60, max_steps=5, report_to="none", use_cpu=True, **(args or {})
        )
        data = options
        if isinstance(options, dict):
            data = load_data(DataArguments(**options), args, tokenizer, model.config)
        train = data.train if isinstance(data, TrainingData) else data
        return TranslationTrainer(model, args, processing_class=tokenizer, train_dataset=train)

    return make


def batches_of(trainer):
    """Two epochs and a part of the third."""
    loader, found = trainer.get_train_dataloader(), []
    while len(found) < BATCHES:
        found += [
            {name: batch[name] for name in ("input_ids", "attention_mask", "labels")} for batch in islice(loader, 25)
        ]
    return found[:BATCHES]


def assert_same(found, expected):
    assert len(found) == len(expected) == BATCHES
    for one, other in zip(found, expected):
        assert all(torch.equal(one[name], other[name]) for name in other)


DOORS = {
    "shards": {"train_file": ["part-*.tsv"]},
    "corpora": {"train_file": ["part-0.tsv", "part-1.tsv", "part-2.tsv"]},
    "compressed": {"train_file": ["train.tsv.gz"]},
    "flat": {"train_file": ["flat.jsonl"], **LANGUAGES},
    "parquet": {"train_file": ["train.parquet"], "source_column": "from", "target_column": "to"},
    "hub": {"dataset_name": "hub", **LANGUAGES},
    "workers": {"train_file": ["train.source", "train.target"], "preprocessing_num_workers": 2},
    "stream": {"train_file": ["train.source", "train.target"], **STREAM},
    "hub_stream": {"dataset_name": "hub", **LANGUAGES, **STREAM},
}


@pytest.fixture
def expected(trainer_of):
    return batches_of(trainer_of({"train_file": ["train.source", "train.target"]}))


@pytest.mark.parametrize("door", DOORS)
def test_every_door_gives_the_same_batches(trainer_of, expected, door, tmp_path, monkeypatch):
    if door == "workers":
        monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    assert_same(batches_of(trainer_of(DOORS[door])), expected)


@pytest.mark.parametrize("door", ["shards", "stream"])
def test_the_data_seed_orders_every_kind_of_data(trainer_of, expected, door):
    """A run of other random weights can have the same order, and one of the same weights another."""
    first = batches_of(trainer_of({"train_file": ["train.source", "train.target"]}, {"data_seed": 7}))
    assert_same(batches_of(trainer_of(DOORS[door], {"data_seed": 7, "seed": 8})), first)
    with pytest.raises(AssertionError):
        assert_same(first, expected)


def test_data_sets_of_ones_own(trainer_of, expected):
    rows = load_rows(trainer_of)
    assert_same(batches_of(trainer_of(rows)), expected)
    others = [{**row, "text": "x", "number": index} for index, row in enumerate(rows)]
    dataset = Dataset.from_list([*others, others[0]])
    assert_same(batches_of(trainer_of(dataset.select(range(len(rows))))), expected)
    # Neither in its own order nor as lists.
    shuffled = dataset.select([*range(30, 60), *range(30)]).select([*range(30, 60), *range(30)])
    assert_same(batches_of(trainer_of(shuffled.with_format("numpy"))), expected)
    with pytest.raises(ValueError, match="labels"):
        trainer_of(dataset.remove_columns("labels")).get_train_dataloader()


def load_rows(trainer_of):
    return list(trainer_of({"train_file": ["train.source", "train.target"]}).train_dataset)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_full_cache_gives_the_same_batches(trainer_of, expected, monkeypatch, num_workers):
    monkeypatch.setattr(corpus_module, "read_shard", None)
    monkeypatch.setattr(Dataset, "_map_single", None)
    options = {"train_file": ["train.source", "train.target"]}
    assert_same(batches_of(trainer_of(options, {"dataloader_num_workers": num_workers})), expected)


def test_several_corpora_have_the_hash_of_their_hashes(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    args = TranslationTrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    tokenizer = load_tokenizer(str(folder / "tokenizer"), "main")
    config = preset_config("transformer", "tiny", vocab_size=len(tokenizer), pad_token_id=0, eos_token_id=2)
    facts = load_data(DataArguments(train_file=["part-0.tsv", "part-1.tsv"]), args, tokenizer, config).facts
    for side, file in zip(("source", "target"), files(folder, "train")):
        lines = file.read_text().splitlines(keepends=True)
        hashes = [hashlib.sha256("".join(part).encode()).hexdigest() for part in (lines[:20], lines[20:40])]
        assert facts.sha256[side] == hash_text(hashes)


def test_weights_mix_corpora(trainer_of, capsys):
    """The smaller is repeated until the larger has been read."""
    rows = load_rows(trainer_of)
    options = {"train_file": ["train.source", "train.target", "part-0.tsv"], "train_file_weights": [1, 1]}
    mixed = list(trainer_of(options).train_dataset)
    assert len(mixed) > 80
    # A card would say that more pairs were trained on than there are.
    assert "training: 80 pairs tokenised" in (printed := capsys.readouterr().out)
    assert f"{len(mixed)} pairs in an epoch" in printed
    counts = [sum(row == other for other in mixed) for row in rows]
    assert min(counts) >= 1
    assert sum(counts[:20]) > 1.5 * sum(counts[20:40])
    assert list(trainer_of(options).train_dataset) == mixed
    with pytest.raises(ValueError, match="train_file_weights has 2 weights"):
        trainer_of({"train_file": ["part-*.tsv"], "train_file_weights": [1, 1]})


def test_a_corpus_of_three_times_the_weight_is_drawn_three_times_as_often(trainer_of):
    """The weights are those of the training data. Validation data needs none."""
    files_of_data = {"train_file": ["train.source", "train.target", "part-0.tsv"], "validation_file": ["part-1.tsv"]}
    mixed = trainer_of({**files_of_data, "train_file_weights": [1, 3]}).train_dataset
    # The 60 pairs of the first corpus are a quarter.
    assert len(mixed) == pytest.approx(240, rel=0.25)


def test_the_data_seed_mixes_corpora(load):
    data = {"train_file": ["part-0.tsv", "part-1.tsv"], "train_file_weights": [1, 2]}
    first = load(data, data_seed=3)
    same = load(data, data_seed=3, seed=8)
    other = load(data, data_seed=4)
    assert list(first.train) == list(same.train) != list(other.train)
    assert first.facts.pairs == {"trained_on": 40, "too_long": 0, "in_an_epoch": len(first.train)}


def test_a_new_run_reads_a_stream_from_its_beginning(trainer_of):
    trainer = trainer_of(DOORS["stream"])
    first = next(iter(trainer.get_train_dataloader()))
    trainer.train_dataset.load_state(first["stream_state"])
    assert next(iter(trainer.get_train_dataloader()))["stream_state"] == first["stream_state"]


@pytest.fixture
def load(folder, tmp_path, monkeypatch):
    """A function that loads data with the options of the data and of the run."""
    monkeypatch.chdir(folder)

    def load(data, tokenizer="tokenizer", positions=1024, **options):
        tokenizer = load_tokenizer(str(folder / tokenizer), "main")
        ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "eos_token_id")}
        sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": positions}
        config = preset_config("transformer", "tiny", **sizes, **ids)
        args = TranslationTrainingArguments(
            str(tmp_path), **{"max_steps": 5, "report_to": "none", "use_cpu": True, **options}
        )
        return load_data(DataArguments(**data), args, tokenizer, config)

    return load


def test_a_stream_is_as_its_options_say(load):
    data = {"train_file": ["part-0.tsv", "part-1.tsv"], "train_file_weights": [1.0, 3.0], "streaming": True}
    data |= {"shuffle_buffer": 7, "bpe_dropout": 0.25, "max_source_length": 20, "max_target_length": 30}
    cut = load(data, "bpe", max_tokens_per_batch=60, data_seed=3).train.cut()
    text = cut.pop("text")
    assert cut == {"max_tokens": 60, "limits": [20, 30], "window": 7, "seed": 3, "bpe_dropout": 0.25}
    assert "[1.0, 3.0]" in text


def test_the_data_seed_orders_the_files_of_a_stream(load):
    def order(**seeds):
        rows = load({"train_file": ["part-*.tsv"], **STREAM}, max_tokens_per_batch=60, **seeds).train.rows
        return [row["source"] for row in rows.of_pass(0)]

    orders = [order(data_seed=seed) for seed in range(5)]
    assert any(other != orders[0] for other in orders)
    assert orders[3] == order(data_seed=3, seed=8)
    assert orders != [order(data_seed=0, seed=seed) for seed in range(5)]


def test_processes_have_parts_of_a_stream(load, folder, monkeypatch):
    """Together they read every pair once in a pass."""
    sources = []
    monkeypatch.setattr(TranslationTrainingArguments, "world_size", 2)
    for rank in range(2):
        monkeypatch.setattr(TranslationTrainingArguments, "process_index", rank)
        stream = load({"train_file": ["part-*.tsv"], **STREAM}, max_tokens_per_batch=60).train
        for batch in stream:
            if json.loads(batch.state)["pass"]:
                break
            sources += [pair["input_ids"] for pair in batch.pairs]
    tokenizer = load_tokenizer(str(folder / "tokenizer"), "main")
    expected = tokenizer((folder / "train.source").read_text().splitlines())["input_ids"]
    assert sorted(sources) == sorted(expected)


def test_batches_have_room_for_the_pieces_of_bpe_dropout(load, folder, tmp_path):
    data = {"train_file": ["part-*.tsv"], "bpe_dropout": 0.25, "max_source_length": 40, "max_target_length": 50}
    pairs = load(data, "bpe", max_tokens_per_batch=80).train
    tokenizer = load_tokenizer(str(folder / "bpe"), "main")
    model_args = ModelArguments("transformer", "tiny", tokenizer_name="bpe", config_overrides=SMALL)
    options = {"max_tokens_per_batch": 80, "report_to": "none", "use_cpu": True}
    args = TranslationTrainingArguments(str(tmp_path), **options)
    model = build_model(model_args, tokenizer)
    loader = TranslationTrainer(model, args, processing_class=tokenizer, train_dataset=pairs).get_train_dataloader()
    assert len(loader) == len(TokenBudgetBatchSampler(pairs.lengths(), 80))
    assert len(loader) > len(TokenBudgetBatchSampler(longest_sides(pairs.dataset), 80))
    tokens = 0
    for batch in loader:
        assert max(batch["input_ids"].numel(), batch["labels"].numel()) <= 80
        tokens += int(batch["attention_mask"].sum())
    assert tokens > sum(map(len, pairs.dataset["input_ids"]))
    assert (pairs.dropout.probability, pairs.dropout.limits, pairs.max_tokens) == (0.25, (40, 50), 80)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_stream_downloads_only_the_validation_text(load, monkeypatch, streaming):
    """Without one a data set is downloaded as a whole."""
    asked = []

    def read(name, configuration, split, columns, *, streaming):
        asked.append((split, streaming))
        raise UserError("enough")

    monkeypatch.setattr(data_module, "read_hub_corpus", read)
    data = {"dataset_name": "hub", **LANGUAGES, **(STREAM if streaming else {})}
    with pytest.raises(UserError, match="enough"):
        load(data, eval_strategy="steps")
    assert asked == [("validation", True) if streaming else ("train", False)]


@pytest.mark.parametrize("processes", [None, 3])
def test_text_is_tokenised_by_as_many_processes_as_are_asked_for(load, monkeypatch, processes):
    asked, tokenize_corpus = [], data_module.tokenize_corpus

    def tokenize(*args, num_proc, **options):
        asked.append(num_proc)
        return tokenize_corpus(*args, **options)

    monkeypatch.setattr(data_module, "tokenize_corpus", tokenize)
    load({"train_file": ["part-0.tsv"], "preprocessing_num_workers": processes})
    assert asked == [processes]


def test_all_files_are_read_before_the_work_of_tokenising(load, monkeypatch):
    monkeypatch.setattr(data_module, "tokenize_corpus", None)
    for name in ("validation_file", "general_validation_file"):
        data = {"train_file": ["part-0.tsv"], "validation_file": ["part-0.tsv"], name: ["absent.tsv"]}
        with pytest.raises(FileNotFoundError, match=r"absent\.tsv"):
            load(data)


def test_the_first_process_prints(load, capsys, monkeypatch):
    for rank in range(2):
        monkeypatch.setattr(TranslationTrainingArguments, "process_index", rank)
        load({"train_file": ["part-0.tsv"]})
        assert ("20 pairs tokenised" in capsys.readouterr().out) == (rank == 0)


@pytest.mark.parametrize("name", ["max_source_length", "max_target_length", "generation_max_length"])
def test_texts_may_be_as_long_as_the_model_has_positions(load, name):
    lengths = {"max_source_length": 20, "max_target_length": 20, "generation_max_length": 20, name: 64}
    generation = {"generation_max_length": lengths.pop("generation_max_length")}
    load({"train_file": ["part-0.tsv"], **lengths}, positions=64, **generation)
    with pytest.raises(UserError, match=f"{name} is 64, and the model has 63 positions"):
        load({"train_file": ["part-0.tsv"], **lengths}, positions=63, **generation)
    # Without a limit of translations the model's own counts.
    load({"train_file": ["part-0.tsv"], "max_source_length": 9, "max_target_length": 9}, generation_max_length=None)


def test_the_numbers_of_several_corpora_add_up(load, tmp_path):
    (tmp_path / "one.tsv").write_bytes(b"a\tb\n\tb\n\xff\tb\n\xff\tb\n\xff\tb\nc\td\n")
    (tmp_path / "two.tsv").write_bytes(b"e\tf\n\tb\n")
    files_of_data = [str(tmp_path / name) for name in ("one.tsv", "two.tsv")]
    data = {"train_file": files_of_data, "validation_file": files_of_data, "general_validation_file": files_of_data}
    facts = load(data).facts
    assert facts.report == ReadReport(read=8, kept=3, empty=2, invalid_utf8=3)
    assert facts.pairs == {"trained_on": 3, "too_long": 0}
    assert facts.validation == {"scored": 3, "too_long": 0}
    assert facts.validation_sha256.keys() == {"source", "target", "general source", "general target"}


def test_a_killed_stream_ends_with_the_weights_of_an_uninterrupted_one(folder, tmp_path, monkeypatch, capsys):
    options = {"max_steps": 9, "shuffle_buffer": 20, "dataloader_num_workers": 1, **STREAM}
    options |= {"save_strategy": "steps", "save_steps": 6}
    # What Python 3.14 has by itself: a worker would need all that it uses pickled.
    default, forkserver = multiprocessing.context._default_context, multiprocessing.get_context("forkserver")
    monkeypatch.setattr(default, "_actual_context", forkserver)

    def train(run, **more):
        main(arguments(folder, tmp_path / run, "dropout=0.3", **{**options, **more}))

    train("whole")
    with monkeypatch.context() as patch:
        stop_at(patch, update=8)
        with pytest.raises(KeyboardInterrupt):
            train("killed")
    checkpoint = tmp_path / "killed" / "checkpoint-6"
    train("killed", resume_from_checkpoint=checkpoint)
    whole, killed, then = (
        load_file(path / "model.safetensors") for path in (tmp_path / "whole", checkpoint.parent, checkpoint)
    )
    assert all(torch.equal(whole[name], killed[name]) for name in whole)
    assert not all(torch.equal(whole[name], then[name]) for name in whole)
    losses = [
        json.loads((tmp_path / run / "trainer_state.json").read_text())["log_history"] for run in ("whole", "killed")
    ]
    for name in ("loss", "epoch"):
        assert [entry.get(name) for entry in losses[0]] == [entry.get(name) for entry in losses[1]]
    record = json.loads((tmp_path / "killed" / "run_record.json").read_text())
    assert record["pairs"] is None
    # The result has no place in the data.
    assert not (tmp_path / "killed" / "stream_state_0.json").exists()
    (checkpoint / "stream_state_0.json").unlink()
    with pytest.raises(SystemExit):
        train("without_its_place", resume_from_checkpoint=checkpoint)
    assert "stream_state_0.json" in capsys.readouterr().err
