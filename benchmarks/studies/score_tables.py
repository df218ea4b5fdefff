"""The tables of a study: lists of rows of cells, made of its records."""

from collections.abc import Collection, Mapping, Sequence
from statistics import mean, median, stdev
from typing import Any

from benchmarks.common.records import Record
from benchmarks.studies.results import Result, bleu_of
from benchmarks.studies.study import Row, Study
from hf_capsule_mt.evaluation.bleu_statistics import unpack_statistics
from hf_capsule_mt.training.options import parse_override

Table = list[list[str]]
# Options that decide the time of an update, next to the model.
_OF_AN_UPDATE = (
    "max_tokens_per_batch",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "rdrop_alpha",
    "activation_checkpointing",
)
ADEQUACY = (
    "Adequacy is measured by word alignment. CDR is the share of the source words translated by the reference that the "
    "row translates too (Kong et al. 2019). Under-translated words are the others. Over-translated words are those for "
    "which the row repeats a word. Both are shares of all source words. Higher CDR is better. "
    "With an aligner like eflomal, CDR of the same translations varies by up to 0.004."
)
"""What the table of adequacy shows."""


def of_seeds(seeds: Collection[int], among: Collection[int]) -> str:
    """Return of which seeds of a row something is true, as text; nothing if of all `among` which they are."""
    if len(seeds) == len(among):
        return ""
    return f" of seed {' and '.join(map(str, seeds))}"


def seeds_cell(values: Sequence[float], digits: int = 1) -> str:
    """Return the mean, and of several seeds the standard deviation; of none, nothing."""
    if not values:
        return ""
    text = f"{mean(values):.{digits}f}"
    if len(values) > 1:
        text += f" ± {stdev(values):.{digits}f}"
    return text


def score_table(study: Study, results: Sequence[Result], speed: Sequence[Record] = ()) -> Table:
    """Return the parameters, updates, BLEU and speed of every row; the ratios come from `speed`, records of it."""
    tests = [test.name for test in study.tests]
    published: list[str] = []
    for result in results:
        published += [test for test in tests if test in result.row.published and test not in published]
    published.sort(key=tests.index)
    benchmarks = [_benchmark(result, speed) for result in results]
    has_benchmarks = any(benchmarks)
    head = ["row", "parameters", "updates", "seeds", *tests]
    head += [f"{test}, published" for test in published]
    head.append("updates/s")
    if has_benchmarks:
        head += ["training, of Marian", "decoding, of Marian"]
    table = [head]
    for result, benchmark in zip(results, benchmarks, strict=True):
        parameters = {one.run["parameters"] for one in result.seeds}
        millions = [f"{number / 1e6:.2f}M" for number in sorted(parameters)]
        updates = {one.run["updates"] for one in result.seeds}
        cells = [result.row.name]
        cells.append(", ".join(millions))
        cells.append(", ".join(map(str, sorted(updates))))
        cells.append(str(len(result.seeds)))
        cells += [seeds_cell(result.bleu(test)) for test in tests]
        cells += [_published_cell(result.row, test) for test in published]
        cells.append(_rate_cell(result))
        if has_benchmarks:
            cells += _benchmark_cells(benchmark)
        table.append(cells)
    return table


def _published_cell(row: Row, test: str) -> str:
    score = row.published.get(test)
    return "" if score is None else f"{score:.2f}"


def _rate_cell(result: Result) -> str:
    """Return the mean number of updates a second, over the seeds for which it is known."""
    rates = [one.updates_per_second for one in result.seeds]
    known = [rate for rate in rates if rate is not None]
    return f"{mean(known):.2f}" if known else ""


def _benchmark_cells(benchmark: Record | None) -> list[str]:
    if not benchmark:
        return ["", ""]
    return [f"{_ratio(benchmark[kind]):.2f}" for kind in ("training", "decoding")]


def _ratio(rates: Mapping[str, Sequence[float]]) -> float:
    """Return the median of the ratios of a method's speed to that of the plain model."""
    ratios = []
    for plain, method in zip(rates["plain"], rates["method"]):
        ratios.append(method / plain)
    return median(ratios)


def _benchmark(result: Result, speed: Sequence[Record]) -> Record | None:
    """Return the measurement of this row's speed, found by method, overrides, size and parameters."""
    row = result.row
    run = result.seeds[0].run
    fields = _fields_of_speed(run["model"]["config_overrides"])
    wanted = (row.method, fields, row.size, run["parameters"])
    for record in speed:
        settings = record["settings"]
        for name, measured in record["results"].items():
            method, *overrides = name.split()
            measured_fields = _fields_of_speed([*settings["config_overrides"], *overrides])
            if (method, measured_fields, settings["size"], measured["parameters"]) == wanted:
                return measured
    return None


