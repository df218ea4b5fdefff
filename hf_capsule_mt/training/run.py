"""A training run as its record and its model card tell of it."""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from huggingface_hub import ModelCard
from transformers import Trainer

from hf_capsule_mt.data.parallel_text import ParallelText
from hf_capsule_mt.evaluation.scores import score_translations
from hf_capsule_mt.hub.model_card import CardDetails, make_model_card

from .arguments import DataArguments, ModelArguments
from .record import text_hash


@dataclass(frozen=True)
class Run:
    """What is known of a run from its start; the rest is its Trainer's."""

    model_args: ModelArguments
    data_args: DataArguments
    text: ParallelText
    """What it trains on."""
    arguments: Sequence[str]
    """Of the command line."""
    started: float
    """Seconds since the epoch."""
    environment: Mapping[str, Any]
    """As [`~hf_capsule_mt.training.record.environment`] returned it at the start."""

    def record(self, trainer: Trainer, metrics: Mapping[str, float]) -> dict[str, Any]:
        """The record, with what `trainer` has done up to now and the `metrics` that came out."""
        return {
            "command": shlex.join(["accelerate", "launch", "scripts/train.py", *self.arguments]),
            "model": asdict(self.model_args),
            "data": asdict(self.data_args),
            "training": trainer.args.to_sanitized_dict(),
            "config": trainer.model.config.to_diff_dict(),
            "parameters": trainer.model.num_parameters(),
            "data_sha256": {"source": text_hash(self.text.sources), "target": text_hash(self.text.targets)},
            "data_report": asdict(self.text.report),
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
        """The card of the model as it is now, with the newest of all metrics logged so far."""
        metrics = {name: value for entry in trainer.state.log_history for name, value in entry.items()}
        repository = getattr(trainer, "hub_model_id", None)
        details = CardDetails() if repository is None else CardDetails(repo_id=repository)
        return make_model_card(self.record(trainer, metrics), details=details)


def _bleu_signature() -> str:
    # It names the settings and the version, not the text.
    return score_translations(["-"], [["-"]], metrics=("bleu",))["bleu"]["signature"]
