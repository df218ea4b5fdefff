"""A second validation set, on which the best checkpoint may not become much worse."""

import json

import pytest
import torch
from safetensors.torch import load_file
from tiny_marian import save_tiny_marian
from tiny_run import arguments, files, stop_at
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt.cli.train import main
from hf_capsule_mt.training import evaluating
from hf_capsule_mt.training.averaging import best_checkpoints
from hf_capsule_mt.training.checkpoint_folders import checkpoints

SCORES = [(30, 10), (31, 12), (27, 15), (29.1, 11), (29.2, 13)]
"""On the general data and on the validation data, at the start and after 2, 4, 6 and 8 updates.

After 8 updates the model has lost 0.8 since the start, and 1.8 since the best one.
"""


@pytest.fixture
def general(tmp_path):
    """Fewer pairs than the validation data has."""
    texts = [tmp_path / "general.source", tmp_path / "general.target"]
    for text in texts:
        text.write_text("a b c d\n" * 5)
    return texts


@pytest.fixture
def scripted(monkeypatch):
    """Lets evaluation find given scores, whatever is translated."""

    def let(scores):
        left = [[pair[side] for pair in scores] for side in (0, 1)]

        def metric(*_):
            return lambda prediction: {"bleu": float(left[len(prediction.predictions) == 12].pop(0))}

        monkeypatch.setattr(evaluating, "bleu_metric", metric)

    return let


