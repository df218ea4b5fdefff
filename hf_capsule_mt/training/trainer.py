"""A `Seq2SeqTrainer` with token-budget batches."""

from collections.abc import Callable, Mapping, Sized
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate.data_loader import DataLoaderShard
from huggingface_hub import HfApi
from torch import nn
from torch.utils.data import DataLoader
from transformers import (
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
)
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.trainer_utils import EvalLoopOutput, IntervalStrategy, TrainOutput
from transformers.utils import logging

from hf_capsule_mt import decoding
from hf_capsule_mt.data.streaming import (
    TokenBudgetStream,
    read_stream_state,
    read_stream_states,
    stream_loader,
    write_stream_state,
)
from hf_capsule_mt.data.tokenizer import check_padding_side, check_special_ids, words_hash
from hf_capsule_mt.files import locked
from hf_capsule_mt.saving import begin_saving, explained_saving
from hf_capsule_mt.trainer_state import read_trainer_state

from .arguments import TranslationTrainingArguments
from .callbacks import CardCallback, SaveByTheClock, ShareOfRun, SourceCallback
from .divergence import DivergenceCheck, check_weights
from .hyperparameters import (
    check_added_rate,
    check_hyperparameters,
    needs_best,
    own_hyperparameters,
    set_added_rate,
)
from .loaders import loader_options, set_epoch, token_budget_loader
from .loss_terms import log_loss_terms
from .metrics import bleu_metric
from .progress import show_progress
from .resuming import (
    batches_of,
    check_not_streamed,
    check_same_batches,
    check_same_tokenizer,
    check_updates,
    dealt_to,
    find_checkpoint,
    has_other_metric,
)
from .run_identity import LAST, RunIdentity, check_no_other_run, check_same_everywhere, remove_run, settings_of
from .run_recorder import RunRecorder
from .sharding import embeddings_in_one_group
from .warn import warn_of_half_precision, warn_of_slow_products, warn_of_warmup
from .weight_average import WeightAverage

logger = logging.get_logger(__name__)

MAKE_ROOM = "make room, and go on from the last checkpoint with --resume_from_checkpoint last"


def _has_unread_weights(model: nn.Module) -> bool:
    """Return whether some weights get no gradient: what would score for the next iteration of guided routing, where it
    has one alone, an embedding of Marian's that nothing reads where none is tied, and layers that LayerDrop leaves out.
    """
    config = getattr(model, "config", None)
    if any(getattr(config, f"{stack}_layerdrop", 0) > 0 for stack in ("encoder", "decoder")):
        return True
    unread = getattr(config, "share_encoder_decoder_embeddings", False) and not config.tie_word_embeddings
    return unread or (getattr(config, "guided_routing", None) == "gdr" and config.guided_routing_iterations == 1)


