"""Compare the speed and memory of methods with a plain model of the same size.

That is transformers.MarianMTModel, or for rnmt-gdr and capsnmt-hybrid RNMT without capsules.

    hf-capsule-mt benchmark --methods transformer em-routing --size tiny --rounds 3
    hf-capsule-mt benchmark --size base --output_file benchmarks/speed_base.json > table.md
    hf-capsule-mt benchmark --methods em-routing --config_overrides layer_aggregation_parameterization=joint
    hf-capsule-mt benchmark --methods head-em-routing "head-em-routing head_aggregation_encoder_layers=[5]"
    hf-capsule-mt benchmark --methods "gdr bow_loss_weight=0 bca_loss_weight=0" "gdr bca_loss_weight=0" \\
        "gdr bow_loss_weight=0" gdr "gdr num_redundant_capsules=0"
    hf-capsule-mt benchmark --methods rnmt-gdr

Weights and sentences are random. Each method and the plain model take turns on the same batches in this process; the
table, in Markdown, has the medians over the rounds and, in brackets, the smallest and the largest ratio.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import report_user_errors
from .parser import CommandParser
from .quiet import quiet_transformers
from .speed_options import add_row_options, configs_of_rows, device_of

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

METHODS = ("transformer", "linear-combination", "dynamic-combination", "dynamic-routing", "em-routing")
# Option: default, what it is.
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
    """The command's options."""
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
    parser.add_argument("--output_file", type=Path, help="a JSON record of every measurement")
    return parser


@report_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the table and write the record if asked."""
    args = build_parser().parse_args(argv)

    import torch
    from tqdm import tqdm

    from hf_capsule_mt.evaluation.speed import Workload, compare_with_plain
    from hf_capsule_mt.evaluation.speed_report import speed_report
    from hf_capsule_mt.json_fields import decode
    from hf_capsule_mt.records import Environment, SpeedRecord, SpeedSettings, write

    from .output import check_output_file

    workload = Workload(**{name: getattr(args, name) for name in _WORKLOAD})
    configs = _configs(args)
    device = device_of(args)
    if args.output_file is not None:
        check_output_file(args.output_file)
    with quiet_transformers():
        comparisons = {
            method: compare_with_plain(config, workload, device, getattr(torch, args.dtype))
            for method, config in tqdm(configs.items(), unit=" methods")
        }
    settings = decode(SpeedSettings, vars(args))
    record = SpeedRecord(settings=settings, results=comparisons, environment=Environment.here(device.type))
    print(speed_report(record, configs))
    if args.output_file is not None:
        write(record, args.output_file)


def _configs(args: argparse.Namespace) -> dict[str, "PreTrainedConfig"]:
    from hf_capsule_mt.evaluation.speed import plain_config

    configs = configs_of_rows(args)
    families = {row: plain_config(config).model_type for row, config in configs.items()}
    if len(set(families.values())) > 1:
        raise ValueError(f"--methods has rows with different plain models, {families}; give those with one at a time")
    return configs


if __name__ == "__main__":
    main()
