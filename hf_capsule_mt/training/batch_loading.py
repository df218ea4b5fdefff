"""The loaders of training batches: of pairs that are there, and of a stream."""

import sys
from collections.abc import Callable, Sized
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import Trainer

from hf_capsule_mt.data.batching import TokenBudgetBatchSampler, longest_sides
from hf_capsule_mt.data.bpe_dropout import ResegmentedPairs
from hf_capsule_mt.data.streaming import state_file, stream_loader
from hf_capsule_mt.errors import UserError

from .arguments import TranslationTrainingArguments


def token_budget_loader(pairs: Any, collate: Callable, args: TranslationTrainingArguments, dealt_to: int) -> DataLoader:
    """Return a loader of batches of at most `args.max_tokens_per_batch` tokens of the longer side, with padding.

    Args:
        pairs: a data set with a length and columns `input_ids` and `labels`.
        collate: makes a batch of rows.
        args: the arguments of the run.
        dealt_to: the number of processes that an epoch is cut for. A resumed run may have a divisor of it.

    Raises:
        TypeError: if the data set has no length.
        UserError: if the batches cannot be dealt to the processes of now.
    """
    if not isinstance(pairs, Sized):
        raise TypeError(f"train_dataset is a {type(pairs).__name__} without a length. Stream files with load_data.")
    lengths = pairs.lengths() if isinstance(pairs, ResegmentedPairs) else longest_sides(pairs)
    sampler = TokenBudgetBatchSampler(lengths, args.max_tokens_per_batch, num_replicas=dealt_to, seed=args.seed_of_data)
    if len(sampler) % args.world_size:
        raise UserError(
            f"The {len(sampler)} batches of an epoch were cut for {dealt_to} processes, and cannot be dealt to "
            f"{args.world_size}. Start {dealt_to} processes or a divisor of it."
        )
    # With its own generator: starting workers draws a seed, in a resumed run at other times.
    generator = torch.Generator()
    return DataLoader(pairs, batch_sampler=sampler, collate_fn=collate, generator=generator, **_worker_options(args))


def stream_batches(trainer: Trainer, checkpoint: str | None, *, begins_again: bool) -> Any:
    """Return the loader of a trainer's stream.

    Args:
        trainer: the trainer, whose `train_dataset` is the stream.
        checkpoint: the folder that the run continues from, where the stream's state is. None for a new run.
        begins_again: whether the text begins again, so that only what was read is skipped, in the order of now.
    """
    stream = trainer.train_dataset
    args = trainer.args
    if begins_again:
        stream.begin_behind(file.read_text() for file in Path(checkpoint).glob("stream_state_*.json"))
    elif checkpoint is None:
        stream.load_state(None)
    else:
        stream.load_state(state_file(checkpoint, args.process_index).read_text())
    device = args.device if trainer.accelerator.device_placement else None
    options = _worker_options(args)
    options["_non_blocking"] = args.accelerator_config.non_blocking
    return stream_loader(stream, trainer.data_collator, device, **options)


def _worker_options(args: TranslationTrainingArguments) -> dict[str, Any]:
    """Return the options of a loader for its worker processes."""
    context = None
    if args.dataloader_num_workers:
        context = args.dataloader_multiprocessing_context
        if context is None and sys.platform == "linux":
            # Other starts of workers than "fork" need a copy of all that workers use.
            context = "fork"
    return {
        "num_workers": args.dataloader_num_workers,
        "multiprocessing_context": context,
        "prefetch_factor": args.dataloader_prefetch_factor,
        "pin_memory": args.dataloader_pin_memory,
        "persistent_workers": args.dataloader_persistent_workers,
    }
