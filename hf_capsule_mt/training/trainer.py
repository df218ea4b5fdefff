"""A `Seq2SeqTrainer` with token-budget batches, whose methods stand in the order of a run.

A run begins in `train`, which checks what it continues from. `get_train_dataloader` gives it batches, `training_step`
and `compute_loss` are an update, and `log`, `evaluate` and `save_model` come between updates.
"""

import inspect
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from transformers import (
    DataCollatorForSeq2Seq,
    M2M100ForConditionalGeneration,
    MarianMTModel,
    MBartForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
)
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.trainer_callback import ProgressCallback
from transformers.trainer_utils import EvalLoopOutput, PredictionOutput, TrainOutput
from transformers.utils import logging

from hf_capsule_mt import decoding
from hf_capsule_mt.data.batching import budget_loader
from hf_capsule_mt.data.streaming import TokenBudgetStream, state_file, stream_loader
from hf_capsule_mt.data.tokenizer import check_padding_side, check_special_ids
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import locked, replace_text
from hf_capsule_mt.modeling.modeling_capsule_aggregated_m2m_100 import begins_without_position
from hf_capsule_mt.modeling.portable_model import allow_readers

from .arguments import TranslationTrainingArguments, own_arguments
from .callbacks import DivergenceError, NamedBars, RunEvents, SourceCallback
from .checkpoint_folders import TRAINER_STATE, claim_folder, explained_full_disk, find_checkpoint, step_of
from .evaluating import decode, default_metrics, settings_left_alone
from .meter import RunMeter
from .model_preparation import (
    all_finite,
    compile_layers,
    freeze_positions,
    has_unread_weights,
    hidden_embeddings,
    set_added_rate,
)
from .moving_average import WeightAverage
from .resuming import OptimizerOptions, RunIdentity, begin_run, check_optimizer
from .run_recorder import RunRecorder

logger = logging.get_logger(__name__)

_RETURN_MEANS = (MarianMTModel, M2M100ForConditionalGeneration, MBartForConditionalGeneration)


