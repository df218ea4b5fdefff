"""The record and the model card of a training run."""

import math
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard
from transformers import Trainer

from hf_capsule_mt.evaluation.scores import score_translations
from hf_capsule_mt.hub.card_details import CardDetails
from hf_capsule_mt.hub.model_card import VALIDATION, make_model_card
from hf_capsule_mt.hub.source import own_aggregations
from hf_capsule_mt.loading import count_parameters

from .options import DataArguments, ModelArguments
from .training_data import DataFacts

_SCORES = ("loss", "bleu", "general_loss", "general_bleu")


def evaluations_of(log_history: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """Return the BLEU and the loss of each evaluation, also on general data, by the number of updates before it."""
    by_update: dict[int, dict[str, float]] = {}
    for entry in log_history:
        scores = {name: entry[f"eval_{name}"] for name in _SCORES if f"eval_{name}" in entry}
        if scores:
            # The scores on general data have an entry of their own.
            evaluation = by_update.setdefault(entry["step"], {"updates": entry["step"]})
            evaluation.update(scores)
    return list(by_update.values())


@dataclass(frozen=True)
class RunRecorder:
    """The facts of a run that are known at its start, from which, with its Trainer, record and card are made."""

    model_args: ModelArguments
    data_args: DataArguments
    facts: DataFacts
    """Numbers and hashes of the data."""
    arguments: Sequence[str]
    """Words of the command line."""
    started: float
    """Seconds since the epoch."""
    environment: Mapping[str, Any]
    """The environment at the start."""

    def record(
        self, trainer: Trainer, metrics: Mapping[str, float], evaluations: Sequence[Mapping[str, float]] = ()
    ) -> dict[str, Any]:
        """Return the record, with what `trainer` has done up to now, the `metrics` and the `evaluations` on the way."""
        state = trainer.state
        base = self.model_args.model
        is_of_hub = base is not None and not Path(base).is_dir()
        training = trainer.args.to_dict()
        # A share of the run, or nothing where its length decides, is no number of updates.
        training["warmup_steps"] = trainer.args.get_warmup_steps(state.max_steps)

        best_metric = state.best_metric
        if best_metric is not None and math.isinf(best_metric):
            # The Trainer has minus infinity if every evaluation was not a number.
            best_metric = None

        return {
            "kind": "run",
            "version": 2,
            "command": self._command(trainer),
            "model": asdict(self.model_args),
            "base_model": {"name": base, "revision": self.model_args.revision} if is_of_hub else None,
            "data": asdict(self.data_args),
            "training": training,
            "config": trainer.model.config.to_diff_dict(),
            "own_aggregations": own_aggregations(trainer.model.config),
            "parameters": count_parameters(trainer.model),
            "data_sha256": self.facts.sha256,
            "data_report": self.facts.report and asdict(self.facts.report),
            "pairs": self.facts.pairs,
            "validation_pairs": self.facts.validation,
            "tokenizer_hash": trainer.identity.fixed.get("tokenizer"),
            "mixed_precision": trainer.accelerator.mixed_precision,
            "processes": trainer.args.world_size,
            "updates": state.global_step,
            "best_checkpoint": state.best_model_checkpoint,
            "best_metric": best_metric,
            "evaluations": list(evaluations),
            "metrics": dict(metrics),
            "bleu_signature": _bleu_signature(trainer.args.bleu_tokenize) if "eval_bleu" in metrics else None,
            "seconds_of_this_call": round(time.time() - self.started, 1),
            "environment": self.environment,
        }

    def model_card(self, trainer: Trainer) -> ModelCard:
        """Return the card of the model as it is now, with its validation BLEU if these weights were evaluated."""
        evaluated = [entry for entry in trainer.state.log_history if "eval_bleu" in entry]
        evaluations = []
        if evaluated and evaluated[-1]["step"] == trainer.state.global_step:
            signature = _bleu_signature(trainer.args.bleu_tokenize)
            scores = {"bleu": {"score": evaluated[-1]["eval_bleu"], "signature": signature}}
            evaluations = [{"scores": scores, "references": [{"file": VALIDATION}]}]
        repository = getattr(trainer, "hub_model_id", None)
        details = CardDetails() if repository is None else CardDetails(repo_id=repository)
        return make_model_card(self.record(trainer, {}), evaluations, details)

    def _command(self, trainer: Trainer) -> str:
        """Return the command line that starts this run, also if this process continues it."""
        processes = trainer.args.world_size
        if processes > 1 and trainer.args.device.type == "cpu":
            # accelerate would start one. The precision is then said by the command's own --bf16, or not at all.
            launcher = ["torchrun", "--nproc_per_node", str(processes)]
        else:
            precision = trainer.accelerator.mixed_precision
            launcher = ["accelerate", "launch", "--num_processes", str(processes), "--mixed_precision", precision]
        options = _starting(self.arguments)
        return shlex.join([*launcher, "-m", "hf_capsule_mt", "train", *options])


def _starting(arguments: Sequence[str]) -> list[str]:
    """Return the words of a command without a token of the Hub and the checkpoint to continue from."""
    kept = []
    words = iter(arguments)
    for word in words:
        option, equals_sign, _ = word.partition("=")
        if not option.replace("-", "_").endswith(("hub_token", "__resume_from_checkpoint")):
            kept.append(word)
        elif not equals_sign:
            # The value is the next word.
            next(words, None)
    return kept


def _bleu_signature(tokenize: str) -> str:
    # A signature names settings and version, and does not depend on the text.
    return score_translations(["-"], [["-"]], metrics=("bleu",), tokenize=tokenize)["bleu"]["signature"]
