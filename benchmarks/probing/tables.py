"""The table of `python -m benchmarks.probing run`, as Li et al. 2019, Table 1."""

from collections.abc import Sequence
from statistics import mean, stdev

from benchmarks.probing.data import TASKS
from hf_capsule_mt.markdown import table_in_markdown
from hf_capsule_mt.records import ProbingRecord


def report(records: Sequence[ProbingRecord]) -> str:
    """Return the table in Markdown from the records of its runs, and under it how it was made."""
    names = {record.settings.task for record in records}
    tasks = [task for name, task in TASKS.items() if name in names]
    groups = [task.group for task in tasks]
    rows = [
        ["", *(group if group not in groups[:place] else "" for place, group in enumerate(groups))],
        ["model", *(task.column for task in tasks)],
        ["majority class", *(_cell(records, "majority_accuracy", task=task.name) for task in tasks)],
    ]
    for model, aggregation in dict.fromkeys((record.settings.model, record.settings.aggregation) for record in records):
        chosen = {"model": model, "aggregation": aggregation}
        cells = (_cell(records, "test_accuracy", task=task.name, **chosen) for task in tasks)
        rows.append([model or aggregation.upper(), *cells])
    return f"{table_in_markdown(rows)}\n\n{_caption(records)}"


def _cell(records: Sequence[ProbingRecord], measure: str, **settings: str | None) -> str:
    """Return mean and standard deviation of a measure, in percent, over the records with these settings."""
    values = [100 * getattr(record, measure) for record in records if settings.items() <= vars(record.settings).items()]
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 and measure == "test_accuracy" else ""
    return f"{mean(values):.2f}{spread}"


def _caption(records: Sequence[ProbingRecord]) -> str:
    settings = records[0].settings
    seeds = list(dict.fromkeys(str(record.settings.seed) for record in records))
    sentences = {record.settings.task: "/".join(map(str, record.sentences.values())) for record in records}
    made_by = dict.fromkeys(
        "{device}, torch {torch}, transformers {transformers}".format(
            device=record.environment.device, **record.environment.packages
        )
        for record in records
    )
    encoder = (
        "Encoders of trained models, as they are"
        if settings.model
        else f"`{settings.size}`, three encoder layers, at most {settings.vocab_size} words"
    )
    return (
        "Test accuracy in percent, of the epoch with the best validation accuracy; mean ± standard deviation over "
        f"seeds {', '.join(seeds)}. {encoder}, {settings.epochs} epochs, batches of {settings.batch_size}, "
        f"learning rate {settings.learning_rate:g}. Sentences (train/validation/test): "
        f"{', '.join(f'{task} {counts}' for task, counts in sentences.items())}. {'; '.join(made_by)}."
    )
