"""The records of a study's rows, and the tables that are made of them: lists of rows of cells.

The record of a run is named STUDY_ROW_run_record, or STUDY_ROW_seed2_run_record and so on; STUDY_ROW_trainer_state is
its log, which may be missing, and STUDY_ROW_TEST its scores on a test set. A row is known by its name only: rename it,
or remove its lines and its run, when it changes.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from benchmarks.records import read_records
from benchmarks.studies.study import Row, Study
from hf_capsule_mt.evaluation.bleu_statistics import unpack_statistics
from hf_capsule_mt.files import parse_override

Table = list[list[str]]
# Options that decide the time of an update, next to the model.
_OF_AN_UPDATE = (
    *("max_tokens_per_batch", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("rdrop_alpha", "activation_checkpointing"),
)
ADEQUACY = (
    "Adequacy is measured by word alignment. CDR is the share of the source words translated by the reference that the "
    "row translates too (Kong et al. 2019). Under-translated words are the others. Over-translated words are those for "
    "which the row repeats a word. Both are shares of all source words. Higher CDR is better. "
    "With an aligner like eflomal, CDR of the same translations varies by up to 0.004."
)
"""What the table of adequacy shows."""


@dataclass(frozen=True)
class SeedRecords:
    """The records of one run: that of training, scores by test set, and the Trainer's log."""

    seed: int
    run: Mapping[str, Any]
    scores: Mapping[str, Mapping[str, Any]]
    log: Sequence[Mapping[str, float]]

    @property
    def updates_per_second(self) -> float | None:
        """Return the speed of the last call; None if it is not known after how many updates it began."""
        before = Path(self.run["training"].get("resume_from_checkpoint") or "checkpoint-0").name.rpartition("-")[2]
        if not before.isdecimal() or int(before) == self.run["updates"]:
            return None
        return (self.run["updates"] - int(before)) / self.run["seconds_of_this_call"]


@dataclass(frozen=True)
class Result:
    """A row and the records of its finished seeds."""

    row: Row
    seeds: Sequence[SeedRecords]

    def bleu(self, test: str) -> list[float]:
        """Return BLEU by seed."""
        return [one.scores[test]["scores"]["bleu"]["score"] for one in self.seeds]

    def curve(self, *names: str) -> dict[int, list[float]]:
        """Return what the seeds logged by update, under the first of the names that was logged."""
        for name in names:
            curve: dict[int, list[float]] = {}
            for one in self.seeds:
                # The last update is logged twice.
                for update, value in {entry["step"]: entry[name] for entry in one.log if name in entry}.items():
                    curve.setdefault(update, []).append(value)
            if curve:
                return dict(sorted(curve.items()))
        return {}


def record_name(study: Study, row: Row, seed: int, kind: str) -> str:
    """Return the name of a row's record; `kind` is run_record, trainer_state or a test set."""
    return f"{study.name}_{row.name}{'' if seed == 1 else f'_seed{seed}'}_{kind}"


def read_results(study: Study, file: Path) -> list[Result]:
    """Return the rows with every record of at least one seed, in the study's order."""
    known, results = read_records(file), []
    for row in study.rows:
        seeds = []
        for seed in row.seeds:
            run = known.get(record_name(study, row, seed, "run_record"))
            scores = {test.name: known.get(record_name(study, row, seed, test.name)) for test in study.tests}
            if run is not None and None not in scores.values():
                log = known.get(record_name(study, row, seed, "trainer_state"), {}).get("log_history", [])
                seeds.append(SeedRecords(seed, run, scores, log))
        results += [Result(row, seeds)] if seeds else []
    return results


def of_seeds(seeds: Collection[int], among: Collection[int]) -> str:
    """Return of which seeds of a row something is true, as text; nothing if of all `among` which they are."""
    return f" of seed {' and '.join(map(str, seeds))}" if len(seeds) < len(among) else ""


def seeds_cell(values: Sequence[float], digits: int = 1) -> str:
    """Return the mean, and of several seeds the standard deviation; of none, nothing."""
    shown = [mean(values), *([stdev(values)] if len(values) > 1 else [])] if values else []
    return " ± ".join(f"{value:.{digits}f}" for value in shown)


