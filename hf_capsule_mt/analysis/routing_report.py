"""The report of `hf-capsule-mt analyze`: a folder with tables, figures and pages."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jinja2 import Template
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.evaluation.drawing import save_figure
from hf_capsule_mt.evaluation.tables import table_in_markdown
from hf_capsule_mt.files import replace_text, replaced_file, write_json

from .layer_shares import READERS, READING_TITLES
from .routing_figures import TEXTS, draw_routing, look_for, sentence_pictures
from .sentence import SentenceRouting
from .statistics import ALIKE, LEAST_COUNT, AssignmentSums, RoutingStatistics, WordShares
from .subwords import source_subwords

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        * "layers_read": by what is read, the mean share of each layer, the embeddings first, in what each reader reads:
          a list for each, as in [`LayerShares.means`].
        * "layer_choices": by what is read, the mean "largest" share and the mean "entropy" of each reader.
    """
    routing = {}
    for name, sums in statistics.sums.items():
        routing[name] = _record_sums(sums)

    words = {}
    for name, shares in statistics.word_shares.items():
        words[name] = _record_words(shares, tokenizer)

    layers_read = {}
    for what, shares in statistics.layers_read.items():
        layers_read[what] = [of_reader.tolist() for of_reader in shares]

    past_and_future = None
    if statistics.past_and_future is not None:
        past_and_future = statistics.past_and_future.result()

    top_5_overlap = None
    overlaps = statistics.overlaps
    if overlaps is not None:
        past, future = overlaps
        top_5_overlap = {"past": past, "future": future}

    return {
        "routing": routing,
        "words": words,
        "guided_names": statistics.guided_names,
        "past_and_future": past_and_future,
        "top_5_overlap": top_5_overlap,
        "layers_read": layers_read,
        "layer_choices": statistics.layer_choices,
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
        record["capsules_led"] = _capsules_led(mean[-1])
    else:
        record["mean_assignment"] = mean.squeeze(1).tolist()
    return record


def _capsules_led(assignment: Tensor) -> list[int]:
    """Return how many capsules get most from each input, of a mean assignment `[inputs, N]`."""
    leaders = assignment.argmax(0)
    most = assignment.max(0).values
    least = assignment.min(0).values
    # After one iteration all are alike, and none leads.
    has_leader = most - least > ALIKE
    counts = leaders[has_leader].bincount(minlength=len(assignment))
    return counts.tolist()


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
    gates = record["gates"]
    worth = record["worth"]
    routing = record["routing"]
    past_and_future = record["past_and_future"]
    overlap = record["top_5_overlap"]

    tables = []
    if gates:
        tables.append(_gates_table(gates))
    if worth["added"]:
        tables.append(_worth_table(worth))
    for what, shares in record["layers_read"].items():
        tables.append(_layers_read_table(what, shares))
    if record["layer_choices"]:
        tables.append(_layer_choices_table(record["layer_choices"]))
    if routing:
        tables.append(_entropy_table(routing))

    # Only layers and heads have this.
    led = {name: sums["capsules_led"] for name, sums in routing.items() if "capsules_led" in sums}
    if led:
        tables.append(_led_table(led))

    for name, words_of_capsules in record["words"].items():
        capsules = _numbers_to(len(words_of_capsules))
        if name == "guided capsules":
            capsules = record["guided_names"]
        means = routing[name]["mean_assignment"]
        tables.append(_shares_table(name, capsules, means))
        if any(words_of_capsules):
            tables.append(_words_table(name, capsules, words_of_capsules))

    if past_and_future:
        tables.append(_past_and_future_table(past_and_future))
    if overlap:
        head = ["PAST", "FUTURE"]
        cells = _past_and_future_cells(overlap)
        tables.append(_table("Top-5 overlap", [head, cells]))
    return tables


def _table(title: str, rows: list[list[str]], of: str = "", **values: int) -> Table:
    """Return a table with its note from report.yaml.

    Args:
        title: by which report.yaml has the note.
        rows: of which the first is the head.
        of: the end of the title, which report.yaml does not have.
        **values: what the note leaves open.
    """
    note = TEXTS["tables"][title]
    return Table(title + of, rows, note.format(**values))


def _gates_table(gates: Mapping[str, Mapping[str, float]]) -> Table:
    rows = [["place", "mean", "largest"]]
    for place, gate in gates.items():
        mean = _number(gate["mean"], digits=4)
        largest = _number(gate["largest"], digits=4)
        rows.append([place, mean, largest])
    return _table("How far new parts are switched on", rows)


def _worth_table(worth: Mapping[str, Any]) -> Table:
    rows = [["capsules", "loss", "added without them"]]
    loss = _number(worth["loss"])
    for place, added in worth["added"].items():
        # Adding 0 makes "-0.000" a "0.000".
        rounded = round(added, 3) + 0.0
        rows.append([place, loss, _number(rounded)])
    return _table("What the capsules are worth", rows)


def _layers_read_table(what: str, shares: Sequence[Sequence[float]]) -> Table:
    num_shares = len(shares[-1])
    rows = [[READERS[what], "0", *_numbers_to(num_shares - 1)]]
    for number, of_reader in enumerate(shares, start=1):
        rows.append([str(number), *_filled(_cells(of_reader), num_shares)])
    return _table(READING_TITLES[what], rows)


def _layer_choices_table(choices: Mapping[str, Sequence[Mapping[str, float]]]) -> Table:
    rows = [["read", "largest share", "entropy"]]
    for what, of_readers in choices.items():
        for number, choice in enumerate(of_readers, start=1):
            place = f"{READERS[what]} {number}"
            rows.append([place, _number(choice["largest"]), _number(choice["entropy"])])
    return _table("How clearly layers choose", rows)


def _entropy_table(routing: Mapping[str, Any]) -> Table:
    iterations = max(len(sums["entropy"]) for sums in routing.values())
    numbers = _numbers_to(iterations)
    head = ["routing", "capsules"]
    head += [f"entropy {number}" for number in numbers]
    head += [f"diversity {number}" for number in numbers]

    rows = [head]
    for name, sums in routing.items():
        entropy_cells = _cells(sums["entropy"])
        diversity_cells = _cells(sums["diversity"])
        row = [name, str(sums["capsules"])]
        row += _filled(entropy_cells, iterations)
        row += _filled(diversity_cells, iterations)
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
            piece = word["piece"]
            share = _number(word["share"], digits=2)
            pieces.append(f"{piece} ({share})")
        rows.append([capsule, ", ".join(pieces)])
    return _table("Words that feed", rows, of=f" {name}", least=LEAST_COUNT)


def _past_and_future_table(means: Mapping[str, Any]) -> Table:
    before = _past_and_future_cells(means["before"])
    after = _past_and_future_cells(means["after"])
    rows = [
        ["source words", "to PAST", "to FUTURE"],
        ["not yet translated", *before],
        ["translated", *after],
    ]
    return _table(
        "PAST and FUTURE of a source word",
        rows,
        aligned_words=means["aligned_words"],
        words=means["words"],
    )


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
    folder: Path,
    statistics: RoutingStatistics,
    record: Mapping[str, Any],
    sentences: Mapping[str, SentenceRouting],
) -> None:
    """Write every file of a report.

    Args:
        folder: a new folder.
        statistics: what was measured.
        record: what [`record_routing`] makes of it, and the settings and the environment of the command.
        sentences: are drawn, by what they are called.
    """
    sentence_figures, figures = _write_figures(folder, statistics, record, sentences)
    links = {"report.md": "the tables in Markdown", "routing.json": "the numbers"}

    arrays = {}
    for name, sums in statistics.sums.items():
        if sums.keep_inputs:
            arrays[name] = sums.mean_assignment.float().numpy()
    if arrays:
        with replaced_file(folder / "mean_assignment.npz") as file:
            np.savez_compressed(file, **arrays)
        links["mean_assignment.npz"] = "mean assignment [iterations, layers or heads, capsules], arrays of NumPy"

    model = record["settings"]["model"]
    title = f"Routing of {model}"
    lines = [f"# {title}", "", *report(record), ""]
    replace_text(folder / "report.md", "\n".join(lines))

    template_file = Path(__file__).with_name("report.html")
    template = Template(template_file.read_text(encoding="utf-8"), autoescape=True)
    page = template.render(
        title=title,
        about=describe(record),
        sentences=sentence_figures,
        links=links,
        tables=routing_tables(record),
        figures=figures,
    )
    replace_text(folder / "index.html", page)
    write_json(folder / "routing.json", record)


