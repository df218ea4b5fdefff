"""A `Seq2SeqTrainer` with token-budget batches."""

import copy
import time
from collections import Counter
from collections.abc import Callable, Sized
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import DataLoader
from transformers import (
    DataCollatorForSeq2Seq,
    EvalPrediction,
    MarianMTModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
)
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.models.marian.modeling_marian import (
    MarianDecoderLayer,
    MarianEncoderLayer,
    MarianSinusoidalPositionalEmbedding,
)
from transformers.trainer_utils import EvalLoopOutput, TrainOutput
from transformers.utils import logging

from hf_capsule_mt import decoding
from hf_capsule_mt.data.streaming import TokenBudgetStream, state_file
from hf_capsule_mt.data.tokenizer import check_padding_side, check_special_ids
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.scores import make_metrics, score_translations
from hf_capsule_mt.files import locked, replace_text
from hf_capsule_mt.modeling.warm_start import added_weights

from .arguments import TranslationTrainingArguments
from .averaging import WeightAverage
from .callbacks import DivergenceError, RunEvents, SourceCallback
from .resuming import (
    TRAINER_STATE,
    RunIdentity,
    check_optimizer,
    check_same_everywhere,
    check_same_run,
    claim_folder,
    find_checkpoint,
    identity_in,
    read_trainer_state,
    step_of,
    what_is_fixed,
)
from .run_recorder import RunRecorder
from .training_data import stream_batches, token_budget_loader

logger = logging.get_logger(__name__)

LOSS_TERMS = ("lm_loss", "bow_loss", "bca_loss", "rdrop_loss")
# What a resumed run takes from its own options, and not from the optimizer's saved state.
_OPTIONS = ("initial_lr", "betas", "eps", "weight_decay", "momentum")
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


