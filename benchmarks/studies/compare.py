"""Rows of a study beside the rows that they are against: differences, their intervals, and answers to questions.

Training draws the seed and the test set draws the sentences, so the interval is a bootstrap over both (Koehn 2004, with
runs drawn as well: in pairs, for runs of one seed may share their beginning or their data). Approximate randomization
(Riezler and Maxwell 2005) exchanges translations of a sentence between the two rows, in the runs of all seeds together,
for what a method does to a sentence recurs from seed to seed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.studies.results import Result, of_seeds
from benchmarks.studies.study import Question, Study
from hf_capsule_mt.evaluation.bleu_statistics import bleu, unpack_statistics

SAMPLES = 10000
# Samples that are summed up together: each has a number for every run and sentence.
_AT_ONCE = 250
P_VALUE = 0.05
_FEWEST_SEEDS = 2  # one run does not show how much another seed would change
_FAR = 3.0  # BLEU, a choice: more than another seed is thought to change
_NOTHING = "nothing to compare yet"
HOW = (
    f"Intervals come from a bootstrap over sentences and over pairs of runs of the same seed (Koehn 2004, {SAMPLES:,} "
    "samples). With two or three seeds they are too narrow, and more so when seeds differ much. "
    f"p comes from two-sided approximate randomization (Riezler and Maxwell 2005, {SAMPLES:,} samples). "
    "It exchanges a sentence in all seeds of both rows together, and does not know how seeds differ."
)
"""What the tables of comparisons mean."""
CRITERION = f"""\
* **Yes**: all seeds were run, and at least {_FEWEST_SEEDS}. On every test set, the row gains at least the BLEU \
asked for over each row that it is compared with. All intervals are above 0, and p < {P_VALUE:g}.
* **No**: compared with some row on some test set, the interval ends below the BLEU asked for. This takes at least \
{_FEWEST_SEEDS} seeds. One seed is enough if the interval ends {_FAR:g} BLEU lower.
* **Undecided**: all seeds were run, and the answer is neither yes nor no.
* **Open**: runs are missing.

A question about several rows takes the first answer that one of its rows has: yes, open, undecided, no. \
Nothing is corrected for the number of rows."""
"""What counts as an answer."""
_LIKENESS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "training text": lambda run: run.get("data_sha256"),
    "tokenizer": lambda run: run.get("tokenizer_hash"),
    "machine": lambda run: run["environment"]["device"],
    "precision": lambda run: run.get("mixed_precision", "no"),
    "number of processes": lambda run: run["processes"],
}
"""What two runs have in common if only their rows differ."""


@dataclass(frozen=True)
class Comparison:
    """A row beside another one on a test set; `unlike` has what else differs, such as "machine of seed 1"."""

    row: str
    against: str
    test: str
    unlike: Sequence[str]
    seeds: int
    baseline: float
    score: float
    low: float
    high: float
    p_value: float

    @property
    def difference(self) -> float:
        """Return how much more BLEU the row has, the mean over seeds."""
        return self.score - self.baseline

    @property
    def named_against(self) -> str:
        """Return the other row's name, with what else is not the same."""
        return self.against + _in_brackets(self.unlike)

    @property
    def interval(self) -> str:
        """Return the 95% interval of the difference as text."""
        return f"{self.low:+.2f} to {self.high:+.2f}"

    @property
    def with_interval(self) -> str:
        """Return the difference and its interval as text."""
        return f"{self.difference:+.2f} ({self.interval})"

    def __str__(self) -> str:
        """Return the difference, its interval and p."""
        return f"{self.with_interval}, {f'p {self.p_value:.3f}' if self.p_value >= 0.001 else 'p < 0.001'}"


def compare_seeds(
    baseline: Sequence[np.ndarray], system: Sequence[np.ndarray], samples: int = SAMPLES
) -> dict[str, Any]:
    """Compare the runs of a system with as many of a baseline, by the statistics `[sentences, 10]` of their BLEU.

    Runs in the same place share a seed. Returns the fields of a [`Comparison`] from `seeds` on.
    """
    old, new = (np.stack(runs).astype(np.float64) for runs in (baseline, system))
    generator = np.random.default_rng(12345)
    before, after = (float(bleu(each.sum(1)).mean()) for each in (old, new))
    low, high = np.percentile(_differences(old, new, samples, generator), [2.5, 97.5])
    p_value = _randomization(old, new, samples, generator)
    return {
        **{"seeds": len(old), "baseline": before, "score": after},
        **{"low": float(low), "high": float(high), "p_value": p_value},
    }


