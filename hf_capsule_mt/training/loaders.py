"""Loaders of the training data: the rows, the batches that are filled with them, and options of PyTorch's loader."""

import sys
from collections.abc import Callable, Sized
from typing import Any

import torch
from torch.utils.data import DataLoader

from hf_capsule_mt.data.batching import TokenBudgetBatchSampler
from hf_capsule_mt.data.bpe_dropout import EpochIndexSampler, ResegmentedPairs
from hf_capsule_mt.data.rows import longest_sides

from .arguments import TranslationTrainingArguments
from .resuming import check_dealt_evenly


def token_budget_loader(pairs: Any, collate: Callable, args: TranslationTrainingArguments, dealt: int) -> DataLoader:
    """Return the loader of `pairs`, in batches that are filled to `args.max_tokens_per_batch`, for all processes.

    Args:
        pairs: token ids of sources and targets, as the `collate` function takes them.
        collate: makes a batch of rows.
        args: of the run.
        dealt: the processes that batches are dealt out to.

    Raises:
        TypeError: if the number of pairs is unknown.
        ValueError: if this run's processes cannot share what is dealt out.
    """
    max_tokens, options = args.max_tokens_per_batch, {"num_replicas": dealt, "seed": args.seed_of_data}
    if not isinstance(pairs, Sized):
        # Of several processes accelerate would let one deal out batches, which it needs to be of one size.
        alone = ", or set max_tokens_per_batch=0" if args.world_size == 1 else ""
        raise TypeError(
            f"train_dataset is a {type(pairs).__name__} of unknown length, which cannot be batched by tokens; stream "
            f"files with load_data{alone}"
        )
    if isinstance(pairs, ResegmentedPairs):
        sampler = EpochIndexSampler(pairs.lengths(max_tokens), max_tokens, **options)
        pairs = pairs.rows(max_tokens)
    else:
        sampler = TokenBudgetBatchSampler(longest_sides(pairs), max_tokens, **options)
    check_dealt_evenly(len(sampler), dealt, args.world_size)
    # From PyTorch's own, a loader draws a number when it starts workers: in a resumed run at other times.
    generator = torch.Generator()
    return DataLoader(pairs, batch_sampler=sampler, collate_fn=collate, generator=generator, **loader_options(args))


def loader_options(args: TranslationTrainingArguments) -> dict[str, Any]:
    """Return the options of a loader that do not depend on what it loads."""
    return {
        "num_workers": args.dataloader_num_workers,
        "multiprocessing_context": _start_of_workers(args),
        "prefetch_factor": args.dataloader_prefetch_factor,
        "pin_memory": args.dataloader_pin_memory,
        "persistent_workers": args.dataloader_persistent_workers,
    }


def _start_of_workers(args: TranslationTrainingArguments) -> str | None:
    # Others than "fork" need a copy of all that workers use; which Linux has by itself depends on Python's version.
    default = "fork" if sys.platform == "linux" else None
    return (args.dataloader_multiprocessing_context or default) if args.dataloader_num_workers else None


def set_epoch(loader: DataLoader, epoch: int) -> None:
    """Tell the epoch to the sampler of a loader, through the wrappers that hide it when there are several processes."""
    batches = loader.batch_sampler
    while hasattr(batches, "batch_sampler"):
        batches = batches.batch_sampler
    if hasattr(batches, "sampler") and hasattr(batches.sampler, "set_epoch"):
        batches.sampler.set_epoch(epoch)
