"""How often benchmarks/does_routing_pay.md answers rightly: its rule and intervals, of made-up differences of BLEU.

    python -m benchmarks.studies.power

A row is beside one other, on two test sets, with three seeds. A difference is the true gain, an error of the test set's
sentences, which all seeds share, and one of the seed. Intervals are drawn as in benchmarks/studies/compare.py, with
normal errors; a row is asked about after two seeds, and after three unless the answer was no.
"""

import math

import numpy as np

from benchmarks.studies.compare import Comparison, judge_row
from benchmarks.studies.study import Question, Row, Study, Test
from hf_capsule_mt.evaluation.tables import table_in_markdown

EFFECT = 0.5
SENTENCES = 0.24
"""Standard error of a mean difference by the sentences of a test set; in the study's records 0.14 to 0.53."""
SEEDS = (0.2, 0.5, 0.75, 1.2)
"""Standard deviations of a difference from seed to seed; in the study's records 0.03 to 1.21."""
GAINS = (0.0, 0.5, 1.0)
ROWS_OF_A_CASE = 2000
DRAWS = 400
BASELINE = 30.0
"""BLEU of the row that another one is beside. Only the difference counts."""
_SAME = {"method": "em-routing", "size": "tiny", "config": {}, "seeds": (1, 2, 3), "train": {}}
PLAIN = Row(name="plain", **_SAME)
ROUTED = Row(name="routed", **_SAME)
QUESTION = Question("q", "Does it pay?", EFFECT, ("routed",))
STUDY = Study("s", "S", {}, (Test("one"), Test("other")), (PLAIN, ROUTED), {}, "plain", questions=(QUESTION,))


def main() -> None:
    """Print a line for each true gain and each deviation of seeds, then how often intervals hold the truth."""
    generator = np.random.default_rng(12345)
    table = [["true gain", "deviation of seeds", "yes", "no", "undecided"]]
    for gain in GAINS:
        for deviation in SEEDS:
            answers = [answer(gain, deviation, generator) for _ in range(ROWS_OF_A_CASE)]
            counts = [answers.count(kind) for kind in ("yes", "no", "undecided")]
            shares = [f"{count / len(answers):.0%}" for count in counts]
            table.append([f"{gain:.1f}", f"{deviation:g}", *shares])
    print(table_in_markdown(table))
    table = [["deviation of seeds", "of two seeds", "of three seeds"]]
    for deviation in SEEDS:
        of_two = coverage(deviation, 2, generator)
        of_three = coverage(deviation, 3, generator)
        table.append([f"{deviation:g}", f"{of_two:.0%}", f"{of_three:.0%}"])
    print(f"\n{table_in_markdown(table)}")


def coverage(deviation: float, seeds: int, generator: np.random.Generator) -> float:
    """Return the share of intervals that hold the truth, a gain of 0."""
    hits = 0
    for _ in range(ROWS_OF_A_CASE):
        differences = differences_of(0.0, deviation, generator)[:seeds]
        comparison = compare("one", differences, generator)
        hits += comparison.low <= 0 <= comparison.high
    return hits / ROWS_OF_A_CASE


def answer(gain: float, deviation: float, generator: np.random.Generator) -> str:
    """Return what a row with this gain is answered in the end."""
    differences = {test.name: differences_of(gain, deviation, generator) for test in STUDY.tests}
    for seeds in (2, 3):
        compared = [compare(test, of_test[:seeds], generator) for test, of_test in differences.items()]
        verdict, _ = judge_row(STUDY, QUESTION, "routed", compared)
        if verdict == "no":
            break
    return verdict


def differences_of(gain: float, deviation: float, generator: np.random.Generator) -> np.ndarray:
    """Return what three seeds differ by on a test set."""
    return gain + generator.normal(0, SENTENCES) + generator.normal(0, deviation, 3)


def compare(test: str, differences: np.ndarray, generator: np.random.Generator) -> Comparison:
    """Return what the study would know by these differences of runs."""
    seeds = len(differences)
    mean = differences.mean()
    drawn = differences[generator.integers(seeds, size=(DRAWS, seeds))].mean(1)
    # As in compare.py: means of n that are drawn from n spread less than those of n new ones.
    scale = math.sqrt(seeds / (seeds - 1))
    spread = mean + scale * (drawn - mean) + generator.normal(0, SENTENCES, DRAWS)
    low, high = np.percentile(spread, [2.5, 97.5])
    p_value = math.erfc(abs(mean) / SENTENCES / math.sqrt(2))
    return Comparison("routed", "plain", test, (), seeds, BASELINE, BASELINE + mean, low, high, p_value)


if __name__ == "__main__":
    main()
