"""How a `TranslationTrainer` reads its training data: in batches of a token budget, from memory or from a stream."""

import inspect
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from hf_capsule_mt.data.batching import CollatorOfColumns, TokenBudgetBatchSampler, longest_sides
from hf_capsule_mt.data.bpe_dropout import ResegmentedPairs
from hf_capsule_mt.data.streaming import TokenBudgetStream, state_file, stream_loader

from .evaluating import EvaluatingTrainer


class BatchingTrainer(EvaluatingTrainer):
    """The part of a `TranslationTrainer` that reads training data."""

    resumed_from: str | None
    """The checkpoint that the run continues from."""
    _begins_data: bool
    """Whether a resumed run reads its data from the beginning."""

    def get_train_dataloader(self) -> DataLoader:
        """Return the training batches of this process."""
        args = self.args
        pairs = self.train_dataset
        if isinstance(pairs, TokenBudgetStream):
            return self._batches_of_stream(pairs)
        if args.max_tokens_per_batch == 0:
            return super().get_train_dataloader()
        if not isinstance(pairs, Sized):
            raise TypeError(f"train_dataset is a {type(pairs).__name__} without a length. Stream files with load_data.")
        return self._batches_of_budget(pairs)

    def _batches_of_budget(self, pairs: Sized) -> Any:
        """Return the loader of pairs in memory, whose batches have at most `args.max_tokens_per_batch` tokens."""
        args = self.args
        collate = self.data_collator
        if args.remove_unused_columns:
            collate = CollatorOfColumns(collate, self._columns_of_model())
        lengths = pairs.lengths() if isinstance(pairs, ResegmentedPairs) else longest_sides(pairs)
        # A resumed run cuts an epoch as it was cut at its start.
        sampler = TokenBudgetBatchSampler(
            lengths,
            args.max_tokens_per_batch,
            num_replicas=self.identity.dealt_to or args.world_size,
            seed=args.seed_of_data,
        )
        sampler.check_deal(args.world_size)
        # With its own generator: starting workers draws a seed, in a resumed run at other times.
        generator = torch.Generator()
        options = args.loader_options
        loader = DataLoader(pairs, batch_sampler=sampler, collate_fn=collate, generator=generator, **options)
        with self._batches_left_as_they_are():
            return self.accelerator.prepare(loader)

    @contextmanager
    def _batches_left_as_they_are(self) -> Iterator[None]:
        """Let accelerate repeat no batch of training. The sampler gives each process as many batches.

        In evaluation accelerate evens them out, because every process must have a last batch to gather from.
        """
        even_batches = self.accelerator.even_batches
        self.accelerator.even_batches = False
        try:
            yield
        finally:
            self.accelerator.even_batches = even_batches

    def _columns_of_model(self) -> set[str]:
        """Return the columns of pairs that the model, or the collator for it, takes."""
        arguments = inspect.signature(self._base_model.forward).parameters
        return {*arguments, *self.label_names, "label", "label_ids"}

    @property
    def _base_model(self) -> nn.Module:
        """The model without an adapter around it."""
        return self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model

    def _batches_of_stream(self, stream: TokenBudgetStream) -> Any:
        """Return the loader of a stream, which begins where the run left it."""
        args = self.args
        if self._begins_data:
            states = Path(self.resumed_from).glob("stream_state_*.json")
            stream.begin_behind(file.read_text() for file in states)
        elif self.resumed_from is None:
            stream.load_state(None)
        else:
            stream.load_state(state_file(self.resumed_from, args.process_index).read_text())
        device = args.device if self.accelerator.device_placement else None
        # accelerate's loader takes this option under a private name only.
        options = {**args.loader_options, "_non_blocking": args.accelerator_config.non_blocking}
        return stream_loader(stream, self.data_collator, device, **options)