class TranslationTrainer(Seq2SeqTrainer):
    """[`Seq2SeqTrainer`] that fills batches to `args.max_tokens_per_batch`, and writes our model cards.

    It logs the parts of a loss that has several. With the tokenizer as `processing_class` it pads pairs of token ids,
    labels too, and with `args.predict_with_generate` its evaluation scores BLEU, unless a `data_collator` or a
    `compute_metrics` is given:

        data = load_data(data_args, args, tokenizer, model.config)
        TranslationTrainer(
            model, args, processing_class=tokenizer, train_dataset=data.train, eval_dataset=data.validation
        ).train()

    Its training data is any `datasets.Dataset` with columns `input_ids` and `labels`, a list of such rows, or what
    `load_data` makes of a corpus. Every evaluation scores `general_dataset` too, and a checkpoint that loses more than
    `args.max_general_loss` BLEU on it since the start is never the best one. `recorder` writes the model card. Without
    one it is the Trainer's own.
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
        # The trainer changes some of them, and the caller may begin another run with the same arguments.
        args = TranslationTrainingArguments() if args is None else copy.copy(args)
        if not isinstance(args, TranslationTrainingArguments):
            raise UserError(
                f"TranslationTrainer needs TranslationTrainingArguments, and args is a {type(args).__name__}. Its "
                "arguments have the same names there."
            )
        tokenizer = processing_class
        if isinstance(tokenizer, PreTrainedTokenizerBase):
            check_special_ids(tokenizer, getattr(model, "config", None))
        if tokenizer is not None and data_collator is None:
            check_padding_side(tokenizer)
            data_collator = DataCollatorForSeq2Seq(tokenizer, model=model)
        if kwargs.get("compute_metrics") is not None and args.metric_for_best_model == "bleu" and not args.needs_best:
            # The caller's metrics need not have BLEU.
            args.metric_for_best_model = None
        elif tokenizer is not None and kwargs.get("compute_metrics") is None and args.predict_with_generate:
            kwargs["compute_metrics"] = bleu_metric(tokenizer, args.bleu_tokenize)
        self.args, self._label_smoothing = args, args.label_smoothing_factor
        # accelerate would compile the whole model.
        self._backend, args.torch_compile_backend = args.torch_compile_backend, None
        if model is not None:
            self._prepare_model(model)
        super().__init__(model, args, data_collator, train_dataset, eval_dataset, processing_class, **kwargs)
        args.torch_compile_backend = self._backend
        self._set_signature_columns_if_needed()
        if self.args.rdrop_alpha and "rdrop_alpha" not in self._signature_columns:
            raise UserError(f"{type(self.model).__name__} has no R-Drop. Leave out rdrop_alpha.")
        if self.args.n_gpu > 1:
            raise UserError("This process has several GPUs. Start one process for each with accelerate launch.")
        if self.args.ema_decay and (self.is_fsdp_enabled or self.is_deepspeed_enabled):
            raise UserError("ema_decay needs all weights in each process. Average checkpoints instead.")
        # Processes would wait for gradients that never come. The Trainer has read the argument already.
        if _has_unread_weights(self.model):
            self.args.ddp_find_unused_parameters = True
            self.accelerator.ddp_handler.find_unused_parameters = True
        base = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        self._ignores_num_items = type(base) is MarianMTModel
        self.recorder, self.general_dataset = recorder, general_dataset
        self.identity = RunIdentity()
        self.resumed_from: str | None = None
        self.resumed_at, self._begins_data = 0, False
        self._stream_state: str | None = None
        self._terms: Counter[str] = Counter()
        self._terms_since = 0
        self.restart_clock()
        self._average = WeightAverage(self.args.ema_decay) if self.args.ema_decay else None
        # They come first, because they change the state, the weights that are saved, and what the loggers see.
        self.callback_handler.callbacks[:0] = [RunEvents(self), *filter(None, [self._average])]
        for callback in (self.identity, SourceCallback()):
            self.add_callback(callback)

    def call_model_init(self, trial: Any = None) -> nn.Module:
        """Return a new model of `model_init`."""
        model = super().call_model_init(trial)
        self._prepare_model(model)
        return model

    def _prepare_model(self, model: nn.Module) -> None:
        """Give a model its label smoothing, compile it if asked for, and freeze its positions."""
        if self._label_smoothing and hasattr(getattr(model, "config", None), "label_smoothing"):
            # With its own label smoothing the Trainer would drop the other parts of the model's loss.
            model.config.label_smoothing, self.args.label_smoothing_factor = self._label_smoothing, 0.0
        if self.args.torch_compile:
            _compile_layers(model, backend=self._backend, mode=self.args.torch_compile_mode)
        _freeze_positions(model)

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> TrainOutput:
        """Train as the Trainer does. The output folder is locked, and a resumed run has the data of its beginning.

        Raises:
            BlockingIOError: if another process works in that folder.
            DivergenceError: if the loss, the gradient or a weight is not finite.
            UserError: if the checkpoint lacks a part of its state or is of another run, or the folder holds one.
        """
        args, own = self.args, (self.args.ignore_data_skip, self.args.eval_on_start)
        with locked(Path(args.output_dir)) if self.is_world_process_zero() else nullcontext():
            checkpoint = args.resume_from_checkpoint = find_checkpoint(resume_from_checkpoint, args.output_dir)
            self._resume(checkpoint)
            check_same_everywhere(self.identity, checkpoint)
            if self.is_world_process_zero() and not self.state.global_step:
                claim_folder(args, checkpoint, getattr(self.model, "name_or_path", None))
            try:
                # A stream finds its place by itself.
                args.ignore_data_skip |= isinstance(self.train_dataset, TokenBudgetStream)
                # Later scores on the general data are compared with the first one.
                args.eval_on_start |= self.general_dataset is not None and not self._general_scores()
                return super().train(checkpoint, **kwargs)
            except RuntimeError as error:
                if "inline_container" not in str(error):
                    raise
                # PyTorch only says that a position is unexpected.
                raise OSError(f"{args.output_dir} cannot be written. Its disk is full.") from error
            finally:
                args.ignore_data_skip, args.eval_on_start = own

    def _resume(self, checkpoint: str | None) -> None:
        """Continue with the run of a checkpoint, after a check that it is this one, or begin one."""
        state = {} if checkpoint is None else read_trainer_state(checkpoint)
        there, here, skip = identity_in(state), self.identity, self.args.ignore_data_skip
        self.resumed_from, self.resumed_at = checkpoint, state.get("global_step", 0)
        self._terms, self._terms_since = Counter(), self.resumed_at
        self._begins_data = skip and checkpoint is not None
        here.fixed = what_is_fixed(self)
        if checkpoint is not None:
            check_same_run(checkpoint, here.fixed, there.get("fixed") or {}, skip)
            if self.args.should_log:
                logger.warning(f"Resuming from {checkpoint}.")
        if self._begins_data and isinstance(self.train_dataset, Sized):
            here.fixed["data_began"] = self.resumed_at
        here.run = there.get("run", here.run)
        here.scores_began = there.get("scores_began", 0)
        self.state.log_history = state.get("log_history", [])
        if (there.get("fixed") or {}).get("scores", here.fixed["scores"]) != here.fixed["scores"]:
            here.scores_began = len(self.state.log_history)
            if self.args.should_log and self.args.needs_best:
                logger.warning("Scores are not those of before. The best checkpoint is chosen from now on.")
        here.dealt_to = self.args.world_size if skip else there.get("dealt_to") or self.args.world_size
        if self._average is not None:
            self._average.checkpoint = checkpoint

    def set_initial_training_values(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the Trainer's plan of a run."""
        epochs, *others = super().set_initial_training_values(*args, **kwargs)
        done, last = self.resumed_at, others[-1]
        if done > last:
            raise UserError(f"{self.resumed_from} is of update {done}, and the run ends at update {last}.")
        # The Trainer would make one more update at the end of a run.
        return (0 if done == last else epochs, *others)

    def restart_clock(self) -> None:
        """Start to measure the speed that is logged. Evaluation and saving do not count."""
        self._tokens, self._since = 0, time.monotonic()

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log, with the parts of a loss that has several, and the tokens of sources and targets in a second."""
        updates = self.state.global_step - self._terms_since
        if "loss" in logs and updates:
            if len(self._terms) > 1:
                # Each process divided its loss by the tokens of all processes, or by its own.
                reduction = "sum" if self.args.average_tokens_across_devices else "mean"
                for name, total in self._terms.items():
                    logs[name] = self.accelerator.reduce(total, reduction).item() / updates
            seconds = time.monotonic() - self._since
            logs["tokens_per_second"] = round(int(self._tokens) * self.args.world_size / seconds)
            self._terms, self._terms_since = Counter(), self.state.global_step
            self.restart_clock()
        super().log(logs, *args, **kwargs)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return the loss of a batch, after its gradient is added."""
        self._stream_state = inputs.pop("stream_state", None)
        read = inputs["attention_mask"].sum() if "attention_mask" in inputs else inputs["input_ids"].numel()
        self._tokens = self._tokens + read + inputs["labels"].ne(-100).sum()
        return super().training_step(model, inputs, *args, **kwargs)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """Return the loss of a batch. With R-Drop, training has two passes over it."""
        if self.args.rdrop_alpha and model.training:
            inputs = {name: torch.cat([value, value]) for name, value in inputs.items()}
            inputs["rdrop_alpha"] = self.args.rdrop_alpha
            num_items_in_batch = None if num_items_in_batch is None else 2 * num_items_in_batch
        weight = None
        if num_items_in_batch is not None and self._ignores_num_items and self.label_smoother is None:
            # Transformers' Marian always returns the mean over a batch.
            weight = inputs["labels"].ne(-100).sum() / num_items_in_batch
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        loss = loss if weight is None else loss * weight
        if model.training and isinstance(outputs, dict):
            self._terms.update({name: outputs[name].detach() for name in LOSS_TERMS if name in outputs})
        return (loss, outputs) if return_outputs else loss

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model as the Trainer does, unless its weights are not finite."""
        folder = Path(output_dir or self.args.output_dir)
        is_checkpoint = step_of(folder) is not None
        if hasattr(self.optimizer, "eval"):
            self.optimizer.eval()
        if is_checkpoint and self.args.should_save:
            # The state is saved last. With it a checkpoint is complete.
            (folder / TRAINER_STATE).unlink(missing_ok=True)
        with self._average.in_model() if self._average else nullcontext():
            self._check_finite()
            super().save_model(output_dir, _internal_call)
        if is_checkpoint and self._average is not None and self.args.should_save:
            self._average.save_training_weights(folder)
        if is_checkpoint and self._stream_state is not None:
            folder.mkdir(parents=True, exist_ok=True)
            replace_text(state_file(folder, self.args.process_index), self._stream_state)

    def _check_finite(self) -> None:
        """Raise an error on every process if a weight, or a part of one, is not finite on some process."""
        is_finite = all_finite(self.model, self.args.device)
        if self.args.world_size > 1:
            is_finite = self.accelerator.gather(is_finite.int()).all()
        if not is_finite:
            raise DivergenceError("a weight is not finite", self.state.global_step)

    def get_train_dataloader(self) -> DataLoader:
        """Return the training batches of this process."""
        if isinstance(self.train_dataset, TokenBudgetStream):
            return stream_batches(self, self.resumed_from, self._begins_data)
        if self.args.max_tokens_per_batch == 0:
            return super().get_train_dataloader()
        pairs = self.train_dataset
        if isinstance(getattr(pairs, "column_names", None), list):
            pairs = self._remove_unused_columns(pairs, description="training")
        collate = self._get_collator_with_removed_columns(self.data_collator, description="training")
        loader = token_budget_loader(pairs, collate, self.args, self.identity.dealt_to or self.args.world_size)
        # The sampler gives each process as many batches. accelerate evens out the batches of evaluation only, because
        # every process must have a last batch to gather from.
        even_batches, self.accelerator.even_batches = self.accelerator.even_batches, False
        try:
            return self.accelerator.prepare(loader)
        finally:
            self.accelerator.even_batches = even_batches

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> tuple[nn.Module, DataLoader]:
        # The only method around the call that spreads weights over processes with FSDP2. It must not see embeddings:
        # accelerate puts those of source and head in a group of their own, but they can be one weight.
        names = ("get_input_embeddings", "get_output_embeddings")
        # With FSDP the Trainer replaces `self.model` by its wrapper during the call.
        model = self.model
        for name in names:
            setattr(model, name, lambda: None)
        try:
            return super()._prepare_for_training(*args, **kwargs)
        finally:
            for name in names:
                delattr(model, name)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        # The Trainer would warn of tied weights, which are saved once, and of sinusoids, which are not saved.
        unsaved = {
            *(getattr(self.model, "all_tied_weights_keys", None) or ()),
            *(self.model._keys_to_ignore_on_save or ()),
        }
        if load_result.unexpected_keys or set(load_result.missing_keys) - unsaved:
            super()._issue_warnings_after_load(load_result)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, torch.Tensor] | None = None) -> None:
        # The only method that gets what FSDP gathers: tied weights under each of their names.
        if state_dict is not None:
            tied = self.model.all_tied_weights_keys
            state_dict = {name: weight for name, weight in state_dict.items() if name not in tied}
        super()._save(output_dir, state_dict)

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **gen_kwargs: Any,
    ) -> dict[str, float]:
        """Evaluate as the Trainer does, after evaluating on the general data unless another `eval_dataset` is given."""
        if self.general_dataset is not None and eval_dataset is None:
            prefix = f"{metric_key_prefix}_general"
            found = self.predict(self.general_dataset, ignore_keys, prefix, **gen_kwargs).metrics
            self.log({name: found[name] for name in (f"{prefix}_loss", f"{prefix}_bleu") if name in found})
        metrics = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix, **gen_kwargs)
        if self.is_in_train and self.has_forgotten:
            # For the Trainer NaN is never better.
            metrics = {**metrics, f"{metric_key_prefix}_{self.args.metric_for_best_model}": float("nan")}
        return metrics

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

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """Evaluate as the Trainer does, but count every sentence once."""
        # Seq2SeqTrainer would score the pairs that fill up the last batch of several processes twice.
        self.gather_function = self.accelerator.gather_for_metrics
        if (self.is_fsdp_enabled or is_deepspeed_zero3_enabled()) and hasattr(self, "_gen_kwargs"):
            # All processes gather weights at every step, so none may stop before the others.
            self._gen_kwargs["synced_gpus"] = True
        try:
            with self._average.in_model() if self._average else nullcontext():
                return super().evaluation_loop(*args, **kwargs)
        finally:
            # Training will change the weights: drop the engine's copies.
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
        # The collator gives sources without references labels that are None.
        inputs = {name: value for name, value in inputs.items() if value is not None}
        return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys, **options)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write `README.md` into the output folder."""
        if self.recorder is None:
            super().create_model_card(*args, **kwargs)
        elif self.is_world_process_zero():
            self.recorder.model_card(self).save(Path(self.args.output_dir) / "README.md")

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """Return the optimizer, with `added_learning_rate` for the weights that a method adds to a plain model."""
        is_made = self.optimizer is not None
        optimizer = super().create_optimizer(*args, **kwargs)
        rate = self.args.added_learning_rate
        if rate is None or is_made:
            return optimizer
        names = added_weights(self.model)
        added = {id(weight) for name, weight in self.model.named_parameters() if name in names}
        if not any(id(weight) in added for group in optimizer.param_groups for weight in group["params"]):
            raise UserError("added_learning_rate is given, but the optimizer has no added weights. Leave it out.")
        groups = []
        for group in optimizer.param_groups:
            for is_added, lr in ((False, group["lr"]), (True, rate)):
                weights = [weight for weight in group["params"] if (id(weight) in added) == is_added]
                groups += [{**group, "params": weights, "lr": lr}] if weights else []
        optimizer.param_groups[:] = groups
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
        # A resumed run follows these, and not those of its checkpoint.
        groups = (optimizer or self.optimizer).param_groups
        self._options = [{name: group[name] for name in _OPTIONS if name in group} for group in groups]
        return schedule

    def follow_options(self) -> None:
        """Let a resumed run have the learning rates and other numbers of its options, not those of its checkpoint."""
        # DeepSpeed makes the optimizer itself.
        if self.resumed_from is None or self.is_deepspeed_enabled:
            return
        check_optimizer(self)
        schedule, groups = self.lr_scheduler, self.optimizer.param_groups
        for group, own in zip(groups, self._options):
            group.update(own)
        if type(schedule) is LambdaLR:
            schedule.base_lrs = [group["initial_lr"] for group in groups]
            for group, factor in zip(groups, schedule.lr_lambdas):
                group["lr"] = group["initial_lr"] * factor(schedule.last_epoch)
            # This is what the Trainer logs.
            schedule._last_lr = [group["lr"] for group in groups]


