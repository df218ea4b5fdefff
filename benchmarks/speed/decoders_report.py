"""The tables of `python -m benchmarks.speed decode`, and the page of all."""

from pathlib import Path
from statistics import median

from benchmarks.speed.decoders import GENERATE
from benchmarks.speed.speed import MEDIAN_LENGTH
from hf_capsule_mt.markdown import table_in_markdown
from hf_capsule_mt.records import FileDecodingRecord, Rates, SpeedRecord, read
from hf_capsule_mt.templates import render_page


def decoders_page(page: Path) -> str:
    """Return a page rendered from its template, which lies beside it as PAGE.jinja.

    The template has `speed(name)`, `memory(name)` and `on_file(name)`, the tables of the record of that name in the
    folder `records` beside the page; `ratio(name, row, decoder, reference)`, times as fast as another decoder; and
    `has(name, row, decoder)`, whether that was measured.

    Raises:
        OSError: if the template or a record cannot be read.
        ValueError: if the template cannot be filled, or names what was not measured.
    """
    template, folder = page.with_name(f"{page.name}.jinja"), page.parent / "records"

    def record(name: str) -> SpeedRecord:
        return read(SpeedRecord, folder / f"{name}.json")

    def has(name: str, row: str, decoder: str) -> bool:
        known = record(name).decoders if (folder / f"{name}.json").is_file() else {}
        return row in known and decoder in known[row].rates

    def ratio(name: str, row: str, decoder: str, reference: str = f"plain {GENERATE}") -> float:
        for one in (decoder, reference):
            if not has(name, row, one):
                raise ValueError(f"{template} asks for {one!r} of {row!r} in {name!r}, which was not measured")
        rates = record(name).decoders[row].rates
        return Rates(rates[reference], rates[decoder]).ratio

    return render_page(
        template,
        speed=lambda name: decoders_report(record(name)),
        memory=lambda name: memory_report(record(name)),
        on_file=lambda name: file_report(read(FileDecodingRecord, folder / f"{name}.json")),
        ratio=ratio,
        has=has,
    )


def decoders_report(record: SpeedRecord) -> str:
    """Return the table of the decoders in Markdown, and under it how they were measured."""
    names = list(dict.fromkeys(name for row in record.decoders.values() for name in row.rates))
    rows = [["weights of", "reference, sentences/s", *names]]
    for row, found in record.decoders.items():
        reference = next(iter(found.rates.values()))
        ratios = {name: Rates(reference, rates) for name, rates in found.rates.items()}
        cells = [_ratio(ratios[name]) if name in ratios else "" for name in names]
        rows.append([row, f"{median(reference):.2f}", *cells])
    return f"{table_in_markdown(rows)}\n\n{_caption(record)}"


def memory_report(record: SpeedRecord) -> str:
    """Return the table of the decoders' memory."""
    length = record.settings.others["memory_length"]
    settings, rows = record.settings, [["weights of", "decoder", "MiB", "of generate()"]]
    for row, found in record.decoders.items():
        for name, size in found.memory.items():
            rows.append([row, name, f"{size / 2**20:.0f}", f"{size / found.memory[GENERATE]:.2f}"])
    return (
        f"{table_in_markdown(rows)}\n\nThe most bytes of tensors at one time, weights apart: {settings.batch_size} "
        f"sources of {length} tokens, {settings.num_beams} beams, {length} tokens written."
    )


def file_report(record: FileDecodingRecord) -> str:
    """Return the table of decoders of trained models on a whole file, with those that none beats in BLEU and time."""
    found = {(row, name): decoder for row, each in record.models.items() for name, decoder in each.items()}
    points = {key: (decoder.bleu.score, median(decoder.seconds)) for key, decoder in found.items()}
    rows = [["weights of", "decoder", "BLEU", "seconds", "frontier"]]
    for (row, name), (bleu, time) in points.items():
        beaten = any(other != (bleu, time) and other[0] >= bleu and other[1] <= time for other in points.values())
        rows.append([row, name, f"{bleu:.2f}", f"{time:.1f}", "" if beaten else "yes"])
    time = "time of the process on a processor" if record.clock == "cpu" else "time that passed"
    rounds = len(next(iter(found.values())).seconds)
    return (
        f"{table_in_markdown(rows)}\n\n{record.num_beams} beams; medians of {rounds} round(s) of {time}, in which the "
        "decoders take turns. On the frontier: nothing here is at least as good and as fast, and better in one of the "
        f"two; a difference of less than about 1 BLEU between two models may be chance. {record.environment}."
    )


def _ratio(rates: Rates) -> str:
    return "1" if rates.plain == rates.method else str(rates)


def _caption(record: SpeedRecord) -> str:
    settings = record.settings
    time = "time of the process on a processor" if settings.clock == "cpu" else "time that passed"
    overrides = f" with {', '.join(settings.config_overrides)}" if settings.config_overrides else ""
    version = record.environment.packages.get("ctranslate2")
    return (
        f"Times as fast as the row's first decoder: medians of {settings.rounds} rounds, in brackets the smallest and "
        f"the largest; {time}; the decoders take turns on the same batches in one process. "
        f"`{settings.size}`{overrides}, vocabulary of {settings.vocab_size}, {settings.batch_size} sentence(s) of "
        f"similar length at a time, {settings.num_beams} beam(s), {settings.new_tokens} tokens written. Weights and "
        f"words are random; sentence lengths are log-normal with median {MEDIAN_LENGTH}; seed {settings.seed}. "
        f"{record.environment}{f', ctranslate2 {version}' if version else ''}."
    )
