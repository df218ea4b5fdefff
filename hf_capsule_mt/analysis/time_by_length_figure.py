"""The figure of `hf-capsule-mt growth`: time against length, both axes logarithmic."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .figures import line_style, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_time_by_length(record: Mapping[str, Any], path: Path) -> None:
    """Draw a panel for training and one for decoding, a line for each model, with its exponent."""
    from matplotlib.figure import Figure

    kinds = list(record["exponents"])
    figure = Figure(figsize=(5 * len(kinds), 4), layout="constrained")
    for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        _draw_panel(axes, record, kind)
    save_figure(figure, path)


def _draw_panel(axes: "Axes", record: Mapping[str, Any], kind: str) -> None:
    for number, row in enumerate(record["settings"]["methods"]):
        found = [one for one in record["medians"] if (one["kind"], one["row"]) == (kind, row)]
        lengths, times = [one["length"] for one in found], [one["seconds"] for one in found]
        label = f"{row} (exponent {record['exponents'][kind][row]:.2f})"
        axes.plot(lengths, times, label=label, **line_style(number))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(record["settings"]["lengths"], record["settings"]["lengths"])
    axes.minorticks_off()
    axes.set_xlabel("words of source and of target")
    axes.set_ylabel("seconds")
    axes.set_title({"training": "One update", "decoding": "Greedy decoding"}[kind])
    axes.grid(alpha=0.3)
    axes.legend()
