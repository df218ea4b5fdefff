"""The tests of significance against sacreBLEU's own command, a slow loop, and counts that are made by hand."""

import json
import math
import os
import random
import statistics
import subprocess
import sys

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from hf_capsule_mt.evaluation.bleu_statistics import bleu, pack_statistics, sentence_statistics, unpack_statistics
from hf_capsule_mt.evaluation.scores import make_metrics, score_translations
from hf_capsule_mt.evaluation.significance import SAMPLES_AT_ONCE, compare_runs, compare_systems, comparison_report
from tests.reference import significance as reference

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "house", ",", "."]


def corpus(size, seed=0, references=1):
    """References, a baseline that gets a fifth of the words wrong, and a system that gets an eighth wrong."""
    generator = random.Random(seed)

    def corrupt(words, rate):
        return [generator.choice(WORDS) if generator.random() < rate else word for word in words]

    texts = [generator.choices(WORDS, k=generator.randint(5, 15)) for _ in range(size)]
    streams = [texts, *([corrupt(text, 0.1) for text in texts] for _ in range(references - 1))]
    systems = ([corrupt(text, rate) for text in texts] for rate in (0.2, 0.125))
    baseline, system, *references = ([" ".join(text) for text in stream] for stream in (*systems, *streams))
    return baseline, system, references


def corpus_of_runs(size, *rates_of_groups, seed=0):
    """References, and groups of runs. A run gets a share of the words wrong, its rate."""
    generator = random.Random(seed)
    texts = [generator.choices(WORDS, k=generator.randint(5, 15)) for _ in range(size)]

    def run(rate):
        lines = []
        for text in texts:
            words = [generator.choice(WORDS) if generator.random() < rate else word for word in text]
            lines.append(" ".join(words))
        return lines

    groups = [[run(rate) for rate in rates] for rates in rates_of_groups]
    return [[" ".join(text) for text in texts]], groups


def draws(samples, sentences, *runs, seed):
    """What the bootstrap draws: sentences, runs of the baseline, and runs of the system, for many samples at once."""
    generator = np.random.default_rng(seed)
    drawn = []
    for start in range(0, samples, SAMPLES_AT_ONCE):
        number = min(SAMPLES_AT_ONCE, samples - start)
        drawn += zip(*(generator.integers(size, size=(number, size)) for size in (sentences, *runs)), strict=True)
    return drawn


@pytest.mark.parametrize(("metric", "samples"), [("bleu", 260), ("chrf", 40), ("ter", 40)])
@pytest.mark.parametrize("runs", [(2, 3), (1, 2), (1, 1)])
def test_runs_are_compared_as_by_a_slow_loop(metric, samples, runs):
    rates = [0.2, 0.1, 0.15]
    references, (baseline, system) = corpus_of_runs(14, rates[: runs[0]], rates[3 - runs[1] :])
    references.append(baseline[0][::-1])
    options = {"metrics": [metric], "num_samples": samples, "seed": 7}
    found = compare_runs(baseline, system, references, **options)[metric]
    scorer = make_metrics([metric])[metric]
    drawn = draws(samples, 14, *runs, seed=7)
    _, interval, p_value = reference.compare_runs(baseline, system, references, scorer, drawn)
    assert (found["low"], found["high"]) == pytest.approx(interval, rel=1e-9)
    assert found["p_value"] == p_value
    for kind, group in (("baseline_", baseline), ("", system)):
        scores = [scorer.corpus_score(run, references).score for run in group]
        assert found[f"{kind}runs"] == pytest.approx(scores, rel=1e-12)
        deviation = pytest.approx(statistics.stdev(scores)) if len(scores) > 1 else None
        assert found[f"{kind}deviation"] == deviation
    assert found["score"] == pytest.approx(reference.mean_score(system, references, scorer), rel=1e-12)
    assert found["baseline"] == pytest.approx(reference.mean_score(baseline, references, scorer), rel=1e-12)


