"""What a study plans for its rows, and what the tables and comparisons of its records say, by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.studies.compare import compare_rows, compare_seeds
from benchmarks.studies.plan import Job, Plan, Step
from benchmarks.studies.results import Result, SeedRecords
from benchmarks.studies.score_tables import time_curve_table
from benchmarks.studies.study import Question, read_study
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.bleu_statistics import pack_statistics

STUDY = {
    "title": "Rows that need each other",
    "data": {"train_file": ["train.en", "train.de"]},
    "tests": {"test": ["test.en", "test.de"]},
    "train_tokenizer": {"vocab_size": 300},
    "train": {"max_steps": 8, "learning_rate": "1e-3"},
    "baseline": "plain",
    "rows": [
        {"name": "student", "method": "capsnmt", "teacher": "plain", "seeds": [1, 2]},
        {"name": "plain", "method": "transformer", "seeds": [1, 2], "train": {"max_steps": 4}},
        {"name": "more", "method": "transformer", "start": "plain", "seeds": [2], "mixed_precision": "no"},
    ],
}


@pytest.fixture
def study(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(STUDY))
    return read_study(file)


@pytest.fixture
def plan(study):
    return Plan(study, Path("runs"), Path("records.jsonl"))


def test_jobs_come_after_those_that_they_need(plan):
    # All students learn from the teacher's first seed. A row starts from the same seed.
    assert plan.jobs() == [
        Job("plain", 1),
        Job("student", 1),
        Job("plain", 2),
        Job("more", 2),
        Job("student", 2),
    ]
    assert plan.needs(Job("student", 2)) == [Job("plain", 1)]
    assert plan.needs(Job("more", 2)) == [Job("plain", 2)]


def test_a_row_has_its_own_options_of_training(study):
    assert study.row("plain").train == {"max_steps": 4, "learning_rate": "1e-3"}
    assert study.row("student").train == {"max_steps": 8, "learning_rate": "1e-3"}


def test_the_rows_that_a_row_is_compared_with(study):
    student = study.row("student")
    assert study.against(student) == ["plain"]
    named = Question("q", "?", 0.5, ["student"], against=["more"])
    assert study.against(student, named) == ["more"]
    assert study.against(student, replace(named, against=[])) == ["plain"]
    # Without a question, with those of all questions.
    assert study.against(student, None) == ["plain"]
    assert replace(study, questions=[named]).against(student) == ["plain", "more"]
    assert study.against(study.row("plain")) == []


def test_a_run_is_done_without_its_log(plan):
    names = ["study_plain_run_record", "study_plain_test"]
    assert plan.is_done(Job("plain", 1), dict.fromkeys(names))
    assert not plan.is_done(Job("plain", 1), dict.fromkeys(names[:1]))


def test_the_precision_of_a_row_replaces_that_of_the_launcher():
    step = Step("train", {"fp16": False, "label": None}, Path("product"), mixed_precision="no")
    line = step.command_line("accelerate launch --mixed_precision bf16 --num_processes 1")
    assert line == [
        *("accelerate", "launch", "--num_processes", "1", "--mixed_precision", "no"),
        *("-m", "hf_capsule_mt", "train", "--fp16", "false"),
    ]


def result(study, name, log=(), seeds=(1,), scores=None, **run):
    return Result(study.row(name), [SeedRecords(seed, run, scores or {}, log) for seed in seeds])


@pytest.mark.parametrize(
    ("checkpoint", "speed"), [(None, 5.0), ("runs/checkpoint-60", 2.0), ("runs/checkpoint-100", None), ("last", None)]
)
def test_the_speed_of_a_resumed_run_is_that_of_its_last_call(checkpoint, speed):
    run = {"training": {"resume_from_checkpoint": checkpoint}, "updates": 100, "seconds_of_this_call": 20.0}
    assert SeedRecords(1, run, {}, []).updates_per_second == speed


def test_curves_by_time_end_where_the_row_has_ended(study):
    def log(updates):
        return [{"step": update, "eval_bleu": float(update)} for update in updates]

    rates = {"plain": [1.0], "method": [1.0]}
    measured = {"parameters": 5, "plain_parameters": 5, "training": rates}
    slow = {**measured, "training": {"plain": [1.0], "method": [0.5]}}
    settings = {"size": "base", "config_overrides": []}
    speed = [{"settings": settings, "results": {"transformer": measured, "capsnmt": slow}}]
    run = {"model": {"config_overrides": []}, "parameters": 5, "processes": 1, "training": {}}
    results = [
        result(study, "plain", log([10, 20, 30, 40]), **run),
        result(study, "student", log([10, 15]), **run),
    ]
    # An update of the student takes as long as two of the baseline.
    assert time_curve_table(study, results, speed) == [
        ["time, in updates of plain", "10", "20", "30", "40"],
        ["plain", "10.0", "20.0", "30.0", "40.0"],
        ["student", "", "10.0", "15.0", ""],
    ]


def statistics(matches, sentences=30):
    """Statistics of a run in which every sentence of ten words has so many matches."""
    row = [matches, matches - 1, matches - 2, matches - 3, 10, 9, 8, 7, 10, 10]
    return np.tile(row, (sentences, 1))


def test_few_seeds_make_a_wide_interval():
    """All sentences are alike, so that only seeds differ: of two, the mean is that of either run or of both."""
    baseline = [statistics(6), statistics(6)]
    found = compare_seeds(baseline, [statistics(7), statistics(9)], 400)
    both = [compare_seeds(baseline[:1], [statistics(matches)], 2) for matches in (7, 9)]
    gains = [one["score"] - one["baseline"] for one in both]
    middle = sum(gains) / 2
    # Two drawn runs vary half as much as two new ones would.
    half_width = (gains[1] - gains[0]) / 2 * 2**0.5
    assert found["low"] == pytest.approx(middle - half_width)
    assert found["high"] == pytest.approx(middle + half_width)


def test_scores_by_several_references_are_not_compared(study):
    def scored(reference):
        return {
            "test": {
                "bleu_statistics": pack_statistics(statistics(6)),
                "scores": {"bleu": {"signature": "s", "score": 30.0}},
                "references": [{"sha256": reference}],
            }
        }

    run = {"environment": {"device": "a processor"}, "processes": 1}
    results = [result(study, name, scores=scored("one"), **run) for name in ("plain", "student")]
    [comparison] = compare_rows(study, results)
    assert (comparison.row, comparison.against, comparison.seeds) == ("student", "plain", 1)
    results[1] = result(study, "student", scores=scored("other"), **run)
    with pytest.raises(UserError, match="test was scored with several references or kinds of BLEU"):
        compare_rows(study, results)
