"""The tables of decoders, made from records."""

from statistics import median
from typing import NamedTuple

from benchmarks.common.records import Record
from benchmarks.common.tables import GENERATE, clock_in_words, machine, ratio_cell
from hf_capsule_mt.evaluation.tables import table_in_markdown


def decoders_report(record: Record) -> str:
    """Return the table of the decoders in Markdown, and under it how they were measured."""
    options, rounds, clock, where = settings_cells(record)
    return (
        f"{decoders_table(record)}\n\n"
        f"Times as fast as the first decoder of the line. Higher is faster. Median of "
        f"{rounds} rounds (smallest–largest), {clock}. {options}. {where}."
    )


def decoders_table(record: Record) -> str:
    """Return the table of the decoders in Markdown."""
    names: list[str] = []
    for measured in record["decoders"].values():
        names += [name for name in measured["rates"] if name not in names]
    table = [["weights of", "reference, sentences/s", *names]]
    for row, measured in record["decoders"].items():
        rates = measured["rates"]
        # The first decoder of a row is the one that others are compared with.
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


def settings_cells(record: Record) -> tuple[str, str, str, str]:
    """Return options, rounds, clock and machine of a record, in words."""
    settings = record["settings"]
    options = f"--size {settings['size']}"
    overrides = settings["config_overrides"]
    if overrides:
        options += f" --config_overrides {' '.join(overrides)}"
    for name in ("vocab_size", "batch_size", "num_beams", "new_tokens", "seed"):
        # The records have another name for this option.
        option = "max_new_tokens" if name == "new_tokens" else name
        options += f" --{option} {settings[name]}"
    environment = record["environment"]
    where = machine(environment, ctranslate2=environment["packages"].get("ctranslate2"))
    return f"`{options}`", str(settings["rounds"]), clock_in_words(settings.get("clock")), where


def memory_report(record: Record) -> str:
    """Return the table of the decoders' memory."""
    table = [["weights of", "decoder", "MiB", "of generate()"]]
    for row, measured in record["decoders"].items():
        sizes = measured["memory"]
        for name, size in sizes.items():
            mebibytes = size / 2**20
            times_as_much = size / sizes[GENERATE]
            table.append([row, name, f"{mebibytes:.0f}", f"{times_as_much:.2f}"])
    settings = record["settings"]
    return (
        f"{table_in_markdown(table)}\n\n"
        "The most memory of tensors at one time, without the weights. Less is better. "
        f"`--batch_size {settings['batch_size']} --num_beams {settings['num_beams']} "
        f"--memory_length {settings['memory_length']}`."
    )


def file_report(record: Record) -> str:
    """Return the table of decoders of trained models on a whole file, with those that none beats in BLEU and time."""
    points = {}
    for row, decoders in record["models"].items():
        for name, decoder in decoders.items():
            points[row, name] = _Point(decoder["bleu"]["score"], median(decoder["seconds"]))
            rounds = len(decoder["seconds"])
    table = [["weights of", "decoder", "BLEU", "seconds", "frontier"]]
    for (row, name), point in points.items():
        is_beaten = any(other.beats(point) for other in points.values())
        frontier = "" if is_beaten else "yes"
        table.append([row, name, f"{point.bleu:.2f}", f"{point.seconds:.1f}", frontier])
    return (
        f"{table_in_markdown(table)}\n\n"
        f"Seconds of {clock_in_words(record['clock'])}, median of {rounds} rounds, with {record['num_beams']} beams. "
        "Frontier: no other line is as good and as fast, and better in one of the two. "
        "A difference of less than about 1 BLEU between two models may be chance. "
        f"{machine(record['environment'])}."
    )


class _Point(NamedTuple):
    """What a decoder reaches, and what it costs."""

    bleu: float
    seconds: float

    def beats(self, other: "_Point") -> bool:
        """Return whether this is as good as another one and as fast, and not equal to it."""
        return self != other and self.bleu >= other.bleu and self.seconds <= other.seconds
