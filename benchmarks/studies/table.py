"""The tables of a study, made from records alone: lists of rows of cells, of which the first row names the columns."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.studies.results import Result, mean_and_spread, of_seeds
from benchmarks.studies.study import Study
from hf_capsule_mt.evaluation.bleu_statistics import unpack_statistics
from hf_capsule_mt.records import Comparison, Environment, SpeedRecord

Table = list[list[str]]
# Options that decide the time of an update, beside the model.
_OF_AN_UPDATE = (
    *("max_tokens_per_batch", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("rdrop_alpha", "activation_checkpointing"),
)
ADEQUACY = (
    "Adequacy, by word alignment: CDR is the share of the source words that the reference translates which the row "
    "translates too (Kong et al. 2019); under-translated are the others, over-translated those for which it repeats a "
    "word, as shares of all source words. An aligner like eflomal moves CDR of the same translations by up to 0.004."
)
"""What the table of adequacy shows."""


def score_table(study: Study, results: Sequence[Result], speed: Sequence[SpeedRecord] = ()) -> Table:
    """Return the parameters, updates, BLEU and speed of every row.

    BLEU is the mean over seeds and, of more than one, the standard deviation of the sample. Updates per second are
    those of training, with its evaluations, whatever else the machine did; the ratios come from `speed`, benchmarks of
    the rows.
    """
    tests = [test.name for test in study.tests]
    published = [test for test in tests if any(test in result.row.published for result in results)]
    ratios = [_speed_cells(_benchmark(result, speed)) for result in results]
    columns = ["row", "parameters", "updates", "seeds", *tests, *(f"{test}, published" for test in published)]
    columns += ["updates/s", *(["training, of Marian", "decoding, of Marian"] if any(map(any, ratios)) else [])]
    table = [columns]
    for result, ratio in zip(results, ratios, strict=True):
        cells = [result.row.name, *_run_cells(result), *(seeds_cell(result.bleu(test)) for test in tests)]
        scores = [result.row.published.get(test) for test in published]
        cells += ["" if score is None else f"{score:.2f}" for score in scores]
        rates = [rate for one in result.seeds if (rate := one.run.updates_per_second) is not None]
        cells += [f"{mean(rates):.2f}" if rates else ""]
        table.append([*cells, *(ratio if any(map(any, ratios)) else [])])
    return table


def metric_table(study: Study, results: Sequence[Result]) -> Table:
    """Return what else was scored: of every test set chrF, TER and how many words there are for one of the reference.

    They are means over seeds and, of more than one, the standard deviation of the sample. A metric that a record lacks
    is left out of its mean.
    """
    names = {"chrf": "chrF", "ter": "TER"}
    table = [["row", *(f"{test.name}: {shown}" for test in study.tests for shown in (*names.values(), "words"))]]
    for result in results:
        cells = []
        for test in study.tests:
            scores = [records.evaluations[test.name].scores for records in result.seeds]
            cells += [seeds_cell([one[name].score for one in scores if name in one]) for name in names]
            cells.append(seeds_cell(_lengths(result, test.name), digits=3))
        table += [[result.row.name, *cells]] if any(cells) else []
    return table


def _lengths(result: Result, test: str) -> list[float]:
    """Return the words of each seed's translations for one of the references, where they are known."""
    found = (records.evaluations[test].bleu_statistics for records in result.seeds)
    totals = (unpack_statistics(packed).sum(0) for packed in found if packed is not None)
    return [float(total[-2] / total[-1]) for total in totals]


def seeds_cell(values: Sequence[float], digits: int = 1) -> str:
    """Return what the seeds have: the mean, and of several the standard deviation; of none, nothing."""
    shown = mean_and_spread(values) if values else ()
    return " ± ".join(f"{value:.{digits}f}" for value in shown if value is not None)


def curve_table(results: Sequence[Result]) -> Table:
    """Return validation BLEU by update, the mean over seeds, with a column for each update of an evaluation."""
    curves = {result.row.name: curve for result in results if (curve := learning_curve(result, "eval_bleu"))}
    updates = sorted({update for curve in curves.values() for update in curve})
    table = [["updates", *map(str, updates)]]
    for name, curve in curves.items():
        table.append([name, *(seeds_cell(curve[update]) if update in curve else "" for update in updates)])
    return table


def time_curve_table(study: Study, results: Sequence[Result], speed: Sequence[SpeedRecord]) -> Table:
    """Return validation BLEU by time, of the rows with a benchmark beside the same plain model, and the same batches.

    Time is counted in updates of the study's baseline that take as long, by the benchmarks, with a column for each of
    its evaluations; a cell has the BLEU of the row's last evaluation by then, up to the end of the row.
    """
    curves = {result.row.name: curve for result in results if (curve := learning_curve(result, "eval_bleu"))}
    updates = {result.row.name: _an_update(result) for result in results}
    alike = [result for result in results if updates[result.row.name] == updates.get(study.baseline)]
    found = {result.row.name: _benchmark(result, speed) for result in alike}
    base, times = found.get(study.baseline), list(curves.get(study.baseline, ()))
    table = [[f"time, in updates of {study.baseline}", *map(str, times)]]
    for name, curve in curves.items():
        own = found.get(name)
        if base is not None and own is not None and own.plain_parameters == base.plain_parameters:
            cost = base.training.ratio / own.training.ratio
            table.append([name, *_by_time({update * cost: bleu for update, bleu in curve.items()}, times)])
    return table


def _an_update(result: Result) -> list[Any]:
    """Return what an update of a row's first run takes its time by, beside the model."""
    run = result.seeds[0].run
    options = run.training.by_name()
    return [run.processes, *(options.get(name) or None for name in _OF_AN_UPDATE)]


