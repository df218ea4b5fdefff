"""A `Seq2SeqTrainer` with token-budget batches."""

from typing import Any

from accelerate.data_loader import DataLoaderShard
from torch import nn
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, PreTrainedModel, Seq2SeqTrainer

from hf_capsule_mt.data.batching import TokenBudgetBatchSampler

from .arguments import TranslationTrainingArguments


class TranslationTrainer(Seq2SeqTrainer):
    """[`Seq2SeqTrainer`] that fills batches to `args.max_tokens_per_batch`.

    Its training data set has `lengths`: a (source, target) pair of token counts for each item, as
    [`~hf_capsule_mt.data.tokenized.TokenizedPairs`] has.

    Raises:
        ValueError: if `label_smoothing_factor` is set: the Trainer would then compute a loss of its own and drop the
            model's, auxiliary terms included.
    """

    def __init__(
        self,
        model: PreTrainedModel | nn.Module | None = None,
        args: TranslationTrainingArguments | None = None,
        **kwargs: Any,
    ) -> None:
        if args is not None and args.label_smoothing_factor > 0:
            raise ValueError(
                f"label_smoothing_factor is {args.label_smoothing_factor}: with it the Trainer drops the model's own loss; "
                "set label_smoothing in the model's configuration instead (--label_smoothing)"
            )
        if args is not None and args.max_tokens_per_batch is not None:
            # A batch sampler without a batch size has nothing to fill the last batches up to;
            # TokenBudgetBatchSampler gives every process the same number of batches itself.
            args.accelerator_config.even_batches = False
        super().__init__(model=model, args=args, **kwargs)
        if args is not None and args.early_stopping_patience is not None:
            self.add_callback(EarlyStoppingCallback(args.early_stopping_patience))

    def get_train_dataloader(self) -> DataLoader | DataLoaderShard:
        """The training batches of this process."""
        if self.args.max_tokens_per_batch is None:
            return super().get_train_dataloader()
        sampler = TokenBudgetBatchSampler(
            self.train_dataset.lengths,
            self.args.max_tokens_per_batch,
            num_replicas=self.args.world_size,
            seed=self.args.data_seed if self.args.data_seed is not None else self.args.seed,
        )
        loader = DataLoader(
            self.train_dataset,
            batch_sampler=sampler,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            persistent_workers=self.args.dataloader_persistent_workers,
        )
        return self.accelerator.prepare(loader)
