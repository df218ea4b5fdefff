"""Show where the CPU time of an update goes: a line for each method, by kinds of operations, in per cent.

OMP_NUM_THREADS=1 python -m benchmarks.training profile --size tiny --vocab_size 10000 --methods transformer rnmt
OMP_NUM_THREADS=1 python -m benchmarks.training profile --methods transformer "transformer encoder_layers=12"
"""

import argparse
import time
from collections.abc import Sequence

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel

from benchmarks.common.workload import configs_of_rows, make_trainer, random_batch
from hf_capsule_mt.configuration import SIZES
from hf_capsule_mt.evaluation.tables import table_in_markdown

UPDATES = 3
KINDS = {
    "products": ("::mm", "mm_", "addmm", "bmm", "linear"),
    "sums, differences, scaling": ("::add", "::mul", "::sub", "::div", "::sum", "::zero_", "::fill_"),
    "dropout's noise": ("bernoulli",),
    "exp, tanh, softmax": ("exp", "tanh", "softmax", "sigmoid", "::log"),
    "copies and casts": ("copy_", "::cat", "::clone"),
    "optimizer": ("adam", "Optimizer"),
}
"""Parts of the names of operations, by kind; the first that fits counts."""


def main(argv: Sequence[str] | None = None) -> None:
    """Profile and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    row_help = 'METHOD or "METHOD NAME=VALUE ..." (default: %(default)s)'
    parser.add_argument("--methods", nargs="+", default=["transformer"], metavar="ROW", help=row_help)
    parser.add_argument("--config_overrides", nargs="+", default=[], metavar="NAME=VALUE", help="of every row")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--vocab_size", type=int, default=32000)
    parser.add_argument("--max_tokens_per_batch", type=int, default=1024, help="tokens of a side of the batch")
    parser.add_argument("--length", type=int, default=24, help="tokens of a sentence (default: %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="bfloat16: autocast")
    args = parser.parse_args(argv)
    rows = [["method", "seconds an update", *KINDS, "other"]]
    for row, config in configs_of_rows(args, args.length).items():
        torch.manual_seed(0)
        seconds, shares = costs(AutoModelForSeq2SeqLM.from_config(config), args)
        percents = [f"{100 * share:.0f}" for share in shares]
        rows.append([row, f"{seconds:.3f}", *percents])
    print(table_in_markdown(rows))


def costs(model: PreTrainedModel, args: argparse.Namespace) -> tuple[float, list[float]]:
    """Return CPU seconds of an update, and the share of each kind and of the rest."""
    update = make_trainer(model, getattr(torch, args.dtype))
    lengths = [(args.length, args.length)] * (args.max_tokens_per_batch // args.length)
    batch = random_batch(lengths, args.vocab_size, torch.default_generator, model.device)
    update(batch)
    start = time.process_time()
    for _ in range(UPDATES):
        update(batch)
    seconds = (time.process_time() - start) / UPDATES
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(UPDATES):
            update(batch)
    times = dict.fromkeys([*KINDS, "other"], 0.0)
    for event in profiled.key_averages():
        times[_kind_of(event.key)] += event.self_cpu_time_total
    total = sum(times.values())
    return seconds, [spent / total for spent in times.values()]


def _kind_of(operation: str) -> str:
    for kind, parts in KINDS.items():
        if any(part in operation for part in parts):
            return kind
    return "other"