def _differences(old: np.ndarray, new: np.ndarray, samples: int, generator: np.random.Generator) -> np.ndarray:
    """Return differences of the means, of pairs of runs and sentences drawn with replacement, `[samples]`."""
    seeds, sentences, _ = old.shape
    # Means of n that are drawn from n spread by (n - 1) / n of the variance that those of n new ones have.
    scale = np.sqrt(seeds / max(1, seeds - 1))
    found = []
    for start in range(0, samples, _AT_ONCE):
        number = min(_AT_ONCE, samples - start)
        texts, pairs = (_times_drawn(generator, number, each) for each in (sentences, seeds))
        before, after = (bleu(_sums(texts, each)) for each in (old, new))
        gains = after - before
        mean = gains.mean(-1)
        found.append(mean + scale * ((gains * pairs).sum(-1) / seeds - mean))
    return np.concatenate(found)


def _times_drawn(generator: np.random.Generator, samples: int, size: int) -> np.ndarray:
    """Return how often each of `size` is among as many that are drawn with replacement, `[samples, size]`."""
    drawn = generator.integers(size, size=(samples, size)) + size * np.arange(samples)[:, None]
    return np.bincount(drawn.ravel(), minlength=samples * size).reshape(samples, size)


def _sums(times: np.ndarray, statistics: np.ndarray) -> np.ndarray:
    """Return sums of `[runs, sentences, 10]`, `[samples, runs, 10]`; a sentence counts `times[sample, sentence]`."""
    # Products of integers would take a loop.
    return np.einsum("bn,snk->bsk", times.astype(np.float64), statistics, optimize=True)


def _randomization(old: np.ndarray, new: np.ndarray, samples: int, generator: np.random.Generator) -> float:
    """Return the share of exchanges that make the means differ as much as they do."""
    change, totals = new - old, (old.sum(1), new.sum(1))
    observed = abs(bleu(totals[1]).mean() - bleu(totals[0]).mean())
    as_large = 0
    for start in range(0, samples, _AT_ONCE):
        number = min(_AT_ONCE, samples - start)
        moved = _sums(generator.integers(2, size=(number, change.shape[1]), dtype=bool), change)
        differences = (bleu(totals[1] - moved) - bleu(totals[0] + moved)).mean(-1)
        # Sums of the same sentences may differ in the last bit.
        as_large += int((np.abs(differences) >= observed - 1e-9).sum())
    return (as_large + 1) / (samples + 1)


def compare_rows(study: Study, results: Sequence[Result]) -> list[Comparison]:
    """Compare every row with those that it is against, on every test set, by the seeds that both have.

    Raises:
        ValueError: if rows were scored on a test set with other references or another BLEU.
    """
    found = []
    runs = {(result.row.name, one.seed): one.run for result in results for one in result.seeds}
    for test in study.tests:
        scored = {
            (result.row.name, one.seed): one.scores[test.name]
            for result in results
            for one in result.seeds
            if one.scores[test.name].get("bleu_statistics")
        }
        kinds = {
            (one["scores"]["bleu"]["signature"], *(file["sha256"] for file in one["references"]))
            for one in scored.values()
        }
        if len(kinds) > 1:
            raise ValueError(f"{test.name} was scored with several references or kinds of BLEU. Score the rows alike.")
        statistics = {key: unpack_statistics(one["bleu_statistics"]) for key, one in scored.items()}
        for result in results:
            name = result.row.name
            for other in study.against(result.row):
                seeds = [one.seed for one in result.seeds if {(name, one.seed), (other, one.seed)} <= statistics.keys()]
                if seeds:
                    pair = ([statistics[each, seed] for seed in seeds] for each in (other, name))
                    unlike = _unlike({seed: (runs[name, seed], runs[other, seed]) for seed in seeds})
                    found.append(Comparison(name, other, test.name, unlike, **compare_seeds(*pair)))
    return found