def score_table(study: Study, results: Sequence[Result], speed: Sequence[Mapping[str, Any]] = ()) -> Table:
    """Return the parameters, updates, BLEU and speed of every row; the ratios come from `speed`, records of it."""
    tests = [test.name for test in study.tests]
    published = [test for test in tests if any(test in result.row.published for result in results)]
    found = [_benchmark(result, speed) for result in results]
    columns = ["row", "parameters", "updates", "seeds", *tests, *(f"{test}, published" for test in published)]
    columns += ["updates/s", *(["training, of Marian", "decoding, of Marian"] if any(found) else [])]
    table = [columns]
    for result, one in zip(results, found, strict=True):
        parameters, updates = ({seed.run[name] for seed in result.seeds} for name in ("parameters", "updates"))
        cells = [
            ", ".join(f"{number / 1e6:.2f}M" for number in sorted(parameters)),
            ", ".join(map(str, sorted(updates))),
        ]
        cells += [str(len(result.seeds)), *(seeds_cell(result.bleu(test)) for test in tests)]
        scores = [result.row.published.get(test) for test in published]
        cells += ["" if score is None else f"{score:.2f}" for score in scores]
        rates = [rate for seed in result.seeds if (rate := seed.updates_per_second) is not None]
        cells += [f"{mean(rates):.2f}" if rates else ""]
        if any(found):
            cells += [f"{_ratio(one[kind]):.2f}" for kind in ("training", "decoding")] if one else ["", ""]
        table.append([result.row.name, *cells])
    return table


def _ratio(rates: Mapping[str, Sequence[float]]) -> float:
    return median(method / plain for plain, method in zip(rates["plain"], rates["method"]))