def test_two_runs_of_one_model_are_not_called_different():
    """A test that only knows sentences calls them so, because one run is better than the other."""
    references, [runs] = corpus_of_runs(200, [0.2, 0.14, 0.19, 0.15])
    one, other = runs[:2]
    assert compare_systems(one, other, references)["bleu"]["p_value"] < 0.005
    found = compare_runs(runs[:2], runs[2:], references)["bleu"]
    assert found["p_value"] > 0.5
    assert found["low"] < 0 < found["high"]


def test_a_model_that_is_better_in_all_runs_is_found():
    references, (baseline, system) = corpus_of_runs(200, [0.2, 0.21, 0.19], [0.11, 0.12])
    found = compare_runs(baseline, system, references)["bleu"]
    assert found["p_value"] == pytest.approx(1 / 1001)
    assert 0 < found["low"] < found["score"] - found["baseline"] < found["high"]
    worse = compare_runs(system, baseline, references)["bleu"]
    assert worse["p_value"] == pytest.approx(1 / 1001)
    assert worse["high"] < 0


def test_the_same_runs_in_another_order_do_not_differ():
    """Their mean is another number, by its last bit."""
    references, [runs] = corpus_of_runs(30, [0.2, 0.1, 0.15])
    found = compare_runs(runs, [runs[1], runs[2], runs[0]], references)["bleu"]
    assert found["score"] != found["baseline"]
    assert found["p_value"] == 1


@pytest.mark.parametrize("test", ["bootstrap", "randomization", "sign"])
def test_one_run_has_the_interval_of_its_sentences(test):
    baseline, system, references = corpus(60)
    found = compare_systems(baseline, system, references, test=test, num_samples=300)["bleu"]
    expected = compare_runs([baseline], [system], references, num_samples=300)["bleu"]
    assert (found["low"], found["high"]) == (expected["low"], expected["high"])
    assert found["low"] < found["score"] - found["baseline"] < found["high"]


@pytest.mark.parametrize("references", [1, 2])
def test_sign_test_counts_what_rescoring_the_corpus_counts(references):
    baseline, system, references = corpus(40, references=references)
    system[3] = baseline[3]

    def bleu(hypotheses):
        return score_translations(hypotheses, references, tokenize="none", metrics=["bleu"])["bleu"]["score"]

    changes = [
        bleu([*baseline[:index], text, *baseline[index + 1 :]]) - bleu(baseline) for index, text in enumerate(system)
    ]
    better, worse = sum(change > 1e-9 for change in changes), sum(change < -1e-9 for change in changes)
    found = compare_systems(baseline, system, references, test="sign", tokenize="none")["bleu"]
    assert (found["better"], found["worse"]) == (better, worse)
    assert better > worse > 0
    assert better + worse < 40
    assert (found["baseline"], found["score"]) == pytest.approx((bleu(baseline), bleu(system)), rel=1e-12)
    total = better + worse
    as_many = sum(math.comb(total, count) for count in range(better, total + 1)) / 2**total
    assert found["p_value"] == pytest.approx(min(1, 2 * as_many), rel=1e-9)


@pytest.mark.parametrize(
    ("test", "option", "metrics"), [("bootstrap", "bs", ["bleu"]), ("randomization", "ar", ["bleu", "chrf"])]
)
def test_resampling_is_sacrebleus(tmp_path, test, option, metrics):
    baseline, system, [reference] = corpus(50)
    for name, lines in (("base", baseline), ("system", system), ("reference", reference)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "sacrebleu", "reference", "-i", "base", "system", "-m", *metrics]
    command += [f"--paired-{option}", f"--paired-{option}-n", "200"]
    environment = {**os.environ, "SACREBLEU_SEED": "7"}
    output = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    _, expected = json.loads(output)
    options = {"test": test, "metrics": metrics, "num_samples": 200, "seed": 7}
    found = compare_systems(baseline, system, [reference], **options)
    assert list(found) == metrics
    for metric, comparison in found.items():
        theirs = expected[{"bleu": "BLEU", "chrf": "chrF2"}[metric]]
        assert (comparison["score"], comparison["p_value"]) == pytest.approx(
            (theirs["score"], theirs["p_value"]), rel=1e-12
        )
    assert f"{option}:200|seed:7" in found["bleu"]["signature"]


