"""The report of `hf-capsule-mt analyze`: a folder with tables, figures and pages."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Template
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.evaluation.drawing import save_figure
from hf_capsule_mt.evaluation.tables import table_in_markdown
from hf_capsule_mt.files import replace_text, replaced_file, write_json

from .routing_figures import TEXTS, draw_routing, look_for, sentence_pictures
from .sentence import SentenceRouting
from .statistics import ALIKE, LEAST_COUNT, AssignmentSums, RoutingStatistics, WordShares
from .subwords import source_subwords


class Table(NamedTuple):
    """A title, rows of text of which the first is the head, and what the numbers are."""

    title: str
    rows: list[list[str]]
    note: str


def record_routing(statistics: RoutingStatistics, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return the numbers, for JSON.

    Returns:
        * "routing": by name the "entropy" (nats) and "diversity" by iteration, numbers of "routings", "inputs" and
          output "capsules". Layers and heads also have "capsules_led": how many capsules get most from each, at the
          last iteration. Words have "mean_assignment", by iteration and capsule.
        * "words": by name, for every capsule the "piece"s with the largest "share", and their "count".
        * "guided_names": of the guided capsules.
        * "past_and_future": what [`PastAndFutureSums.result`] returns, or None.
        * "top_5_overlap": {"past": ..., "future": ...}, or None.
    """
    past_and_future = statistics.past_and_future
    overlaps = statistics.overlaps
    record = {
        "routing": {name: _record_sums(sums) for name, sums in statistics.sums.items()},
        "words": {name: _record_words(shares, tokenizer) for name, shares in statistics.word_shares.items()},
        "guided_names": statistics.guided_names,
        "past_and_future": None,
        "top_5_overlap": None,
    }
    if past_and_future is not None:
        record["past_and_future"] = past_and_future.result()
    if overlaps is not None:
        past, future = overlaps
        record["top_5_overlap"] = {"past": past, "future": future}
    return record


def _record_sums(sums: AssignmentSums) -> dict[str, Any]:
    mean = sums.mean_assignment
    record = {
        "entropy": sums.entropy,
        "diversity": sums.diversity,
        "routings": sums.routings,
        "inputs": mean.shape[1] if sums.keep_inputs else sums.inputs,
        "capsules": mean.shape[2],
    }
    if sums.keep_inputs:
        record["capsules_led"] = _capsules_led(mean[-1])
    else:
        record["mean_assignment"] = mean.squeeze(1).tolist()
    return record


def _capsules_led(assignment: Tensor) -> list[int]:
    """Return how many capsules get most from each input, of a mean assignment `[inputs, N]`."""
    leaders = assignment.argmax(0)
    spread = assignment.max(0).values - assignment.min(0).values
    # After one iteration all are alike, and none leads.
    leaders = leaders[spread > ALIKE]
    return leaders.bincount(minlength=len(assignment)).tolist()


def _record_words(shares: WordShares, tokenizer: PreTrainedTokenizerBase) -> list[list[dict[str, Any]]]:
    """Return for every capsule the pieces that it gets most of."""
    capsules = []
    for largest in shares.largest():
        words = []
        for token_id, share, count in largest:
            [piece] = source_subwords(tokenizer, [token_id])
            words.append({"piece": piece, "share": share, "count": count})
        capsules.append(words)
    return capsules


def routing_tables(record: Mapping[str, Any]) -> list[Table]:
    """Return the tables of a record that has what [`record_routing`] returns, and "gates" and "worth"."""
    tables = []
    if record["gates"]:
        tables.append(_gates_table(record["gates"]))
    if record["worth"]["added"]:
        tables.append(_worth_table(record["worth"]))
    if record["routing"]:
        tables.append(_entropy_table(record["routing"]))
    led = {name: sums["capsules_led"] for name, sums in record["routing"].items() if "capsules_led" in sums}
    if led:
        tables.append(_led_table(led))
    for name, capsules in record["words"].items():
        names = record["guided_names"] if name == "guided capsules" else _numbers_to(len(capsules))
        tables.append(_shares_table(name, names, record["routing"][name]["mean_assignment"]))
        if any(capsules):
            tables.append(_words_table(name, names, capsules))
    if record["past_and_future"]:
        tables.append(_past_and_future_table(record["past_and_future"]))
    if record["top_5_overlap"]:
        rows = [["PAST", "FUTURE"], _past_and_future_cells(record["top_5_overlap"])]
        tables.append(_table("Top-5 overlap", rows))
    return tables


