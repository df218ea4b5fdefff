"""The figures of a study, from its records: learning curves, and BLEU against what a grid varies."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.studies.line_figures import draw_learning_curves, draw_sweep, draw_time_by_length
from benchmarks.studies.results import Result, mean_and_spread
from benchmarks.studies.study import Figure, Study, line_of, value_of
from benchmarks.studies.table import learning_curve
from hf_capsule_mt.analysis.figures import save_for_page
from hf_capsule_mt.records import TimeByLengthRecord, read

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

# Of a loss of several parts, the part that every method has.
_LOGGED = {"training loss of the translation": ("lm_loss", "loss"), "validation BLEU": ("eval_bleu",)}


def draw_figures(study: Study, results: Sequence[Result], folder: Path) -> dict[str, str]:
    """Draw the figures that the records have data for, each as PNG and SVG.

    Returns:
        The figures' names, without endings, with their captions.

    Raises:
        ValueError: if a field that a figure is against is not in the configuration of its rows.
    """
    captions = {}
    panels = {
        label: curves
        for label, names in _LOGGED.items()
        if (curves := {result.row.name: curve for result in results if (curve := _first_curve(result, names))})
    }
    if panels:
        save_for_page(draw_learning_curves(panels), folder / "learning_curves")
        captions["learning_curves"] = f"During training: {', '.join(panels)}."
    for name, figure in study.figures.items():
        if (series := _series(figure, results)) is not None:
            save_for_page(_draw_sweep(figure, series, results), folder / name)
            captions[name] = f"BLEU on {figure.test} against {figure.x}."
    if study.growth is not None:
        save_for_page(draw_time_by_length(read(TimeByLengthRecord, Path(study.growth))), folder / "growth")
        captions["growth"] = "Time against the length of sentences."
    return captions


def _first_curve(result: Result, names: Sequence[str]) -> dict[int, list[float]]:
    """Return the learning curve of the first of the names that was logged."""
    return next(filter(None, (learning_curve(result, name) for name in names)), {})


def _series(figure: Figure, results: Sequence[Result]) -> dict[str, dict[float, list[float]]] | None:
    """Return the points of every line, or None if no line has two."""
    series: dict[str, dict[float, list[float]]] = {}
    for result in results:
        if any(fnmatchcase(result.row.name, pattern) for pattern in figure.rows):
            config = _config(figure, result)
            points = series.setdefault(line_of(figure, result.row.method, config), {})
            points.setdefault(value_of(config, figure.x), []).extend(result.bleu(figure.test))
    return series if any(len(points) > 1 for points in series.values()) else None


def _config(figure: Figure, result: Result) -> dict[str, Any]:
    """Return a row's configuration; raise a ValueError if it lacks a field that the figure is of."""
    config = result.seeds[0].run.config
    for name in filter(None, (figure.x, figure.series)):
        if name not in config:
            raise ValueError(f"the record of the row {result.row.name!r} has no {name!r} in its config, for a figure")
    return config


def _draw_sweep(figure: Figure, series: Any, results: Sequence[Result]) -> "MatplotlibFigure":
    found = [result for result in results if result.row.name == figure.baseline]
    baseline = (found[0].row.name, mean_and_spread(found[0].bleu(figure.test))[0]) if found else None
    how = {"field": figure.x, "score": f"BLEU, {figure.test}", "title": figure.title}
    return draw_sweep(series, **how, baseline=baseline, log=figure.log)
