"""The report of `hf-capsule-mt analyze`: a folder with tables, figures and pages."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Template
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.evaluation.drawing import save_figure
from hf_capsule_mt.evaluation.tables import table_in_markdown
from hf_capsule_mt.files import replace_text, replaced_file, write_json

from .routing_figures import TEXTS, draw_routing, look_for, sentence_pictures
from .sentence import SentenceRouting
from .statistics import ALIKE, LEAST_COUNT, AssignmentSums, RoutingStatistics
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
    overlaps = statistics.overlaps

    def described(word: int, share: float, count: int) -> dict[str, Any]:
        return {"piece": source_subwords(tokenizer, [word])[0], "share": share, "count": count}

    return {
        "routing": {name: _record_sums(sums) for name, sums in statistics.sums.items()},
        "words": {
            name: [[described(*word) for word in words] for words in shares.largest()]
            for name, shares in statistics.word_shares.items()
        },
        "guided_names": statistics.guided_names,
        "past_and_future": None if statistics.past_and_future is None else statistics.past_and_future.result(),
        "top_5_overlap": None if overlaps is None else dict(zip(("past", "future"), overlaps)),
    }


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
        last = mean[-1]
        # After one iteration all are alike, and none leads.
        led = last.argmax(0)[last.max(0).values - last.min(0).values > ALIKE]
        return {**record, "capsules_led": led.bincount(minlength=mean.shape[1]).tolist()}
    return {**record, "mean_assignment": mean.squeeze(1).tolist()}


def routing_tables(record: Mapping[str, Any]) -> list[Table]:
    """Return the tables of a record that has what [`record_routing`] returns, and "gates" and "worth"."""
    routing, tables = record["routing"], []

    def add(title: str, head: list[str], rows: list[list[str]], of: str = "", **values: int) -> None:
        tables.append(Table(title + of, [head, *rows], TEXTS["tables"][title].format(**values)))

    if gates := record["gates"]:
        rows = [[place, f"{gate['mean']:.4f}", f"{gate['largest']:.4f}"] for place, gate in gates.items()]
        add("How far new parts are switched on", ["place", "mean", "largest"], rows)
    if added := record["worth"]["added"]:
        loss = f"{record['worth']['loss']:.3f}"
        # Never "-0.000".
        rows = [[place, loss, f"{round(value, 3) + 0.0:.3f}"] for place, value in added.items()]
        add("What the capsules are worth", ["capsules", "loss", "added without them"], rows)
    if routing:
        most = max(len(one["entropy"]) for one in routing.values())
        numbers = [f"{measure} {number}" for measure in ("entropy", "diversity") for number in range(1, most + 1)]
        rows = [
            [name, str(one["capsules"]), *_cells(one["entropy"], most), *_cells(one["diversity"], most)]
            for name, one in routing.items()
        ]
        add("Entropy and diversity", ["routing", "capsules", *numbers], rows)
    if led := {name: one["capsules_led"] for name, one in routing.items() if "capsules_led" in one}:
        most = max(map(len, led.values()))
        rows = [[name, *map(str, numbers), *[""] * (most - len(numbers))] for name, numbers in led.items()]
        add("Capsules led by each layer or head", ["routing", *map(str, range(1, most + 1))], rows)
    for name, capsules in record["words"].items():
        numbers = list(map(str, range(1, len(capsules) + 1)))
        names = record["guided_names"] if name == "guided capsules" else numbers
        means = routing[name]["mean_assignment"]
        add(
            "Shares of",
            ["iteration", *names],
            [[str(at), *_cells(each)] for at, each in enumerate(means, 1)],
            f" {name}",
        )
        if any(capsules):
            listed = [", ".join(f"{word['piece']} ({word['share']:.2f})" for word in words) for words in capsules]
            rows = list(map(list, zip(names, listed, strict=True)))
            add("Words that feed", ["capsule", "source pieces"], rows, f" {name}", least=LEAST_COUNT)
    if found := record["past_and_future"]:
        rows = [["not yet translated", *_sides(found["before"])], ["translated", *_sides(found["after"])]]
        counts = {name: found[name] for name in ("aligned_words", "words")}
        add("PAST and FUTURE of a source word", ["source words", "to PAST", "to FUTURE"], rows, **counts)
    if record["top_5_overlap"]:
        add("Top-5 overlap", ["PAST", "FUTURE"], [_sides(record["top_5_overlap"])])
    return tables


def _cells(values: Sequence[float], most: int = 0) -> list[str]:
    return [f"{value:.3f}" for value in values] + [""] * (most - len(values))


def _sides(found: Mapping[str, float | None]) -> list[str]:
    return ["" if found[side] is None else f"{found[side]:.3f}" for side in ("past", "future")]


def write_report(
    folder: Path, statistics: RoutingStatistics, record: Mapping[str, Any], sentences: Mapping[str, SentenceRouting]
) -> None:
    """Write every file of a report into a new folder. `sentences` are drawn, by what they are called."""
    drawn = {title: (figure, look_for(title)) for title, figure in draw_routing(statistics, record).items()}
    for name, routing in sentences.items():
        for title, draw in sentence_pictures(routing).items():
            drawn[f"{name}: {title}"] = draw(), look_for(title)
    (folder / "figures").mkdir()
    figures = {}
    for title, (figure, hint) in tqdm(drawn.items(), unit=" figures", desc="drawing"):
        file = "figures/" + re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        figures[file] = title, hint
        for ending in (".png", ".svg"):
            save_figure(figure, folder / f"{file}{ending}")
    links = {"report.md": "the tables in Markdown", "routing.json": "the numbers"}
    means = {name: sums.mean_assignment for name, sums in statistics.sums.items() if sums.keep_inputs}
    if means:
        with replaced_file(folder / "mean_assignment.npz") as file:
            np.savez_compressed(file, **{name: each.float().numpy() for name, each in means.items()})
        links["mean_assignment.npz"] = "mean assignment [iterations, layers or heads, capsules], arrays of NumPy"
    title, about = f"Routing of {record['settings']['model']}", describe(record)
    replace_text(folder / "report.md", "\n".join([f"# {title}", "", *report(record)]) + "\n")
    values = {"title": title, "about": about, "links": links, "tables": routing_tables(record), "figures": figures}
    page = Template(Path(__file__).with_name("report.html").read_text(encoding="utf-8"), autoescape=True)
    replace_text(folder / "index.html", page.render(**values))
    write_json(folder / "routing.json", record)


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
        f"{written}. {_machine(record['environment'])}."
    )


def _machine(environment: Mapping[str, Any]) -> str:
    """Return the machine, the versions and the day of a record as text."""
    packages = environment["packages"]
    versions = [f"{name} {packages[name]}" for name in ("torch", "transformers") if name in packages]
    return ", ".join([environment["device"], *versions, environment["date"]])
