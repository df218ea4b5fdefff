"""The table of `python -m benchmarks.speed train`, beside the speeds that the papers print."""

from collections.abc import Mapping, Sequence
from statistics import median

from transformers import PreTrainedConfig

from benchmarks.speed.published_speed import published_speed
from benchmarks.speed.speed import MEDIAN_LENGTH, MEMORY_LENGTH, plain_config
from hf_capsule_mt.markdown import table_in_markdown
from hf_capsule_mt.records import Comparison, SpeedRecord

_PLAIN = {"marian": "plain `transformers.MarianMTModel`", "rnmt": "RNMT without capsules"}


def speed_report(record: SpeedRecord, configs: Mapping[str, PreTrainedConfig]) -> str:
    """Return the table in Markdown, and under it how it was measured.

    Args:
        record: of models beside plain ones of one family, with their memory.
        configs: of its rows.
    """
    published = configs if record.settings.size == "base" else None
    family = plain_config(next(iter(configs.values()))).model_type
    return f"{table_in_markdown(_table(record.results, published))}\n\n{_caption(record, _PLAIN[family])}"


def _caption(record: SpeedRecord, plain: str) -> str:
    settings, environment = record.settings, record.environment
    overrides = ["with " + ", ".join(settings.config_overrides)] if settings.config_overrides else []
    where = [
        *(f"`{settings.size}`", *overrides, f"vocabulary of {settings.vocab_size}", settings.dtype, environment.device),
        *(f"{environment.cpu_threads} threads", f"torch {environment.packages['torch']}"),
        *(f"transformers {environment.packages['transformers']}", environment.date),
    ]
    return (
        f"{', '.join(where)}. Medians of {settings.rounds} rounds; in brackets the smallest and the largest ratio. In "
        f"every round {plain} and the method take turns on the same batch in one process. "
        "Training: forward, backward, AdamW step and cleared gradients, in target tokens without padding, on batches "
        f"of up to {settings.max_tokens} padded tokens. Decoding: {settings.batch_size} sentences of similar length at "
        f"a time, {settings.num_beams} beams, every translation {settings.new_tokens} tokens long. Memory: all tensors "
        "at the height of an update, weights and optimizer included, of "
        f"{max(1, settings.max_tokens // MEMORY_LENGTH)} sentences of {MEMORY_LENGTH} words and as many in the target. "
        f"Weights and words are random; sentence lengths are log-normal with median {MEDIAN_LENGTH}; seed "
        f"{settings.seed}."
    )


def _table(comparisons: Mapping[str, Comparison], published: Mapping[str, PreTrainedConfig] | None) -> list[list[str]]:
    columns = ["system", "parameters", "added", "training, tokens/s", "of plain", "decoding, sentences/s", "of plain"]
    columns += ["training, MiB", "of plain"]
    rows = []
    # Of rows of several widths or depths, each size has a plain model of its own.
    for parameters in dict.fromkeys(each.plain_parameters for each in comparisons.values()):
        found = {method: each for method, each in comparisons.items() if each.plain_parameters == parameters}
        rows += [_plain_row(list(found.values())), *([method, *_cells(each)] for method, each in found.items())]
    if published is not None:
        columns += ["paper: training", "paper: decoding"]
        rows = [[*row, *_paper_cells(published.get(row[0]))] for row in rows]
    return [columns, *rows]


def _plain_row(comparisons: Sequence[Comparison]) -> list[str]:
    training = [rate for comparison in comparisons for rate in comparison.training.plain]
    decoding = [rate for comparison in comparisons for rate in comparison.decoding.plain]
    speeds = [f"{median(training):.0f}", "1", f"{median(decoding):.2f}", "1"]
    first = comparisons[0]
    return ["plain", _millions(first.plain_parameters), "", *speeds, _mebibytes(first.plain_memory), "1"]


def _cells(comparison: Comparison) -> list[str]:
    training, decoding = comparison.training, comparison.decoding
    return [
        _millions(comparison.parameters),
        f"+{_millions(comparison.parameters - comparison.plain_parameters)}",
        *(f"{median(training.method):.0f}", str(training)),
        *(f"{median(decoding.method):.2f}", str(decoding)),
        *(_mebibytes(comparison.memory), f"{comparison.memory / comparison.plain_memory:.2f}"),
    ]


def _millions(parameters: int) -> str:
    return f"{parameters / 1e6:.2f}M"


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.0f}"


def _paper_cells(config: PreTrainedConfig | None) -> list[str]:
    ratios = () if config is None else published_speed(config)
    return [*(f"{ratio:.2f}" for ratio in ratios), "", ""][:2]
