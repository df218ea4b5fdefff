"""Pictures of routing over a corpus."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .figures import HeatMap, HeatMapNames, draw_heat_maps, line_style
from .sentence_figures import FUTURE_COLOUR, PAST_COLOUR, draw_iterations
from .statistics import RoutingStatistics

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_routing(statistics: RoutingStatistics, record: Mapping[str, Any]) -> dict[str, "Figure"]:
    """Draw what was measured.

    Args:
        statistics: of a corpus.
        record: what [`record_routing`] makes of them.

    Returns:
        Figures by title: the mean assignment by iteration of every kind of routing (Dou et al. 2019, Fig. 4), "Entropy
        and diversity", and "PAST and FUTURE around a word's translation".
    """
    figures = {}
    for name, sums in statistics.sums.items():
        title = f"Mean assignment: {name}"
        if sums.keep_inputs:
            figures[title] = draw_iterations(sums.mean_assignment, "head" if "heads" in name else "layer", title)
        else:
            names = statistics.guided_names if name == "guided capsules" else None
            figures[title] = _draw_words(sums.mean_assignment.squeeze(1), names, title)
    if record["routing"]:
        figures["Entropy and diversity"] = _draw_curves(record["routing"])
    if record["past_and_future"] is not None and record["past_and_future"]["around"]:
        title = "PAST and FUTURE around a word's translation"
        figures[title] = _draw_around(record["past_and_future"]["around"], title)
    return figures


def _draw_words(means: Tensor, columns: list[str] | None, title: str) -> "Figure":
    """Of `[iterations, capsules]`, the mean over words."""
    columns = columns or [str(number + 1) for number in range(means.shape[1])]
    names = HeatMapNames("iteration", [str(number + 1) for number in range(len(means))], "capsule", columns)
    return draw_heat_maps([HeatMap("mean over source words", means)], names, title)


def _draw_curves(routing: Mapping[str, Any]) -> "Figure":
    """A row of panels for each kind of routing: entropy, and diversity, against iterations."""
    from matplotlib.figure import Figure

    kinds: dict[str, list[str]] = {}
    for name in routing:
        kinds.setdefault(name.rpartition(".")[0] or ("layers" if "layers" in name else name), []).append(name)
    figure = Figure(figsize=(9, 2.6 * len(kinds) + 0.4), layout="constrained")
    figure.suptitle("Entropy and diversity")
    for (kind, names), panels in zip(kinds.items(), figure.subplots(len(kinds), 2, squeeze=False)):
        for panel, measure in zip(panels, ("entropy", "diversity")):
            for number, name in enumerate(names):
                values = routing[name][measure]
                panel.plot(range(1, len(values) + 1), values, label=name, **line_style(number))
            panel.set(title=f"{kind}: {measure}", xlabel="iteration", ylabel="nats" if measure == "entropy" else "")
            panel.set_xticks(range(1, max(len(routing[name][measure]) for name in names) + 1))
            panel.grid(alpha=0.3)
        if len(names) > 1:
            panels[1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    return figure


def _draw_around(around: list[Mapping[str, Any]], title: str) -> "Figure":
    from matplotlib.figure import Figure

    steps = [one["step"] for one in around]
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for side, colour, marker in (("past", PAST_COLOUR, "o"), ("future", FUTURE_COLOUR, "s")):
        axes.plot(steps, [one[side] for one in around], color=colour, marker=marker, label=side.upper())
    axes.axvline(0.5, color="black", linewidth=0.8, linestyle="--")
    axes.set(title=title, xlabel="steps since its translation was written", ylabel="mean assignment", ylim=(0, None))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure
