"""What the options of `evaluate` and `calibrate` for trained metrics and bad translations do."""

import argparse
import json
from collections.abc import Iterable, Sequence

from hf_capsule_mt.data.lines import each_line, read_lines
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.calibration_fit import sentence_chrf
from hf_capsule_mt.evaluation.metric_models import DEFAULT_MODELS, NEED_NO_REFERENCES, SENTENCE_METRICS
from hf_capsule_mt.evaluation.report_fields import fields_report, measure_fields
from hf_capsule_mt.evaluation.trained_metrics import TrainedScores, model_of, score_with

from . import decoding

_BAD_CHRF = 40.0
_NOT_WITH_QUALITY = ("hypotheses", "compare", "input_file", "model", "output_file", "translations_file")
_NOT_WITH_QUALITY += ("figure_file", "adequacy", "length_buckets", "length_edges")


def limit(args: argparse.Namespace, metric: str) -> float:
    """Return the score below which a translation is bad.

    Raises:
        UserError: if the metric has no default, or its model has none.
    """
    for name in trained([metric]):
        model_of(name, getattr(args, f"{name}_model"))
    if args.bad is not None:
        return args.bad
    if metric != "chrf":
        raise UserError(f"--bad has no default for {metric}. Name the score below which a translation is bad.")
    return _BAD_CHRF


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


def sentence_scores(
    args: argparse.Namespace,
    metric: str,
    sources: Sequence[str],
    translations: Sequence[str],
    references: Sequence[str],
) -> list[float]:
    """Return the score of each translation.

    Args:
        args: the options of the command, which name the models of metrics.
        metric: one of [`SENTENCE_METRICS`].
        sources: the texts.
        translations: one for each source.
        references: one for each source.
    """
    if metric == "chrf":
        return sentence_chrf(translations, references)
    return score_trained(args, metric, sources, translations, references).scores


def check_report(args: argparse.Namespace) -> None:
    """Find mistakes in the options of `--quality` before any work is done."""
    metrics = args.metrics or ["chrf"]
    if len(metrics) > 1 or metrics[0] not in SENTENCE_METRICS:
        raise UserError(f"--quality takes one metric: {', '.join(SENTENCE_METRICS)}. Not {' '.join(metrics)}.")
    args.metrics = metrics
    args.bad = limit(args, metrics[0])
    for name in _NOT_WITH_QUALITY:
        if getattr(args, name):
            raise UserError(f"--{name} does not go with --quality, whose report has the texts.")
    if len(args.references) != 1:
        raise UserError("--quality needs one file of --references.")


def measure_report(args: argparse.Namespace) -> str:
    """Return a table of how well each field of a report finds bad translations.

    Raises:
        UserError: if the report is of an earlier version, has several sentences on a line, or has other lines than the
            references.
    """
    records = [json.loads(line) for line in each_line(args.quality)]
    [path] = args.references
    references = read_lines(path)
    if any("translation" not in record for record in records):
        raise UserError(f"{args.quality} has no translations. Write it again with translate --report_file.")
    lines = [record["line"] for record in records]
    if lines != list(range(1, len(references) + 1)):
        raise UserError(
            f"{args.quality} has {len(lines)} sentences, and {path} has {len(references)} lines. Each line must be one "
            "sentence, so translate without --documents and --sentences."
        )
    sources = [record["source"] for record in records]
    translations = [record["translation"] for record in records]
    [metric] = args.metrics
    qualities = sentence_scores(args, metric, sources, translations, references)
    num_sentences = len(qualities)
    num_bad = sum(quality < args.bad for quality in qualities)
    share_bad = num_bad / num_sentences
    first_line = f"{share_bad:.1%} of {num_sentences} translations have a {metric} below {args.bad:g}."
    table = fields_report(measure_fields(records, qualities, args.bad))
    return f"{first_line}\n\n{table}"
