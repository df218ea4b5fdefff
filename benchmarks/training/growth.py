"""Measure how the time of training and of decoding grows with sentence length (Wang et al. 2019, section 4.3).

    python -m benchmarks.training growth --size tiny --vocab_size 10000 --output_file growth.json \\
        --figure_file growth.png

Source and target are equally long, words and weights random, decoding greedy. The models take turns. The table, in
Markdown, has medians in seconds and, in its last row, the exponent k of time = c * length^k from --fit_from on.
"""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

import torch
from transformers import PreTrainedModel

from benchmarks.common.figures import draw_lines
from benchmarks.common.records import Record
from benchmarks.common.tables import machine
from benchmarks.common.workload import (
    Batch,
    Measured,
    add_row_options,
    configs_of_rows,
    decode,
    make_trainer,
    new_model,
    random_batch,
    seconds,
    without_labels,
)
from hf_capsule_mt.evaluation.drawing import save_figure
from hf_capsule_mt.evaluation.tables import markdown_table

KINDS = ("training", "decoding")
AXES = {"training": "seconds of an update", "decoding": "seconds of greedy decoding"}
"""Labels of the vertical axes of a figure."""
Place = tuple[str, str, int]
"""One of `KINDS`, a row and a length."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_row_options(parser, ["transformer", "capsnmt"])
    lengths = [32, 64, 128, 256, 512, 1024, 2048]
    parser.add_argument("--lengths", type=int, nargs="+", default=lengths, help="in words (default: 32 ... 2048)")
    parser.add_argument("--fit_from", type=int, default=128, help="shortest length of the fit (default: %(default)s)")
    parser.add_argument("--batch_size", type=int, default=1, help="sentences at a time (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is timed (default: %(default)s)")
    parser.add_argument("--figure_file", type=Path, help="a figure: .png, .svg or .pdf; needs matplotlib")


def measure(args: argparse.Namespace) -> Measured:
    """Time every model on random sentences of each length, in rounds over all lengths; the models take turns.

    A machine that is slower for a while is so for all lengths and models alike. The first round does not count.
    """
    torch.manual_seed(args.seed)
    configs = configs_of_rows(args, max(args.lengths))
    models = {row: new_model(config, args.device) for row, config in configs.items()}
    trainers = {row: make_trainer(model) for row, model in models.items()}
    # The first round warms up.
    for length in args.lengths:
        _time_length(args, models, trainers, length)
    measurements = []
    for _ in range(args.rounds):
        for length in args.lengths:
            measurements += _time_length(args, models, trainers, length)
    medians = _medians(measurements)
    exponents = _exponents(args, medians)
    if args.figure_file is not None:
        _draw(args, medians, exponents)
    median_entries = []
    for (kind, row, length), taken in medians.items():
        median_entries.append({"row": row, "kind": kind, "length": length, "seconds": taken})
    return {"measurements": measurements, "medians": median_entries, "exponents": exponents}, report


def _time_length(
    args: argparse.Namespace,
    models: Mapping[str, PreTrainedModel],
    trainers: Mapping[str, Callable[[Batch], None]],
    length: int,
) -> list[dict[str, Any]]:
    """Train and decode once with every model, on sentences of a length, and return the seconds of each."""
    generator = torch.Generator().manual_seed(args.seed)
    lengths = [(length, length)] * args.batch_size
    batch = random_batch(lengths, args.vocab_size, generator, args.device)
    measurements = []
    for kind in KINDS:
        for row, model in models.items():
            model.train(kind == "training")
            run = partial(trainers[row], batch)
            if kind == "decoding":
                run = partial(decode, model, without_labels(batch), length, 1)
            taken = seconds(run, args.device)
            measurements.append({"row": row, "kind": kind, "length": length, "seconds": taken})
    return measurements


def _medians(measurements: Sequence[Record]) -> dict[Place, float]:
    times: dict[Place, list[float]] = {}
    for measured in measurements:
        place = (measured["kind"], measured["row"], measured["length"])
        times.setdefault(place, []).append(measured["seconds"])
    return {place: median(taken) for place, taken in times.items()}


def _exponents(args: argparse.Namespace, medians: Mapping[Place, float]) -> dict[str, dict[str, float]]:
    """Return the exponent of every row, by kind."""
    lengths = sorted(length for length in set(args.lengths) if length >= args.fit_from)
    exponents: dict[str, dict[str, float]] = {kind: {} for kind in KINDS}
    for kind in KINDS:
        for row in args.methods:
            times = [medians[kind, row, length] for length in lengths]
            exponents[kind][row] = fit_exponent(lengths, times)
    return exponents


def _draw(
    args: argparse.Namespace, medians: Mapping[Place, float], exponents: Mapping[str, Mapping[str, float]]
) -> None:
    """Draw a panel for training and one for decoding."""
    panels = {}
    for kind, label in AXES.items():
        lines = {}
        for row in args.methods:
            exponent = exponents[kind][row]
            times = {length: [medians[kind, row, length]] for length in args.lengths}
            lines[f"{row} (exponent {exponent:.2f})"] = times
        panels[label] = lines
    figure = draw_lines(panels, "words of source and of target", log=2, log_y=True)
    save_figure(figure, args.figure_file)


def fit_exponent(lengths: list[int], times: list[float]) -> float:
    """Return the k of time = c * length^k, by least squares of the logarithms."""
    log_lengths = [math.log(length) for length in lengths]
    log_times = [math.log(time) for time in times]
    return linear_regression(log_lengths, log_times).slope


def report(record: Record) -> str:
    """Return the table in Markdown, and under it how it was measured."""
    settings = record["settings"]
    exponents = record["exponents"]
    columns = list(product(exponents, settings["methods"]))
    times: dict[Place, float] = {}
    for entry in record["medians"]:
        place = (entry["kind"], entry["row"], entry["length"])
        times[place] = entry["seconds"]
    head = ["words"]
    last = ["exponent"]
    for kind, row in columns:
        exponent = exponents[kind][row]
        head.append(f"{kind}: {row}")
        last.append(f"{exponent:.2f}")
    rows = [head, ["---:"] * len(head)]
    for length in settings["lengths"]:
        cells = [f"{times[kind, row, length]:.3f}" for kind, row in columns]
        rows.append([str(length), *cells])
    rows.append(last)
    clock = {"cpu": " of CPU time", "wall": " that passed"}.get(settings.get("clock"), "")
    caption = (
        f"Seconds{clock}, medians of {settings['rounds']} rounds over all lengths in which the models take turns; "
        f"exponents from {settings['fit_from']} words on. `{settings['size']}`, "
        f"vocabulary of {settings['vocab_size']}, {settings['batch_size']} sentence(s) at a time, float32, "
        f"{machine(record['environment'])}."
    )
    return "\n".join([*markdown_table(rows), "", caption])