class TranslationTrainer(Seq2SeqTrainer):
    """[`Seq2SeqTrainer`] that fills batches to `args.max_tokens_per_batch`, and writes our model cards.

    It logs the parts of a loss that has several. With the tokenizer as `processing_class` it pads pairs of token ids,
    labels too, and with `args.predict_with_generate` its evaluation scores BLEU, unless a `data_collator` or a
    `compute_metrics` is given:

        data = load_data(data_args, args, tokenizer, model.config)
        TranslationTrainer(
            model, args, processing_class=tokenizer, train_dataset=data.train, eval_dataset=data.validation
        ).train()

    `trainer.args` is a copy of `args`, because the trainer changes some of them.

    Args:
        model: the model to train. With `args.label_smoothing_factor` its own loss is smoothed.
        args: the arguments. The defaults are those of [`TranslationTrainingArguments`].
        data_collator: makes a batch of rows. By default it pads `input_ids` and `labels`.
        train_dataset: any `datasets.Dataset` with columns `input_ids` and `labels`, a list of such rows, or what
            `load_data` makes of a corpus.
        eval_dataset: the same, for evaluation.
        processing_class: the tokenizer.
        general_dataset: another one, which every evaluation scores too. A checkpoint that loses more than
            `args.max_general_loss` BLEU on it since the start is never the best one.
        recorder: writes the model card. Without one it is the Trainer's own.
        **kwargs: arguments of [`Seq2SeqTrainer`].

    Raises:
        UserError: if the tokenizer is another model's, or the model or the processes cannot do what `args` ask for.
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
        general_dataset: Any = None,
        recorder: RunRecorder | None = None,
        **kwargs: Any,
    ) -> None:
        args = own_arguments(args)
        if isinstance(processing_class, PreTrainedTokenizerBase):
            check_special_ids(processing_class, getattr(model, "config", None))
        if data_collator is None and processing_class is not None:
            check_padding_side(processing_class)
            data_collator = DataCollatorForSeq2Seq(processing_class, model=model)

        if kwargs.get("compute_metrics") is None:
            kwargs["compute_metrics"] = default_metrics(args, processing_class)
        elif args.metric_for_best_model == "bleu" and not args.needs_best:
            # The caller's metrics need not have BLEU, and the Trainer would fail without it.
            args.metric_for_best_model = None

        # `_prepare_model` reads them, and the Trainer may call it before it sets them itself.
        self.args = args
        self._label_smoothing = args.label_smoothing_factor
        self._compile_backend = args.torch_compile_backend
        # With it accelerate would compile the whole model.
        args.torch_compile_backend = None
        if model is not None:
            self._prepare_model(model)

        super().__init__(model, args, data_collator, train_dataset, eval_dataset, processing_class, **kwargs)
        args.torch_compile_backend = self._compile_backend
        self._check_supported()
        self._find_unused_parameters()

        self.recorder = recorder
        self.general_dataset = general_dataset
        self.identity = RunIdentity()
        self.meter = RunMeter()
        self.resumed_from: str | None = None  # The checkpoint that the run continues from.
        self.resumed_at = 0  # Its update.
        self.begins_data = False  # Whether a resumed run reads its data from the beginning.
        self._stream_state: str | None = None  # Where a stream is behind the last batch.
        self.average = WeightAverage(args.ema_decay) if args.ema_decay else None
        self._add_callbacks()

    def _prepare_model(self, model: nn.Module) -> None:
        """Give a model its label smoothing, compile it if asked for, and freeze its positions."""
        if self._label_smoothing and hasattr(getattr(model, "config", None), "label_smoothing"):
            # With its own label smoothing the Trainer would drop the other parts of the model's loss.
            model.config.label_smoothing = self._label_smoothing
            self.args.label_smoothing_factor = 0.0
        if self.args.torch_compile:
            compile_layers(model, backend=self._compile_backend, mode=self.args.torch_compile_mode)
        freeze_positions(model)

    def _check_supported(self) -> None:
        """Raise a UserError for a model that would be trained wrongly, or arguments that cannot be followed."""
        config = getattr(self._base_model, "config", None)
        if begins_without_position(config):
            raise UserError(
                "Targets of this model begin with padding, which has no position in M2M-100. So it would be trained at "
                "other positions than it decodes at. Let them begin with EOS: decoder_start_token_id="
                f"{config.eos_token_id} in its configuration, or with --config_overrides."
            )
        if self.args.rdrop_alpha and "rdrop_alpha" not in inspect.signature(self._base_model.forward).parameters:
            raise UserError(f"{type(self.model).__name__} has no R-Drop. Leave out rdrop_alpha.")
        if self.args.n_gpu > 1:
            raise UserError("This process has several GPUs. Start one process for each with accelerate launch.")
        if self.args.ema_decay and (self.is_fsdp_enabled or self.is_deepspeed_enabled):
            raise UserError("ema_decay needs all weights in each process. Average checkpoints instead.")

    def _find_unused_parameters(self) -> None:
        """Let processes not wait for gradients that never come."""
        if has_unread_weights(self.model):
            self.args.ddp_find_unused_parameters = True
            # The Trainer has read the argument already.
            self.accelerator.ddp_handler.find_unused_parameters = True

    def _add_callbacks(self) -> None:
        """Add what follows the run, saves averages and names the run and its progress bars."""
        first: list[Any] = [RunEvents(self)]
        if self.average is not None:
            first.append(self.average)

        # Loggers and the Trainer's own callbacks must see the state and the weights that these two leave.
        callbacks = self.callback_handler.callbacks
        for place, callback in enumerate(callbacks):
            # Notebooks have another one, and so may the caller.
            if type(callback) is ProgressCallback:
                callbacks[place] = NamedBars(callback.max_str_len)
        callbacks[:0] = first

        self.add_callback(self.identity)
        self.add_callback(SourceCallback())

    def call_model_init(self, trial: Any = None) -> nn.Module:
        """Return a new model of `model_init`."""
        model = super().call_model_init(trial)
        self._prepare_model(model)
        return model

    def replace_model(self, model: nn.Module) -> None:
        """Evaluate and save another model from now on, such as that of the start, or one without its adapter."""
        freeze_positions(model)
        self.model = model.to(self.args.device)
        self.model_wrapped = self.model

    @property
    def _base_model(self) -> nn.Module:
        """The model without an adapter around it."""
        return self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> TrainOutput:
        """Train as the Trainer does. The output folder is locked, and a resumed run has the data of its beginning.

        Args:
            resume_from_checkpoint: a folder, "last" or True for the newest complete checkpoint in `args.output_dir`,
                "auto", which begins a run if there is none, or None to begin one.
            **kwargs: arguments of the Trainer.

        Raises:
            BlockingIOError: if another process works in that folder.
            DivergenceError: if the loss, the gradient or a weight is not finite.
            UserError: if the checkpoint lacks a part of its state or is of another run, or the folder holds one.
        """
        is_first = self.is_world_process_zero()
        with locked(Path(self.args.output_dir)) if is_first else nullcontext():
            checkpoint = find_checkpoint(resume_from_checkpoint, self.args.output_dir)
            self.args.resume_from_checkpoint = checkpoint
            begin_run(self, checkpoint)
            if is_first and not self.state.global_step:
                claim_folder(self.args, checkpoint, getattr(self.model, "name_or_path", None))
            with self._arguments_of_this_call(), explained_full_disk(self.args.output_dir):
                return super().train(checkpoint, **kwargs)

    @contextmanager
    def _arguments_of_this_call(self) -> Iterator[None]:
        """Let the Trainer leave a stream alone, and evaluate at the start if later scores are compared with it."""
        args = self.args
        ignore_data_skip = args.ignore_data_skip
        eval_on_start = args.eval_on_start

        if isinstance(self.train_dataset, TokenBudgetStream):
            # A stream finds its place by itself.
            args.ignore_data_skip = True
        if self.general_dataset is not None and not self._general_scores():
            args.eval_on_start = True

        try:
            yield
        finally:
            args.ignore_data_skip = ignore_data_skip
            args.eval_on_start = eval_on_start

    def set_initial_training_values(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the Trainer's plan of a run: first its number of epochs, last its number of updates."""
        epochs, *others = super().set_initial_training_values(*args, **kwargs)
        last_update = others[-1]
        if self.resumed_at > last_update:
            raise UserError(
                f"{self.resumed_from} is of update {self.resumed_at}, and the run ends at update {last_update}."
            )
        if self.resumed_at == last_update:
            # The Trainer would make one more update at the end of a run.
            epochs = 0
        return (epochs, *others)

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> tuple[nn.Module, DataLoader]:
        # The only method around the call that spreads weights over processes with FSDP2.
        with hidden_embeddings(self.model):
            return super()._prepare_for_training(*args, **kwargs)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """Return the optimizer, with `added_learning_rate` for the weights that a method adds to a plain model."""
        is_new = self.optimizer is None
        optimizer = super().create_optimizer(*args, **kwargs)
        if is_new and self.args.added_learning_rate is not None:
            set_added_rate(optimizer, self.model, self.args.added_learning_rate)
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LRScheduler:
        """Return the learning rate schedule. Warn if the run ends before its warm-up does."""
        warmup = self.args.get_warmup_steps(num_training_steps)
        if self.args.should_log and warmup >= num_training_steps:
            logger.warning(
                f"warmup_steps is {warmup}, and the run has {num_training_steps} updates: it ends before the learning "
                f"rate reaches {self.args.learning_rate}."
            )
        schedule = super().create_scheduler(num_training_steps, optimizer)
        self._optimizer_options = OptimizerOptions(optimizer or self.optimizer)
        return schedule

    def follow_options(self) -> None:
        """Let a resumed run have the learning rates and other numbers of its options, not those of its checkpoint."""
        # DeepSpeed makes the optimizer itself.
        if self.is_deepspeed_enabled:
            return
        check_optimizer(self)
        self._optimizer_options.restore(self.optimizer, self.lr_scheduler)

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
        loader = budget_loader(
            pairs,
            args.max_tokens_per_batch,
            self.data_collator,
            columns=self._columns_of_model() if args.remove_unused_columns else None,
            # A resumed run cuts an epoch as it was cut at its start.
            num_replicas=self.identity.dealt_to or args.world_size,
            processes=args.world_size,
            seed=args.seed_of_data,
            **args.loader_options,
        )

        # The sampler gives each process as many batches, so accelerate shall repeat none. In evaluation it evens them
        # out, because every process must have a last batch to gather from.
        even_batches = self.accelerator.even_batches
        self.accelerator.even_batches = False
        try:
            return self.accelerator.prepare(loader)
        finally:
            self.accelerator.even_batches = even_batches

    def _columns_of_model(self) -> set[str]:
        """Return the columns of pairs that the model, or the collator for it, takes."""
        arguments = inspect.signature(self._base_model.forward).parameters
        return {*arguments, *self.label_names, "label", "label_ids"}

    def _batches_of_stream(self, stream: TokenBudgetStream) -> Any:
        """Return the loader of a stream, which begins where the run left it."""
        args = self.args
        if self.begins_data:
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

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return the loss of a batch, after its gradient is added."""
        self._stream_state = inputs.pop("stream_state", None)
        self.meter.add_batch(inputs)
        return super().training_step(model, inputs, *args, **kwargs)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """Return the loss of a batch. With R-Drop, training has two passes over it.

        Args:
            model: the model, which may be wrapped.
            inputs: the batch, with `labels` `[pairs, target]`.
            return_outputs: whether to return the model's outputs too.
            num_items_in_batch: the number of labels in an update, to divide the loss by.
        """
        if self.args.rdrop_alpha and model.training:
            inputs = self._with_second_pass(inputs)
            if num_items_in_batch is not None:
                num_items_in_batch = 2 * num_items_in_batch

        share = self._share_of_update(inputs, num_items_in_batch)
        # Newer Transformers ask for this. Otherwise the loss is divided by the number of batches of an update.
        self.loss_is_scaled_for_ga = num_items_in_batch is not None
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)

        if share is not None:
            loss = loss * share
        if model.training and isinstance(outputs, dict):
            self.meter.add_losses(outputs)
        return (loss, outputs) if return_outputs else loss

    def _with_second_pass(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return a batch twice, so that dropout makes two different passes for R-Drop to compare."""
        doubled: dict[str, Any] = {}
        for name, value in inputs.items():
            doubled[name] = torch.cat([value, value])
        doubled["rdrop_alpha"] = self.args.rdrop_alpha
        return doubled

    def _share_of_update(
        self, inputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None
    ) -> torch.Tensor | None:
        """Return a batch's share in the labels of an update, if its loss must be multiplied by it.

        Marian, M2M-100 and mBART of Transformers ignore `num_items_in_batch`, and return the mean over a batch.
        """
        ignores_number = type(self._base_model) in _RETURN_MEANS
        returns_mean = self.label_smoother is None and ignores_number
        if num_items_in_batch is None or not returns_mean:
            return None
        return inputs["labels"].ne(-100).sum() / num_items_in_batch

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log, with the parts of a loss that has several, and the tokens of sources and targets in a second."""
        if "loss" in logs:
            # Each process divided its loss by the tokens of all processes, or by its own.
            loss_reduction = "sum" if self.args.average_tokens_across_devices else "mean"
            logs.update(self.meter.entry(self.state.global_step, self.accelerator, loss_reduction))
        if "train_samples_per_second" in logs:
            # The Trainer counts `per_device_train_batch_size` pairs for each batch.
            seconds = logs["train_runtime"]
            logs["train_samples_per_second"] = self.meter.pairs_per_second(seconds, self.accelerator)
        super().log(logs, *args, **kwargs)

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **gen_kwargs: Any,
    ) -> dict[str, float]:
        """Evaluate as the Trainer does, after evaluating on the general data unless another `eval_dataset` is given.

        Translations are those of the engine of [`hf_capsule_mt.decoding`], unless processes share the weights.

        Args:
            eval_dataset: the pairs to evaluate on. By default the trainer's.
            ignore_keys: outputs of the model that are not collected.
            metric_key_prefix: begins the names of the scores.
            **gen_kwargs: options of `generate()`.
        """
        if self.general_dataset is not None and eval_dataset is None:
            prefix = f"{metric_key_prefix}_general"
            scores = self.predict(self.general_dataset, ignore_keys, prefix, **gen_kwargs).metrics
            logged = (f"{prefix}_loss", f"{prefix}_bleu")
            self.log({name: scores[name] for name in logged if name in scores})

        options = self._decoding_options(gen_kwargs)
        metrics = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix, **options)
        if self.is_in_train and self.has_forgotten:
            # For the Trainer NaN is never better.
            metrics = {**metrics, f"{metric_key_prefix}_{self.args.metric_for_best_model}": float("nan")}
        return metrics

    def predict(
        self,
        test_dataset: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
        **gen_kwargs: Any,
    ) -> PredictionOutput:
        """Translate and score as the Trainer does, with the engine, as `evaluate` does.

        Args:
            test_dataset: the pairs.
            ignore_keys: outputs of the model that are not collected.
            metric_key_prefix: begins the names of the scores.
            **gen_kwargs: options of `generate()`.
        """
        return super().predict(test_dataset, ignore_keys, metric_key_prefix, **self._decoding_options(gen_kwargs))

    def _decoding_options(self, gen_kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return options of `generate()` with the engine, or those that let processes decode in step."""
        if self.is_fsdp_enabled or is_deepspeed_zero3_enabled():
            # All processes gather weights at every step, so none may stop before the others.
            return {"synced_gpus": True, **gen_kwargs}
        return {"custom_generate": decode, **gen_kwargs}

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """Evaluate as the Trainer does, but count every sentence once."""
        # Seq2SeqTrainer would score the pairs that fill up the last batch of several processes twice.
        self.gather_function = self.accelerator.gather_for_metrics
        settings = settings_left_alone(self.model) if self.args.predict_with_generate else nullcontext()
        try:
            with self._averages_in_model(), settings:
                return super().evaluation_loop(*args, **kwargs)
        finally:
            # Training will change the weights: drop the engine's copies.
            decoding.release(self.model)

    def prediction_step(
        self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> tuple[float | None, torch.Tensor | None, torch.Tensor | None]:
        """Evaluate a batch as [`Seq2SeqTrainer`] does."""
        # The collator gives sources without references labels that are None.
        inputs = {name: value for name, value in inputs.items() if value is not None}
        return super().prediction_step(model, inputs, *args, **kwargs)

    @property
    def comparable_log(self) -> list[dict[str, float]]:
        """The entries of the log whose scores compare with those of now."""
        return self.state.log_history[self.identity.scores_began :]

    def _general_scores(self) -> list[float]:
        return [entry["eval_general_bleu"] for entry in self.comparable_log if "eval_general_bleu" in entry]

    @property
    def has_forgotten(self) -> bool:
        """Whether the last evaluation on the general data was too much worse than the first one, before training."""
        scores = self._general_scores()
        return bool(scores) and scores[0] - scores[-1] > self.args.max_general_loss

    def save_model(self, output_dir: str | None = None, *args: Any, **kwargs: Any) -> None:
        """Save the model as the Trainer does, unless its weights are not finite."""
        folder = Path(output_dir or self.args.output_dir)
        is_checkpoint = step_of(folder) is not None

        if hasattr(self.optimizer, "eval"):
            # Schedule-free optimizers put the weights to use into the model.
            self.optimizer.eval()
        if is_checkpoint and self.args.should_save:
            # The state is saved last. With it a checkpoint is complete.
            (folder / TRAINER_STATE).unlink(missing_ok=True)

        with self._averages_in_model():
            self._check_finite()
            super().save_model(output_dir, *args, **kwargs)
        if self.args.should_save:
            # Models of Transformers and adapters leave them to their owner.
            allow_readers(folder.glob("*model*.safetensors"))

        if is_checkpoint and self.average is not None and self.args.should_save:
            self.average.save_training_weights(folder)
        if is_checkpoint and self._stream_state is not None:
            folder.mkdir(parents=True, exist_ok=True)
            replace_text(state_file(folder, self.args.process_index), self._stream_state)

    def save_without_push(self) -> None:
        """Save the model in the output folder, and leave the Hub alone."""
        pushes = self.args.push_to_hub
        self.args.push_to_hub = False
        try:
            self.save_model()
        finally:
            self.args.push_to_hub = pushes

    def _averages_in_model(self) -> Any:
        """Return a block in which the model has the averages of its weights, if it has any."""
        return nullcontext() if self.average is None else self.average.in_model()

    def _check_finite(self) -> None:
        """Raise an error on every process if a weight, or a part of one, is not finite on some process."""
        is_finite = all_finite(self.model, self.args.device)
        if self.args.world_size > 1:
            is_finite = self.accelerator.gather(is_finite.int()).all()
        if not is_finite:
            raise DivergenceError("a weight is not finite", self.state.global_step)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, torch.Tensor] | None = None) -> None:
        # The only method that gets what FSDP gathers: tied weights under each of their names.
        if state_dict is not None:
            tied = self.model.all_tied_weights_keys
            state_dict = {name: weight for name, weight in state_dict.items() if name not in tied}
        super()._save(output_dir, state_dict)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        # The Trainer would warn of tied weights, which are saved once, and of sinusoids, which are not saved. It has no
        # public method for that.
        unsaved = set(getattr(self.model, "all_tied_weights_keys", None) or ())
        unsaved.update(self.model._keys_to_ignore_on_save or ())
        if load_result.unexpected_keys or set(load_result.missing_keys) - unsaved:
            super()._issue_warnings_after_load(load_result)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write `README.md` into the output folder."""
        if self.recorder is None:
            super().create_model_card(*args, **kwargs)
        elif self.is_world_process_zero():
            self.recorder.model_card(self).save(Path(self.args.output_dir) / "README.md")
