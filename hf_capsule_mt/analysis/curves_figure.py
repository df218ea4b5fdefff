"""Learning curves: what was logged during training, against updates."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from .figures import line_style, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = Mapping[int, Sequence[float]]
"""The values of one or more runs by update."""


def draw_learning_curves(panels: Mapping[str, Mapping[str, Curve]], path: Path) -> None:
    """Draw a panel for each value that was logged, a line for each row: the mean of its runs.

    Where there are several runs, a band reaches from the smallest to the largest value.

    Args:
        panels: by the label of the vertical axis, and by row, the curves. A row has one style in all panels.
        path: .png, .svg or .pdf.
    """
    from matplotlib.figure import Figure

    rows = list(dict.fromkeys(row for curves in panels.values() for row in curves))
    figure = Figure(figsize=(2.5 + 4.5 * len(panels), 4), layout="constrained")
    for axes, (label, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for row, curve in curves.items():
            _draw_curve(axes, row, rows.index(row), curve)
        axes.set_xlabel("updates")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    lines = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
    figure.legend(handles=[lines[row] for row in rows], loc="outside right upper")
    save_figure(figure, path)


def _draw_curve(axes: "Axes", row: str, number: int, curve: Curve) -> None:
    updates = sorted(curve)
    style = line_style(number)
    means = [mean(curve[update]) for update in updates]
    # Markers of many points would hide the lines.
    axes.plot(updates, means, label=row, markevery=1 + len(updates) // 12, **style)
    if any(len(values) > 1 for values in curve.values()):
        lowest, highest = ([limit(curve[update]) for update in updates] for limit in (min, max))
        axes.fill_between(updates, lowest, highest, color=style["color"], alpha=0.2, linewidth=0)
