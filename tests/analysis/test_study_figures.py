"""Learning curves, and BLEU against a field, show what they are given."""

import pytest

from benchmarks.studies.line_figures import draw_learning_curves, draw_sweep
from hf_capsule_mt.analysis.figures import COLOURS, LINES, line_style


def points(line):
    return list(line.get_xdata()), list(line.get_ydata())


def test_learning_curves():
    loss = {"one": {50: [4.0, 6.0], 100: [3.0, 4.0]}, "two": {50: [7.0]}}
    figure = draw_learning_curves({"training loss": loss, "validation BLEU": {"two": {100: [20.0]}}})
    left, right = figure.axes
    assert (left.get_ylabel(), right.get_ylabel(), right.get_xlabel()) == (
        "training loss",
        "validation BLEU",
        "updates",
    )
    assert [points(line) for line in left.get_lines()] == [([50, 100], [5.0, 3.5]), ([50], [7.0])]
    # A band for the row with two runs, from the smallest to the largest; one style for a row in both panels.
    assert len(left.collections) == 1
    assert set(left.collections[0].get_paths()[0].vertices[:, 1]) == {4.0, 6.0, 3.0}
    assert left.get_lines()[1].get_color() == right.get_lines()[0].get_color() == COLOURS[1]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]


def test_a_sweep():
    series = {"few": {4: [21.0, 23.0], 2: [20.0]}, "many": {2: [24.0], 4: [25.0]}}
    how = {"field": "routing_iterations", "title": "A figure", "baseline": ("plain", 19.0), "log": 2}
    [axes] = draw_sweep(series, **how).axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    few, many = (container.lines for container in axes.containers)
    assert points(few[0]) == ([2, 4], [20.0, 22.0])
    assert points(many[0]) == ([2, 4], [24.0, 25.0])
    # The bar of the point with two runs: 22 plus and minus sqrt(2).
    bar = few[2][0].get_segments()[1]
    assert bar[:, 1] == pytest.approx([22 - 2**0.5, 22 + 2**0.5])
    assert lines["plain"].get_ydata() == [19.0, 19.0]
    assert (axes.get_xlabel(), axes.get_title(), axes.get_xscale()) == ("routing iterations", "A figure", "log")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["2", "4"]


def test_no_two_lines_look_the_same():
    styles = [tuple(line_style(number).values()) for number in range(len(COLOURS) * len(LINES))]
    assert len(set(styles)) == len(styles)
