"""What the options of `evaluate` for trained metrics do."""

import argparse
from collections.abc import Iterable, Sequence

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.metric_models import DEFAULT_MODELS, NEED_NO_REFERENCES
from hf_capsule_mt.evaluation.trained_metrics import TrainedScores, model_of, score_with

from . import decoding


def trained(metrics: Iterable[str]) -> list[str]:
    """Return the trained ones among metrics."""
    return [metric for metric in metrics if metric in DEFAULT_MODELS]


def untrained(metrics: Sequence[str]) -> list[str]:
    """Return the metrics of sacreBLEU among metrics."""
    return [metric for metric in metrics if metric not in DEFAULT_MODELS]


def check_trained_metrics(args: argparse.Namespace) -> None:
    """Find mistakes before any work is done."""
    for metric in trained(args.metrics):
        if args.compare is not None:
            raise UserError(f"--compare has no test for {metric}. Use bleu, chrf or ter, or score each file alone.")
        if args.input_file is None:
            raise UserError(f"{metric} reads the sources too. Give --input_file.")
        model_of(metric, getattr(args, f"{metric}_model"))
        if len(args.references) > 1:
            raise UserError(f"{metric} compares with one reference, and --references names {len(args.references)}.")


def need_no_references(metrics: Sequence[str]) -> bool:
    """Return whether all metrics can do without references."""
    return all(metric in NEED_NO_REFERENCES for metric in metrics)


def score_trained(
    args: argparse.Namespace,
    metric: str,
    sources: Sequence[str],
    translations: Sequence[str],
    references: Sequence[str] | None,
) -> TrainedScores:
    """Score translations with a trained metric, as the options say.

    Args:
        args: with the models, and the device.
        metric: a name in [`DEFAULT_MODELS`].
        sources: the source of each translation.
        translations: the translations.
        references: a reference for each, or None.
    """
    state = decoding.process_state(args.device)
    return score_with(
        metric,
        sources,
        translations,
        references,
        model=getattr(args, f"{metric}_model"),
        tokenizer=args.metricx_tokenizer if metric == "metricx" else None,
        device=args.device or state.device,
        progress=True,
    )
