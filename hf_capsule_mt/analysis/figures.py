"""Styles, fonts and files of all figures. They need matplotlib, which `pip install -e ".[figures]"` brings."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import check_installed, replaced_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Those of Okabe and Ito, which the colour-blind can tell apart."""
_OTHER_SCRIPTS = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Droid Sans Fallback", "WenQuanYi Zen Hei", "PingFang SC"),
    *("Hiragino Sans", "Microsoft YaHei", "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari"),
)


def line_style(number: int) -> dict[str, str]:
    """Return colour, marker and dashes of a figure's line. Lines of one colour have different dashes."""
    place = number % len(COLOURS)
    dashes = ("-", "--", "-.", ":")[number // len(COLOURS) % 4]
    return {"color": COLOURS[place], "marker": "os^DvP"[place], "linestyle": dashes}


def check_figure_file(path: Path) -> None:
    """Raise a UserError unless a figure can be drawn to a file of this name."""
    if path.suffix not in FORMATS:
        raise UserError(f"The name of a figure ends in {', '.join(FORMATS)}, not as {path}.")
    check_installed("matplotlib", "figures")


@cache
def word_fonts() -> tuple[str, ...]:
    """The families installed here for words of any language, in the order they are looked up."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return ("DejaVu Sans", *(family for family in _OTHER_SCRIPTS if family in installed))


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure, whole or not at all, without the time it was made."""
    kind = path.suffix.removeprefix(".")
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with replaced_file(path) as file:
        figure.savefig(file, format=kind, dpi=150, bbox_inches="tight", metadata=undated)
    # The same figure in another format keeps the layout, which takes longest to find.
    figure.set_layout_engine("none")


def draw_lengths(record: Mapping[str, Any]) -> "Figure":
    """Draw BLEU and the length of translations by source length, a panel each, with a line for each system.

    The record has `buckets`, each with `name`, `sentences` and by system `bleu` and `ratio`. Empty ones are left out.
    """
    buckets = [bucket for bucket in record["buckets"] if bucket["systems"]]
    places = range(len(buckets))
    figure, panels = new_panels(2, max(4, 1.1 * len(buckets)) * 2 + 1)
    for axes, value, label in zip(panels, ("bleu", "ratio"), ("BLEU", "length relative to the reference")):
        for number, system in enumerate(buckets[0]["systems"]):
            values = [bucket["systems"][system][value] for bucket in buckets]
            axes.plot(places, values, label=line_label(system), **line_style(number))
        axes.set_xticks(places, [f"{bucket['name']}\n({bucket['sentences']})" for bucket in buckets])
        axes.set(xlabel="words of the source (sentences)", ylabel=label)
    panels[1].axhline(1, color="black", linewidth=0.8, linestyle=":")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def line_label(name: str) -> str:
    """Return a name so that Matplotlib shows it, with dollars that are no formula and "_" at its beginning."""
    return name.replace("$", r"\$") if not name.startswith("_") else line_label(f" {name}")


def new_panels(number: int, width: float) -> "tuple[Figure, Sequence[Axes]]":
    """Return a figure, `width` inches wide, of panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 4), layout="constrained")
    panels = figure.subplots(1, number, squeeze=False)[0]
    for axes in panels:
        axes.grid(alpha=0.3)
    return figure, panels


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
