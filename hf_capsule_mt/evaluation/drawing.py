"""Styles and files of all figures, and the figure of scores by length.

They need matplotlib, which `pip install -e ".[figures]"` brings.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_capsule_mt.environment import check_installed
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import replaced_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Those of Okabe and Ito, which the colour-blind can tell apart."""
_MARKERS = "os^DvP"
_DASHES = ("-", "--", "-.", ":")
_NO_DATE = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def line_style(number: int) -> dict[str, str]:
    """Return colour, marker and dashes of a figure's line. Lines of one colour have different dashes."""
    times_through, index = divmod(number, len(COLOURS))
    dashes = _DASHES[times_through % len(_DASHES)]
    return {
        "color": COLOURS[index],
        "marker": _MARKERS[index],
        "linestyle": dashes,
    }


def check_figure_file(path: Path) -> None:
    """Raise a UserError unless a figure can be drawn to a file of this name."""
    if path.suffix not in FORMATS:
        endings = ", ".join(FORMATS)
        raise UserError(f"The name of a figure ends in {endings}, not as {path}.")
    check_installed("matplotlib", "figures")


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure, whole or not at all."""
    kind = path.suffix.removeprefix(".")
    with replaced_file(path) as file:
        figure.savefig(
            file,
            format=kind,
            dpi=150,
            bbox_inches="tight",
            # Without a date, so that the same figure gives the same file.
            metadata=_NO_DATE.get(kind),
        )

    # The same figure in another format keeps the layout, which takes longest to find.
    figure.set_layout_engine("none")


def draw_lengths(record: Mapping[str, Any]) -> "Figure":
    """Draw BLEU and the length of translations by source length, a panel each, with a line for each system.

    The record has `buckets`, each with `name`, `sentences` and by system `bleu` and `ratio`. Empty ones are left out.
    """
    buckets = [bucket for bucket in record["buckets"] if bucket["systems"]]
    panel_width = max(4, 1.1 * len(buckets))
    figure, panels = new_panels(2, 2 * panel_width + 1)
    bleu_panel, length_panel = panels

    _draw_bucket_values(bleu_panel, buckets, "bleu", "BLEU")
    _draw_bucket_values(length_panel, buckets, "ratio", "length relative to the reference")
    length_panel.axhline(1, color="black", linewidth=0.8, linestyle=":")

    # Both panels have the same lines.
    handles, labels = bleu_panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4)
    return figure


def _draw_bucket_values(axes: "Axes", buckets: Sequence[Mapping[str, Any]], value: str, label: str) -> None:
    """Draw a value of all systems in all buckets."""
    positions = range(len(buckets))
    for number, system in enumerate(buckets[0]["systems"]):
        values = [bucket["systems"][system][value] for bucket in buckets]
        style = line_style(number)
        axes.plot(positions, values, label=line_label(system), **style)

    tick_labels = []
    for bucket in buckets:
        name = bucket["name"]
        sentences = bucket["sentences"]
        tick_labels.append(f"{name}\n({sentences})")
    axes.set_xticks(positions, tick_labels)
    axes.set(xlabel="words of the source (sentences)", ylabel=label)


def line_label(name: str) -> str:
    """Return a name so that Matplotlib shows it, with dollars that are no formula and "_" at its beginning."""
    if name.startswith("_"):
        # Matplotlib would leave it out of the legend.
        name = f" {name}"
    return name.replace("$", r"\$")


def new_panels(number: int, width: float) -> "tuple[Figure, Sequence[Axes]]":
    """Return a figure, `width` inches wide, of panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 4), layout="constrained")
    rows = figure.subplots(1, number, squeeze=False)
    panels = rows[0]
    for axes in panels:
        axes.grid(alpha=0.3)
    return figure, panels