def bleu_metric(
    tokenizer: PreTrainedTokenizerBase, bleu_tokenize: str = "13a"
) -> Callable[[EvalPrediction], dict[str, float]]:
    """Return a `compute_metrics`: {"bleu": ...} of the decoded text, cut into words by sacreBLEU's `bleu_tokenize`.

    Unknown words of a reference stay in it, as words that no translation has.
    """
    make_metrics(["bleu"], bleu_tokenize)
    # A tokenizer may use another special token for unknown words, or none.
    others = [token for name, token in tokenizer.special_tokens_map.items() if name != "unk_token"]
    unknown = [] if tokenizer.unk_token in (None, *others) else [tokenizer.unk_token_id]
    special = set(tokenizer.all_special_ids) - set(unknown)

    def decode(ids: np.ndarray) -> list[str]:
        return tokenizer.batch_decode(np.where(ids == -100, tokenizer.pad_token_id, ids), skip_special_tokens=True)

    def references(ids: np.ndarray) -> list[str]:
        texts = decode(ids)
        for number in np.flatnonzero(np.isin(ids, unknown).any(axis=1)):
            words = [word for word in ids[number].tolist() if word >= 0 and word not in special]
            texts[number] = tokenizer.decode(words).replace(tokenizer.unk_token, _UNKNOWN)
        return texts

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        streams = [references(prediction.label_ids)]
        scores = score_translations(decode(prediction.predictions), streams, metrics=("bleu",), tokenize=bleu_tokenize)
        return {"bleu": scores["bleu"]["score"]}

    return compute


