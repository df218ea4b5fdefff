"""The figure of `hf-capsule-mt evaluate --length_figure`: BLEU and length of translations by length of the source."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .figures import line_style, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANELS = {"bleu": "BLEU", "ratio": "length relative to the reference"}


def draw_lengths(record: Mapping[str, Any], path: Path) -> None:
    """Draw a panel for BLEU and one for the length, a line for each system.

    Args:
        record: `buckets`, each with `name`, `sentences` and by system `bleu` and `ratio`; empty ones are left out.
        path: the figure's file.
    """
    from matplotlib.figure import Figure

    buckets = [bucket for bucket in record["buckets"] if bucket["systems"]]
    figure = Figure(figsize=(max(4, 1.1 * len(buckets)) * 2 + 1, 4), layout="constrained")
    panels = figure.subplots(1, len(_PANELS))
    for axes, (value, title) in zip(panels, _PANELS.items(), strict=True):
        _draw_panel(axes, buckets, value)
        axes.set_ylabel(title)
    panels[1].axhline(1, color="black", linewidth=0.8, linestyle=":")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    save_figure(figure, path)


def _draw_panel(axes: "Axes", buckets: list[Mapping[str, Any]], value: str) -> None:
    places = range(len(buckets))
    for number, system in enumerate(buckets[0]["systems"]):
        values = [bucket["systems"][system][value] for bucket in buckets]
        axes.plot(places, values, label=system, **line_style(number))
    axes.set_xticks(places, [f"{bucket['name']}\n({bucket['sentences']})" for bucket in buckets])
    axes.set_xlabel("words of the source (sentences)")
    axes.grid(alpha=0.3)