def _table(title: str, rows: list[list[str]], of: str = "", **values: int) -> Table:
    """Return a table with its note from report.yaml.

    Args:
        title: by which report.yaml has the note.
        rows: of which the first is the head.
        of: the end of the title, which report.yaml does not have.
        **values: what the note leaves open.
    """
    note = TEXTS["tables"][title].format(**values)
    return Table(title + of, rows, note)


def _gates_table(gates: Mapping[str, Mapping[str, float]]) -> Table:
    rows = [["place", "mean", "largest"]]
    for place, gate in gates.items():
        rows.append([place, _number(gate["mean"], digits=4), _number(gate["largest"], digits=4)])
    return _table("How far new parts are switched on", rows)


def _worth_table(worth: Mapping[str, Any]) -> Table:
    rows = [["capsules", "loss", "added without them"]]
    loss = _number(worth["loss"])
    for place, added in worth["added"].items():
        # Adding 0 makes "-0.000" a "0.000".
        rounded = round(added, 3) + 0.0
        rows.append([place, loss, _number(rounded)])
    return _table("What the capsules are worth", rows)


def _entropy_table(routing: Mapping[str, Any]) -> Table:
    iterations = max(len(sums["entropy"]) for sums in routing.values())
    head = ["routing", "capsules"]
    for measure in ("entropy", "diversity"):
        for number in _numbers_to(iterations):
            head.append(f"{measure} {number}")
    rows = [head]
    for name, sums in routing.items():
        row = [name, str(sums["capsules"])]
        row += _filled(_cells(sums["entropy"]), iterations)
        row += _filled(_cells(sums["diversity"]), iterations)
        rows.append(row)
    return _table("Entropy and diversity", rows)


def _led_table(led: Mapping[str, Sequence[int]]) -> Table:
    most = max(len(numbers) for numbers in led.values())
    rows = [["routing", *_numbers_to(most)]]
    for name, numbers in led.items():
        cells = [str(number) for number in numbers]
        rows.append([name, *_filled(cells, most)])
    return _table("Capsules led by each layer or head", rows)


def _shares_table(name: str, capsules: Sequence[str], means: Sequence[Sequence[float]]) -> Table:
    rows = [["iteration", *capsules]]
    for iteration, shares in enumerate(means, start=1):
        rows.append([str(iteration), *_cells(shares)])
    return _table("Shares of", rows, of=f" {name}")


def _words_table(name: str, capsules: Sequence[str], words_of_capsules: Sequence[Sequence[Mapping[str, Any]]]) -> Table:
    rows = [["capsule", "source pieces"]]
    for capsule, words in zip(capsules, words_of_capsules, strict=True):
        pieces = []
        for word in words:
            share = _number(word["share"], digits=2)
            pieces.append(f"{word['piece']} ({share})")
        rows.append([capsule, ", ".join(pieces)])
    return _table("Words that feed", rows, of=f" {name}", least=LEAST_COUNT)


def _past_and_future_table(means: Mapping[str, Any]) -> Table:
    rows = [["source words", "to PAST", "to FUTURE"]]
    rows.append(["not yet translated", *_past_and_future_cells(means["before"])])
    rows.append(["translated", *_past_and_future_cells(means["after"])])
    counts = {"aligned_words": means["aligned_words"], "words": means["words"]}
    return _table("PAST and FUTURE of a source word", rows, **counts)


def _numbers_to(most: int) -> list[str]:
    return [str(number) for number in range(1, most + 1)]


def _number(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}"


