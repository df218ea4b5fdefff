"""The page of decoders, made from records."""

from pathlib import Path
from statistics import median

from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from benchmarks.common.records import read_records
from benchmarks.common.tables import GENERATE, ratios
from benchmarks.decoding import nllb
from benchmarks.decoding.decoding_tables import decoders_table, file_report, memory_report, settings_cells


def render_page(page: Path) -> str:
    """Return a page from its template, which lies next to it as PAGE.jinja.

    The template has `speed(name)`, `memory(name)`, `on_file(name)` and `nllb(name)`, the tables of a record;
    `settings(name)`, cells with how it was measured; `measured(name)`, whether there is one; `has(name, row, decoder)`,
    whether that was measured; and `ratio(name, row, decoder, reference)`, times as fast.
    """
    records = read_records(Path(__file__).with_name("decoding.jsonl"))

    def rates_of_row(name: str, row: str) -> dict[str, list[float]]:
        record = records.get(name, {})
        decoders = record.get("decoders", {})
        return decoders.get(row, {}).get("rates", {})

    def has(name: str, row: str, decoder: str) -> bool:
        return decoder in rates_of_row(name, row)

    def ratio(name: str, row: str, decoder: str, reference: str = f"plain {GENERATE}") -> float:
        rates = rates_of_row(name, row)
        return median(ratios(rates[reference], rates[decoder]))

    environment = SandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    template = page.with_name(f"{page.name}.jinja").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        speed=lambda name: decoders_table(records[name]),
        settings=lambda name: " | ".join(settings_cells(records[name])),
        memory=lambda name: memory_report(records[name]),
        nllb=lambda name: nllb.report(records[name]),
        on_file=lambda name: file_report(records[name]),
        measured=records.__contains__,
        has=has,
        ratio=ratio,
    )
