"""Figures of lines: learning curves, scores against a field, time against length."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING

from hf_capsule_mt.evaluation.drawing import line_label, line_style, new_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Lines = Mapping[str, Mapping[float, Sequence[float]]]
"""Values of one run or more at each place, by the line's label."""


def draw_lines(
    panels: Mapping[str, Lines], xlabel: str, *, log: int | None = None, log_y: bool = False, level: Lines | None = None
) -> "Figure":
    """Draw a panel for each vertical axis, a line for each label: the mean of its runs, in a band from least to most.

    Args:
        panels: by the label of the vertical axis.
        xlabel: label of the horizontal axis.
        log: base of a logarithmic horizontal axis, whose ticks are the places.
        log_y: whether the vertical axes are logarithmic.
        level: what is drawn as a horizontal line.
    """
    # A line has one colour in all panels.
    names: list[str] = []
    for lines in panels.values():
        names += [name for name in lines if name not in names]
    styles = {name: line_style(number) for number, name in enumerate(names)}
    figure, panel_axes = new_panels(len(panels), 2.5 + 4.5 * len(panels))
    for axes, (ylabel, lines) in zip(panel_axes, panels.items(), strict=True):
        for name, points in lines.items():
            _draw_line(axes, name, points, styles[name])
        for name, values in (level or {}).items():
            axes.axhline(mean(values), color="black", linestyle=":", label=line_label(name))
        if log is not None:
            _set_log_places(axes, lines, log)
        if log_y:
            axes.set_yscale("log")
        axes.set(xlabel=xlabel.replace("_", " "), ylabel=ylabel)
    # The legend has each line once, though several panels may have it.
    handles = {}
    for axes in panel_axes:
        for line in axes.get_lines():
            handles[line.get_label()] = line
    figure.legend(handles=list(handles.values()), loc="outside right upper")
    return figure


def _set_log_places(axes: "Axes", lines: Lines, base: int) -> None:
    """Make the horizontal axis logarithmic, with a tick at each place that a line has."""
    places: set[float] = set()
    for points in lines.values():
        places.update(points)
    ticks = sorted(places)
    labels = [f"{tick:g}" for tick in ticks]
    axes.set_xscale("log", base=base)
    axes.set_xticks(ticks, labels)
    axes.minorticks_off()


def _draw_line(axes: "Axes", name: str, points: Mapping[float, Sequence[float]], style: Mapping[str, str]) -> None:
    """Draw the means of the runs, and a band from the least to the most of them."""
    places = sorted(points)
    means = [mean(points[place]) for place in places]
    # Markers of many points would hide the lines.
    axes.plot(places, means, label=line_label(name), markevery=1 + len(places) // 12, **style)
    has_several_runs = any(len(values) > 1 for values in points.values())
    if has_several_runs:
        lowest = [min(points[place]) for place in places]
        highest = [max(points[place]) for place in places]
        axes.fill_between(places, lowest, highest, color=style["color"], alpha=0.2, linewidth=0)
