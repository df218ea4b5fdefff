"""A training run as its record and its model card tell of it."""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard
from transformers import Trainer

from hf_capsule_mt.checkpoints import count_parameters
from hf_capsule_mt.data.parallel_text import ParallelText
from hf_capsule_mt.data.tokenized import TokenizedPairs
from hf_capsule_mt.evaluation.scores import score_translations
from hf_capsule_mt.hub.model_card import VALIDATION, CardDetails, make_model_card

from .arguments import DataArguments, ModelArguments
from .record import text_hash


@dataclass(frozen=True)
class Run:
    """What is known of a run from its start; the rest is its Trainer's."""

    model_args: ModelArguments
    data_args: DataArguments
    text: ParallelText
    """What was read to train on."""
    pairs: TokenizedPairs
    """What is trained on."""
    arguments: Sequence[str]
    """Of the command line."""
    started: float
    """Seconds since the epoch."""
    environment: Mapping[str, Any]
    """As [`~hf_capsule_mt.training.record.environment`] returned it at the start."""

    def record(self, trainer: Trainer, metrics: Mapping[str, float]) -> dict[str, Any]:
        """The record, with what `trainer` has done up to now and the `metrics` that came out."""
        return {
            "command": self._command(trainer),
            "model": asdict(self.model_args),
            "base_model": self._base_model(),
            "data": asdict(self.data_args),
            "training": trainer.args.to_sanitized_dict(),
            "config": trainer.model.config.to_diff_dict(),
            "parameters": count_parameters(trainer.model),
            "data_sha256": self._data_sha256,
            "data_report": asdict(self.text.report),
            "pairs": {"trained_on": len(self.pairs), "too_long": self.pairs.too_long},
            "mixed_precision": trainer.accelerator.mixed_precision,
            "processes": trainer.args.world_size,
            "updates": trainer.state.global_step,
            "best_checkpoint": trainer.state.best_model_checkpoint,
            "best_metric": trainer.state.best_metric,
            "metrics": dict(metrics),
            "bleu_signature": _bleu_signature() if "eval_bleu" in metrics else None,
            "seconds_of_this_call": round(time.time() - self.started, 1),
            "environment": dict(self.environment),
        }

    def model_card(self, trainer: Trainer) -> ModelCard:
        """The card of the model as it is now, with its validation BLEU if these weights were evaluated."""
        evaluated = [entry for entry in trainer.state.log_history if "eval_bleu" in entry]
        evaluations = []
        if evaluated and evaluated[-1]["step"] == trainer.state.global_step:
            scores = {"bleu": {"score": evaluated[-1]["eval_bleu"], "signature": _bleu_signature()}}
            evaluations = [{"scores": scores, "references": [{"file": VALIDATION}]}]
        repository = getattr(trainer, "hub_model_id", None)
        details = CardDetails() if repository is None else CardDetails(repo_id=repository)
        return make_model_card(self.record(trainer, {}), evaluations, details=details)

    @cached_property
    def _data_sha256(self) -> dict[str, str]:
        """Of both sides of the text: computed once, for a run that pushes records itself at every checkpoint."""
        return {"source": text_hash(self.text.sources), "target": text_hash(self.text.targets)}

    def _command(self, trainer: Trainer) -> str:
        launch = ["--num_processes", trainer.args.world_size, "--mixed_precision", trainer.accelerator.mixed_precision]
        return shlex.join(map(str, ["accelerate", "launch", *launch, "-m", "hf_capsule_mt.cli.train", *self.arguments]))

    def _base_model(self) -> dict[str, str] | None:
        """The model of the Hub that training started from."""
        name = self.model_args.model_name_or_path
        if name is None or Path(name).is_dir():
            return None
        return {"name": name, "revision": self.model_args.model_revision}


def _bleu_signature() -> str:
    # It names the settings and the version, not the text.
    return score_translations(["-"], [["-"]], metrics=("bleu",))["bleu"]["signature"]