def _cells(values: Sequence[float]) -> list[str]:
    return [_number(value) for value in values]


def _filled(cells: Sequence[str], most: int) -> list[str]:
    """Return the cells of a row that has `most` of them, the last ones empty."""
    empty = most - len(cells)
    return [*cells, *[""] * empty]


def _past_and_future_cells(means: Mapping[str, float | None]) -> list[str]:
    cells = []
    for side in ("past", "future"):
        mean = means[side]
        cells.append("" if mean is None else _number(mean))
    return cells


def write_report(
    folder: Path, statistics: RoutingStatistics, record: Mapping[str, Any], sentences: Mapping[str, SentenceRouting]
) -> None:
    """Write every file of a report.

    Args:
        folder: a new folder.
        statistics: what was measured.
        record: what [`record_routing`] makes of it, and the settings and the environment of the command.
        sentences: are drawn, by what they are called.
    """
    figures = _write_figures(folder, statistics, record, sentences)
    links = {"report.md": "the tables in Markdown", "routing.json": "the numbers"}
    arrays = {}
    for name, sums in statistics.sums.items():
        if sums.keep_inputs:
            arrays[name] = sums.mean_assignment.float().numpy()
    if arrays:
        with replaced_file(folder / "mean_assignment.npz") as file:
            np.savez_compressed(file, **arrays)
        links["mean_assignment.npz"] = "mean assignment [iterations, layers or heads, capsules], arrays of NumPy"
    title = f"Routing of {record['settings']['model']}"
    lines = [f"# {title}", "", *report(record)]
    replace_text(folder / "report.md", "".join(f"{line}\n" for line in lines))
    template = Path(__file__).with_name("report.html").read_text(encoding="utf-8")
    page = Template(template, autoescape=True).render(
        title=title, about=describe(record), links=links, tables=routing_tables(record), figures=figures
    )
    replace_text(folder / "index.html", page)
    write_json(folder / "routing.json", record)


def _write_figures(
    folder: Path, statistics: RoutingStatistics, record: Mapping[str, Any], sentences: Mapping[str, SentenceRouting]
) -> dict[str, tuple[str, str]]:
    """Draw all figures. Return title and hint of each, by its file without the ending."""
    drawn = {}
    for title, figure in draw_routing(statistics, record).items():
        drawn[title] = (figure, look_for(title))
    for name, routing in sentences.items():
        for title, draw in sentence_pictures(routing).items():
            drawn[f"{name}: {title}"] = (draw(), look_for(title))
    (folder / "figures").mkdir()
    figures = {}
    for title, (figure, hint) in tqdm(drawn.items(), unit=" figures", desc="drawing"):
        name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        file = f"figures/{name}"
        figures[file] = (title, hint)
        for ending in (".png", ".svg"):
            save_figure(figure, folder / f"{file}{ending}")
    return figures


def report(record: Mapping[str, Any]) -> list[str]:
    """Return the tables in Markdown, line by line."""
    lines = [describe(record)]
    for table in routing_tables(record):
        # A piece of a word may be a bar, which would begin another cell.
        rows = [[cell.replace("|", "\\|") for cell in row] for row in table.rows]
        lines += ["", f"## {table.title}", "", table_in_markdown(rows), "", table.note]
    return lines


def describe(record: Mapping[str, Any]) -> str:
    """Return a line that says what was measured, on what."""
    settings = record["settings"]
    model = f"{settings['model']} ({record['architecture']})"
    sentences = f"{record['sentences']} sentences of {settings['input_file']}"
    written = "and the model's translations"
    if settings["references"]:
        written = f"made to write {settings['references']}"
    machine = _machine(record["environment"])
    return f"{model}, {sentences}, {written}. {machine}."


def _machine(environment: Mapping[str, Any]) -> str:
    """Return the machine, the versions and the day of a record as text."""
    packages = environment["packages"]
    versions = [f"{name} {packages[name]}" for name in ("torch", "transformers") if name in packages]
    return ", ".join([environment["device"], *versions, environment["date"]])