@pytest.mark.parametrize("changed", [1, 2, 3, 5])
def test_few_sentences_that_differ_prove_nothing(changed):
    """Each for the better: all of them exchanged, or none, are 2 ways of 2^n."""
    baseline, _, references = corpus(40)
    wrong = [index for index, line in enumerate(baseline) if line != references[0][index]][:changed]
    system = [references[0][index] if index in wrong else line for index, line in enumerate(baseline)]
    options = {"test": "randomization", "metrics": ["bleu", "chrf"], "num_samples": 2000}
    for found in compare_systems(baseline, system, references, **options).values():
        assert found["p_value"] == pytest.approx(2 / 2**changed, abs=0.001)


def test_the_seed_decides_and_the_environment_stays(monkeypatch):
    baseline, system, references = corpus(30, seed=2)
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    found = [
        compare_systems(baseline, system, references, num_samples=100, seed=seed)["bleu"]["p_value"]
        for seed in (1, 1, 2)
    ]
    assert found[0] == found[1] != found[2]
    assert os.environ["SACREBLEU_SEED"] == "99"
    monkeypatch.delenv("SACREBLEU_SEED")
    compare_systems(baseline, system, references, num_samples=10)
    assert "SACREBLEU_SEED" not in os.environ


@pytest.mark.parametrize("test", ["bootstrap", "randomization", "sign"])
def test_no_difference_is_chance(test):
    baseline, _, references = corpus(10)
    found = compare_systems(baseline, baseline, references, test=test)["bleu"]
    assert found["p_value"] == 1


def test_marks_of_either_sign():
    """A p-value of one sign is about half of that of both."""
    comparison = {"baseline": 30.0, "score": 29.0, "low": -2.5, "high": 0.5, "signature": "s"}
    comparison |= {"baseline_runs": [30.0], "runs": [29.0], "baseline_deviation": None, "deviation": None}
    settings = {"num_samples": 9, "seed": 1}

    def row(test, p_value):
        systems = {"s": {"bleu": {**comparison, "p_value": p_value}}}
        record = {"baseline": "b", "systems": systems, "settings": {**settings, "test": test}}
        record["settings"]["two_sided"] = test != "bootstrap"
        return comparison_report(record).splitlines()[3]

    assert row("bootstrap", 0.026) == "| s | 29.00 | -1.00 | -2.50 to +0.50 | 0.0260 |"
    assert row("bootstrap", 0.024) == "| s | 29.00† | -1.00 | -2.50 to +0.50 | 0.0240 |"
    assert row("bootstrap", 0.004) == "| s | 29.00‡ | -1.00 | -2.50 to +0.50 | 0.0040 |"
    assert row("randomization", 0.03) == "| s | 29.00† | -1.00 | -2.50 to +0.50 | 0.0300 |"


@pytest.mark.parametrize(
    "counts",
    [
        [50, 30, 20, 10, 80, 70, 60, 50, 80, 85],
        [50, 30, 20, 10, 80, 70, 60, 50, 80, 60],
        [5, 3, 0, 0, 8, 7, 6, 5, 8, 8],
        [0, 0, 0, 0, 8, 7, 6, 5, 8, 8],
        [2, 1, 0, 0, 2, 1, 0, 0, 2, 2],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 4],
    ],
)
def test_bleu_is_sacrebleus(counts):
    expected = BLEU.compute_bleu(counts[:4], counts[4:8], *counts[8:], smooth_method="exp").score
    found = bleu(np.array([counts, counts], dtype=float))
    assert found == pytest.approx([expected] * 2, rel=1e-12)


def test_packed_and_unpacked():
    hypotheses = ["the cat sat on the mat", "a dog", "", "on the mat sat a cat ."]
    references = [["the cat sat on a mat", "the dog ran", "a", "a cat sat on the mat ."]] * 2
    metric = BLEU(tokenize="none")
    counts = sentence_statistics(metric, hypotheses, references)
    found = unpack_statistics(pack_statistics(counts))
    assert found.tolist() == counts
    assert bleu(found.sum(0)) == pytest.approx(metric.corpus_score(hypotheses, references).score, rel=1e-12)
