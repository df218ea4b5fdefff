"""The tests of significance against sacreBLEU's own command, and against counts that are made by hand."""

import json
import math
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from hf_capsule_mt.evaluation.bleu_statistics import bleu, pack_statistics, sentence_statistics, unpack_statistics
from hf_capsule_mt.evaluation.scores import score_translations
from hf_capsule_mt.evaluation.significance import compare_systems, comparison_report

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
    comparison = {"baseline": 30.0, "score": 29.0, "signature": "s"}
    settings = {"num_samples": 9, "seed": 1}

    def row(test, p_value):
        systems = {"s": {"bleu": {**comparison, "p_value": p_value}}}
        record = {"baseline": "b", "systems": systems, "settings": {**settings, "test": test}}
        return comparison_report(record).splitlines()[3]

    assert row("bootstrap", 0.026) == "| s | 29.00 | -1.00 | 0.0260 |"
    assert row("bootstrap", 0.024) == "| s | 29.00† | -1.00 | 0.0240 |"
    assert row("bootstrap", 0.004) == "| s | 29.00‡ | -1.00 | 0.0040 |"
    assert row("randomization", 0.03) == "| s | 29.00† | -1.00 | 0.0300 |"


@pytest.mark.parametrize(
    "statistics",
    [
        [50, 30, 20, 10, 80, 70, 60, 50, 80, 85],
        [50, 30, 20, 10, 80, 70, 60, 50, 80, 60],
        [5, 3, 0, 0, 8, 7, 6, 5, 8, 8],
        [0, 0, 0, 0, 8, 7, 6, 5, 8, 8],
        [2, 1, 0, 0, 2, 1, 0, 0, 2, 2],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 4],
    ],
)
def test_bleu_is_sacrebleus(statistics):
    expected = BLEU.compute_bleu(statistics[:4], statistics[4:8], *statistics[8:], smooth_method="exp").score
    found = bleu(np.array([statistics, statistics], dtype=float))
    assert found == pytest.approx([expected] * 2, rel=1e-12)


def test_packed_and_unpacked():
    hypotheses = ["the cat sat on the mat", "a dog", "", "on the mat sat a cat ."]
    references = [["the cat sat on a mat", "the dog ran", "a", "a cat sat on the mat ."]] * 2
    metric = BLEU(tokenize="none")
    statistics = sentence_statistics(metric, hypotheses, references)
    found = unpack_statistics(pack_statistics(statistics))
    assert found.tolist() == statistics
    assert bleu(found.sum(0)) == pytest.approx(metric.corpus_score(hypotheses, references).score, rel=1e-12)