def _fields_of_speed(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the fields of the configuration that decide the speed."""
    fields = {}
    for override in overrides:
        name, value = parse_override(override)
        if not name.endswith(("dropout", "label_smoothing")):
            fields[name] = value
    return fields


def metric_table(study: Study, results: Sequence[Result]) -> Table:
    """Return chrF, TER and how many words there are for one of the reference, on every test set."""
    head = ["row"]
    for test in study.tests:
        head += [f"{test.name}: chrF", f"{test.name}: TER", f"{test.name}: words"]
    table = [head]
    for result in results:
        cells = []
        for test in study.tests:
            evaluations = [one.scores[test.name] for one in result.seeds]
            cells.append(_metric_cell(evaluations, "chrf"))
            cells.append(_metric_cell(evaluations, "ter"))
            cells.append(_words_cell(evaluations))
        if any(cells):
            table.append([result.row.name, *cells])
    return table


def _metric_cell(evaluations: Sequence[Record], metric: str) -> str:
    values = []
    for evaluation in evaluations:
        scores = evaluation["scores"]
        if metric in scores:
            values.append(scores[metric]["score"])
    return seeds_cell(values)


def _words_cell(evaluations: Sequence[Record]) -> str:
    """Return how many words the translations have for one of the references."""
    ratios = []
    for evaluation in evaluations:
        packed = evaluation.get("bleu_statistics")
        if packed:
            *_, words, reference_words = unpack_statistics(packed).sum(0)
            ratios.append(float(words / reference_words))
    return seeds_cell(ratios, digits=3)


def _curves(results: Sequence[Result]) -> dict[str, dict[int, list[float]]]:
    """Return validation BLEU by update, of the rows that logged it."""
    curves = {result.row.name: result.curve("eval_bleu") for result in results}
    return {name: curve for name, curve in curves.items() if curve}


def curve_table(results: Sequence[Result]) -> Table:
    """Return validation BLEU by update, the mean over seeds, with a column for each update of an evaluation."""
    curves = _curves(results)
    evaluated: set[int] = set()
    for curve in curves.values():
        evaluated.update(curve)
    updates = sorted(evaluated)
    table = [["updates", *map(str, updates)]]
    for name, curve in curves.items():
        cells = [seeds_cell(curve.get(update, [])) for update in updates]
        table.append([name, *cells])
    return table


def time_curve_table(study: Study, results: Sequence[Result], speed: Sequence[Record]) -> Table:
    """Return validation BLEU by time, of the rows that were timed next to the same plain model, and have its batches.

    Time is counted in updates of the study's baseline that take as long, with a column for each of its evaluations; a
    cell has the BLEU of the row's last evaluation by then, up to the end of the row.
    """
    curves = _curves(results)
    costs = _costs_of_updates(study, results, speed)
    times = list(curves.get(study.baseline, ()))
    table = [[f"time, in updates of {study.baseline}", *map(str, times)]]
    for name, curve in curves.items():
        if name in costs:
            by_time = {update * costs[name]: scores for update, scores in curve.items()}
            table.append([name, *_cells_by_time(by_time, times)])
    return table


def _costs_of_updates(study: Study, results: Sequence[Result], speed: Sequence[Record]) -> dict[str, float]:
    """Return how many updates of the baseline take as long as one of each row, of the rows that compare with it."""
    batches = {result.row.name: _batch_of(result) for result in results}
    benchmarks = {}
    for result in results:
        benchmark = _benchmark(result, speed)
        has_same_batches = batches[result.row.name] == batches.get(study.baseline)
        if benchmark is not None and has_same_batches:
            benchmarks[result.row.name] = benchmark
    of_baseline = benchmarks.get(study.baseline)
    if of_baseline is None:
        return {}
    costs = {}
    for name, benchmark in benchmarks.items():
        # Speeds next to different plain models do not compare.
        if benchmark["plain_parameters"] == of_baseline["plain_parameters"]:
            costs[name] = _ratio(of_baseline["training"]) / _ratio(benchmark["training"])
    return costs


def _batch_of(result: Result) -> list[Any]:
    """Return what decides how long an update takes, next to the model."""
    run = result.seeds[0].run
    options = [run["training"].get(name) or None for name in _OF_AN_UPDATE]
    return [run["processes"], *options]


def _cells_by_time(curve: Mapping[float, Sequence[float]], times: Sequence[int]) -> list[str]:
    """Return the cells of a curve at the times, up to the first at which it has ended."""
    cells = []
    previous = 0
    for time in times:
        has_ended = previous >= max(curve)
        evaluated = [evaluation for evaluation in curve if evaluation <= time]
        if has_ended or not evaluated:
            cells.append("")
        else:
            cells.append(seeds_cell(curve[max(evaluated)]))
        previous = time
    return cells


def adequacy_table(study: Study, results: Sequence[Result]) -> Table:
    """Return adequacy on every test set, of the rows whose evaluations measured it; see `ADEQUACY`."""
    head = ["row"]
    for test in study.tests:
        head += [f"{test.name}: {name}" for name in ("CDR", "under-translated", "over-translated")]
    table = [head]
    for result in results:
        cells = []
        for test in study.tests:
            cells += _adequacy_cells([one.scores[test.name] for one in result.seeds])
        if any(cells):
            table.append([result.row.name, *cells])
    return table


def _adequacy_cells(evaluations: Sequence[Record]) -> list[str]:
    systems: list[Record] = []
    for evaluation in evaluations:
        measured = evaluation.get("adequacy")
        if measured:
            systems += measured["systems"].values()
    if not systems:
        return ["", "", ""]
    cells = [seeds_cell([system["cdr"] for system in systems], digits=3)]
    for kind in ("under_translated", "over_translated"):
        share = mean(system[kind] / system["source_words"] for system in systems)
        cells.append(f"{share:.2%}")
    return cells


def length_table(test: str, results: Sequence[Result]) -> Table:
    """Return BLEU on a test set by the source's words, of the rows whose evaluations measured it, means over seeds."""
    scores_of_rows: dict[str, dict[str, list[float]]] = {}
    for result in results:
        scores = _bleu_by_length(test, result)
        if scores:
            scores_of_rows[result.row.name] = scores
    # In the order in which the records have them, which is that of lengths.
    buckets: list[str] = []
    for scores in scores_of_rows.values():
        buckets += [bucket for bucket in scores if bucket not in buckets]
    table = [[test, *buckets]]
    for row, scores in scores_of_rows.items():
        cells = [seeds_cell(scores.get(bucket, [])) for bucket in buckets]
        table.append([row, *cells])
    return table


def _bleu_by_length(test: str, result: Result) -> dict[str, list[float]]:
    """Return BLEU by seed, for each bucket of lengths."""
    scores: dict[str, list[float]] = {}
    for one in result.seeds:
        by_length = one.scores[test].get("by_length") or {"buckets": []}
        for bucket in by_length["buckets"]:
            for system in bucket["systems"].values():
                scores.setdefault(bucket["name"], []).append(system["bleu"])
    return scores


def caption(study: Study, results: Sequence[Result]) -> str:
    """Return what is to know of the scores: signatures, and which rows have no records yet."""
    signatures = set()
    for result in results:
        for one in result.seeds:
            signatures.update(bleu_of(evaluation)["signature"] for evaluation in one.scores.values())
    quoted = [f"`{signature}`" for signature in sorted(signatures)]
    text = f"BLEU: {', '.join(quoted) or 'nothing'}."
    if any(len(result.seeds) > 1 for result in results):
        text += " After ± is the standard deviation over seeds."
    known = {result.row.name for result in results}
    missing = [f"`{row.name}`" for row in study.rows if row.name not in known]
    if missing:
        text += f" Not run: {', '.join(missing)}."
    return text


def machine_table(results: Sequence[Result]) -> Table:
    """Return which rows each machine has trained; the one with most runs comes first, and has all other rows."""
    seeds_of_machines: dict[tuple[str, str, str], dict[str, list[int]]] = {}
    for result in results:
        for one in result.seeds:
            environment = one.run["environment"]
            machine = (
                str(environment["device"]),
                str(environment["cpu_threads"]),
                environment["packages"]["torch"],
            )
            rows = seeds_of_machines.setdefault(machine, {})
            rows.setdefault(result.row.name, []).append(one.seed)
    all_seeds = {result.row.name: result.seeds for result in results}
    table = [["machine", "threads", "PyTorch", "rows"]]
    for machine, rows in sorted(seeds_of_machines.items(), key=_number_of_runs, reverse=True):
        is_first = len(table) == 1
        if is_first and len(seeds_of_machines) > 1:
            table.append([*machine, "all other runs"])
            continue
        names = []
        for name, seeds in rows.items():
            names.append(f"`{name}`{of_seeds(seeds, all_seeds[name])}")
        table.append([*machine, ", ".join(names)])
    return table


def _number_of_runs(of_machine: tuple[Any, Mapping[str, Sequence[int]]]) -> int:
    _, rows = of_machine
    return sum(len(seeds) for seeds in rows.values())