def _unlike(pairs: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[str]:
    found = []
    for name, of in _LIKENESS.items():
        values = {seed: [of(run) for run in pair] for seed, pair in pairs.items()}
        seeds = [seed for seed, (one, other) in values.items() if one and other and one != other]
        found += [name + of_seeds(seeds, pairs)] if seeds else []
    return found


def _in_brackets(unlike: Iterable[str]) -> str:
    text = ", ".join(f"other {what}" for what in dict.fromkeys(unlike))
    return f" ({text})" if text else ""


def judge(
    study: Study, question: Question, comparisons: Sequence[Comparison], unknown: Collection[str] = ()
) -> tuple[str, str]:
    """Answer a question by `CRITERION`: "yes", "no", "open" or "undecided", and why.

    The scores of the rows `unknown` have no statistics that they could be compared by.
    """
    verdicts = {name: judge_row(study, question, name, comparisons) for name in question.rows}
    answers = {answer for answer, _ in verdicts.values()}
    answer = next(each for each in ("yes", "open", "undecided", "no") if each in answers)
    found = {name: verdict for name, verdict in verdicts.items() if _of_row(study, question, name, comparisons)}
    # What decides comes first.
    ordered = sorted(found.items(), key=lambda item: item[1][0] != answer)
    whys = [f"`{name}`: {'' if own == answer else f'{own}, '}{why}" for name, (own, why) in ordered]
    missing = [name for name in question.rows if name not in found]
    unscored = [name for name in missing if {name, *study.against(study.row(name), question)} & {*unknown}]
    not_run = [name for name in missing if name not in unscored]
    for reason, names in (("no statistics of sentences to compare (score them again)", unscored), ("not run", not_run)):
        if names:
            whys.append(f"{reason}: {', '.join(f'`{name}`' for name in names)}")
    return answer, "; ".join(whys) if found or unscored else _NOTHING


def _of_row(study: Study, question: Question, name: str, comparisons: Sequence[Comparison]) -> list[Comparison]:
    others = study.against(study.row(name), question)
    return [one for one in comparisons if one.row == name and one.against in others]


def judge_row(study: Study, question: Question, name: str, comparisons: Sequence[Comparison]) -> tuple[str, str]:
    """Answer a question for one of its rows."""
    row, effect = study.row(name), question.effect
    own = _of_row(study, question, name, comparisons)
    if not own:
        return "open", _NOTHING
    enough = [one for one in own if one.seeds >= _FEWEST_SEEDS or one.high <= effect - _FAR]
    lowest = min(enough, key=lambda one: one.high, default=None)
    if lowest is not None and lowest.high < effect:
        return "no", _measured(lowest.against, own)
    others = study.against(row, question)
    seeds = min(one.seeds for one in own)
    if len(own) < len(others) * len(study.tests) or seeds < len(row.seeds):
        return "open", ", ".join(_so_far(other, own, len(row.seeds)) for other in others)
    least = min(own, key=lambda one: one.difference)
    is_ahead = all(one.difference >= effect and one.low > 0 and one.p_value < P_VALUE for one in own)
    if is_ahead and seeds >= _FEWEST_SEEDS:
        return "yes", ", ".join(_measured(other, own) for other in others)
    return "undecided", _measured(least.against, own)


def _measured(other: str, comparisons: Sequence[Comparison]) -> str:
    found = [one for one in comparisons if one.against == other]
    unlike = _in_brackets(what for one in found for what in one.unlike)
    return f"{' and '.join(one.with_interval for one in found)} against `{other}`{unlike}"


def _so_far(other: str, comparisons: Sequence[Comparison], seeds: int) -> str:
    found = [one for one in comparisons if one.against == other]
    if not found:
        return f"nothing yet against `{other}`"
    differences = " and ".join(f"{one.difference:+.2f}" for one in found)
    return f"{differences} against `{other}` with {min(one.seeds for one in found)} of {seeds} seeds"


def question_table(study: Study, question: Question, comparisons: Sequence[Comparison]) -> list[list[str]]:
    """Return the differences of the question's rows, a line for each row and each row it is against."""
    tests = [test.name for test in study.tests]
    table = [["row", "against", "seeds", *(f"Δ {test}" for test in tests), "answer"]]
    for name in question.rows:
        own = _of_row(study, question, name, comparisons)
        for other in dict.fromkeys(one.against for one in own):
            by_test = {one.test: one for one in own if one.against == other}
            cells = [str(by_test[test]) if test in by_test else "" for test in tests]
            first, seeds = next(iter(by_test.values())), min(one.seeds for one in by_test.values())
            answer, _ = judge_row(study, question, name, comparisons)
            table.append([name, first.named_against, str(seeds), *cells, answer])
    return table