@torch.no_grad()
def all_finite(model: nn.Module, device: torch.device) -> torch.Tensor:
    """Return, as a tensor on `device`, whether all weights of a model are finite, or the parts that this process has.

    The weights may be on several devices.
    """
    flags = []
    for weight in model.parameters():
        part = weight.to_local() if hasattr(weight, "to_local") else weight
        flags.append(part.isfinite().all().to(device))
    return torch.stack(flags).all()


def _freeze_positions(model: nn.Module) -> None:
    """Freeze sinusoidal positions, which Transformers trains once they are loaded, and does not save.

    Stored positions that are no sinusoids are saved with the model.
    """
    for module in model.modules():
        if isinstance(module, MarianSinusoidalPositionalEmbedding):
            module.weight.requires_grad_(False)
            if type(model) is MarianMTModel and not torch.allclose(
                module.weight, module.create_weight().to(module.weight), atol=1e-3
            ):
                model._keys_to_ignore_on_save = None


def _compile_layers(model: nn.Module, **options: Any) -> None:
    """Compile each layer of a Transformer by itself, once for batches of every shape.

    That takes seconds. What is between the layers keeps its own kernels: routing of layers, and the loss.
    """
    layers = [module for module in model.modules() if isinstance(module, MarianEncoderLayer | MarianDecoderLayer)]
    if not layers:
        raise UserError("A recurrent network would be compiled again for every length. Leave out torch_compile.")
    for layer in layers:
        layer.compile(dynamic=True, **options)


def _has_unread_weights(model: nn.Module) -> bool:
    """Return whether some weights get no gradient.

    These are scores for another iteration of guided routing where there is only one, an embedding of Marian that
    nothing reads where none is tied, and layers that LayerDrop leaves out.
    """
    config = getattr(model, "config", None)
    if any(getattr(config, f"{stack}_layerdrop", 0) > 0 for stack in ("encoder", "decoder")):
        return True
    unread = getattr(config, "share_encoder_decoder_embeddings", False) and not config.tie_word_embeddings
    return unread or (getattr(config, "guided_routing", None) == "gdr" and config.guided_routing_iterations == 1)


def _decode(model: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
    """Decode with the engine, not by the forward that accelerate puts in for autocast."""
    parts = vars(model)
    autocasting = parts.pop("forward") if {"forward", "_original_forward"} <= parts.keys() else None
    try:
        return decoding.generate(model, *args, **kwargs)
    finally:
        if autocasting is not None:
            model.forward = autocasting
