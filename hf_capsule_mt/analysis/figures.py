"""Styles, fonts and files of all figures. They need matplotlib, which `pip install -e ".[figures]"` brings."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_capsule_mt.files import replaced_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Those of Okabe and Ito, which the colour-blind can tell apart."""
MARKERS = ("o", "s", "^", "D", "v", "P")
LINES = ("-", "--", "-.", ":")
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


def line_style(number: int) -> dict[str, str]:
    """Colour, marker and dashes of a figure's line; the dashes tell apart those that share a colour."""
    place = number % len(COLOURS)
    return {
        "color": COLOURS[place],
        "marker": MARKERS[place],
        "linestyle": LINES[number // len(COLOURS) % len(LINES)],
    }


def check_figure_file(path: Path) -> None:
    """Raise a ValueError unless a figure can be drawn to a file of this name."""
    if path.suffix not in FORMATS:
        raise ValueError(f"{path} is no figure; its name must end in {', '.join(FORMATS)}")
    check_matplotlib()


def check_matplotlib() -> None:
    """Raise a ValueError if there is no matplotlib."""
    if find_spec("matplotlib") is None:
        raise ValueError('figures need matplotlib; pip install -e ".[figures]"')


def shades(colour: str) -> "Colormap":
    """From white for the least to `colour` for the most: its lightness alone tells them apart."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(f"shades of {colour}", ["white", colour])


@cache
def word_fonts() -> tuple[str, ...]:
    """Families for words of any language, in the order they are looked up: of those installed here."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return ("DejaVu Sans", *(family for family in _OTHER_SCRIPTS if family in installed))


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure, whole or not at all, without the time it was made.

    Raises:
        OSError: if it cannot be written.
    """
    kind = path.suffix.removeprefix(".")
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with replaced_file(path) as file:
        figure.savefig(file, format=kind, dpi=150, bbox_inches="tight", metadata=undated)
    # The layout has been found, which takes longer than all else: the same figure in another format keeps it.
    figure.set_layout_engine("none")


def save_for_page(figure: "Figure", path: Path) -> None:
    """Write a figure in the formats that pages of reports show and link, to `path` with their endings."""
    for ending in (".png", ".svg"):
        save_figure(figure, path.with_name(f"{path.name}{ending}"))


def draw_lengths(record: Mapping[str, Any]) -> "Figure":
    """Draw a panel for BLEU and one for the length of translations by source length, a line for each system.

    Args:
        record: `buckets`, each with `name`, `sentences` and by system `bleu` and `ratio`; empty ones are left out.
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
    """Return a name so that Matplotlib shows it: it reads dollars as formulas and hides names that begin with "_"."""
    return name.replace("$", r"\$") if not name.startswith("_") else line_label(f" {name}")


def new_panels(number: int, width: float) -> "tuple[Figure, Sequence[Axes]]":
    """Return a figure, `width` inches wide, of panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 4), layout="constrained")
    panels = figure.subplots(1, number, squeeze=False)[0]
    for axes in panels:
        axes.grid(alpha=0.3)
    return figure, panels
