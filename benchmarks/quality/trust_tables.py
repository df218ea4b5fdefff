"""The tables of docs/trust.md, made of the records of benchmarks/quality/trust.py."""

from collections.abc import Sequence
from typing import Any

from benchmarks.quality.damaged_references import KINDS
from hf_capsule_mt.evaluation.tables import table_in_markdown

Table = list[list[str]]
"""Rows of cells."""
Record = dict[str, Any]
"""What benchmarks/quality/trust.py has measured of a model."""


def tables_of(records: Sequence[Record]) -> str:
    """Return the tables of the records of several models in Markdown."""
    parts = []
    for record in records:
        parts.append(f"### AUROC by kind of error, `{record['model']}`")
        parts.append(table_in_markdown(error_table(record)))
    parts.append("### Omissions (third, clause), fields together")
    parts.append(table_in_markdown(omission_table(records)))
    parts.append("### Calibration on val")
    parts.append(table_in_markdown(calibration_table(records)))
    flags = [["flag", "references marked"]]
    for name, share in records[0]["false_flags"].items():
        flags.append([name, f"{share:.2%}"])
    parts.append("### False flags on 3,000 references")
    parts.append(table_in_markdown(flags))
    for record in records:
        minutes = record["cpu_seconds"] / 60
        beams = "1 beam" if record["num_beams"] == 1 else f"{record['num_beams']} beams"
        parts.append(
            f"*{record['machine']}, one thread, {record['date']}, {minutes:.1f} CPU minutes. "
            f"{record['made_errors']:,} made errors. Calibration: 1,000 sentences of val, and "
            f"{record['test_sentences']:,} of each test, with {beams}.*"
        )
        parts.append(f"    {record['command']}")
    return "\n\n".join(parts)


def error_table(record: Record) -> Table:
    """Return the AUROC of each field for each kind of error."""
    table = [["field", *KINDS]]
    for field, areas in record["errors"].items():
        cells = [f"{areas[kind]:.2f}" for kind in KINDS]
        table.append([field, *cells])
    return table


def omission_table(records: Sequence[Record]) -> Table:
    """Return what fields find together, with its intervals."""
    table = [["model", "fields", "AUROC", "false alarms where 90% are found"]]
    for record in records:
        for fields, numbers in record["combined"].items():
            area, low, high = numbers["auroc"]
            alarms, fewest, most = numbers["false_alarms"]
            area_cell = f"{area:.3f} ({low:.3f} to {high:.3f})"
            alarms_cell = f"{alarms:.0%} ({fewest:.0%} to {most:.0%})"
            table.append([f"`{record['model']}`", fields, area_cell, alarms_cell])
    return table


def calibration_table(records: Sequence[Record]) -> Table:
    """Return how well the calibration of each model holds on each test."""
    table = [["model", "sentences", "ECE", "Brier", "80% intervals cover", "AUROC of p_bad", "bad"]]
    for record in records:
        for test, numbers in record["calibration"].items():
            area = numbers.get("auroc")
            cells = [f"`{record['model']}`", test]
            cells.append(f"{numbers['ece']:.3f}")
            cells.append(f"{numbers['brier']:.3f}")
            cells.append(f"{numbers['coverage']:.1%}")
            cells.append("" if area is None else f"{area:.2f}")
            cells.append(f"{numbers['share_bad']:.0%}")
            table.append(cells)
    return table