def _decode(model: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
    """Decode as [`decoding.generate`] does elsewhere, not by the forward that accelerate puts in for autocast."""
    parts = vars(model)
    autocasting = parts.pop("forward") if {"forward", "_original_forward"} <= parts.keys() else None
    try:
        return decoding.generate(model, *args, **kwargs)
    finally:
        if autocasting is not None:
            model.forward = autocasting


class TranslationTrainer(Seq2SeqTrainer):
    """[`Seq2SeqTrainer`] that fills batches to `args.max_tokens_per_batch`, and writes our model cards.

    It logs the parts of a loss that has several. With the tokenizer as `processing_class` it pads pairs of token ids,
    labels too, and with `args.predict_with_generate` its evaluation scores BLEU, unless a `data_collator` or a
    `compute_metrics` is given:

        data = load_data(data_args, args, tokenizer, model.config)
        TranslationTrainer(
            model, args, processing_class=tokenizer, train_dataset=data.train, eval_dataset=data.validation
        ).train()

    Its training data set is any `datasets.Dataset` with columns `input_ids` and `labels`, a list of such rows, or what
    `load_data` makes of a corpus. The model card is made by `recorder`; without one it is the Trainer's own.

    Raises:
        TypeError: if `args` are not those of this package.
        ValueError: if the tokenizer pads on the left or has other ids for padding and ends than the model, the process
            has several GPUs, or the model cannot be trained as `args` say.
    """

    def __init__(
        self,
        model: PreTrainedModel | nn.Module | None = None,
        args: TranslationTrainingArguments | None = None,
        data_collator: Callable | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        *,
        recorder: RunRecorder | None = None,
        **kwargs: Any,
    ) -> None:
        args = TranslationTrainingArguments() if args is None else args
        if not isinstance(args, TranslationTrainingArguments):
            raise TypeError(
                f"args is a {type(args).__name__}; give TranslationTrainingArguments, which has all its options"
            )
        tokenizer = processing_class
        if tokenizer is not None and data_collator is None:
            check_padding_side(tokenizer)
            data_collator = DataCollatorForSeq2Seq(tokenizer, model=model)
        if tokenizer is not None and kwargs.get("compute_metrics") is None and args.predict_with_generate:
            kwargs["compute_metrics"] = bleu_metric(tokenizer, args.bleu_tokenize)
        super().__init__(model, args, data_collator, train_dataset, eval_dataset, processing_class, **kwargs)
        self._leave_to_generation_config()
        self._check_model()
        # Processes would wait for those gradients. The argument alone has been read.
        if _has_unread_weights(self.model):
            self.args.ddp_find_unused_parameters = True
            self.accelerator.ddp_handler.find_unused_parameters = True
        self.recorder = recorder
        self.identity = RunIdentity()
        self.identity.settings = settings_of([self.args])
        if isinstance(tokenizer, PreTrainedTokenizerBase):
            self.identity.tokenizer = words_hash(tokenizer)
        self._has_folder = False
        self._divergence = DivergenceCheck()
        self._resumed_from = self._stream_state = None
        self._best_is_of_another_metric = False
        self._looked_at: int | None = None
        self._save_is_due = False
        self._average = WeightAverage(self.args.ema_decay) if self.args.ema_decay else None
        self._add_callbacks()

    def _check_model(self) -> None:
        """Check that the model, and how it is spread over devices, can be trained as the arguments say."""
        if isinstance(self.processing_class, PreTrainedTokenizerBase):
            # By itself the Trainer gives the tokenizer's to the configuration, and not to what is made of its ids.
            check_special_ids(self.processing_class, getattr(self.model, "config", None))
        # DeepSpeed keeps weights in 32 bits too.
        if not self.is_deepspeed_enabled and self.args.should_log:
            warn_of_half_precision(self.model)
        if self.args.added_learning_rate is not None:
            check_added_rate(self, has_optimizer=self.optimizer is not None)
        self._set_signature_columns_if_needed()
        if self.args.rdrop_alpha and "rdrop_alpha" not in self._signature_columns:
            raise ValueError(
                f"rdrop_alpha is {self.args.rdrop_alpha}, which {type(self.model).__name__} does not know; train a "
                "model of this package, or leave it out"
            )
        if self.args.rdrop_alpha and self.compute_loss_func is not None:
            raise ValueError(
                f"rdrop_alpha is {self.args.rdrop_alpha}, and compute_loss_func is given, which takes the place of "
                "the model's loss and of R-Drop in it; leave out one of them"
            )
        if self.args.n_gpu > 1:
            raise ValueError(
                f"this process has {self.args.n_gpu} GPUs; start one process for each by accelerate launch, or show it "
                "one with CUDA_VISIBLE_DEVICES=0"
            )
        if self.args.ema_decay and (self.is_fsdp_enabled or self.is_deepspeed_enabled):
            raise ValueError(
                f"ema_decay is {self.args.ema_decay}, but under FSDP or DeepSpeed a process has a part of the "
                "weights; leave it out, and average checkpoints afterwards with hf-capsule-mt average_checkpoints"
            )

    def _add_callbacks(self) -> None:
        self.add_callback(self.identity)
        log_loss_terms(self)
        self._progress = show_progress(self)
        if isinstance(self.train_dataset, TokenBudgetStream):
            self.add_callback(ShareOfRun())
        self.add_callback(SourceCallback())
        self.add_callback(CardCallback(self.create_model_card))
        if self.args.save_minutes is not None:
            self.add_callback(SaveByTheClock(self.args.save_minutes))
        if self._average is not None:
            # Before what saves and evaluates.
            self.callback_handler.callbacks.insert(0, self._average)
        if self.args.early_stopping_patience is not None:
            self.add_callback(EarlyStoppingCallback(self.args.early_stopping_patience))

    def _leave_to_generation_config(self) -> None:
        """Let `args.generation_config` decide what it names and the other arguments leave at their defaults."""
        if self.args.generation_config is None:
            return
        for name in ("max_length", "num_beams"):
            option = f"generation_{name}"
            is_default = getattr(self.args, option) == getattr(TranslationTrainingArguments, option)
            if is_default and getattr(self.model.generation_config, name) is not None:
                setattr(self.args, option, None)

    def _averaged(self) -> AbstractContextManager:
        """Let the model have averaged weights, if the run averages."""
        return nullcontext() if self._average is None else self._average.in_model()

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> TrainOutput:
        """Train as the Trainer does, and be sure to go on with the state and the batches of `resume_from_checkpoint`.

        Meanwhile it holds the lock of the output folder.

        Raises:
            BlockingIOError: if another process works in that folder.
            DivergenceError: if the loss, the gradient or a weight is not finite.
            OSError: if a checkpoint cannot be saved, or a file of the one to go on from is damaged.
            ValueError: if that one lacks a part of its state, or its run had another tokenizer, other batches, or
                another learning rate where that cannot change; or the folder holds another run.
        """
        with locked(Path(self.args.output_dir)) if self.is_world_process_zero() else nullcontext():
            checkpoint = self._go_on_from(resume_from_checkpoint)
            stream = self.train_dataset.cut() if isinstance(self.train_dataset, TokenBudgetStream) else {}
            check_same_everywhere(self.identity, checkpoint, stream)
            self._take_folder(checkpoint)
            if self.args.should_log:
                warn_of_slow_products(self.accelerator.mixed_precision, self.args.device)
            return super().train(checkpoint, **kwargs)

    def _go_on_from(self, resume_from_checkpoint: str | bool | None) -> str | None:
        """Return the checkpoint, after the checks of it, whose run this will be."""
        if isinstance(self.train_dataset, Sized):
            text = {} if self.recorder is None else self.recorder.decides_batches()
            self.identity.batches = batches_of(self.args, pairs=len(self.train_dataset), **text)
        self._resumed_from = self._looked_at = None
        self._save_is_due = False
        self.identity.go_on({})
        self._set_patience({})
        self._best_is_of_another_metric = False
        if not resume_from_checkpoint:
            return None
        checkpoint = find_checkpoint(LAST if resume_from_checkpoint is True else resume_from_checkpoint, self.args)
        if checkpoint is None:
            return None
        check_same_tokenizer(checkpoint, self.identity.tokenizer)
        check_same_batches(checkpoint, self.identity.batches, self.args)
        if not isinstance(self.train_dataset, TokenBudgetStream):
            check_not_streamed(checkpoint, self.args)
        if self.identity.batches:
            self.identity.batches["dealt_to"] = dealt_to(checkpoint, self.args)
        state = read_trainer_state(checkpoint)
        check_hyperparameters(state, self.identity.settings, self)
        self.identity.go_on(state)
        self._best_is_of_another_metric = has_other_metric(state, self.args)
        if self._best_is_of_another_metric:
            if self.args.should_log:
                logger.warning(
                    f"metric_for_best_model is {self.args.metric_for_best_model!r}, and {checkpoint} knows what is "
                    "best in another: the best checkpoint is chosen, and early stopping waits, from here on"
                )
        else:
            self._set_patience(state)
        self._resumed_from = checkpoint
        return checkpoint

    def set_initial_training_values(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return what the Trainer plans a run by, with the pairs that token-budget batches will have."""
        epochs, updates, pairs, samples, *others = super().set_initial_training_values(*args, **kwargs)
        if self.args.max_tokens_per_batch and self.args.max_steps > 0:
            # It takes every batch to have per_device_train_batch_size pairs.
            samples = pairs * self.args.max_steps / updates
        return (epochs, updates, pairs, samples, *others)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log, without a speed in pairs where nobody has counted them."""
        if isinstance(self.train_dataset, TokenBudgetStream):
            logs.pop("train_samples_per_second", None)
        super().log(logs, *args, **kwargs)

    def _init_training_state(self, max_steps: int, updates: int, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """Return the epoch to go on with, of so many `updates` each, and the number of its batches to skip."""
        epoch, _ = super()._init_training_state(max_steps, updates, *args, **kwargs)
        if self._resumed_from is not None:
            # It would be evaluated and saved as often as the checkpoint's run.
            self.state.compute_steps(self.args, max_steps)
            option = f"num_train_epochs {self.args.num_train_epochs} end with update {max_steps}"
            check_updates(self._resumed_from, max_steps, option)
        if self._best_is_of_another_metric:
            self.state.best_metric = self.state.best_global_step = self.state.best_model_checkpoint = None
        if self.args.ignore_data_skip and self._resumed_from is not None:
            self.identity.data_began = (self.state.global_step, epoch)
        # It finds its place by itself, without reading all that comes before it.
        if isinstance(self.train_dataset, TokenBudgetStream):
            return epoch, 0
        began, first = self.identity.data_began
        epochs, done = divmod(self.state.global_step - began, updates)
        return first + epochs, done * self.args.gradient_accumulation_steps

    def _load_callback_state(self) -> None:
        super()._load_callback_state()
        # It makes callbacks anew, and this run's own data and settings are not those of the one that it goes on from.
        if self.identity not in self.callback_handler.callbacks:
            self.remove_callback(RunIdentity)
            self.add_callback(self.identity)

    def _set_patience(self, state: Mapping[str, Any]) -> None:
        """Let early stopping count on from the evaluations without a gain in a Trainer's `state`."""
        saved = (state.get("stateful_callbacks") or {}).get(EarlyStoppingCallback.__name__) or {}
        counted = saved.get("attributes", {}).get("early_stopping_patience_counter", 0)
        for callback in self._early_stopping():
            callback.early_stopping_patience_counter = counted

    def _early_stopping(self) -> list[EarlyStoppingCallback]:
        return [each for each in self.callback_handler.callbacks if isinstance(each, EarlyStoppingCallback)]

    def _evaluate(self, *args: Any, skip_scheduler: bool = False, **kwargs: Any) -> dict[str, float]:
        waited = [(each, each.early_stopping_patience_counter) for each in self._early_stopping()]
        metrics = super()._evaluate(*args, skip_scheduler=skip_scheduler, **kwargs)
        # As for the schedule, one at the start of a run is none more to wait for.
        if skip_scheduler:
            for callback, counted in waited:
                callback.early_stopping_patience_counter = counted
            self.control.should_training_stop = False
        return metrics

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # The Trainer looks whether training is at its end after each update, and would make one more when it resumes.
        waited = (
            each.early_stopping_patience_counter >= each.early_stopping_patience for each in self._early_stopping()
        )
        if self.state.global_step >= self.state.max_steps or any(waited):
            self.control.should_training_stop = True
        else:
            # Before a resumed run skips what it has trained on: the Trainer does it behind that.
            set_epoch(kwargs["train_dataloader"], kwargs["epoch"])
            super()._run_epoch(*args, **kwargs)

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        # It is called after an update and again behind the last of an epoch, whose evaluation and log a checkpoint must
        # have that was due at that update: a run that goes on from it begins with the next epoch.
        is_behind_epoch, self._looked_at = self._looked_at == self.state.global_step, self.state.global_step
        if is_behind_epoch:
            self.control.should_save |= self._save_is_due
            self._save_is_due = False
        elif self._epoch_has_more_to_do():
            self._save_is_due, self.control.should_save = self.control.should_save, False
        super()._maybe_log_save_evaluate(*args, **kwargs)

    def _epoch_has_more_to_do(self) -> bool:
        """Return whether this update is the last of its epoch, and there is more to come at the end of that."""
        asked = IntervalStrategy.EPOCH in (self.args.eval_strategy, self.args.logging_strategy)
        # Whoever is told to stop may be killed meanwhile.
        is_told_to_stop = self.control.should_training_stop and self.state.global_step < self.state.max_steps
        return asked and self.state.epoch % 1 == 0 and not is_told_to_stop

    def _determine_best_metric(self, metrics: dict[str, float], *args: Any, **kwargs: Any) -> bool:
        # Unless another is named it is BLEU, which evaluation with metrics of the caller's need not have.
        name = f"eval_{self.args.metric_for_best_model}"
        if name not in metrics and not needs_best(self.args):
            return False
        is_best = super()._determine_best_metric(metrics, *args, **kwargs)
        # At the end only what has been saved can be loaded.
        if is_best and self.args.load_best_model_at_end:
            self.control.should_save = True
        return is_best

    def _take_folder(self, checkpoint: str | None) -> None:
        """Make the output folder this run's own, which it stays if the trainer trains again."""
        if self.is_world_process_zero() and not self._has_folder:
            check_no_other_run(self.args, self.identity.settings, checkpoint, getattr(self.model, "name_or_path", None))
            if self.args.overwrite_output_dir:
                remove_run(Path(self.args.output_dir), checkpoint)
        self._has_folder = True

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return the loss of a batch, after its gradient is added; remember the state of a stream behind the batch."""
        self._stream_state = inputs.pop("stream_state", None)
        if self._progress is not None:
            self._progress.count(inputs)
        loss = super().training_step(model, inputs, *args, **kwargs)
        self._divergence.add(loss)
        return loss

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """Return the loss of a batch; with R-Drop, in training, that of two passes over it."""
        if self.args.rdrop_alpha and model.training:
            inputs = {name: torch.cat([value, value]) for name, value in inputs.items()}
            inputs["rdrop_alpha"] = self.args.rdrop_alpha
            num_items_in_batch = None if num_items_in_batch is None else 2 * num_items_in_batch
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def _get_grad_norm(self, *args: Any, **kwargs: Any) -> torch.Tensor | float:
        """Return the norm of the gradient, once an update, if it is finite."""
        norm = super()._get_grad_norm(*args, **kwargs)
        self._divergence.check(self, norm)
        return norm

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model as the Trainer does, unless its weights are not finite."""
        folder = Path(output_dir or self.args.output_dir)
        self._end_step()
        with self._averaged(), explained_saving(folder, MAKE_ROOM):
            check_weights(self)
            if self.args.should_save:
                begin_saving(folder)
            super().save_model(output_dir, _internal_call)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        with explained_saving(Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}", MAKE_ROOM):
            super()._save_checkpoint(*args, **kwargs)

    def get_train_dataloader(self) -> DataLoader | DataLoaderShard:
        """Return the training batches of this process."""
        if isinstance(self.train_dataset, TokenBudgetStream):
            return self._stream_loader()
        if self.args.max_tokens_per_batch == 0:
            return super().get_train_dataloader()
        pairs = self.train_dataset
        if isinstance(getattr(pairs, "column_names", None), list):
            pairs = self._remove_unused_columns(pairs, description="training")
        collate = self._get_collator_with_removed_columns(self.data_collator, description="training")
        dealt = self.identity.batches.get("dealt_to", self.args.world_size)
        loader = token_budget_loader(pairs, collate, self.args, dealt)
        # accelerate cannot even out batches of varying size, and need not: the sampler gives each process as many.
        # Evaluation needs even batches: every process must have a last batch to gather from.
        even_batches, self.accelerator.even_batches = self.accelerator.even_batches, False
        try:
            return self.accelerator.prepare(loader)
        finally:
            self.accelerator.even_batches = even_batches

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> tuple[nn.Module, DataLoader]:
        with embeddings_in_one_group(self.model):
            prepared = super()._prepare_for_training(*args, **kwargs)
        if self._average is not None:
            self._average.begin(self.model, self._resumed_from)
        return prepared

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        # DeepSpeed's engine has loaded its optimizer before.
        own = nullcontext() if self.is_deepspeed_enabled else own_hyperparameters(self.optimizer, self.lr_scheduler)
        with own:
            super()._load_optimizer_and_scheduler(checkpoint)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        # A tied weight is saved once, and is not missing under its other names.
        missing = [name for name in load_result.missing_keys if name not in self.model.all_tied_weights_keys]
        super()._issue_warnings_after_load(load_result._replace(missing_keys=missing))

    def _save(self, output_dir: str | None = None, state_dict: dict[str, torch.Tensor] | None = None) -> None:
        if state_dict is not None:
            # Gathered from processes, a tied weight is there under each of its names.
            tied = self.model.all_tied_weights_keys
            state_dict = {name: weight for name, weight in state_dict.items() if name not in tied}
        super()._save(output_dir, state_dict)

    def _end_step(self) -> None:
        """Let schedule-free optimizers put what they have averaged into the model; the next step takes it out."""
        if hasattr(self.optimizer, "eval"):
            self.optimizer.eval()

    def _finalize_training(self, *args: Any, **kwargs: Any) -> TrainOutput:
        self._end_step()
        # With a limit of 1 the Trainer would delete all but the best here, also the last, which a run goes on from.
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            return super()._finalize_training(*args, **kwargs)
        finally:
            self.args.save_total_limit = limit

    def _stream_loader(self) -> DataLoaderShard:
        before, stream = self._resumed_from, self.train_dataset
        if before is not None and self.args.ignore_data_skip:
            stream.begin_behind(read_stream_states(before))
        else:
            stream.load_state(before and read_stream_state(before, self.args.process_index))
        device = self.args.device if self.accelerator.device_placement else None
        return stream_loader(self.train_dataset, self.data_collator, device, **loader_options(self.args))

    def _save_rng_state(self, output_dir: str) -> None:
        # Here every process writes a file of its own.
        super()._save_rng_state(output_dir)
        if self._stream_state is not None:
            write_stream_state(output_dir, self.args.process_index, self._stream_state)
        if self._average is not None and self.args.should_save:
            self._average.save_training_weights(output_dir)
        # The state that comes next says that the checkpoint is whole: with the files of all processes.
        self.accelerator.wait_for_everyone()

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """Evaluate as the Trainer does, but count every sentence once."""
        # Seq2SeqTrainer keeps what fills up the last batch of several processes, and would score it twice.
        self.gather_function = self.accelerator.gather_for_metrics
        if (self.is_fsdp_enabled or is_deepspeed_zero3_enabled()) and hasattr(self, "_gen_kwargs"):
            # Weights are gathered at every step, by all processes: none may stop before the others.
            self._gen_kwargs["synced_gpus"] = True
        try:
            with self._averaged():
                return super().evaluation_loop(*args, **kwargs)
        finally:
            # What is trained on next leaves no use for its copies of the weights.
            decoding.release(self.model)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[float | None, torch.Tensor | None, torch.Tensor | None]:
        """Evaluate a batch as [`Seq2SeqTrainer`] does, but decode with the engine of [`hf_capsule_mt.decoding`].

        Where processes share the weights, they decode in step, as only `generate()` does.
        """
        given = gen_kwargs or getattr(self, "_gen_kwargs", {})
        options = given if given.get("synced_gpus") else {"custom_generate": _decode, **given}
        # What pads sources without references gives them labels that are None.
        inputs = {name: value for name, value in inputs.items() if value is not None}
        return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys, **options)

    def init_hf_repo(self, *args: Any, **kwargs: Any) -> None:
        """Make the repository, and the branch to push to, if they do not exist."""
        super().init_hf_repo(*args, **kwargs)
        if self.is_world_process_zero() and self.args.hub_revision is not None:
            HfApi().create_branch(self.hub_model_id, branch=self.args.hub_revision, exist_ok=True)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write `README.md` into the output folder."""
        if self.recorder is None:
            super().create_model_card(*args, **kwargs)
        elif self.is_world_process_zero():
            self.recorder.model_card(self).save(Path(self.args.output_dir) / "README.md")

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """Return the optimizer, with `added_learning_rate` for what is added to a parent's weights."""
        is_made = self.optimizer is not None
        optimizer = super().create_optimizer(*args, **kwargs)
        if self.args.added_learning_rate is not None and not is_made:
            set_added_rate(optimizer, self.model, self.args.added_learning_rate)
        return optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Return the learning rate schedule; warn if it has no warm-up, or the run ends before that does."""
        if self.args.should_log:
            warn_of_warmup(self.args, num_training_steps)
        return super().create_scheduler(num_training_steps, optimizer)