def train(corpus, general, folder, **options):
    fixed = {"method": "transformer", "max_steps": 8, "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2}
    fixed |= {"save_strategy": "steps", "load_best_model_at_end": True, "learning_rate": 0.01}
    # Most scores do not depend on what is written.
    fixed["generation_max_length"] = 2
    data = {"validation_file": files(corpus, "validation"), "general_validation_file": general}
    overrides = [] if options.get("model") else ["encoder_layers=1"]
    main(arguments(corpus, folder, *overrides, **fixed | data | options))
    return json.loads((folder / "run_record.json").read_text())


def is_model_of(folder, checkpoint):
    one, other = (load_file(path / "model.safetensors") for path in (folder, folder / checkpoint))
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("most", "best"), [(1.0, 8), (0.6, 2), (3.0, 4)])
def test_the_best_checkpoint_is_one_that_has_not_forgotten(corpus, general, tmp_path, scripted, capsys, most, best):
    scripted([*SCORES, SCORES[-1]])
    record = train(corpus, general, tmp_path / "run", max_general_loss=most)
    assert record["best_checkpoint"] == str(tmp_path / "run" / f"checkpoint-{best}")
    assert is_model_of(tmp_path / "run", f"checkpoint-{best}")
    curves = [(each["updates"], each["general_bleu"], each["bleu"]) for each in record["evaluations"]]
    assert curves == [(2 * number, *pair) for number, pair in enumerate(SCORES)]
    # The evaluation at the start was for this comparison, and not asked for.
    assert record["training"]["eval_on_start"] is False
    rows = capsys.readouterr().out.partition("general BLEU\n")[2].splitlines()
    assert rows[best // 2].split()[-1] == "best"
    assert rows[2].endswith("best" if best == 4 else "loses too much")


def test_a_resumed_run_compares_with_the_start(corpus, general, tmp_path, scripted, monkeypatch, caplog):
    scripted(SCORES)
    with monkeypatch.context() as patch:
        stop_at(patch, update=5)
        with pytest.raises(KeyboardInterrupt):
            train(corpus, general, tmp_path / "run")
    record = train(corpus, general, tmp_path / "run", resume_from_checkpoint="last", early_stopping_patience=2)
    assert "chosen from now on" not in caplog.text
    assert [each["updates"] for each in record["evaluations"]] == [0, 2, 4, 6]
    # It stopped after the second evaluation that was not better or not allowed.
    assert (record["updates"], record["best_metric"]) == (6, 12)
    assert is_model_of(tmp_path / "run", "checkpoint-2")


@pytest.mark.parametrize("changes", ["validation data", "bleu_tokenize"])
def test_with_other_scores_the_comparison_starts_again(corpus, general, tmp_path, scripted, caplog, changes):
    scripted([(50, 40), (50, 40), (50, 40), *SCORES, SCORES[-1]])
    train(corpus, general, tmp_path / "run", max_steps=2)
    options = {"bleu_tokenize": "char"}
    if changes == "validation data":
        general[0].write_text("a b c e\n" * 5)
        options = {}
    record = train(
        corpus, general, tmp_path / "run", resume_from_checkpoint="last", early_stopping_patience=3, **options
    )
    assert "chosen from now on" in caplog.text
    # Not checkpoint-2, which has 40 under other scores.
    assert (record["best_checkpoint"], record["best_metric"]) == (str(tmp_path / "run" / "checkpoint-4"), 12)
    assert is_model_of(tmp_path / "run", "checkpoint-4")
    assert best_checkpoints(tmp_path / "run", 1) == [tmp_path / "run" / "checkpoint-6"]


@pytest.mark.parametrize("options", [{}, {"lora_rank": 2}], ids=["all weights", "adapter"])
def test_without_such_a_checkpoint_the_model_is_that_of_the_start(corpus, general, tmp_path, scripted, capsys, options):
    scripted([(30, 10), *[(20, 50)] * 4, (30, 10)])
    start = save_tiny_marian(tmp_path / "start")
    options = {**options, "model": start, "size": None, "method": None, "tokenizer_name": None}
    options |= {"config_overrides": None, "max_source_length": 60, "max_target_length": 60}
    with pytest.raises(SystemExit) as stop:
        train(corpus, general, tmp_path / "run", **options)
    assert stop.value.code == 3
    printed = capsys.readouterr()
    assert "Every checkpoint loses more than 1.0 BLEU" in printed.err
    assert "is that of the start" in printed.err
    assert printed.out.count("loses too much") == 4
    record = json.loads((tmp_path / "run" / "run_record.json").read_text())
    assert (record["best_checkpoint"], record["best_metric"], record["keeps_start"]) == (None, None, True)
    # The scores at the end are those of the model that is there.
    assert (record["metrics"]["eval_bleu"], len(record["evaluations"])) == (10, 5)
    assert is_model_of(tmp_path / "run", start)
    assert not (tmp_path / "run" / "README.md").exists()
    AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")


def test_general_scores_are_those_of_the_file(corpus, tmp_path):
    record = train(corpus, files(corpus, "validation"), tmp_path / "run", max_steps=2)
    for each in record["evaluations"]:
        assert (each["general_bleu"], each["general_loss"]) == (each["bleu"], pytest.approx(each["loss"]))
    assert [each["updates"] for each in record["evaluations"]] == [0, 2]


def test_a_model_that_has_forgotten_is_not_saved_between_saves(corpus, general, tmp_path, scripted):
    scripted([(30, 10), *[(20, 50)] * 4, (30, 10)])
    with pytest.raises(SystemExit):
        train(corpus, general, tmp_path / "run", save_steps=8)
    assert [folder.name for folder in checkpoints(tmp_path / "run")] == ["checkpoint-8"]


def test_the_best_checkpoint_of_other_scores_is_not_the_best_one(corpus, general, tmp_path, scripted):
    """Also if every later one has forgotten too much."""
    scripted([(50, 40), (50, 40), (50, 40), (30, 10), *[(20, 50)] * 3, (30, 10)])
    train(corpus, general, tmp_path / "run", max_steps=2)
    changed = {"resume_from_checkpoint": "last", "bleu_tokenize": "char"}
    with pytest.raises(SystemExit) as stop:
        train(corpus, general, tmp_path / "run", **changed)
    assert stop.value.code == 3
    record = json.loads((tmp_path / "run" / "run_record.json").read_text())
    assert (record["best_checkpoint"], record["keeps_start"]) == (None, True)


@pytest.mark.parametrize(("start", "is_warned"), [(39, False), (40, True), (41, True)])
def test_a_best_checkpoint_that_is_not_better_than_the_start(
    corpus, general, tmp_path, scripted, caplog, start, is_warned
):
    scripted([(30, start), (30, 40), (30, 40)])
    train(corpus, general, tmp_path / "run", max_steps=2)
    assert (f"No checkpoint is better than the model at the start. Do not use {tmp_path / 'run'}." in caplog.text) == (
        is_warned
    )


def test_it_chooses_the_best_checkpoint(corpus, general, tmp_path, capsys):
    with pytest.raises(SystemExit):
        train(corpus, general, tmp_path / "run", load_best_model_at_end=False)
    assert "--load_best_model_at_end" in capsys.readouterr().err
