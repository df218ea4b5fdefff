"""Heat maps with names on their axes: the picture of an assignment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .figures import COLOURS, shades, word_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

# In inches: a cell, a letter of a name, a panel whose columns are numbered, what is around a panel, and a colour bar.
_CELL, _LETTER, _NUMBERED, _AROUND, _BAR = 0.26, 0.085, 7.5, 0.55, 0.9
_MANY = 64  # columns


@dataclass(frozen=True)
class HeatMap:
    """One panel.

    Attributes:
        title: over the panel.
        values: `[rows, columns]`, at least 0.
        colour: that of the largest value; white is 0.
    """

    title: str
    values: Tensor
    colour: str = COLOURS[0]


@dataclass(frozen=True)
class HeatMapNames:
    """Names of the rows and columns of all panels of a figure.

    Attributes:
        row_label: of the vertical axis.
        rows: the name of each.
        column_label: of the horizontal axis.
        columns: the name of each; None for numbers from 1 on.
    """

    row_label: str
    rows: Sequence[str]
    column_label: str
    columns: Sequence[str] | None = None


def draw_heat_maps(maps: Sequence[HeatMap], names: HeatMapNames, title: str, *, side_by_side: bool = False) -> "Figure":
    """Draw panels below each other, or side by side, with one scale of colours for all.

    It goes from 0 to the largest value; where capsules are many, to what 1 value in 100 exceeds, for a few of them can
    get so much that all others would look the same.

    Args:
        maps: the panels, all of one shape.
        names: of their rows and columns.
        title: over the figure.
        side_by_side: whether panels share their rows rather than their columns.
    """
    from matplotlib.figure import Figure

    shape = (1, len(maps)) if side_by_side else (len(maps), 1)
    figure = Figure(figsize=_size(maps[0], names, shape, title), layout="constrained")
    figure.suptitle(title, parse_math=False, family=word_fonts())
    panels = list(figure.subplots(*shape, squeeze=False, sharex=True, sharey=True).flat)
    values = torch.stack([one.values for one in maps]).double()
    many = values.shape[-1] > _MANY
    largest = float(values.flatten().quantile(0.99) if many else values.max()) or 1.0
    images = [_draw(panel, one, largest) for panel, one in zip(panels, maps)]
    _name(panels, names, maps[0].values.shape[1])
    extend = "max" if float(values.max()) > largest else "neither"
    # One bar tells the scale of all panels of a colour.
    for colour in dict.fromkeys(one.colour for one in maps):
        where = [place for place, one in enumerate(maps) if one.colour == colour]
        figure.colorbar(
            images[where[0]], ax=[panels[place] for place in where], label="assignment", aspect=30, extend=extend
        )
    return figure


def _size(one: HeatMap, names: HeatMapNames, shape: tuple[int, int], title: str) -> tuple[float, float]:
    rows, columns = one.values.shape
    width = _NUMBERED if names.columns is None else max(5 * _CELL, _CELL * columns)
    widest_row = _LETTER * max(map(len, names.rows))
    tallest_column = 0.2 if names.columns is None else _LETTER * max(map(len, names.columns))
    bars = shape[1] if shape[1] > 1 else 1
    full_width = shape[1] * width + bars * _BAR + widest_row + _AROUND
    full_height = shape[0] * (max(3 * _CELL, _CELL * rows) + _AROUND) + tallest_column + 2 * _AROUND
    return max(full_width, 1.3 * _LETTER * len(title)), full_height


def _draw(panel: "Axes", one: HeatMap, largest: float) -> "AxesImage":
    panel.set_title(one.title, fontsize="medium", parse_math=False, family=word_fonts())
    values = one.values.double().numpy()
    return panel.imshow(values, cmap=shades(one.colour), vmin=0, vmax=largest, aspect="auto", interpolation="nearest")


def _name(panels: Sequence["Axes"], names: HeatMapNames, columns: int) -> None:
    # Not math: a word may have dollars.
    style = {"parse_math": False, "family": word_fonts(), "fontsize": "small"}
    step = max(1, columns // 8)
    ticks = sorted({0, *range(step - 1, columns, step)})
    for panel in panels:
        panel.set_yticks(range(len(names.rows)), names.rows, **style)
        if names.columns is None:
            panel.set_xticks(ticks, [str(tick + 1) for tick in ticks], **style)
        else:
            panel.set_xticks(range(columns), names.columns, rotation=90, **style)
        panel.set(xlabel=names.column_label, ylabel=names.row_label)
        panel.label_outer()
