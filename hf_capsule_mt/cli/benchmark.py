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
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from .errors import report_user_errors
from .parser import CommandParser
from .report import dated_environment, markdown_table, quiet_transformers
from .rows import add_row_options, configs_of_rows, device_of

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from hf_capsule_mt.evaluation.speed import Comparison, Rates

METHODS = ("transformer", "linear-combination", "dynamic-combination", "dynamic-routing", "em-routing")
_LINEAR_NOTE = (
    "Table 1's +14.7M for linear combination is not Eq. 3, which has one weight for each layer and unit: it is "
    "the size of a feed-forward network from all layers' outputs to one, in encoder and decoder."
)
_FACTORED_NOTE = (
    "Table 1's +37.8M for dynamic routing and +56.8M for EM routing are the sizes of "
    '`layer_aggregation_parameterization="joint"`; here it is "factored", the equations as printed.'
)
_PLAIN = {"marian": "plain `transformers.MarianMTModel`", "rnmt": "RNMT without capsules"}
_GUIDED_NOTE = (
    "Zheng et al. 2019 print +2.8M for guided routing, +0.3M for its bag-of-words loss, +0.5M for that of content "
    "agreement and -1.0M without redundant capsules. Eq. 5 and 7 and a feed-forward network as wide as the decoder's "
    "have 5.2M at `base`, the losses' maps 0.5M each, and two redundant capsules 0.3M."
)
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

    from .output import check_output_file, write_json

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
    made_by = dated_environment(device.type)
    print(report(args, configs, comparisons, made_by))
    if args.output_file is not None:
        write_json(args.output_file, _record(args, comparisons, made_by))


def _configs(args: argparse.Namespace) -> dict[str, "PreTrainedConfig"]:
    from hf_capsule_mt.evaluation.speed import plain_config

    configs = configs_of_rows(args)
    families = {row: plain_config(config).model_type for row, config in configs.items()}
    if len(set(families.values())) > 1:
        raise ValueError(f"--methods has rows with different plain models, {families}; give those with one at a time")
    return configs


def _family(configs: Mapping[str, "PreTrainedConfig"]) -> str:
    from hf_capsule_mt.evaluation.speed import plain_config

    return plain_config(next(iter(configs.values()))).model_type


def report(
    args: argparse.Namespace,
    configs: Mapping[str, "PreTrainedConfig"],
    comparisons: Mapping[str, "Comparison"],
    made_by: Mapping[str, Any],
) -> str:
    """The table in Markdown, and under it how it was measured."""
    table = "\n".join(_table(comparisons, configs if args.size == "base" else None))
    return "\n\n".join([table, _caption(args, configs, made_by), *_notes(configs)])


def _caption(args: argparse.Namespace, configs: Mapping[str, "PreTrainedConfig"], made_by: Mapping[str, Any]) -> str:
    from hf_capsule_mt.evaluation.speed import MEDIAN_LENGTH, MEMORY_LENGTH

    plain = _PLAIN[_family(configs)]
    packages = made_by["packages"]
    overrides = ["with " + ", ".join(args.config_overrides)] if args.config_overrides else []
    where = [
        *(f"`{args.size}`", *overrides, f"vocabulary of {args.vocab_size}", args.dtype, made_by["device"]),
        *(f"{made_by['cpu_threads']} threads", f"torch {packages['torch']}"),
        *(f"transformers {packages['transformers']}", made_by["date"]),
    ]
    return (
        f"{', '.join(where)}. Medians of {args.rounds} rounds; in brackets the smallest and the largest ratio. In "
        f"every round {plain} and the method take turns on the same batch in one process. "
        "Training: forward, backward, AdamW step and cleared gradients, in target tokens without padding, on batches "
        f"of up to {args.max_tokens} padded tokens. Decoding: {args.batch_size} sentences of similar length at a time, "
        f"{args.num_beams} beams, every translation {args.new_tokens} tokens long. Memory: all tensors at the "
        f"height of an update, weights and optimizer included, of {max(1, args.max_tokens // MEMORY_LENGTH)} sentences "
        f"of {MEMORY_LENGTH} words and as many in the target. Weights and words are random; "
        f"sentence lengths are log-normal with median {MEDIAN_LENGTH}; seed {args.seed}."
    )


def _table(comparisons: Mapping[str, "Comparison"], published: Mapping[str, "PreTrainedConfig"] | None) -> list[str]:
    columns = ["system", "parameters", "added", "training, tokens/s", "of plain", "decoding, sentences/s", "of plain"]
    columns += ["training, MiB", "of plain"]
    rows = [_plain_row(list(comparisons.values()))]
    rows += [[method, *_cells(comparison)] for method, comparison in comparisons.items()]
    if published is not None:
        columns += ["paper: training", "paper: decoding"]
        rows = [[*row, *_paper_cells(published.get(row[0]))] for row in rows]
    alignment = ["---", *["---:"] * (len(columns) - 1)]
    return markdown_table([columns, alignment, *rows])


def _plain_row(comparisons: Sequence["Comparison"]) -> list[str]:
    training = [rate for comparison in comparisons for rate in comparison.training.plain]
    decoding = [rate for comparison in comparisons for rate in comparison.decoding.plain]
    parameters = _millions(comparisons[0].plain_parameters)
    memory = _mebibytes(comparisons[0].plain_memory)
    speeds = [f"{median(training):.0f}", "1", f"{median(decoding):.2f}", "1"]
    return ["plain", parameters, "", *speeds, memory, "1"]


def _cells(comparison: "Comparison") -> list[str]:
    added = comparison.parameters - comparison.plain_parameters
    training, decoding = comparison.training, comparison.decoding
    return [
        _millions(comparison.parameters),
        f"+{_millions(added)}",
        f"{median(training.method):.0f}",
        _ratio(training),
        f"{median(decoding.method):.2f}",
        _ratio(decoding),
        _mebibytes(comparison.memory),
        f"{comparison.memory / comparison.plain_memory:.2f}",
    ]


def _millions(parameters: int) -> str:
    return f"{parameters / 1e6:.2f}M"


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.0f}"


def _ratio(rates: "Rates") -> str:
    return f"{median(rates.ratios):.2f} ({min(rates.ratios):.2f}–{max(rates.ratios):.2f})"


def _paper_cells(config: "PreTrainedConfig | None") -> list[str]:
    from hf_capsule_mt.evaluation.published_speed import published_speed

    ratios = () if config is None else published_speed(config)
    return [*(f"{ratio:.2f}" for ratio in ratios), "", ""][:2]


def _notes(configs: Mapping[str, "PreTrainedConfig"]) -> list[str]:
    if _family(configs) != "marian":
        return []
    linear = any(config.layer_aggregation == "linear" for config in configs.values())
    notes = [_LINEAR_NOTE] if linear else []
    routed = [config for config in configs.values() if config.layer_aggregation in ("dynamic_routing", "em_routing")]
    if any(config.layer_aggregation_parameterization == "factored" for config in routed):
        notes.append(_FACTORED_NOTE)
    if any(config.guided_routing == "gdr" for config in configs.values()):
        notes.append(_GUIDED_NOTE)
    return notes


def _record(
    args: argparse.Namespace, comparisons: Mapping[str, "Comparison"], made_by: Mapping[str, Any]
) -> dict[str, Any]:
    from dataclasses import asdict

    results = {
        method: {
            **asdict(comparison),
            "training_ratio": median(comparison.training.ratios),
            "decoding_ratio": median(comparison.decoding.ratios),
        }
        for method, comparison in comparisons.items()
    }
    return {"settings": vars(args), "results": results, "environment": made_by}


if __name__ == "__main__":
    main()
