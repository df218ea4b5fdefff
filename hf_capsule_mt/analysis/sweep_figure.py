"""BLEU against a field of the configuration, such as the number of output capsules or of routing iterations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

from .figures import line_style, save_figure

Points = Mapping[float, Sequence[float]]
"""BLEU of one or more runs by the value of the field."""


def draw_sweep(
    series: Mapping[str, Points],
    path: Path,
    *,
    field: str,
    score: str = "BLEU",
    title: str | None = None,
    baseline: tuple[str, float] | None = None,
    log: int | None = None,
) -> None:
    """Draw a line for each series: means of runs, with bars of a standard deviation where a point has several.

    Args:
        series: points by the line's label.
        path: .png, .svg or .pdf.
        field: what the horizontal axis shows.
        score: what the vertical axis shows.
        title: above the figure.
        baseline: label and score of a system without the field: a horizontal line.
        log: base of a logarithmic horizontal axis.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for number, (label, points) in enumerate(series.items()):
        values = sorted(points)
        means = [mean(points[value]) for value in values]
        spreads = [stdev(points[value]) if len(points[value]) > 1 else 0 for value in values]
        bars = {"yerr": spreads, "capsize": 3} if any(spreads) else {}
        axes.errorbar(values, means, label=label, **bars, **line_style(number))
    if baseline is not None:
        label, height = baseline
        axes.axhline(height, color="black", linestyle=":", label=label)
    ticks = sorted({value for points in series.values() for value in points})
    if log is not None:
        axes.set_xscale("log", base=log)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(field.replace("_", " "))
    axes.set_ylabel(score)
    axes.set_title(title or "")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper")
    save_figure(figure, path)