def _by_time(curve: Mapping[float, Sequence[float]], times: Sequence[int]) -> Iterator[str]:
    """Return the cells of a curve at the times, up to the first at which it has ended."""
    for before, now in zip([0, *times], times):
        last = max((time for time in curve if time <= now), default=None)
        yield "" if last is None or before >= max(curve) else seeds_cell(curve[last])


def learning_curve(result: Result, value: str) -> dict[int, list[float]]:
    """Return the values that the seeds of a row logged under a name, by update."""
    curve: dict[int, list[float]] = {}
    for records in result.seeds:
        # An update that was logged twice, as the last one is at the end of training, counts once.
        logged = {entry["step"]: entry[value] for entry in records.log if value in entry}
        for update, found in logged.items():
            curve.setdefault(update, []).append(found)
    return dict(sorted(curve.items()))


def adequacy_table(study: Study, results: Sequence[Result]) -> Table:
    """Return, of the rows whose evaluations measured it, adequacy on every test set: CDR, and shares of source words.

    See [`~hf_capsule_mt.evaluation.adequacy.Adequacy`] for what is counted. Numbers are means over the seeds that were
    measured, with the standard deviation of CDR.
    """
    shown = ("CDR", "under-translated", "over-translated")
    table = [["row", *(f"{test.name}: {name}" for test in study.tests for name in shown)]]
    for result in results:
        cells = [cell for test in study.tests for cell in _adequacy_cells(result, test.name)]
        table += [[result.row.name, *cells]] if any(cells) else []
    return table


def _adequacy_cells(result: Result, test: str) -> list[str]:
    measured = [records.evaluations[test].adequacy for records in result.seeds]
    found = [one for each in measured if each is not None for one in each["systems"].values()]
    if not found:
        return ["", "", ""]
    shares = (mean(one[f"{kind}_translated"] / one["source_words"] for one in found) for kind in ("under", "over"))
    return [seeds_cell([one["cdr"] for one in found], digits=3), *(f"{share:.2%}" for share in shares)]


def length_table(test: str, results: Sequence[Result]) -> Table:
    """Return BLEU on a test set by the source's words, of the rows whose evaluations measured it, means over seeds."""
    found = {result.row.name: buckets for result in results if (buckets := _by_length(result, test))}
    names = list(dict.fromkeys(name for buckets in found.values() for name in buckets))
    table = [[test, *names]]
    for row, buckets in found.items():
        table.append([row, *(seeds_cell(buckets[name]) if name in buckets else "" for name in names)])
    return table


def _by_length(result: Result, test: str) -> dict[str, list[float]]:
    """Return BLEU of the seeds by the name of the bucket."""
    scores: dict[str, list[float]] = {}
    for records in result.seeds:
        for bucket in (records.evaluations[test].by_length or {"buckets": []})["buckets"]:
            for one in bucket["systems"].values():
                scores.setdefault(bucket["name"], []).append(one["bleu"])
    return scores


def caption(study: Study, results: Sequence[Result]) -> str:
    """Return what is to know of the scores: signatures, machines, and which rows have no records yet."""
    runs = [records for result in results for records in result.seeds]
    signatures = {one.scores["bleu"].signature for records in runs for one in records.evaluations.values()}
    done = {result.row.name for result in results}
    missing = [row.name for row in study.rows if row.name not in done]
    text = f"BLEU: {_listed(signatures)}. Trained on {_machines(results)}."
    if any(len(result.seeds) > 1 for result in results):
        text += " After ± is the standard deviation over seeds."
    return text + (f" Without records so far: {', '.join(missing)}." if missing else "")


def _run_cells(result: Result) -> list[str]:
    parameters = {records.run.parameters for records in result.seeds}
    updates = {records.run.updates for records in result.seeds}
    shown = ", ".join(f"{number / 1e6:.2f}M" for number in sorted(parameters))
    return [shown, ", ".join(map(str, sorted(updates))), str(len(result.seeds))]


def _speed_cells(found: Comparison | None) -> list[str]:
    return ["", ""] if found is None else [f"{found.training.ratio:.2f}", f"{found.decoding.ratio:.2f}"]


def _benchmark(result: Result, speed: Sequence[SpeedRecord]) -> Comparison | None:
    """Return the benchmark of this row, found by method, overrides, size and parameters."""
    run = result.seeds[0].run
    # Not the run's method: a run that starts from another may have none.
    of_row = result.row.method, run.model.config_overrides, result.row.size, run.parameters
    return next(filter(None, (record.row_of(*of_row) for record in speed)), None)


def _machines(results: Sequence[Result]) -> str:
    """Return the machines, with the rows trained on each but on the one of most runs."""
    rows: dict[str, dict[str, list[int]]] = {}
    for result in results:
        for records in result.seeds:
            rows.setdefault(_machine(records.run.environment), {}).setdefault(result.row.name, []).append(records.seed)
    first, *others = sorted(rows, key=lambda machine: sum(map(len, rows[machine].values())), reverse=True)
    seeds = {result.row.name: result.seeds for result in results}
    named = {
        machine: ", ".join(name + of_seeds(found, seeds[name]) for name, found in rows[machine].items())
        for machine in others
    }
    return first + "".join(f"; on {machine}: {names}" for machine, names in named.items())


def _machine(environment: Environment) -> str:
    return f"{environment.device}, {environment.cpu_threads} thread(s), torch {environment.packages['torch']}"


def _listed(values: set[str]) -> str:
    return "; ".join(sorted(values)) or "nothing"
