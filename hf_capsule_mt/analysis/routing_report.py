"""The report of `hf-capsule-mt analyze`: a folder with tables, figures and pages."""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from hf_capsule_mt.files import replace_bytes, replace_text
from hf_capsule_mt.markdown import table_in_markdown

from .figures import save_for_page
from .pages import Section, report_page, sentences_page
from .routing_figures import draw_routing
from .routing_record import routing_tables
from .sentence import SentenceRouting
from .sentence_figures import draw_sentence
from .statistics import RoutingStatistics

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_report(
    folder: Path,
    statistics: RoutingStatistics,
    record: Mapping[str, Any],
    sentences: Mapping[str, SentenceRouting],
) -> None:
    """Write every file of a report but that of the numbers, `routing.json`.

    Args:
        folder: an empty one.
        statistics: what was measured.
        record: of [`record_routing`], with what it was measured on.
        sentences: those to draw, by what they are called.
    """
    figures = draw_routing(statistics, record)
    for name, routing in sentences.items():
        figures |= {f"{name}: {title}": figure for title, figure in draw_sentence(routing).items()}
    files = _save_figures(folder / "figures", figures)
    title = f"Routing of {record['settings']['model']}"
    links = [("report.md", "the tables in Markdown"), ("routing.json", "the numbers")]
    if any(sums.keep_inputs for sums in statistics.sums.values()):
        _save_means(folder / "mean_assignment.npz", statistics)
        links.append(("mean_assignment.npz", "the mean assignment of layers and heads, arrays of NumPy"))
    if any(routing.sentence is not None or routing.guided is not None for routing in sentences.values()):
        replace_text(folder / "sentences.html", sentences_page(title, sentences))
        links.append(("sentences.html", "sentences, shaded by the capsules that take their words"))
    replace_text(folder / "report.md", "\n".join([f"# {title}", "", *report(record)]) + "\n")
    tables = [Section(table.title, table.note, [table.rows]) for table in routing_tables(record)]
    sections = [Section("Files", links=links), *tables, Section("Figures", figures=files)]
    replace_text(folder / "index.html", report_page(title, describe(record), sections))


def _save_figures(folder: Path, figures: "Mapping[str, Figure]") -> list[tuple[str, str]]:
    """Save each as .png and .svg; return the files, without ending and seen from the folder above, and titles."""
    folder.mkdir()
    files = []
    for title, figure in tqdm(figures.items(), unit=" figures", desc="drawing"):
        name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        save_for_page(figure, folder / name)
        files.append((f"{folder.name}/{name}", title))
    return files


def _save_means(path: Path, statistics: RoutingStatistics) -> None:
    """Write `[iterations, layers or heads, capsules]`, float32, of every place."""
    buffer = io.BytesIO()
    kept = {name: sums.mean_assignment for name, sums in statistics.sums.items() if sums.keep_inputs}
    np.savez_compressed(buffer, **{name: means.float().numpy() for name, means in kept.items()})
    replace_bytes(path, buffer.getvalue())


def report(record: Mapping[str, Any]) -> list[str]:
    """Return the tables in Markdown, line by line."""
    lines = [describe(record)]
    for table in routing_tables(record):
        rows = [[cell.replace("|", "\\|") for cell in row] for row in table.rows]
        lines += ["", f"## {table.title}", "", table_in_markdown(rows), "", table.note]
    return lines


def describe(record: Mapping[str, Any]) -> str:
    """Return a line that says what was measured, on what."""
    settings = record["settings"]
    written = f"made to write {settings['references']}" if settings["references"] else "and the model's translations"
    return (
        f"{settings['model']} ({record['architecture']}), {record['sentences']} sentences of {settings['input_file']}, "
        f"{written}. {record['environment']}."
    )
