"""The records of a study's rows.

The record of a run is named STUDY_ROW_run_record, or STUDY_ROW_seed2_run_record and so on; STUDY_ROW_trainer_state is
its log, which may be missing, and STUDY_ROW_TEST its scores on a test set. A row is known by its name only: rename it,
or remove its lines and its run, when it changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.records import Record, read_records
from benchmarks.studies.study import Row, Study


@dataclass(frozen=True)
class SeedRecords:
    """The records of one run: that of training, scores by test set, and the Trainer's log."""

    seed: int
    run: Record
    scores: Mapping[str, Record]
    log: Sequence[Mapping[str, float]]

    @property
    def updates_per_second(self) -> float | None:
        """Return the speed of the last call; None if it is not known after how many updates it began."""
        checkpoint = Path(self.run["training"].get("resume_from_checkpoint") or "checkpoint-0")
        _, _, number = checkpoint.name.rpartition("-")
        if not number.isdecimal():
            return None
        updates = self.run["updates"] - int(number)
        return updates / self.run["seconds_of_this_call"] if updates else None


@dataclass(frozen=True)
class Result:
    """A row and the records of its finished seeds."""

    row: Row
    seeds: Sequence[SeedRecords]

    def bleu(self, test: str) -> list[float]:
        """Return BLEU by seed."""
        return [bleu_of(one.scores[test])["score"] for one in self.seeds]

    def curve(self, *names: str) -> dict[int, list[float]]:
        """Return what the seeds logged by update, under the first of the names that was logged."""
        for name in names:
            curve: dict[int, list[float]] = {}
            for one in self.seeds:
                # The last update is logged twice.
                logged = {entry["step"]: entry[name] for entry in one.log if name in entry}
                for update, value in logged.items():
                    curve.setdefault(update, []).append(value)
            if curve:
                return dict(sorted(curve.items()))
        return {}


def bleu_of(evaluation: Record) -> Record:
    """Return the score and the signature of BLEU in the record of an evaluation."""
    return evaluation["scores"]["bleu"]


def record_name(study: Study, row: Row, seed: int, kind: str) -> str:
    """Return the name of a row's record.

    Args:
        study: its name comes first.
        row: a row of the study.
        seed: the first seed is not named.
        kind: run_record, trainer_state or a test set.
    """
    seed_name = "" if seed == 1 else f"_seed{seed}"
    return f"{study.name}_{row.name}{seed_name}_{kind}"


def read_results(study: Study, file: Path) -> list[Result]:
    """Return the rows with every record of at least one seed, in the study's order."""
    known = read_records(file)
    results = []
    for row in study.rows:
        seeds = []
        for seed in row.seeds:
            records = _records_of_seed(study, row, seed, known)
            if records is not None:
                seeds.append(records)
        if seeds:
            results.append(Result(row, seeds))
    return results


def _records_of_seed(study: Study, row: Row, seed: int, known: Record) -> SeedRecords | None:
    """Return the records of a run, or None if one is missing. Only the Trainer's log may be missing.

    Args:
        study: has the row.
        row: what was trained.
        seed: of the run.
        known: all records, by name.
    """
    run = known.get(record_name(study, row, seed, "run_record"))
    scores = {}
    for test in study.tests:
        name = record_name(study, row, seed, test.name)
        scores[test.name] = known.get(name)
    if run is None or None in scores.values():
        return None
    state = known.get(record_name(study, row, seed, "trainer_state"), {})
    return SeedRecords(seed, run, scores, state.get("log_history", []))