def _write_figures(
    folder: Path,
    statistics: RoutingStatistics,
    record: Mapping[str, Any],
    sentences: Mapping[str, SentenceRouting],
) -> tuple[dict[str, tuple[str, str]], dict[str, tuple[str, str]]]:
    """Draw the figures of sentences and the others. Return title and hint of each, by its file without the ending."""
    of_sentences = []
    for name, routing in sentences.items():
        for title, draw in sentence_pictures(routing).items():
            of_sentences.append((f"{name}: {title}", look_for(title), draw()))
    others = []
    for title, figure in draw_routing(statistics, record).items():
        others.append((title, look_for(title), figure))
    (folder / "figures").mkdir()
    return _save_figures(folder, of_sentences), _save_figures(folder, others)


def _save_figures(folder: Path, drawn: Sequence[tuple[str, str, "Figure"]]) -> dict[str, tuple[str, str]]:
    """Save figures, which come with title and hint. Return these by the file without the ending."""
    figures = {}
    for title, hint, figure in tqdm(drawn, unit=" figures", desc="drawing"):
        name = re.sub(r"[^a-z0-9]+", "-", title.lower())
        name = name.strip("-")
        file = f"figures/{name}"
        figures[file] = (title, hint)
        for ending in (".png", ".svg"):
            save_figure(figure, folder / f"{file}{ending}")
    return figures


def report(record: Mapping[str, Any]) -> list[str]:
    """Return the tables in Markdown, line by line."""
    lines = [describe(record)]
    for table in routing_tables(record):
        rows = [_without_bars(row) for row in table.rows]
        lines += ["", f"## {table.title}"]
        lines += ["", table_in_markdown(rows)]
        lines += ["", table.note]
    return lines


def _without_bars(cells: Sequence[str]) -> list[str]:
    """Return cells for Markdown. A piece of a word may be a bar, which would begin another cell."""
    return [cell.replace("|", "\\|") for cell in cells]


def describe(record: Mapping[str, Any]) -> str:
    """Return a line that says what was measured, on what."""
    settings = record["settings"]
    model = settings["model"]
    architecture = record["architecture"]
    sentences = record["sentences"]
    input_file = settings["input_file"]
    references = settings["references"]

    written = "and the model's translations"
    if references:
        written = f"made to write {references}"

    machine = _machine(record["environment"])
    return f"{model} ({architecture}), {sentences} sentences of {input_file}, {written}. {machine}."


def _machine(environment: Mapping[str, Any]) -> str:
    """Return the machine, the versions and the day of a record as text."""
    packages = environment["packages"]
    parts = [environment["device"]]
    for name in ("torch", "transformers"):
        if name in packages:
            parts.append(f"{name} {packages[name]}")
    parts.append(environment["date"])
    return ", ".join(parts)
