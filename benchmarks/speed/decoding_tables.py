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
        decoders = records.get(name, {}).get("decoders", {})
        return decoders.get(row, {}).get("rates", {}).get(decoder)

    def has(name: str, row: str, decoder: str) -> bool:
        return rates(name, row, decoder) is not None

    def ratio(name: str, row: str, decoder: str, reference: str = f"plain {GENERATE}") -> float:
        return median(ratios(rates(name, row, reference), rates(name, row, decoder)))

    environment = SandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    template = page.with_name(f"{page.name}.jinja").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        speed=lambda name: decoders_table(records[name]),
        settings=lambda name: " | ".join(_settings(records[name])),
        memory=lambda name: memory_report(records[name]),
        on_file=lambda name: file_report(records[name]),
        measured=records.__contains__,
        has=has,
        ratio=ratio,
    )


def ratios(plain: list[float], method: list[float]) -> list[float]:
    """Return the method's rate divided by the plain model's, for every round."""
    return [rate / plain_rate for plain_rate, rate in zip(plain, method, strict=True)]


def ratio_cell(plain: list[float], method: list[float]) -> str:
    """Return the median of the ratios, and the smallest and the largest."""
    of_rounds = ratios(plain, method)
    return f"{median(of_rounds):.2f} ({min(of_rounds):.2f}–{max(of_rounds):.2f})"


def machine(environment: Mapping[str, Any], **versions: str | None) -> str:
    """Return the machine of a record, and the versions of its software, as text."""
    packages = environment["packages"]
    versions = {"torch": packages.get("torch"), "transformers": packages.get("transformers"), **versions}
    known = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    number = environment["cpu_threads"]
    parts = [str(environment["device"]), f"{number} threads" if number > 1 else f"{number} thread", f"`{known}`"]
    # Old records have no date.
    if environment.get("date"):
        parts.append(environment["date"])
    return ", ".join(parts)


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
    rates_of_rows = {row: measured["rates"] for row, measured in record["decoders"].items()}
    names = list(dict.fromkeys(name for rates in rates_of_rows.values() for name in rates))
    table = [["weights of", "reference, sentences/s", *names]]
    for row, rates in rates_of_rows.items():
        reference = next(iter(rates.values()))
        cells = [_decoder_cell(reference, rates.get(name)) for name in names]
        table.append([row, f"{median(reference):.2f}", *cells])
    return table_in_markdown(table)


def _decoder_cell(reference: list[float], rates: list[float] | None) -> str:
    if rates is None:
        return ""
    if rates == reference:
        return "1"
    return ratio_cell(reference, rates)


def _settings(record: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return options, rounds, clock and machine of a record, in words."""
    settings = record["settings"]
    options = f"--size {settings['size']}"
    if settings["config_overrides"]:
        options += f" --config_overrides {' '.join(settings['config_overrides'])}"
    for name in ("vocab_size", "batch_size", "num_beams", "new_tokens", "seed"):
        # The records have another name for this option.
        option = "max_new_tokens" if name == "new_tokens" else name
        options += f" --{option} {settings[name]}"
    environment = record["environment"]
    where = machine(environment, ctranslate2=environment["packages"].get("ctranslate2"))
    return f"`{options}`", str(settings["rounds"]), clock_in_words(settings.get("clock")), where


def memory_report(record: Mapping[str, Any]) -> str:
    """Return the table of the decoders' memory."""
    table = [["weights of", "decoder", "MiB", "of generate()"]]
    for row, measured in record["decoders"].items():
        sizes = measured["memory"]
        for name, size in sizes.items():
            table.append([row, name, f"{size / 2**20:.0f}", f"{size / sizes[GENERATE]:.2f}"])
    settings = record["settings"]
    return (
        f"{table_in_markdown(table)}\n\nThe most memory of tensors at one time, without the weights. Less is better. "
        f"`--batch_size {settings['batch_size']} --num_beams {settings['num_beams']} "
        f"--memory_length {settings['memory_length']}`."
    )


def file_report(record: Mapping[str, Any]) -> str:
    """Return the table of decoders of trained models on a whole file, with those that none beats in BLEU and time."""
    points = {}
    for row, decoders in record["models"].items():
        for name, decoder in decoders.items():
            points[row, name] = (decoder["bleu"]["score"], median(decoder["seconds"]))
            rounds = len(decoder["seconds"])
    table = [["weights of", "decoder", "BLEU", "seconds", "frontier"]]
    for (row, name), point in points.items():
        bleu, seconds = point
        is_beaten = any(_beats(other, point) for other in points.values())
        table.append([row, name, f"{bleu:.2f}", f"{seconds:.1f}", "" if is_beaten else "yes"])
    return (
        f"{table_in_markdown(table)}\n\nSeconds of {clock_in_words(record['clock'])}, median of {rounds} rounds, with "
        f"{record['num_beams']} beams. Frontier: no other line is as good and as fast, and better in one of the two. "
        f"A difference of less than about 1 BLEU between two models may be chance. {machine(record['environment'])}."
    )


def _beats(point: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return whether a point of BLEU and seconds is as good as another one and as fast, and not equal to it."""
    bleu, seconds = point
    other_bleu, other_seconds = other
    return point != other and bleu >= other_bleu and seconds <= other_seconds
