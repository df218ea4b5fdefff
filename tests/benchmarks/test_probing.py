"""Probing: files of tasks, tasks made from text, classifiers that learn, and their records."""

import random
from argparse import Namespace
from collections import Counter
from pathlib import Path

import pytest
import torch
from tiny_marian import tiny_model, tiny_tokenizer

import hf_capsule_mt  # noqa: F401 (registers the models)
from benchmarks.common.records import read_records
from benchmarks.probing import __main__ as probing
from benchmarks.probing.classifiers import probe, report
from benchmarks.probing.encoders import AGGREGATIONS, NewEncoder, TrainedEncoder
from benchmarks.probing.tasks import TASKS, format_probing_data, generate_task, read_probing_data, unique_sentences

FOLDER = Path(__file__).parents[2] / "benchmarks" / "probing"
LEARNABLE = Namespace(epochs=3, batch_size=16, learning_rate=2e-3)


def task(train=160, validation=32, test=64):
    """Is there an `a` among the words? Half of the sentences have one."""
    rng = random.Random(0)

    def examples(size):
        for number in range(size):
            words = rng.choices("bcdefg", k=rng.randint(2, 6))
            if number % 2:
                words[rng.randrange(len(words))] = "a"
            yield "yes" if number % 2 else "no", " ".join(words)

    return {name: list(examples(size)) for name, size in (("tr", train), ("va", validation), ("te", test))}


def test_a_file_is_read_as_it_was_written(tmp_path):
    file = tmp_path / "x.txt"
    file.write_text(format_probing_data(task(4, 2, 2)) + "te\tyes\tan old column\t a   b \n")
    data = read_probing_data(file)
    assert data["te"].pop() == ("yes", "a b")
    assert data == task(4, 2, 2)


def random_text(lengths, size=2000, seed=0):
    rng = random.Random(seed)
    words = [f"{one}{other}word" for one in "bcdfgh" for other in "aeiou"]
    return unique_sentences(" ".join(rng.choices(words, k=rng.choice(lengths))) for _ in range(size))


SENTENCES = random_text(range(5, 29))


@pytest.mark.parametrize(
    ("name", "sentences"),
    [("sentence_length", SENTENCES), ("word_content", random_text(range(3, 5), 4000)), ("bigram_shift", SENTENCES)],
)
def test_a_task_is_balanced_and_its_splits_share_nothing(name, sentences):
    data, _ = generate_task(name, sentences, (61, 24, 13), num_words=6)
    found = [sentence for split in data.values() for _, sentence in split]
    assert len(set(found)) == len(found)
    for split in data.values():
        assert len(set(Counter(label for label, _ in split).values())) == 1
    assert data == generate_task(name, sentences, (61, 24, 13), num_words=6)[0]
    assert data != generate_task(name, sentences, (61, 24, 13), num_words=6, seed=1)[0]
    with pytest.raises(ValueError, match=name):
        generate_task(name, sentences[:20], (61, 24, 13), num_words=6)


def test_labels_of_made_tasks():
    data, choice = generate_task("sentence_length", SENTENCES, (61, 24, 13))
    assert "5-8, 9-12" in choice
    assert "as published" in choice
    bins = [range(5, 9), range(9, 13), range(13, 17), range(17, 21), range(21, 26), range(26, 29)]
    assert all(len(sentence.split()) in bins[int(label)] for label, sentence in data["tr"])
    _, choice = generate_task("sentence_length", random_text(range(3, 15)), (61, 24, 13))
    assert "quantiles" in choice
    data, _ = generate_task("word_content", random_text(range(3, 5), 4000), (60, 24, 12), num_words=6)
    labels = {label for label, _ in data["tr"]}
    assert all([word for word in sentence.split() if word in labels] == [label] for label, sentence in data["tr"])
    data, _ = generate_task("bigram_shift", SENTENCES, (60, 24, 12))
    known = set(SENTENCES)
    assert all((sentence in known) == (label == "O") for label, sentence in data["tr"])
    for label, sentence in data["tr"]:
        if label == "I":
            words = sentence.split()
            swaps = [[*words[:i], words[i + 1], words[i], *words[i + 2 :]] for i in range(1, len(words) - 1)]
            assert any(" ".join(swap) in known for swap in swaps)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_what_can_be_learned_is_learned(aggregation):
    result = probe(task(), NewEncoder(aggregation, "tiny", 10), 1, LEARNABLE)
    assert result["majority_accuracy"] == 0.5
    assert result["test_accuracy"] >= 0.9
    assert result["validation_accuracy"] == max(result["validation_accuracies"])
    assert len(result["validation_accuracies"]) == 3
    assert result["sentences"] == {"tr": 160, "va": 32, "te": 64}
    routing = {"base": None, "simple": "simple_routing", "em": "em_routing"}[aggregation]
    assert result["config"].get("head_aggregation") == routing


def test_a_trained_encoder_stays_as_it_is(tmp_path):
    tiny_model().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    encoder = TrainedEncoder("mine", tmp_path)
    before = {name: weight.clone() for name, weight in encoder.model.state_dict().items()}
    result = probe(task(400, 64, 64), encoder, 1, Namespace(epochs=10, batch_size=16, learning_rate=1e-2))
    assert result["test_accuracy"] > 0.7
    assert all(torch.equal(weight, before[name]) for name, weight in encoder.model.state_dict().items())
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= encoder.settings["model_sha256"].keys()


def run(tmp_path, *options):
    few = ["--size", "tiny", "--epochs", "1", "--seeds", "1", "--aggregations", "base"]
    where = ["--data_dir", str(tmp_path), "--output_file", str(tmp_path / "records.jsonl")]
    probing.main(["run", *where, *few, *options])


def test_all_ten_tasks_and_a_second_call(tmp_path, capsys, monkeypatch):
    for name in TASKS:
        (tmp_path / f"{name}.txt").write_text(format_probing_data(task(12, 4, 5)))
    run(tmp_path)
    table = capsys.readouterr().out
    assert all(column in table for column, _ in TASKS.values())
    assert len(read_records(tmp_path / "records.jsonl")) == 10
    monkeypatch.setattr(probing, "probe", lambda *arguments: pytest.fail("it has a record"))
    run(tmp_path)
    assert capsys.readouterr().out in table
    with pytest.raises(SystemExit, match="other settings"):
        run(tmp_path, "--batch_size", "3")
    probing.main(["report", str(tmp_path / "records.jsonl")])
    assert capsys.readouterr().out in table


@pytest.mark.parametrize("name", ["probing", "probing_trained"])
def test_the_page_has_the_table_of_the_records(name):
    table = report(list(read_records(FOLDER / f"{name}.jsonl").values())).partition("\n\n")[0]
    assert table in (FOLDER / "README.md").read_text(encoding="utf-8")
