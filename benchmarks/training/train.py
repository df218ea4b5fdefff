"""Compare the training, decoding and memory of methods with a plain model of the same size.

    python -m benchmarks.training train --methods transformer em-routing --size tiny --rounds 3
    python -m benchmarks.training train --methods em-routing "em-routing routing_iterations=1" --output_file speed.json

The plain model is transformers.MarianMTModel, or for rnmt-gdr and capsnmt-hybrid RNMT without capsules. Weights and
sentences are random. Each method and the plain model take turns on the same batches. The table has medians over the
rounds and, in brackets, the smallest and the largest ratio. With one thread, time is that of the process.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import yaml
from transformers import PreTrainedConfig

from benchmarks.common.records import Record
from benchmarks.common.tables import Table, ratio_cell
from benchmarks.common.workload import (
    MEDIAN_LENGTH,
    METHODS,
    Batch,
    Measured,
    add_row_options,
    add_workload_options,
    configs_of_rows,
    decode,
    decoding_batches,
    make_trainer,
    new_model,
    number_of_words,
    peak_memory,
    plain_config,
    random_batch,
    take_turns,
    training_batches,
)
from hf_capsule_mt.configuration import RNMTConfig
from hf_capsule_mt.evaluation.tables import table_in_markdown
from hf_capsule_mt.loading import count_parameters

MEMORY_LENGTH = 128  # words of source and target of every sentence, where memory is measured
_PLAIN = {"marian": "plain `transformers.MarianMTModel`", "rnmt": "RNMT without capsules"}
_SITES = ("encoder_self", "cross", "decoder_self")
_HEAD = (
    "system",
    "parameters",
    "added",
    "training, tokens/s",
    "of plain",
    "decoding, sentences/s",
    "of plain",
    "training, MiB",
    "of plain",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_row_options(parser, METHODS)
    add_workload_options(parser)
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16"], default="float32", help="bfloat16: autocast in training"
    )


def measure(args: argparse.Namespace) -> Measured:
    """Measure all rows; return the results, and what makes the table of their record."""
    configs = configs_of_rows(args, max(args.new_tokens, MEMORY_LENGTH))
    families = {plain_config(config).model_type for config in configs.values()}
    if len(families) > 1:
        raise ValueError("--methods has rows with different plain models. Measure Marian's and RNMT's one at a time.")
    results = {row: compare_with_plain(config, args) for row, config in configs.items()}
    return {"results": results}, partial(report, configs=configs, plain=_PLAIN[families.pop()])


def compare_with_plain(config: PreTrainedConfig, args: argparse.Namespace) -> dict[str, Any]:
    """Time the model of `config` and the plain one of its size, both with random weights, and measure their memory."""
    torch.manual_seed(args.seed)
    dtype = getattr(torch, args.dtype)
    plain = new_model(plain_config(config), args.device)
    model = new_model(config, args.device)
    trainers = [make_trainer(plain, dtype), make_trainer(model, dtype)]
    batches = training_batches(args)
    words = [number_of_words(batch) for batch in batches]
    seconds_of_updates = take_turns(trainers, batches, args.device)
    generator = torch.Generator().manual_seed(args.seed)
    lengths = [(MEMORY_LENGTH, MEMORY_LENGTH)] * max(1, args.max_tokens // MEMORY_LENGTH)
    batch = random_batch(lengths, args.vocab_size, generator, args.device)
    plain_memory = update_memory(plain, trainers[0], batch)
    memory = update_memory(model, trainers[1], batch)
    decoders = []
    for trained in (plain, model):
        decoding = trained.to(dtype).eval()
        decoders.append(partial(decode, decoding, new_tokens=args.new_tokens, num_beams=args.num_beams))
    batches = decoding_batches(args)
    sentences = [args.batch_size] * len(batches)
    seconds_of_searches = take_turns(decoders, batches, args.device)
    return {
        "plain_parameters": count_parameters(plain),
        "parameters": count_parameters(model),
        "training": _rates(seconds_of_updates, words, args.warmup_rounds),
        "decoding": _rates(seconds_of_searches, sentences, args.warmup_rounds),
        "plain_memory": plain_memory,
        "memory": memory,
    }


def _rates(seconds: Sequence[Sequence[float]], counts: Sequence[int], warmup: int) -> dict[str, list[float]]:
    """Return counts a second of the plain model and the method, without the rounds that warm up."""
    rates: dict[str, list[float]] = {"plain": [], "method": []}
    for count, (plain, method) in zip(counts[warmup:], seconds[warmup:], strict=True):
        rates["plain"].append(count / plain)
        rates["method"].append(count / method)
    return rates


def update_memory(model: torch.nn.Module, trainer: Callable[[Batch], None], batch: Batch) -> int:
    """Return the bytes of the weights, of AdamW's two means of each, and of all else that an update has at one time.

    The trainer has made its first update, which makes the means.
    """
    weights = sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])
    means = 2 * sum(weight.nbytes for weight in model.parameters() if weight.requires_grad)
    return weights + means + peak_memory(lambda: trainer(batch), model.device)


def report(record: Record, configs: Mapping[str, PreTrainedConfig], plain: str) -> str:
    """Return the table in Markdown, and under it how it was measured."""
    table = _table(record, configs)
    settings = record["settings"]
    return (
        f"{table_in_markdown(table)}\n\n"
        f"{_where(record)}. Medians of {settings['rounds']} rounds; in brackets the smallest and the largest ratio. "
        f"In every round {plain} and the method take turns on the same batch in one process. "
        "Training: forward, backward, AdamW step and cleared gradients, in target tokens without padding, on batches "
        f"of up to {settings['max_tokens']} padded tokens. Decoding: {settings['batch_size']} sentences of similar "
        f"length at a time, {settings['num_beams']} beams, every translation {settings['new_tokens']} tokens long. "
        "Memory: all tensors at the height of an update, weights and optimizer included, of "
        f"{max(1, settings['max_tokens'] // MEMORY_LENGTH)} sentences of {MEMORY_LENGTH} words and as many in the "
        f"target. Weights and words are random; sentence lengths are log-normal with median {MEDIAN_LENGTH}; seed "
        f"{settings['seed']}."
    )


def _table(record: Record, configs: Mapping[str, PreTrainedConfig]) -> Table:
    # Of rows of several widths or depths, each size has a plain model of its own.
    rows_of_size: dict[int, dict[str, Any]] = {}
    for row, measured in record["results"].items():
        rows_of_size.setdefault(measured["plain_parameters"], {})[row] = measured
    table = [list(_HEAD)]
    for rows in rows_of_size.values():
        table.append(_plain_cells(list(rows.values())))
        for row, measured in rows.items():
            table.append([row, *_cells(measured)])
    if record["settings"]["size"] == "base":
        head, *lines = table
        head += ["paper: training", "paper: decoding"]
        for line in lines:
            line += _published_cells(configs.get(line[0]))
    return table


def _published_cells(config: PreTrainedConfig | None) -> list[str]:
    """Return the ratios that a paper prints. Some papers print only the speed of training, or none."""
    if config is None:
        return ["", ""]
    cells = [f"{ratio:.2f}" for ratio in published_speed(config)]
    missing = 2 - len(cells)
    return cells + [""] * missing


def _plain_cells(results: Sequence[Record]) -> list[str]:
    """Return the row of the plain model that all these were compared with."""
    first = results[0]
    training: list[float] = []
    decoding: list[float] = []
    for measured in results:
        training += measured["training"]["plain"]
        decoding += measured["decoding"]["plain"]
    return [
        "plain",
        _millions(first["plain_parameters"]),
        "",
        f"{median(training):.0f}",
        "1",
        f"{median(decoding):.2f}",
        "1",
        _mebibytes(first["plain_memory"]),
        "1",
    ]


def _millions(number: int) -> str:
    return f"{number / 1e6:.2f}M"


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.0f}"


def _cells(measured: Record) -> list[str]:
    """Return the row of a method, without its name."""
    training = measured["training"]
    decoding = measured["decoding"]
    added = measured["parameters"] - measured["plain_parameters"]
    times_memory = measured["memory"] / measured["plain_memory"]
    return [
        _millions(measured["parameters"]),
        f"+{_millions(added)}",
        f"{median(training['method']):.0f}",
        ratio_cell(training["plain"], training["method"]),
        f"{median(decoding['method']):.2f}",
        ratio_cell(decoding["plain"], decoding["method"]),
        _mebibytes(measured["memory"]),
        f"{times_memory:.2f}",
    ]


def _where(record: Record) -> str:
    """Return the size of the models, and the machine."""
    settings = record["settings"]
    environment = record["environment"]
    packages = environment["packages"]
    parts = [f"`{settings['size']}`"]
    if settings["config_overrides"]:
        parts.append("with " + ", ".join(settings["config_overrides"]))
    parts += [f"vocabulary of {settings['vocab_size']}", settings["dtype"], str(environment["device"])]
    parts += [f"{environment['cpu_threads']} threads", f"torch {packages['torch']}"]
    parts += [f"transformers {packages['transformers']}", str(environment["date"])]
    return ", ".join(parts)


def published_speed(config: PreTrainedConfig) -> tuple[float, ...]:
    """Return the ratios of training and decoding speed that a paper prints for this configuration, at `base`."""
    if isinstance(config, RNMTConfig):
        is_published = config.sentence_aggregation is None and config.encoder_layers == 1
        return _guided_speed("guided_rnmt", config) if is_published else ()
    parts = [config.guided_routing, config.head_aggregation, config.layer_aggregation]
    if not _is_as_published(config) or parts.count(None) != 2:
        return ()
    if config.guided_routing is not None:
        return _guided_speed("guided", config)
    if config.layer_aggregation is not None:
        return _find("layers", layer_aggregation=config.layer_aggregation)
    layers_of_sites = {}
    for site in _SITES:
        layers_of_sites[site] = [layer for layer in range(6) if config.aggregates_heads(site, layer)]
    return _find("heads", routing=config.head_aggregation, **layers_of_sites)


def _is_as_published(config: PreTrainedConfig) -> bool:
    return (
        config.encoder_layers == config.decoder_layers == 6
        and config.routing_iterations == 3
        and config.num_output_capsules in (None, config.d_model)
        and config.layer_aggregation_output == config.head_aggregation_output == "replace"
        and not config.head_aggregation_input_norm
        and config.layer_aggregation_context == "all"
        and len(config.layer_aggregation_sides) == 2
    )


def _guided_speed(table: str, config: PreTrainedConfig) -> tuple[float, ...]:
    """Return the ratios in a table of guided routing."""
    capsules = (config.num_past_capsules, config.num_future_capsules, config.guided_capsule_dim)
    if config.guided_routing != "gdr" or capsules != (2, 2, 256) or config.guided_routing_iterations != 3:
        return ()
    if config.num_redundant_capsules not in (0, 2):
        return ()
    return _find(
        table,
        bow=config.bow_loss_weight > 0,
        bca=config.bca_loss_weight > 0,
        redundant=config.num_redundant_capsules > 0,
    )


def _find(table: str, **fields: Any) -> tuple[float, ...]:
    """Return the ratios in the row of a table that has these fields; none if there is no such row."""
    file = Path(__file__).with_name("published_speed.yaml")
    published = yaml.safe_load(file.read_text(encoding="utf-8"))[table]
    for row in published["rows"]:
        if fields.items() <= row.items():
            # A row may lack the speed of decoding.
            speeds = zip(row["speed"], published["plain"], strict=False)
            return tuple(speed / plain for speed, plain in speeds)
    return ()
