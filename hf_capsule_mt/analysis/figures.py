"""Heat maps, and the fonts of words in figures. They need matplotlib, which `pip install -e ".[figures]"` brings."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OTHER_SCRIPTS = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Droid Sans Fallback", "WenQuanYi Zen Hei", "PingFang SC"),
    *("Hiragino Sans", "Microsoft YaHei", "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari"),
)


@cache
def word_fonts() -> tuple[str, ...]:
    """The families installed here for words of any language, in the order they are looked up."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return ("DejaVu Sans", *(family for family in _OTHER_SCRIPTS if family in installed))


# In inches: a cell, a letter of a name, a panel whose columns are numbered, what is around a panel, and a colour bar.
_CELL, _LETTER, _NUMBERED, _AROUND, _BAR = 0.26, 0.092, 7.5, 0.55, 0.9
_MANY = 64  # columns
Axis = tuple[str, Sequence[str] | None]
"""A label, and the names along the axis. Without names they are numbered from 1."""


def draw_heat_maps(
    maps: Mapping[str, Tensor],
    title: str,
    rows: Axis,
    columns: Axis,
    *,
    colours: Sequence[str] | None = None,
    side_by_side: bool = False,
) -> "Figure":
    """Draw panels `[rows, columns]` of one shape, by title, below each other or side by side, with one scale for all.

    The scale goes from 0, which is white, to the largest value. Where capsules are many, a few of them can get so much
    that all others would look the same. So it goes to what 1 value in 100 exceeds. `colours` has a colour map for each
    panel. By default all are blue.
    """
    from matplotlib.figure import Figure

    values = torch.stack(list(maps.values())).double()
    shape = (1, len(maps)) if side_by_side else (len(maps), 1)
    figure = Figure(figsize=_size(values.shape[1:], rows, columns, shape, title), layout="constrained")
    # Not math: a word may have dollars.
    style = {"parse_math": False, "family": word_fonts()}
    figure.suptitle(title, **style)
    panels = list(figure.subplots(*shape, squeeze=False, sharex=True, sharey=True).flat)
    many, step = values.shape[-1] > _MANY, max(1, values.shape[-1] // 8)
    largest = float(values.flatten().quantile(0.99) if many else values.max()) or 1.0
    numbered = sorted({0, *range(step - 1, values.shape[-1], step)})
    for panel, name, shown, colour in zip(panels, maps, values.numpy(), colours or ["Blues"] * len(maps)):
        panel.set_title(name, fontsize="medium", **style)
        panel.imshow(shown, cmap=colour, vmin=0, vmax=largest, aspect="auto", interpolation="nearest")
        panel.set_yticks(range(len(rows[1])), rows[1], fontsize="small", **style)
        if columns[1] is None:
            panel.set_xticks(numbered, [str(place + 1) for place in numbered], fontsize="small", **style)
        else:
            panel.set_xticks(range(len(columns[1])), columns[1], rotation=90, fontsize="small", **style)
        panel.set(xlabel=columns[0], ylabel=rows[0])
        panel.label_outer()
    # One bar shows the scale of all panels of a colour. A label of the first would run into the next panel.
    for where in [[panel] for panel in panels] if colours else [panels]:
        extend = "max" if float(values.max()) > largest else "neither"
        bar = figure.colorbar(where[0].get_images()[0], ax=where, aspect=30, extend=extend)
    bar.set_label("assignment")
    return figure


def _size(cells: Sequence[int], rows: Axis, columns: Axis, shape: tuple[int, int], title: str) -> tuple[float, float]:
    width = _NUMBERED if columns[1] is None else max(5 * _CELL, _CELL * cells[1])
    tallest_column = 0.2 if columns[1] is None else _LETTER * max(map(len, columns[1]))
    full_width = shape[1] * (width + _BAR) + _LETTER * max(map(len, rows[1])) + _AROUND
    full_height = shape[0] * (max(3 * _CELL, _CELL * cells[0]) + _AROUND) + tallest_column + 2 * _AROUND
    return max(full_width, 1.3 * _LETTER * len(title)), full_height
