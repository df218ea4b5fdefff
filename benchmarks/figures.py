"""Figures of lines: learning curves, scores against a field, time against length."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING

from hf_capsule_mt.evaluation.drawing import line_label, line_style, new_panels

if TYPE_CHECKING:
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
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    figure, found = new_panels(len(panels), 2.5 + 4.5 * len(panels))
    for axes, (ylabel, lines) in zip(found, panels.items(), strict=True):
        for name, points in lines.items():
            places, style = sorted(points), line_style(names.index(name))
            values = [mean(points[place]) for place in places]
            # Markers of many points would hide the lines.
            axes.plot(places, values, label=line_label(name), markevery=1 + len(places) // 12, **style)
            if any(len(each) > 1 for each in points.values()):
                lowest, highest = ([limit(points[place]) for place in places] for limit in (min, max))
                axes.fill_between(places, lowest, highest, color=style["color"], alpha=0.2, linewidth=0)
        for name, values in (level or {}).items():
            axes.axhline(mean(values), color="black", linestyle=":", label=line_label(name))
        if log is not None:
            axes.set_xscale("log", base=log)
            ticks = sorted({place for points in lines.values() for place in points})
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
        if log_y:
            axes.set_yscale("log")
        axes.set(xlabel=xlabel.replace("_", " "), ylabel=ylabel)
    handles = {line.get_label(): line for axes in found for line in axes.get_lines()}
    figure.legend(handles=list(handles.values()), loc="outside right upper")
    return figure