def _benchmark(result: Result, speed: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the measurement of this row's speed, found by method, overrides, size and parameters."""
    run, row = result.seeds[0].run, result.row
    wanted = row.method, _of_speed(run["model"]["config_overrides"]), row.size, run["parameters"]
    for record in speed:
        settings = record["settings"]
        for name, found in record["results"].items():
            method, *overrides = name.split()
            fields = _of_speed([*settings["config_overrides"], *overrides])
            if (method, fields, settings["size"], found["parameters"]) == wanted:
                return found
    return None


def _of_speed(overrides: Sequence[str]) -> dict[str, Any]:
    found = dict(map(parse_override, overrides))
    return {name: found[name] for name in found if not name.endswith(("dropout", "label_smoothing"))}


def metric_table(study: Study, results: Sequence[Result]) -> Table:
    """Return chrF, TER and how many words there are for one of the reference, on every test set."""
    names = {"chrf": "chrF", "ter": "TER"}
    table = [["row", *(f"{test.name}: {shown}" for test in study.tests for shown in (*names.values(), "words"))]]
    for result in results:
        cells = []
        for test in study.tests:
            found = [one.scores[test.name] for one in result.seeds]
            cells += [
                seeds_cell([one["scores"][name]["score"] for one in found if name in one["scores"]]) for name in names
            ]
            packed = [one["bleu_statistics"] for one in found if one.get("bleu_statistics")]
            totals = [unpack_statistics(each).sum(0) for each in packed]
            cells.append(seeds_cell([float(total[-2] / total[-1]) for total in totals], digits=3))
        table += [[result.row.name, *cells]] if any(cells) else []
    return table


def curve_table(results: Sequence[Result]) -> Table:
    """Return validation BLEU by update, the mean over seeds, with a column for each update of an evaluation."""
    curves = {result.row.name: curve for result in results if (curve := result.curve("eval_bleu"))}
    updates = sorted({update for curve in curves.values() for update in curve})
    rows = [[name, *(seeds_cell(curve.get(update, [])) for update in updates)] for name, curve in curves.items()]
    return [["updates", *map(str, updates)], *rows]


def time_curve_table(study: Study, results: Sequence[Result], speed: Sequence[Mapping[str, Any]]) -> Table:
    """Return validation BLEU by time, of the rows that were timed next to the same plain model, and have its batches.

    Time is counted in updates of the study's baseline that take as long, with a column for each of its evaluations; a
    cell has the BLEU of the row's last evaluation by then, up to the end of the row.
    """
    curves = {result.row.name: curve for result in results if (curve := result.curve("eval_bleu"))}
    updates = {result.row.name: _an_update(result) for result in results}
    found = {
        result.row.name: _benchmark(result, speed)
        for result in results
        if updates[result.row.name] == updates.get(study.baseline)
    }
    base, times = found.get(study.baseline), list(curves.get(study.baseline, ()))
    table = [[f"time, in updates of {study.baseline}", *map(str, times)]]
    for name, curve in curves.items():
        own = found.get(name)
        if base is not None and own is not None and own["plain_parameters"] == base["plain_parameters"]:
            cost = _ratio(base["training"]) / _ratio(own["training"])
            table.append([name, *_by_time({update * cost: bleu for update, bleu in curve.items()}, times)])
    return table


def _an_update(result: Result) -> list[Any]:
    run = result.seeds[0].run
    return [run["processes"], *(run["training"].get(name) or None for name in _OF_AN_UPDATE)]


def _by_time(curve: Mapping[float, Sequence[float]], times: Sequence[int]) -> Iterator[str]:
    """Yield the cells of a curve at the times, up to the first at which it has ended."""
    for before, now in zip([0, *times], times):
        last = max((time for time in curve if time <= now), default=None)
        yield "" if last is None or before >= max(curve) else seeds_cell(curve[last])


def adequacy_table(study: Study, results: Sequence[Result]) -> Table:
    """Return adequacy on every test set, of the rows whose evaluations measured it; see `ADEQUACY`."""
    shown = ("CDR", "under-translated", "over-translated")
    table = [["row", *(f"{test.name}: {name}" for test in study.tests for name in shown)]]
    for result in results:
        cells = []
        for test in study.tests:
            measured = [one.scores[test.name].get("adequacy") or {"systems": {}} for one in result.seeds]
            found = [one for each in measured for one in each["systems"].values()]
            cells.append(seeds_cell([one["cdr"] for one in found], digits=3))
            for kind in ("under_translated", "over_translated"):
                cells.append(f"{mean(one[kind] / one['source_words'] for one in found):.2%}" if found else "")
        table += [[result.row.name, *cells]] if any(cells) else []
    return table


def length_table(test: str, results: Sequence[Result]) -> Table:
    """Return BLEU on a test set by the source's words, of the rows whose evaluations measured it, means over seeds."""
    found: dict[str, dict[str, list[float]]] = {}
    for result in results:
        for one in result.seeds:
            for bucket in (one.scores[test].get("by_length") or {"buckets": []})["buckets"]:
                for system in bucket["systems"].values():
                    found.setdefault(result.row.name, {}).setdefault(bucket["name"], []).append(system["bleu"])
    names = list(dict.fromkeys(name for buckets in found.values() for name in buckets))
    rows = [[row, *(seeds_cell(buckets.get(name, [])) for name in names)] for row, buckets in found.items()]
    return [[test, *names], *rows]


def caption(study: Study, results: Sequence[Result]) -> str:
    """Return what is to know of the scores: signatures, and which rows have no records yet."""
    scores = [one for result in results for seed in result.seeds for one in seed.scores.values()]
    signatures = sorted({f"`{one['scores']['bleu']['signature']}`" for one in scores})
    missing = [f"`{row.name}`" for row in study.rows if row.name not in {result.row.name for result in results}]
    text = f"BLEU: {', '.join(signatures) or 'nothing'}."
    if any(len(result.seeds) > 1 for result in results):
        text += " After ± is the standard deviation over seeds."
    return text + (f" Not run: {', '.join(missing)}." if missing else "")


def machine_table(results: Sequence[Result]) -> Table:
    """Return which rows each machine has trained; the one with most runs comes first, and has all other rows."""
    rows: dict[tuple[str, str, str], dict[str, list[int]]] = {}
    for result in results:
        for one in result.seeds:
            here = one.run["environment"]
            machine = (str(here["device"]), str(here["cpu_threads"]), here["packages"]["torch"])
            rows.setdefault(machine, {}).setdefault(result.row.name, []).append(one.seed)
    ordered = sorted(rows, key=lambda machine: sum(map(len, rows[machine].values())), reverse=True)
    seeds = {result.row.name: result.seeds for result in results}
    table = [["machine", "threads", "PyTorch", "rows"]]
    for machine in ordered:
        named = [f"`{name}`{of_seeds(found, seeds[name])}" for name, found in rows[machine].items()]
        table.append([*machine, "all other runs" if machine == ordered[0] and len(ordered) > 1 else ", ".join(named)])
    return table
