"""Rows of a study tested against the rows that they name, with all seeds that both have, from records alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.studies.results import Result, of_seeds
from benchmarks.studies.seeds import SAMPLES, SeedComparison, compare_seeds
from benchmarks.studies.study import Study
from hf_capsule_mt.evaluation.bleu_statistics import unpack_statistics
from hf_capsule_mt.evaluation.significance import significance_mark
from hf_capsule_mt.records import RunRecord

HOW = (
    "Intervals of the difference: bootstrap over pairs of runs of the same seed, and sentences (Koehn 2004), "
    f"{SAMPLES['bootstrap']:,} samples; of two or three seeds they are too narrow, the more so the more "
    "seeds differ. p: approximate randomization (Riezler and Maxwell 2005), two-sided, which exchanges a sentence in "
    f"all seeds that both have together, {SAMPLES['randomization']:,} samples; it knows nothing of how seeds differ."
)
"""What the tables of comparisons mean."""

# What two runs have in common if nothing but their rows tells them apart.
_LIKENESS: dict[str, Callable[[RunRecord], Any]] = {
    "training text": lambda run: run.data_sha256,
    "tokenizer": lambda run: run.tokenizer_hash,
    "machine": lambda run: run.environment.device,
    "precision": lambda run: run.mixed_precision,
    "number of processes": lambda run: run.processes,
}


@dataclass(frozen=True)
class RowComparison:
    """A row beside another one on a test set."""

    row: str
    against: str
    test: str
    found: SeedComparison
    unlike: tuple[str, ...] = ()
    """What else is not the same in both, such as "training text", or "machine of seed 1" if of no other."""

    @property
    def difference(self) -> float:
        """Return how much more BLEU the row has, the mean over seeds."""
        return self.found.score - self.found.baseline

    @property
    def named_against(self) -> str:
        """Return the other row's name, with what else is not the same."""
        return self.against + in_brackets(self.unlike)


def in_brackets(unlike: Iterable[str]) -> str:
    """Return what is not the same in two rows, to be put behind the name of one."""
    text = ", ".join(f"other {what}" for what in dict.fromkeys(unlike))
    return f" ({text})" if text else ""


def compare_rows(study: Study, results: Sequence[Result]) -> list[RowComparison]:
    """Compare every row with those that it is against, else with the study's baseline, on every test set.

    Rows whose records lack the statistics of their sentences are left out.

    Raises:
        ValueError: if the records of a test set are of other references or another BLEU, or one is damaged.
    """
    found = []
    runs = {(result.row.name, one.seed): one.run for result in results for one in result.seeds}
    for test in study.tests:
        _check_same_scores(results, test.name)
        statistics = {result.row.name: _by_seed(result, test.name) for result in results}
        for result in results:
            name = result.row.name
            for other in study.compared_with(result.row):
                both = [seed for seed in statistics[name] if seed in statistics.get(other, {})]
                if both:
                    pair = ([statistics[each][seed] for seed in both] for each in (other, name))
                    unlike = _unlike({seed: (runs[name, seed], runs[other, seed]) for seed in both})
                    found.append(RowComparison(name, other, test.name, compare_seeds(*pair), unlike))
    return found


def without_statistics(results: Sequence[Result]) -> list[str]:
    """Return the rows that are not compared, in part at least, for a record lacks the statistics of its sentences."""
    return [
        result.row.name
        for result in results
        if any(one.bleu_statistics is None for records in result.seeds for one in records.evaluations.values())
    ]


def _unlike(pairs: Mapping[int, tuple[RunRecord, RunRecord]]) -> tuple[str, ...]:
    """Name what, told by both records, is not the same in the two runs of some seeds, beside what their rows are."""
    found = []
    for name, of in _LIKENESS.items():
        values = {seed: (of(run), of(other)) for seed, (run, other) in pairs.items()}
        seeds = [seed for seed, (one, other) in values.items() if None not in (one, other) and one != other]
        found += [name + of_seeds(seeds, pairs)] if seeds else []
    return tuple(found)


def _check_same_scores(results: Sequence[Result], test: str) -> None:
    kinds: dict[tuple, str] = {}
    for result in results:
        for one in (records.evaluations[test] for records in result.seeds):
            if one.bleu_statistics is not None:
                references = tuple(file.sha256 for file in one.references)
                kinds[one.scores["bleu"].signature, references] = result.row.name
    if len(kinds) > 1:
        raise ValueError(
            f"the rows {' and '.join(kinds.values())} were scored on {test} with other references or another BLEU "
            f"({'; '.join(signature for signature, _ in kinds)}); score them alike"
        )


def _by_seed(result: Result, test: str) -> dict[int, np.ndarray]:
    packed = {records.seed: records.evaluations[test].bleu_statistics for records in result.seeds}
    try:
        return {seed: unpack_statistics(each) for seed, each in packed.items() if each is not None}
    except ValueError as error:
        raise ValueError(
            f"the records of {result.row.name} on {test}: {error}; score its translations again"
        ) from error


def comparison_tables(comparisons: Sequence[RowComparison]) -> list[list[list[str]]]:
    """Return a table for each test set."""
    tables: dict[str, list[list[str]]] = {}
    for one in comparisons:
        table = tables.setdefault(one.test, [[one.test, "against", "seeds", "BLEU", "Δ", "95% interval", "p"]])
        score = f"{one.found.score:.2f}{significance_mark(one.found)}"
        cells = [str(one.found.seeds), score, f"{one.difference:+.2f}", interval(one), f"{one.found.p_value:.4f}"]
        table.append([one.row, one.named_against, *cells])
    return list(tables.values())


def interval(comparison: RowComparison) -> str:
    """Return the 95% interval of the difference as text."""
    return f"{comparison.found.low:+.2f} to {comparison.found.high:+.2f}"
