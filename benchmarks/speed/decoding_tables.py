"""The tables of decoders, made from records, and the page of all."""

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from benchmarks.records import FOLDER, read_records
from hf_capsule_mt.evaluation.tables import table_in_markdown

GENERATE = "generate()"


def render_page(page: Path) -> str:
    """Return a page from its template, which lies next to it as PAGE.jinja.

    The template has `speed(name)`, `memory(name)` and `on_file(name)`, the tables of a record; `settings(name)`, cells
    with how it was measured; `measured(name)`, whether there is one; `has(name, row, decoder)`, whether that was
    measured; and `ratio(name, row, decoder, reference)`, times as fast.
    """
    records = read_records(FOLDER / "decoding.jsonl")

    def rates(name: str, row: str, decoder: str) -> list[float] | None:
        return records.get(name, {}).get("decoders", {}).get(row, {}).get("rates", {}).get(decoder)

    def ratio(name: str, row: str, decoder: str, reference: str = f"plain {GENERATE}") -> float:
        return median(ratios(rates(name, row, reference), rates(name, row, decoder)))

    environment = SandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    return environment.from_string(page.with_name(f"{page.name}.jinja").read_text(encoding="utf-8")).render(
        speed=lambda name: decoders_table(records[name]),
        settings=lambda name: " | ".join(_settings(records[name])),
        memory=lambda name: memory_report(records[name]),
        on_file=lambda name: file_report(records[name]),
        measured=records.__contains__,
        has=lambda *names: rates(*names) is not None,
        ratio=ratio,
    )


def ratios(plain: list[float], method: list[float]) -> list[float]:
    """Return the method's rate divided by the plain model's, for every round."""
    return [other / one for one, other in zip(plain, method, strict=True)]


def ratio_cell(plain: list[float], method: list[float]) -> str:
    """Return the median of the ratios, and the smallest and the largest."""
    found = ratios(plain, method)
    return f"{median(found):.2f} ({min(found):.2f}–{max(found):.2f})"


def machine(environment: Mapping[str, Any], **versions: str | None) -> str:
    """Return the machine of a record, and the versions of its software, as text."""
    packages = {name: environment["packages"].get(name) for name in ("torch", "transformers")} | versions
    known = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    threads = f"{environment['cpu_threads']} thread{'s' if environment['cpu_threads'] > 1 else ''}"
    return ", ".join([str(environment["device"]), threads, f"`{known}`", *filter(None, [environment.get("date")])])


def clock_in_words(clock: str | None) -> str:
    """Return what a clock measured."""
    return "CPU time" if clock == "cpu" else "time that passed"


def decoders_report(record: Mapping[str, Any]) -> str:
    """Return the table of the decoders in Markdown, and under it how they were measured."""
    options, rounds, clock, where = _settings(record)
    return (
        f"{decoders_table(record)}\n\nTimes as fast as the first decoder of the line. Higher is faster. Median of "
        f"{rounds} rounds (smallest–largest), {clock}. {options}. {where}."
    )


def decoders_table(record: Mapping[str, Any]) -> str:
    """Return the table of the decoders in Markdown."""
    found = {row: each["rates"] for row, each in record["decoders"].items()}
    names = list(dict.fromkeys(name for rates in found.values() for name in rates))
    rows = [["weights of", "reference, sentences/s", *names]]
    for row, rates in found.items():
        reference = next(iter(rates.values()))
        cells = [ratio_cell(reference, rates[name]) if name in rates else "" for name in names]
        cells = ["1" if rates.get(name) == reference else cell for name, cell in zip(names, cells)]
        rows.append([row, f"{median(reference):.2f}", *cells])
    return table_in_markdown(rows)


def _settings(record: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return options, rounds, clock and machine of a record, in words."""
    settings, environment = record["settings"], record["environment"]
    overrides = f" --config_overrides {' '.join(settings['config_overrides'])}" if settings["config_overrides"] else ""
    names = ("vocab_size", "batch_size", "num_beams", "new_tokens", "seed")
    shown = " ".join(f"--{name} {settings[name]}" for name in names).replace("new_tokens", "max_new_tokens")
    options = f"`--size {settings['size']}{overrides} {shown}`"
    where = machine(environment, ctranslate2=environment["packages"].get("ctranslate2"))
    return options, str(settings["rounds"]), clock_in_words(settings.get("clock")), where


def memory_report(record: Mapping[str, Any]) -> str:
    """Return the table of the decoders' memory."""
    settings, rows = record["settings"], [["weights of", "decoder", "MiB", "of generate()"]]
    for row, found in record["decoders"].items():
        for name, size in found["memory"].items():
            rows.append([row, name, f"{size / 2**20:.0f}", f"{size / found['memory'][GENERATE]:.2f}"])
    return (
        f"{table_in_markdown(rows)}\n\nThe most memory of tensors at one time, without the weights. Less is better. "
        f"`--batch_size {settings['batch_size']} --num_beams {settings['num_beams']} "
        f"--memory_length {settings['memory_length']}`."
    )


def file_report(record: Mapping[str, Any]) -> str:
    """Return the table of decoders of trained models on a whole file, with those that none beats in BLEU and time."""
    found = {(row, name): decoder for row, each in record["models"].items() for name, decoder in each.items()}
    points = {key: (decoder["bleu"]["score"], median(decoder["seconds"])) for key, decoder in found.items()}
    rows = [["weights of", "decoder", "BLEU", "seconds", "frontier"]]
    for (row, name), (bleu, time) in points.items():
        beaten = any(other != (bleu, time) and other[0] >= bleu and other[1] <= time for other in points.values())
        rows.append([row, name, f"{bleu:.2f}", f"{time:.1f}", "" if beaten else "yes"])
    rounds = len(next(iter(found.values()))["seconds"])
    return (
        f"{table_in_markdown(rows)}\n\nSeconds of {clock_in_words(record['clock'])}, median of {rounds} rounds, with "
        f"{record['num_beams']} beams. Frontier: no other line is as good and as fast, and better in one of the two. "
        f"A difference of less than about 1 BLEU between two models may be chance. {machine(record['environment'])}."
    )
