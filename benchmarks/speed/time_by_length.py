"""Time of training and decoding by the length of sentences (Wang et al. 2019, section 4.3)."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import linear_regression, median

import torch
from transformers import AutoModelForSeq2SeqLM, PreTrainedConfig, PreTrainedModel

from benchmarks.speed.speed import Batch, check_numbers, check_positions, decode, make_trainer, random_batch, seconds
from hf_capsule_mt.markdown import markdown_table
from hf_capsule_mt.records import Environment, Measurement, TimeByLengthRecord, TimeByLengthSettings

KINDS = ("training", "decoding")


def measure_time_by_length(
    configs: Mapping[str, PreTrainedConfig],
    lengths: Sequence[int],
    *,
    batch_size: int,
    rounds: int,
    seed: int,
    device: torch.device,
) -> Iterator[Measurement]:
    """Time every model on random sentences of each length, in rounds over all lengths; the models take turns.

    A machine that is slower for a while is so for all lengths and models alike. One round more is run, and not counted.

    Args:
        configs: the models, by the name of their row; their positions must suffice for the longest sentences.
        lengths: of source and target, in words.
        batch_size: sentences at a time.
        rounds: how often each is timed.
        seed: of weights and words.
        device: where they run.

    Raises:
        ValueError: if a number is too small, or a model has too few positions.
    """
    _check(configs, lengths, batch_size, rounds)
    torch.manual_seed(seed)
    models = {row: AutoModelForSeq2SeqLM.from_config(config).to(device) for row, config in configs.items()}
    trainers = {row: make_trainer(model) for row, model in models.items()}
    for number in range(rounds + 1):
        for length in lengths:
            decoders = {row: partial(_decode, model, length) for row, model in models.items()}
            for kind, runs in zip(KINDS, (trainers, decoders), strict=True):
                for row, model in models.items():
                    model.train(kind == "training")
                    generator = torch.Generator().manual_seed(seed)
                    batch = random_batch([(length, length)] * batch_size, configs[row].vocab_size, generator, device)
                    time = seconds(runs[row], batch, device)
                    if number > 0:
                        yield Measurement(row, kind, length, time)


def _decode(model: PreTrainedModel, length: int, batch: Batch) -> torch.Tensor:
    source = {name: value for name, value in batch.items() if name != "labels"}
    return decode(model, source, new_tokens=length, num_beams=1)


def medians_of(measurements: Iterable[Measurement]) -> dict[tuple[str, str, int], float]:
    """Return the median of the seconds, by kind, row and length."""
    times: dict[tuple[str, str, int], list[float]] = {}
    for one in measurements:
        times.setdefault((one.kind, one.row, one.length), []).append(one.seconds)
    return {key: median(found) for key, found in times.items()}


def fit_exponent(lengths: Sequence[int], times: Sequence[float]) -> float:
    """Return the k of time = c * length^k, by least squares of the logarithms.

    Raises:
        ValueError: if there are fewer than two lengths.
    """
    if len(lengths) < 2:
        raise ValueError(f"an exponent needs two lengths or more, not {len(lengths)}")
    return linear_regression(*([math.log(value) for value in values] for values in (lengths, times))).slope


def record_times(
    settings: TimeByLengthSettings, measurements: Sequence[Measurement], environment: Environment
) -> TimeByLengthRecord:
    """Return the record of measurements: their medians, and the exponents of time against length.

    Args:
        settings: of the measurements.
        measurements: of [`measure_time_by_length`].
        environment: where they were taken.
    """
    medians = medians_of(measurements)
    lengths = sorted(length for length in set(settings.lengths) if length >= settings.fit_from)
    exponents = {
        kind: {
            row: fit_exponent(lengths, [medians[kind, row, length] for length in lengths]) for row in settings.methods
        }
        for kind in KINDS
    }
    return TimeByLengthRecord(
        settings=settings,
        measurements=list(measurements),
        medians=[Measurement(row, kind, length, found) for (kind, row, length), found in medians.items()],
        exponents=exponents,
        environment=environment,
    )


def report(record: TimeByLengthRecord) -> str:
    """Return the table in Markdown, and under it how it was measured."""
    settings = record.settings
    columns = [(kind, row) for kind in record.exponents for row in settings.methods]
    times = {(one.kind, one.row, one.length): one.seconds for one in record.medians}
    rows = [["words", *(f"{kind}: {row}" for kind, row in columns)], ["---:"] * (len(columns) + 1)]
    for length in settings.lengths:
        rows.append([str(length), *(f"{times[kind, row, length]:.3f}" for kind, row in columns)])
    rows.append(["exponent", *(f"{record.exponents[kind][row]:.2f}" for kind, row in columns)])
    clock = {"cpu": " of CPU time", "wall": " that passed"}.get(settings.clock, "")
    caption = (
        f"Seconds{clock}, medians of {settings.rounds} rounds over all lengths in which the models take turns; "
        f"exponents from {settings.fit_from} words on. `{settings.size}`, vocabulary of {settings.vocab_size}, "
        f"{settings.batch_size} sentence(s) at a time, float32, {record.environment}."
    )
    return "\n".join([*markdown_table(rows), "", caption])


def _check(configs: Mapping[str, PreTrainedConfig], lengths: Sequence[int], batch_size: int, rounds: int) -> None:
    check_numbers({"batch_size": batch_size, "rounds": rounds, "lengths": min(lengths)})
    for row, config in configs.items():
        check_positions(row, config, max(lengths))
