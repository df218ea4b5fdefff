"""The curves of routing over a corpus."""

from hf_capsule_mt.analysis.routing_figures import draw_routing
from hf_capsule_mt.analysis.statistics import RoutingStatistics


def test_lines_of_many_heads_differ():
    names = [f"heads cross.{number}" for number in range(8)]
    measured = {name: {"entropy": [1.0, number], "diversity": [0.0, number]} for number, name in enumerate(names)}
    figures = draw_routing(RoutingStatistics(), {"routing": measured, "past_and_future": None})
    [figure] = figures.values()
    for panel in figure.axes:
        lines = panel.get_lines()
        assert {line.get_label(): list(line.get_ydata())[1] for line in lines} == dict(zip(names, range(8)))
        assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 8
