"""Compare the speed and memory of methods with a plain model of the same size.

That is transformers.MarianMTModel, or for rnmt-gdr and capsnmt-hybrid RNMT without capsules.

    python -m benchmarks.speed train --methods transformer em-routing --size tiny --rounds 3
    python -m benchmarks.speed train --size base --output_file benchmarks/speed_base.json > table.md
    python -m benchmarks.speed train --methods em-routing --config_overrides layer_aggregation_parameterization=joint
    python -m benchmarks.speed train --methods head-em-routing "head-em-routing head_aggregation_encoder_layers=[5]"
    python -m benchmarks.speed train --methods "gdr bow_loss_weight=0 bca_loss_weight=0" "gdr bca_loss_weight=0" \\
        "gdr bow_loss_weight=0" gdr "gdr num_redundant_capsules=0"
    python -m benchmarks.speed train --methods rnmt-gdr

    python -m benchmarks.speed decode --methods transformer em-routing --batch_size 32 --output_file decoders.json
    python -m benchmarks.speed page benchmarks/decoding.md

Weights and sentences are random. Each method and the plain model take turns on the same batches in this process; the
table, in Markdown, has the medians over the rounds and, in brackets, the smallest and the largest ratio.

With --decoders no model is trained. What takes turns is generate() of the plain model, and with the weights of each
method generate(), the engine in each precision and, for the method transformer on a CPU, CTranslate2 if it is installed
(extra `benchmark`). With one thread, time is that of the process on the processor.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import PreTrainedConfig

from benchmarks.speed.decoders import compare_decoders
from benchmarks.speed.decoders_report import decoders_page, decoders_report, memory_report
from benchmarks.speed.options import add_row_options, configs_of_rows, device_of
from benchmarks.speed.speed import Workload, clock, compare_with_plain, plain_config
from benchmarks.speed.speed_report import speed_report
from hf_capsule_mt.cli.common import (
    CommandParser,
    at_least,
    check_input_file,
    check_output_file,
    quiet_transformers,
    report_user_errors,
)
from hf_capsule_mt.files import replace_text
from hf_capsule_mt.json_fields import decode
from hf_capsule_mt.records import Environment, SpeedRecord, SpeedSettings, write

METHODS = ("transformer", "linear-combination", "dynamic-combination", "dynamic-routing", "em-routing")
# By option: its default and its help.
_WORKLOAD = {
    "max_tokens": (1024, "padded tokens of a training batch"),
    "batch_size": (16, "sentences decoded together"),
    "num_beams": (4, "beams in decoding"),
    "new_tokens": (24, "length of every translation, in tokens"),
    "rounds": (5, "timed turns of each model"),
    "warmup_rounds": (1, "turns before them that do not count"),
    "seed": (0, "of weights and sentences"),
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    add_row_options(parser, METHODS)
    parser.add_argument("--vocab_size", type=int, default=32000, help="default: %(default)s")
    parser.add_argument(
        "--dtype",
        choices=["float32", "bfloat16"],
        default="float32",
        help="bfloat16: training with autocast, decoding with weights of it",
    )
    for name, (default, description) in _WORKLOAD.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{description} (default: %(default)s)")
    parser.add_argument("--decoders", action="store_true", help="compare decoders instead; of every family, in float32")
    parser.add_argument(
        "--memory_length",
        type=at_least(1),
        help="with --decoders: measure the memory of decoding as well, with sources and translations of so many tokens",
    )
    parser.add_argument(
        "--page",
        type=Path,
        help="write this page from its template, PAGE.jinja, and the records beside it; measure nothing",
    )
    parser.add_argument("--output_file", type=Path, help="a JSON record of every measurement")
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the table and write the record if asked."""
    args = build_parser().parse_args(argv)
    if args.page is not None:
        for name in ("output_file", "decoders", "memory_length"):
            if getattr(args, name):
                raise ValueError(f"--page measures nothing; leave out --{name}")
        check_input_file("--page, by its template,", args.page.with_name(f"{args.page.name}.jinja"))
        replace_text(args.page, decoders_page(args.page))
        return
    workload = Workload(**{name: getattr(args, name) for name in _WORKLOAD})
    configs = configs_of_rows(args)
    device = device_of(args)
    check_output_file(args.output_file)
    work = _compare_decoders if args.decoders else _compare_with_plain
    record, table = work(args, configs, workload, device)
    print(table)
    if args.output_file is not None:
        write(record, args.output_file)


def _compare_with_plain(
    args: argparse.Namespace, configs: dict[str, PreTrainedConfig], workload: Workload, device: torch.device
) -> tuple[SpeedRecord, str]:
    _check_families(configs)
    if args.memory_length is not None:
        raise ValueError("--memory_length is of use with --decoders alone")
    with quiet_transformers():
        comparisons = {
            method: compare_with_plain(config, workload, device, getattr(torch, args.dtype))
            for method, config in tqdm(configs.items(), unit=" methods")
        }
    record = SpeedRecord(settings=_settings(args, device), results=comparisons, environment=Environment.here(device))
    return record, speed_report(record, configs)


def _compare_decoders(
    args: argparse.Namespace, configs: dict[str, PreTrainedConfig], workload: Workload, device: torch.device
) -> tuple[SpeedRecord, str]:
    if args.dtype != "float32":
        raise ValueError(
            f"--dtype is {args.dtype}; with --decoders the weights are in float32, and each engine has its own"
        )
    with quiet_transformers():
        found = {
            method: compare_decoders(config, workload, device, args.memory_length)
            for method, config in tqdm(configs.items(), unit=" methods")
        }
    settings, environment = _settings(args, device), Environment.here(device)
    record = SpeedRecord(settings=settings, results={}, decoders=found, environment=environment)
    memory = "" if args.memory_length is None else f"\n\n{memory_report(record)}"
    return record, f"{decoders_report(record)}{memory}"


def _settings(args: argparse.Namespace, device: torch.device) -> SpeedSettings:
    return decode(SpeedSettings, {**vars(args), "clock": clock(device)})


def _check_families(configs: dict[str, PreTrainedConfig]) -> None:
    families = {row: plain_config(config).model_type for row, config in configs.items()}
    if len(set(families.values())) > 1:
        raise ValueError(f"--methods has rows with different plain models, {families}; give those with one at a time")


if __name__ == "__main__":
    main()
