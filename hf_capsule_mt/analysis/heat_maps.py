"""Heat maps of assignments, with words of any language along their axes."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Axis = tuple[str, Sequence[str] | None]
"""A label, and the names along the axis. Without names they are numbered from 1."""
_OTHER_SCRIPTS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Droid Sans Fallback",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
)
# In inches: a cell, a letter of a name, a panel whose columns are numbered, what is around a panel, and a colour bar.
_CELL = 0.26
_LETTER = 0.092
_NUMBERED = 7.5
_AROUND = 0.55
_BAR = 0.9
_MANY = 64  # columns


@cache
def word_fonts() -> tuple[str, ...]:
    """Return the families installed here for words of any language, in the order they are looked up."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    others = [family for family in _OTHER_SCRIPTS if family in installed]
    return ("DejaVu Sans", *others)


def draw_heat_maps(
    maps: Mapping[str, Tensor],
    title: str,
    rows: Axis,
    columns: Axis,
    *,
    scale: str = "assignment",
    colours: Sequence[str] | None = None,
    side_by_side: bool = False,
) -> "Figure":
    """Draw panels of one shape, with one scale for all.

    The scale goes from 0, which is white, to the largest value. Where capsules are many, a few of them can get so much
    that all others would look the same. So it goes to what 1 value in 100 exceeds. If some values are negative, it goes
    as far on both sides of 0, and they are red.

    Args:
        maps: `[rows, columns]` each, by the title of the panel.
        title: of the figure.
        rows: label and names of the rows, which must have names.
        columns: label of the columns, and their names or None.
        scale: what the values are.
        colours: a colour map of Matplotlib for each panel. By default the largest value of all is blue.
        side_by_side: whether panels are next to each other (default: below each other).
    """
    from matplotlib.figure import Figure

    values = torch.stack(list(maps.values())).double()
    grid = (1, len(maps)) if side_by_side else (len(maps), 1)
    size = _size(values.shape[1:], rows, columns, grid, title)
    figure = Figure(figsize=size, layout="constrained")

    text_style = _text_style()
    figure.suptitle(title, **text_style)
    subplots = figure.subplots(*grid, squeeze=False, sharex=True, sharey=True)
    panels = list(subplots.flat)

    largest = _top_of_scale(values.abs())
    smallest, default_colour = 0.0, "Blues"
    if values.min() < 0:
        smallest, default_colour = -largest, "RdBu"
    panel_colours = colours or [default_colour] * len(maps)

    for panel, name, cells, colour in zip(panels, maps, values.numpy(), panel_colours, strict=True):
        panel.set_title(name, fontsize="medium", **text_style)
        panel.imshow(cells, cmap=colour, vmin=smallest, vmax=largest, aspect="auto", interpolation="nearest")
        _name_cells(panel, rows, columns, values.shape[-1])

    # One bar shows the scale of all panels of a colour. A label of the first would run into the next panel.
    sharing_a_bar = [panels]
    if colours:
        sharing_a_bar = [[panel] for panel in panels]
    extend = "max" if float(values.max()) > largest else "neither"
    for group in sharing_a_bar:
        image = group[0].get_images()[0]
        bar = figure.colorbar(image, ax=group, aspect=30, extend=extend)
    bar.set_label(scale)
    return figure


def _text_style() -> dict[str, Any]:
    # Not math: a word may have dollars.
    return {"parse_math": False, "family": word_fonts()}


def _top_of_scale(values: Tensor) -> float:
    """Return the value that is drawn darkest."""
    largest = values.max()
    if values.shape[-1] > _MANY:
        largest = values.flatten().quantile(0.99)
    # A scale from 0 to 0 has no colours.
    return float(largest) or 1.0


def _name_cells(panel: "Axes", rows: Axis, columns: Axis, num_columns: int) -> None:
    """Write the labels of a panel, and the names or numbers of its rows and columns."""
    row_label, row_names = rows
    column_label, column_names = columns
    style = {"fontsize": "small", **_text_style()}

    panel.set_yticks(range(len(row_names)), row_names, **style)
    if column_names is None:
        step = max(1, num_columns // 8)
        numbered = sorted({0, *range(step - 1, num_columns, step)})
        numbers = [str(column + 1) for column in numbered]
        panel.set_xticks(numbered, numbers, **style)
    else:
        panel.set_xticks(range(len(column_names)), column_names, rotation=90, **style)

    panel.set(xlabel=column_label, ylabel=row_label)
    panel.label_outer()


def _size(cells: Sequence[int], rows: Axis, columns: Axis, grid: tuple[int, int], title: str) -> tuple[float, float]:
    """Return width and height in inches of a figure whose panels have `cells` rows and columns."""
    num_rows, num_columns = cells
    _, row_names = rows
    _, column_names = columns

    if column_names is None:
        panel_width = _NUMBERED
        column_names_height = 0.2
    else:
        panel_width = max(5 * _CELL, _CELL * num_columns)
        column_names_height = _LETTER * max(map(len, column_names))

    panel_height = max(3 * _CELL, _CELL * num_rows)
    panels_down, panels_across = grid
    row_names_width = _LETTER * max(map(len, row_names))
    width = panels_across * (panel_width + _BAR) + row_names_width + _AROUND
    height = panels_down * (panel_height + _AROUND) + column_names_height + 2 * _AROUND
    title_width = 1.3 * _LETTER * len(title)
    return max(width, title_width), height
