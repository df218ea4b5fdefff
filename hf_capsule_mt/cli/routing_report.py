"""What hf-capsule-mt analyze leaves behind: a folder with tables, figures, pages and numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .report import describe_environment, markdown_table

if TYPE_CHECKING:
    from hf_capsule_mt.analysis.sentence import SentenceRouting
    from hf_capsule_mt.analysis.statistics import RoutingStatistics


def write_report(
    folder: Path,
    statistics: "RoutingStatistics",
    record: Mapping[str, Any],
    sentences: "Mapping[str, SentenceRouting]",
) -> None:
    """Write every file of a report.

    Args:
        folder: an empty one.
        statistics: what was measured.
        record: what `routing.json` has.
        sentences: those to draw, by what they are called.
    """
    from hf_capsule_mt.analysis.pages import Section, report_page, sentences_page
    from hf_capsule_mt.analysis.routing_figures import draw_routing
    from hf_capsule_mt.analysis.routing_record import routing_tables
    from hf_capsule_mt.analysis.sentence_figures import draw_sentence
    from hf_capsule_mt.files import replace_text

    from .output import write_json

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
    write_json(folder / "routing.json", record)
    replace_text(folder / "report.md", "\n".join([f"# {title}", "", *report(record)]) + "\n")
    tables = [Section(table.title, table.note, [table.rows]) for table in routing_tables(record)]
    sections = [Section("Files", links=links), *tables, Section("Figures", figures=files)]
    replace_text(folder / "index.html", report_page(title, describe(record), sections))


def _save_figures(folder: Path, figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Save each as .png and .svg; returns the files, without ending and seen from the folder above, and titles."""
    import re

    from tqdm import tqdm

    from hf_capsule_mt.analysis.figures import save_figure

    folder.mkdir()
    files = []
    for title, figure in tqdm(figures.items(), unit=" figures", desc="drawing"):
        name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        for ending in (".png", ".svg"):
            save_figure(figure, folder / f"{name}{ending}")
        files.append((f"{folder.name}/{name}", title))
    return files


def _save_means(path: Path, statistics: "RoutingStatistics") -> None:
    """Write `[iterations, layers or heads, capsules]`, float32, of every place."""
    import io

    import numpy as np

    from hf_capsule_mt.files import replace_bytes

    buffer = io.BytesIO()
    kept = {name: sums.mean_assignment for name, sums in statistics.sums.items() if sums.keep_inputs}
    np.savez_compressed(buffer, **{name: means.float().numpy() for name, means in kept.items()})
    replace_bytes(path, buffer.getvalue())


def report(record: Mapping[str, Any]) -> list[str]:
    """The tables in Markdown, line by line."""
    from hf_capsule_mt.analysis.routing_record import routing_tables

    lines = [describe(record)]
    for table in routing_tables(record):
        head, *rows = ([cell.replace("|", "\\|") for cell in row] for row in table.rows)
        alignment = ["---", *["---:"] * (len(head) - 1)]
        lines += ["", f"## {table.title}", "", *markdown_table([head, alignment, *rows]), "", table.note]
    return lines


def describe(record: Mapping[str, Any]) -> str:
    """What was measured, on what, in a line."""
    settings = record["settings"]
    written = f"made to write {settings['references']}" if settings["references"] else "and the model's translations"
    return (
        f"{settings['model']} ({record['architecture']}), {record['sentences']} sentences of {settings['input_file']}, "
        f"{written}. {describe_environment(record['environment'])}."
    )
