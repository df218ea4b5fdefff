"""How a `TranslationTrainer` evaluates: with the decoder engine, and on general data too."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.trainer_utils import EvalLoopOutput, PredictionOutput

from hf_capsule_mt import decoding

from .resuming import RunIdentity
from .saving import SavingTrainer


class EvaluatingTrainer(SavingTrainer):
    """The part of a `TranslationTrainer` that evaluates."""

    general_dataset: Any
    """Pairs of another kind, on which the model should not become worse. None if there are none."""
    identity: RunIdentity

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
        return {"custom_generate": _decode, **gen_kwargs}

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
        try:
            with self._averages_in_model(), self._settings_left_alone():
                return super().evaluation_loop(*args, **kwargs)
        finally:
            # Training will change the weights: drop the engine's copies.
            decoding.release(self.model)

    @contextmanager
    def _settings_left_alone(self) -> Iterator[None]:
        """Let the Trainer fill in a copy of the generation settings. Checkpoints would have every default."""
        if not self.args.predict_with_generate:
            yield
            return
        settings = self.model.generation_config
        self.model.generation_config = copy.deepcopy(settings)
        try:
            yield
        finally:
            self.model.generation_config = settings

    def prediction_step(
        self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> tuple[float | None, torch.Tensor | None, torch.Tensor | None]:
        """Evaluate a batch as [`Seq2SeqTrainer`] does."""
        # The collator gives sources without references labels that are None.
        inputs = {name: value for name, value in inputs.items() if value is not None}
        return super().prediction_step(model, inputs, *args, **kwargs)


def _decode(model: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
    """Decode with the engine, not by the forward that accelerate puts in for autocast."""
    attributes = vars(model)
    # accelerate has no public way to leave it for a while, only one to remove it for good.
    is_wrapped = "forward" in attributes and "_original_forward" in attributes
    if not is_wrapped:
        return decoding.generate(model, *args, **kwargs)
    autocasting_forward = attributes.pop("forward")
    try:
        return decoding.generate(model, *args, **kwargs)
    finally:
        model.forward = autocasting_forward
