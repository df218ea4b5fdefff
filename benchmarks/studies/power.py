"""How often benchmarks/routing/does_routing_pay.md answers rightly: its rule and intervals, of made-up differences.

    python -m benchmarks.studies.power

A row is beside one other, on two test sets, with three seeds. A difference is the true gain, an error of the test set's
sentences, which all seeds share, and one of the seed. Intervals are drawn as in bootstrap_differences(), with normal
errors; a row is asked about after two seeds, and after three unless the answer was no.
"""

import math

import numpy as np

from benchmarks.studies.compare import Comparison, judge_row
from benchmarks.studies.score_tables import Table
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
ANSWERS = ("yes", "no", "undecided")
QUESTION = Question("q", "Does it pay?", EFFECT, ("routed",))
STUDY = Study(
    name="s",
    title="S",
    data={},
    tests=(Test("one"), Test("other")),
    rows=(
        Row(name="plain", method="em-routing", size="tiny", seeds=(1, 2, 3)),
        Row(name="routed", method="em-routing", size="tiny", seeds=(1, 2, 3)),
    ),
    options={},
    baseline="plain",
    questions=(QUESTION,),
)


def main() -> None:
    """Print a line for each true gain and each deviation of seeds, then how often intervals hold the truth."""
    generator = np.random.default_rng(12345)
    print(table_in_markdown(answer_table(generator)))
    print()
    print(table_in_markdown(coverage_table(generator)))


def answer_table(generator: np.random.Generator) -> Table:
    """Return how often each answer is given, by the true gain and the deviation of seeds."""
    table = [["true gain", "deviation of seeds", *ANSWERS]]
    for gain in GAINS:
        for deviation in SEEDS:
            answers = [answer(gain, deviation, generator) for _ in range(ROWS_OF_A_CASE)]
            cells = [f"{gain:.1f}", f"{deviation:g}"]
            for kind in ANSWERS:
                share = answers.count(kind) / len(answers)
                cells.append(f"{share:.0%}")
            table.append(cells)
    return table


def coverage_table(generator: np.random.Generator) -> Table:
    """Return how often intervals hold the truth, by the deviation of seeds."""
    table = [["deviation of seeds", "of two seeds", "of three seeds"]]
    for deviation in SEEDS:
        of_two = coverage(deviation, 2, generator)
        of_three = coverage(deviation, 3, generator)
        table.append([f"{deviation:g}", f"{of_two:.0%}", f"{of_three:.0%}"])
    return table


def coverage(deviation: float, seeds: int, generator: np.random.Generator) -> float:
    """Return the share of intervals that hold the truth, a gain of 0."""
    hits = 0
    for _ in range(ROWS_OF_A_CASE):
        differences = differences_of(0.0, deviation, generator)
        comparison = compare("one", differences[:seeds], generator)
        if comparison.low <= 0 <= comparison.high:
            hits += 1
    return hits / ROWS_OF_A_CASE


def answer(gain: float, deviation: float, generator: np.random.Generator) -> str:
    """Return what a row with this gain is answered in the end."""
    differences = {}
    for test in STUDY.tests:
        differences[test.name] = differences_of(gain, deviation, generator)
    for seeds in (2, 3):
        comparisons = []
        for test, of_test in differences.items():
            comparisons.append(compare(test, of_test[:seeds], generator))
        verdict, _ = judge_row(STUDY, QUESTION, "routed", comparisons)
        if verdict == "no":
            break
    return verdict


def differences_of(gain: float, deviation: float, generator: np.random.Generator) -> np.ndarray:
    """Return what three seeds differ by on a test set."""
    of_sentences = generator.normal(0, SENTENCES)
    of_seeds = generator.normal(0, deviation, 3)
    return gain + of_sentences + of_seeds


def compare(test: str, differences: np.ndarray, generator: np.random.Generator) -> Comparison:
    """Return what the study would know by these differences of runs."""
    seeds = len(differences)
    mean = differences.mean()
    indices = generator.integers(seeds, size=(DRAWS, seeds))
    drawn_means = differences[indices].mean(1)
    # As in bootstrap_differences(): means of n that are drawn from n spread less than those of n new ones.
    scale = math.sqrt(seeds / (seeds - 1))
    errors = generator.normal(0, SENTENCES, DRAWS)
    spread = mean + scale * (drawn_means - mean) + errors
    low, high = np.percentile(spread, [2.5, 97.5])
    deviations = abs(mean) / SENTENCES
    return Comparison(
        row="routed",
        against="plain",
        test=test,
        unlike=(),
        seeds=seeds,
        baseline=BASELINE,
        score=BASELINE + mean,
        low=low,
        high=high,
        p_value=math.erfc(deviations / math.sqrt(2)),
    )


if __name__ == "__main__":
    main()
