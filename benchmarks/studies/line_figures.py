"""Figures of lines: learning curves, sweeps over a field, and BLEU, length and time by the length of sentences."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING

from hf_capsule_mt.analysis.figures import line_label, line_style, new_panels
from hf_capsule_mt.records import TimeByLengthRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = Mapping[int, Sequence[float]]
"""Values of one or more runs by update."""
Points = Mapping[float, Sequence[float]]
"""BLEU of one or more runs by the value of a field."""


def draw_learning_curves(panels: Mapping[str, Mapping[str, Curve]]) -> "Figure":
    """Draw a panel for each value that was logged, a line for each row: the mean of its runs.

    Where there are several runs, a band reaches from the smallest to the largest value.

    Args:
        panels: by the label of the vertical axis, and by row, the curves. A row has one style in all panels.
    """
    rows = list(dict.fromkeys(row for curves in panels.values() for row in curves))
    figure, found = new_panels(len(panels), 2.5 + 4.5 * len(panels))
    for axes, (label, curves) in zip(found, panels.items(), strict=True):
        for row, curve in curves.items():
            _draw_curve(axes, row, rows.index(row), curve)
        axes.set(xlabel="updates", ylabel=label)
    lines = {line.getline_label(): line for axes in found for line in axes.get_lines()}
    figure.legend(handles=[lines[line_label(row)] for row in rows], loc="outside right upper")
    return figure


def _draw_curve(axes: "Axes", row: str, number: int, curve: Curve) -> None:
    updates = sorted(curve)
    style = line_style(number)
    # Markers of many points would hide the lines.
    axes.plot(
        updates,
        [mean(curve[update]) for update in updates],
        label=line_label(row),
        markevery=1 + len(updates) // 12,
        **style,
    )
    if any(len(values) > 1 for values in curve.values()):
        lowest, highest = ([limit(curve[update]) for update in updates] for limit in (min, max))
        axes.fill_between(updates, lowest, highest, color=style["color"], alpha=0.2, linewidth=0)


def draw_sweep(
    series: Mapping[str, Points],
    *,
    field: str,
    score: str = "BLEU",
    title: str | None = None,
    baseline: tuple[str, float] | None = None,
    log: int | None = None,
) -> "Figure":
    """Draw a line for each series: means of runs, with bars of a standard deviation where a point has several.

    Args:
        series: points by the line's label.
        field: label of the horizontal axis, such as `routing_iterations`.
        score: label of the vertical axis.
        title: above the figure.
        baseline: label and score of a system without the field: a horizontal line.
        log: base of a logarithmic horizontal axis.
    """
    figure, [axes] = new_panels(1, 7)
    for number, (label, points) in enumerate(series.items()):
        values = sorted(points)
        spreads = [stdev(points[value]) if len(points[value]) > 1 else 0 for value in values]
        bars = {"yerr": spreads, "capsize": 3} if any(spreads) else {}
        axes.errorbar(
            values, [mean(points[value]) for value in values], label=line_label(label), **bars, **line_style(number)
        )
    if baseline is not None:
        axes.axhline(baseline[1], color="black", linestyle=":", label=line_label(baseline[0]))
    if log is not None:
        axes.set_xscale("log", base=log)
    ticks = sorted({value for points in series.values() for value in points})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel=field.replace("_", " "), ylabel=score, title=title or "")
    figure.legend(loc="outside right upper")
    return figure


def draw_time_by_length(record: TimeByLengthRecord) -> "Figure":
    """Draw a panel for training and one for decoding, a line for each model, with its exponent; both axes logarithmic.

    Args:
        record: of `python -m benchmarks.speed growth`.
    """
    lengths, titles = record.settings.lengths, {"training": "One update", "decoding": "Greedy decoding"}
    figure, panels = new_panels(len(record.exponents), 5 * len(record.exponents))
    for axes, (kind, exponents) in zip(panels, record.exponents.items()):
        for number, row in enumerate(record.settings.methods):
            found = [one for one in record.medians if (one.kind, one.row) == (kind, row)]
            points = [one.length for one in found], [one.seconds for one in found]
            axes.plot(*points, label=line_label(f"{row} (exponent {exponents[row]:.2f})"), **line_style(number))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(lengths, lengths)
        axes.minorticks_off()
        axes.set(xlabel="words of source and of target", ylabel="seconds", title=titles[kind])
        axes.legend()
    return figure
