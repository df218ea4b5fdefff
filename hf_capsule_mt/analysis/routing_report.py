"""The report of `hf-capsule-mt analyze`: a folder with tables, figures and pages."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Template
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.evaluation.scores import table_in_markdown
from hf_capsule_mt.files import replace_text, replaced_file

from .figures import save_figure
from .routing_figures import draw_routing, look_for, sentence_pictures
from .sentence import SentenceRouting, source_subwords
from .statistics import ALIKE, LEAST_COUNT, AssignmentSums, RoutingStatistics


class Table(NamedTuple):
    """A title, rows of text of which the first is the head, and what the numbers are."""

    title: str
    rows: list[list[str]]
    note: str


def record_routing(statistics: RoutingStatistics, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return the numbers, for JSON.

    Args:
        statistics: of a corpus.
        tokenizer: the model's, for words.

    Returns:
        * "routing": by name the "entropy" (nats) and "diversity" by iteration, numbers of "routings", "inputs" and
          output "capsules"; for layers and heads, how many capsules get most from each, at the last iteration
          ("capsules_led"); for words, the "mean_assignment" by iteration and capsule.
        * "words": by name, for every capsule the "piece"s with the largest "share", and their "count".
        * "guided_names": of the guided capsules.
        * "past_and_future": see [`PastAndFutureSums.result`]; None without.
        * "top_5_overlap": {"past": ..., "future": ...}; None without.
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
    """Return the tables of [`record_routing`]'s record, with "gates" of [`record_gates`] and a [`Worth`], "worth"."""
    routing, tables = record["routing"], []
    if record["gates"]:
        rows = [[place, f"{gate['mean']:.4f}", f"{gate['largest']:.4f}"] for place, gate in record["gates"].items()]
        note = (
            "The magnitude of gamma, 0 at the start. Aggregated layers and routed heads are multiplied by it before "
            "they are added to the plain model's."
        )
        tables.append(Table("How far new parts are switched on", [["place", "mean", "largest"], *rows], note))
    if record["worth"]["added"]:
        # Never "-0.000".
        added = {place: f"{round(value, 3) + 0.0:.3f}" for place, value in record["worth"]["added"].items()}
        rows = [[place, f"{record['worth']['loss']:.3f}", value] for place, value in added.items()]
        note = (
            "Loss in nats a token, and what is added when the mean over all lines replaces what the capsules bring to "
            "a position or sentence. It says how much this model uses its capsules, not how good a model without them "
            "would be."
        )
        tables.append(Table("What the capsules are worth", [["capsules", "loss", "added without them"], *rows], note))
    if routing:
        tables.append(_by_iteration(routing))
    led = {name: one["capsules_led"] for name, one in routing.items() if "capsules_led" in one}
    if led:
        most = max(map(len, led.values()))
        rows = [[name, *map(str, numbers), *[""] * (most - len(numbers))] for name, numbers in led.items()]
        note = "The number of output capsules that get more of this layer or head than of any other, in the mean."
        head = ["routing", *(str(number) for number in range(1, most + 1))]
        tables.append(Table("Capsules led by each layer or head", [head, *rows], note))
    for name, capsules in record["words"].items():
        numbers = [str(number + 1) for number in range(len(capsules))]
        names = record["guided_names"] if name == "guided capsules" else numbers
        means = enumerate(routing[name]["mean_assignment"], start=1)
        rows = [[str(number), *(f"{share:.3f}" for share in shares)] for number, shares in means]
        tables.append(Table(f"Shares of {name}", [["iteration", *names], *rows], "Mean assignment of a source word."))
        if any(capsules):
            listed = [", ".join(f"{word['piece']} ({word['share']:.2f})" for word in words) for words in capsules]
            rows = [["capsule", "source pieces"], *map(list, zip(names, listed, strict=True))]
            note = f"Pieces that a capsule gets the largest mean share of, if they occur {LEAST_COUNT} times or more."
            tables.append(Table(f"Words that feed {name}", rows, note))
    if found := record["past_and_future"]:
        rows = [["not yet translated", *_sides(found["before"])], ["translated", *_sides(found["after"])]]
        note = f"Mean assignment. {found['aligned_words']} of {found['words']} source words could be aligned."
        head = ["source words", "to PAST", "to FUTURE"]
        tables.append(Table("PAST and FUTURE of a source word", [head, *rows], note))
    if record["top_5_overlap"]:
        note = (
            "The fraction of n target words in the bag that are among the 5 n words that its capsules find most likely "
            "(r_OL of Zheng et al. 2019)."
        )
        tables.append(Table("Top-5 overlap", [["PAST", "FUTURE"], _sides(record["top_5_overlap"])], note))
    return tables


def _by_iteration(routing: Mapping[str, Any]) -> Table:
    most = max(len(one["entropy"]) for one in routing.values())
    numbers = [f"{measure} {number}" for measure in ("entropy", "diversity") for number in range(1, most + 1)]
    rows = [["routing", "capsules", *numbers]]
    for name, one in routing.items():
        empty = [""] * (most - len(one["entropy"]))
        cells = [f"{value:.3f}" for value in one["entropy"]] + empty + [f"{value:.3f}" for value in one["diversity"]]
        rows.append([name, str(one["capsules"]), *cells, *empty])
    note = (
        "By iteration. Entropy is that of an input's assignment to output capsules, in nats: the lower, the surer (Dou "
        "et al. 2019, Eq. 17). Diversity is 1 - the mean cosine between what two output capsules get: the higher, the "
        "more they differ (Eq. 18)."
    )
    return Table("Entropy and diversity", rows, note)


def _sides(found: Mapping[str, float | None]) -> list[str]:
    return ["" if found[side] is None else f"{found[side]:.3f}" for side in ("past", "future")]


def write_report(
    folder: Path, statistics: RoutingStatistics, record: Mapping[str, Any], sentences: Mapping[str, SentenceRouting]
) -> None:
    """Write every file of a report but that of the numbers, `routing.json`.

    Args:
        folder: an empty one.
        statistics: what was measured.
        record: of [`record_routing`], with what it was measured on.
        sentences: those to draw, by what they are called.
    """
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
