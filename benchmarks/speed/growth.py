"""Measure how the time of training and of decoding grows with sentence length (Wang et al. 2019, section 4.3).

    python -m benchmarks.speed growth --size tiny --vocab_size 10000 --output_file growth.json --figure_file growth.png

Source and target are equally long, words and weights random, decoding greedy. The models take turns. The table, in
Markdown, has medians in seconds and, in its last row, the exponent k of time = c * length^k from --fit_from on.
"""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

import torch

from benchmarks.figures import draw_lines
from benchmarks.speed.decoding_tables import machine
from benchmarks.speed.workload import (
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


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], str]]:
    """Time every model on random sentences of each length, in rounds over all lengths; the models take turns.

    A machine that is slower for a while is so for all lengths and models alike. The first round does not count.
    """
    torch.manual_seed(args.seed)
    configs = configs_of_rows(args, max(args.lengths))
    models = {row: new_model(config, args.device) for row, config in configs.items()}
    trainers = {row: make_trainer(model) for row, model in models.items()}
    measurements = []
    for number in range(args.rounds + 1):
        for length in args.lengths:
            generator = torch.Generator().manual_seed(args.seed)
            batch = random_batch([(length, length)] * args.batch_size, args.vocab_size, generator, args.device)
            for kind in KINDS:
                for row, model in models.items():
                    model.train(kind == "training")
                    run = partial(trainers[row], batch)
                    if kind == "decoding":
                        run = partial(decode, model, without_labels(batch), length, 1)
                    taken = seconds(run, args.device)
                    # The first round warms up.
                    if number > 0:
                        measurements.append({"row": row, "kind": kind, "length": length, "seconds": taken})
    medians = _medians(measurements)
    exponents = _exponents(args, medians)
    if args.figure_file is not None:
        _draw(args, medians, exponents)
    found = [{"row": row, "kind": kind, "length": n, "seconds": time} for (kind, row, n), time in medians.items()]
    return {"measurements": measurements, "medians": found, "exponents": exponents}, report


def _medians(measurements: Sequence[Mapping[str, Any]]) -> dict[Place, float]:
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
            exponents[kind][row] = fit_exponent(lengths, [medians[kind, row, length] for length in lengths])
    return exponents


def _draw(
    args: argparse.Namespace, medians: Mapping[Place, float], exponents: Mapping[str, Mapping[str, float]]
) -> None:
    """Draw a panel for training and one for decoding."""
    panels = {}
    for label, kind in (("seconds of an update", "training"), ("seconds of greedy decoding", "decoding")):
        lines = {}
        for row in args.methods:
            times = {length: [medians[kind, row, length]] for length in args.lengths}
            lines[f"{row} (exponent {exponents[kind][row]:.2f})"] = times
        panels[label] = lines
    save_figure(draw_lines(panels, "words of source and of target", log=2, log_y=True), args.figure_file)


def fit_exponent(lengths: list[int], times: list[float]) -> float:
    """Return the k of time = c * length^k, by least squares of the logarithms."""
    log_lengths = [math.log(length) for length in lengths]
    log_times = [math.log(time) for time in times]
    return linear_regression(log_lengths, log_times).slope


def report(record: Mapping[str, Any]) -> str:
    """Return the table in Markdown, and under it how it was measured."""
    settings = record["settings"]
    exponents = record["exponents"]
    columns = [(kind, row) for kind in exponents for row in settings["methods"]]
    times = {(one["kind"], one["row"], one["length"]): one["seconds"] for one in record["medians"]}
    rows = [["words", *(f"{kind}: {row}" for kind, row in columns)], ["---:"] * (len(columns) + 1)]
    for length in settings["lengths"]:
        rows.append([str(length), *(f"{times[kind, row, length]:.3f}" for kind, row in columns)])
    rows.append(["exponent", *(f"{exponents[kind][row]:.2f}" for kind, row in columns)])
    clock = {"cpu": " of CPU time", "wall": " that passed"}.get(settings.get("clock"), "")
    caption = (
        f"Seconds{clock}, medians of {settings['rounds']} rounds over all lengths in which the models take turns; "
        f"exponents from {settings['fit_from']} words on. `{settings['size']}`, vocabulary of "
        f"{settings['vocab_size']}, {settings['batch_size']} sentence(s) at a time, float32, "
        f"{machine(record['environment'])}."
    )
    return "\n".join([*markdown_table(rows), "", caption])
