"""The report of `hf-capsule-mt analyze`: a folder with tables, figures and pages."""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.evaluation.scores import table_in_markdown
from hf_capsule_mt.files import replace_text, replaced_file

from .figures import save_for_page
from .pages import Section, report_page, sentences_page
from .routing_figures import draw_routing
from .sentence import SentenceRouting
from .sentence_figures import draw_sentence
from .statistics import ALIKE, LEAST_COUNT, RoutingStatistics
from .word_alignment import source_subwords

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    return {
        "routing": {name: _record_sums(sums) for name, sums in statistics.sums.items()},
        "words": {
            name: [
                [
                    {"piece": source_subwords(tokenizer, [word])[0], "share": share, "count": count}
                    for word, share, count in one
                ]
                for one in shares.largest()
            ]
            for name, shares in statistics.word_shares.items()
        },
        "guided_names": statistics.guided_names,
        "past_and_future": None if statistics.past_and_future is None else statistics.past_and_future.result(),
        "top_5_overlap": None if overlaps is None else dict(zip(("past", "future"), overlaps)),
    }


def _record_sums(sums: Any) -> dict[str, Any]:
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
    tables = [_gates(record["gates"])] if record["gates"] else []
    tables += [_worth(record["worth"])] if record["worth"]["added"] else []
    tables += [_by_iteration(record["routing"])] if record["routing"] else []
    tables += _led(record["routing"])
    for name, capsules in record["words"].items():
        numbers = [str(number + 1) for number in range(len(capsules))]
        names = record["guided_names"] if name == "guided capsules" else numbers
        tables.append(_shares(name, names, record["routing"][name]["mean_assignment"]))
        if any(capsules):
            tables.append(_words_of_capsules(name, names, capsules))
    if record["past_and_future"] is not None:
        tables.append(_past_and_future(record["past_and_future"]))
    if record["top_5_overlap"] is not None:
        tables.append(_overlap(record["top_5_overlap"]))
    return tables


def _gates(gates: Mapping[str, Mapping[str, float]]) -> Table:
    rows = [["place", "mean", "largest"]]
    rows += [[place, f"{gate['mean']:.4f}", f"{gate['largest']:.4f}"] for place, gate in gates.items()]
    note = (
        "Magnitude of gamma, 0 at the start, by which aggregated layers, of unit size, and routed heads are multiplied "
        "before they are added to what the plain model has."
    )
    return Table("How far what was added is switched on", rows, note)


def _worth(worth: Mapping[str, Any]) -> Table:
    # Never "-0.000".
    rows = [[place, f"{worth['loss']:.3f}", f"{round(added, 3) + 0.0:.3f}"] for place, added in worth["added"].items()]
    note = (
        "The loss of what the model was made to write, in nats a token, and what is added to it when what capsules "
        "bring to a position or sentence is replaced by its mean over all other lines: what this model makes of its "
        "capsules, not how one trained without them would do."
    )
    return Table("What the capsules are worth", [["capsules", "loss", "added without them"], *rows], note)


def _by_iteration(routing: Mapping[str, Any]) -> Table:
    most = max(len(one["entropy"]) for one in routing.values())
    numbers = [f"{measure} {number}" for measure in ("entropy", "diversity") for number in range(1, most + 1)]
    rows = [["routing", "capsules", *numbers]]
    for name, one in routing.items():
        empty = [""] * (most - len(one["entropy"]))
        cells = [f"{value:.3f}" for value in one["entropy"]] + empty + [f"{value:.3f}" for value in one["diversity"]]
        rows.append([name, str(one["capsules"]), *cells, *empty])
    note = (
        "By iteration. Entropy in nats, of how an input is dealt to the output capsules: the lower, the surer (Dou et "
        "al. 2019, Eq. 17, as the paper's figures are: its print lacks the minus and divides by the capsules too). "
        "Diversity is 1 - the mean cosine between what two output capsules get: the higher, the more they differ (Eq. "
        "18, whose print lacks the 1 -)."
    )
    return Table("Entropy and diversity", rows, note)


def _led(routing: Mapping[str, Any]) -> list[Table]:
    found = {name: one["capsules_led"] for name, one in routing.items() if "capsules_led" in one}
    if not found:
        return []
    most = max(map(len, found.values()))
    rows = [["routing", *(str(number) for number in range(1, most + 1))]]
    rows += [[name, *map(str, led), *[""] * (most - len(led))] for name, led in found.items()]
    note = (
        "To how many output capsules each layer, or head, is assigned more than any other, in the mean over all "
        "positions; what EM routing makes of it, the activations of layers weigh too."
    )
    return [Table("Capsules led by each layer or head", rows, note)]


def _shares(name: str, names: Sequence[str], means: Sequence[Sequence[float]]) -> Table:
    rows = [["iteration", *names]]
    rows += [[str(number), *(f"{share:.3f}" for share in shares)] for number, shares in enumerate(means, start=1)]
    return Table(f"Shares of {name}", rows, f"Mean assignment of a source word{_WHILE.get(name, '')}.")


_WHILE = {"guided capsules": ", over all target words that are written"}


def _words_of_capsules(name: str, names: Sequence[str], capsules: Sequence[Sequence[Mapping[str, Any]]]) -> Table:
    rows = [["capsule", "source pieces"]]
    rows += [
        [one, ", ".join(f"{word['piece']} ({word['share']:.2f})" for word in words)]
        for one, words in zip(names, capsules, strict=True)
    ]
    note = (
        "Those that a capsule gets the largest share of, in the mean over their occurrences, of pieces that occur "
        f"{LEAST_COUNT} times or more."
    )
    return Table(f"Words that feed {name}", rows, note)


def _past_and_future(found: Mapping[str, Any]) -> Table:
    rows = [["source words", "to PAST", "to FUTURE"]]
    for name, what in (("before", "not yet translated"), ("after", "translated")):
        rows.append([what, *_sides(found[name])])
    note = f"Mean assignment; {found['aligned_words']} of {found['words']} source words could be aligned."
    return Table("PAST and FUTURE of a source word", rows, note)


def _overlap(found: Mapping[str, float | None]) -> Table:
    note = (
        "The fraction of n target words in the bag that are among the 5 n which its capsules find most likely "
        "(r_OL of Zheng et al. 2019)."
    )
    return Table("Top-5 overlap", [["PAST", "FUTURE"], _sides(found)], note)


def _sides(found: Mapping[str, float | None]) -> list[str]:
    return ["" if found[side] is None else f"{found[side]:.3f}" for side in ("past", "future")]


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
    with replaced_file(path) as file:
        file.write(buffer.getvalue())


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
