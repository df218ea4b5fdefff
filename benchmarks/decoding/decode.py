"""Compare decoders of the same weights: generate(), the engine in each precision, and CTranslate2 if it is installed.

    python -m benchmarks.decoding decode --methods transformer em-routing --batch_size 32 --output_file decoders.json

Weights and sentences are random. The plain model's generate() takes turns too. CTranslate2 decodes the method
transformer on a CPU (pip install "hf-capsule-mt[benchmark]").
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel, PreTrainedModel

from benchmarks.common.ctranslate2_models import CTRANSLATE2_PRECISIONS, ctranslate2_translator, for_ctranslate2
from benchmarks.common.records import Record
from benchmarks.common.tables import GENERATE
from benchmarks.common.workload import (
    LENGTH_LIMITS,
    METHODS,
    Batch,
    Measured,
    add_row_options,
    add_workload_options,
    configs_of_rows,
    decode,
    decoding_batches,
    new_model,
    peak_memory,
    plain_config,
    random_batch,
    take_turns,
    without_labels,
)
from benchmarks.decoding.decoding_tables import decoders_report, memory_report
from hf_capsule_mt.configuration import RNMTConfig
from hf_capsule_mt.decoding import UnsupportedModelError, engine_of, generate
from hf_capsule_mt.decoding.precision import precisions_on

Decoder = Callable[[Batch, int], object]
"""Decodes a batch into translations of so many tokens."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_row_options(parser, METHODS)
    add_workload_options(parser)
    parser.add_argument("--memory_length", type=int, help="measure memory too, of sources and translations so long")


def measure(args: argparse.Namespace) -> Measured:
    """Measure all rows. Return the results, and what makes the tables of their record."""
    measured = {}
    longest = max(args.new_tokens, args.memory_length or 0, LENGTH_LIMITS[1])
    for row, config in configs_of_rows(args, longest).items():
        torch.manual_seed(args.seed)
        runs: dict[str, Decoder] = {}
        if isinstance(config, MarianConfig | RNMTConfig):
            plain = new_model(plain_config(config), args.device)
            runs[f"plain {GENERATE}"] = partial(generate_batch, plain, args.num_beams, None)
        runs |= decoders(new_model(config, args.device), args.num_beams)
        memory = {} if args.memory_length is None else _memory(args, runs)
        measured[row] = {"rates": _rates(args, runs), "memory": memory}
    tables = decoders_report if args.memory_length is None else _rates_and_memory
    return {"results": {}, "decoders": measured}, tables


def _rates(args: argparse.Namespace, runs: Mapping[str, Decoder]) -> dict[str, list[float]]:
    """Return the sentences a second of each decoder, in every round after the warm-up."""
    timed = [partial(decoder, new_tokens=args.new_tokens) for decoder in runs.values()]
    rounds = take_turns(timed, decoding_batches(args), args.device)[args.warmup_rounds :]
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for seconds_of_decoders in rounds:
        for name, seconds in zip(runs, seconds_of_decoders, strict=True):
            rates[name].append(args.batch_size / seconds)
    return rates


def _rates_and_memory(record: Record) -> str:
    return f"{decoders_report(record)}\n\n{memory_report(record)}"


def _memory(args: argparse.Namespace, runs: Mapping[str, Decoder]) -> dict[str, int]:
    """Return the peak memory of each decoder that decodes by PyTorch."""
    lengths = [(args.memory_length, args.memory_length)] * args.batch_size
    generator = torch.Generator().manual_seed(args.seed)
    batch = without_labels(random_batch(lengths, args.vocab_size, generator, args.device))
    of_torch = {name: run for name, run in runs.items() if not name.startswith("CTranslate2")}
    return {name: peak_memory(partial(run, batch, args.memory_length), args.device) for name, run in of_torch.items()}


def decoders(model: PreTrainedModel, num_beams: int) -> dict[str, Decoder]:
    """Return all that can decode with the weights of a model, by name."""
    runs: dict[str, Decoder] = {GENERATE: partial(generate_batch, model, num_beams, None)}
    try:
        engine_of(model)
    except UnsupportedModelError:
        pass
    else:
        for precision in precisions_on(model.device):
            runs[f"engine {precision}"] = partial(generate_batch, model, num_beams, precision)
    plain = for_ctranslate2(model)
    if plain is not None:
        for precision in CTRANSLATE2_PRECISIONS:
            runs[f"CTranslate2 {precision}"] = ctranslate2_decoder(plain, num_beams, precision)
    return runs


def generate_batch(
    model: PreTrainedModel, num_beams: int, precision: str | None, batch: Batch, new_tokens: int
) -> Tensor:
    """Decode by the engine in a precision, which reads the sources too. Without one only the model decodes.

    Args:
        model: the model that decodes.
        num_beams: 1 for greedy search.
        precision: that of the engine, or None.
        batch: the sources.
        new_tokens: the length of every translation.

    Returns:
        Token ids, `[sentences, length]`.
    """
    if precision is None:
        return decode(model, batch, new_tokens, num_beams)
    encoded = engine_of(model, precision).encode(**batch)
    engine = partial(generate, dtype=precision)
    return decode(model, batch, new_tokens, num_beams, custom_generate=engine, encoder_outputs=encoded)


def ctranslate2_decoder(model: MarianMTModel, num_beams: int, precision: str) -> Decoder:
    """Return CTranslate2's decoder of a model in float32, converted to a precision."""
    translator = ctranslate2_translator(model, precision)

    def run(batch: Batch, new_tokens: int) -> list[list[int]]:
        lengths = batch["attention_mask"].sum(1).tolist()
        sources = []
        for token_ids, length in zip(batch["input_ids"].tolist(), lengths):
            sources.append([str(token_id) for token_id in token_ids[:length]])
        results: Sequence[Any] = translator.translate_batch(
            sources,
            beam_size=num_beams,
            max_batch_size=len(sources),
            min_decoding_length=new_tokens,
            max_decoding_length=new_tokens,
        )
        return [[int(word) for word in result.hypotheses[0]] for result in results]

    return run
