"""Options of `evaluate` for trained metrics and calibrations, and what they do."""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hf_capsule_mt.data.corpus_files import check_two_files
from hf_capsule_mt.data.lines import each_line, read_lines
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.calibration import fit_calibration, sentence_chrf
from hf_capsule_mt.evaluation.report_fields import fields_report, measure_fields
from hf_capsule_mt.evaluation.trained_metrics import (
    DEFAULT_MODELS,
    LOWER_IS_BETTER,
    NEED_NO_REFERENCES,
    TrainedScores,
    model_of,
    score_with,
)
from hf_capsule_mt.translation.expected_quality import Calibration, calibration_settings
from hf_capsule_mt.translation.file_translation import FileTranslationOptions, translate_windows

from . import decoding
from .common import check_distinct, check_line_counts, check_output_file, check_text_file, finite

_BAD_CHRF = 40.0
_SCORE_METRICS = ("chrf", *(metric for metric in DEFAULT_MODELS if metric not in LOWER_IS_BETTER))
"""Metrics of sentences whose higher scores are better."""
_NOT_WITH_CALIBRATE = ("hypotheses", "compare", "input_file", "references", "translations_file", "figure_file")
_NOT_WITH_CALIBRATE += ("adequacy", "length_buckets", "length_edges")
"""Options of `evaluate` that would be ignored."""
_NOT_WITH_QUALITY = ("hypotheses", "compare", "input_file", "model", "output_file", "translations_file")
_NOT_WITH_QUALITY += ("figure_file", "adequacy", "length_buckets", "length_edges")


def add_trained_metrics(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the models of trained metrics."""
    group = parser.add_argument_group("trained metrics", "Repositories or folders of their models. --device applies.")
    for metric, default in DEFAULT_MODELS.items():
        words = default or "none, because its models forbid commercial use"
        group.add_argument(f"--{metric}_model", metavar="NAME", help=f"Model of {metric} (default: {words}).")
    group.add_argument("--metricx_tokenizer", metavar="NAME", help="Tokenizer of metricx (default: google/mt5-xl).")


def add_calibration(parser: argparse.ArgumentParser) -> None:
    """Add the options for calibrations."""
    group = parser.add_argument_group(
        "calibration", "Learn from translations of --model how good its translations are, for translate --calibration."
    )
    group.add_argument(
        "--calibrate",
        type=Path,
        nargs=2,
        metavar=("SOURCES", "REFERENCES"),
        help="Translate these sources, score them, and write a calibration to --output_file. Use 1,000 or more "
        "sentences of the kind that the model will translate. It must not have been trained on them.",
    )
    group.add_argument(
        "--quality",
        type=Path,
        metavar="REPORT",
        help="Measure how well each field of a report by translate finds bad translations, by --references.",
    )
    group.add_argument(
        "--bad",
        type=finite,
        metavar="SCORE",
        help="A translation with a lower score by the metric is bad (default: 40 for chrf).",
    )


def trained(metrics: Sequence[str]) -> list[str]:
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
        if args.input_file is None and args.calibrate is None:
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
        tokenizer=args.metricx_tokenizer,
        device=args.device or state.device,
        progress=True,
    )


def check_calibration(args: argparse.Namespace) -> None:
    """Find mistakes in the options of a calibration before any work is done."""
    _check_metric(args, "--calibrate")
    if args.model is None or args.output_file is None:
        raise UserError("--calibrate needs --model, and --output_file for the calibration.")
    for name in _NOT_WITH_CALIBRATE:
        if getattr(args, name):
            raise UserError(f"--{name} does not go with --calibrate, which has sources and references of its own.")
    decoding.check_options(args)
    check_trained_metrics(args)
    for path in args.calibrate:
        check_text_file("--calibrate", path)
    check_two_files(*args.calibrate, "--calibrate")
    check_output_file(args.output_file)
    check_distinct([("--output_file", args.output_file)], args.calibrate)


def _check_metric(args: argparse.Namespace, option: str) -> None:
    """Complete the metric of sentences and its limit, and find mistakes in them."""
    args.metrics = args.metrics or ["chrf"]
    metric = args.metrics[0]
    if len(args.metrics) > 1 or metric not in _SCORE_METRICS:
        given = " ".join(args.metrics)
        raise UserError(f"{option} takes one metric: {', '.join(_SCORE_METRICS)}. Not {given}.")
    if args.bad is None:
        if metric != "chrf":
            raise UserError(f"--bad has no default for {metric}. Name the score below which a translation is bad.")
        args.bad = _BAD_CHRF
    for name in trained(args.metrics):
        model_of(name, getattr(args, f"{name}_model"))


def check_report(args: argparse.Namespace) -> None:
    """Find mistakes in the options of `--quality` before any work is done."""
    _check_metric(args, "--quality")
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
    qualities = _qualities(args, sources, translations, references)
    num_sentences = len(qualities)
    num_bad = sum(quality < args.bad for quality in qualities)
    share_bad = num_bad / num_sentences
    [metric] = args.metrics
    first_line = f"{share_bad:.1%} of {num_sentences} translations have a {metric} below {args.bad:g}."
    table = fields_report(measure_fields(records, qualities, args.bad))
    return f"{first_line}\n\n{table}"


def calibrate(args: argparse.Namespace) -> str | None:
    """Write a calibration. Return a table of what was measured, None in processes that only help with translating."""
    sources, references = map(read_lines, args.calibrate)
    sources_file, references_file = args.calibrate
    check_line_counts({f"--calibrate {sources_file}": sources, f"--calibrate {references_file}": references})
    rows = _translate(args)
    if rows is None:
        return None
    # Blank lines, and those without letters, have no score.
    indices = [index for index, row in enumerate(rows) if row["score"] is not None]
    rows = [rows[index] for index in indices]
    sources = [sources[index] for index in indices]
    references = [references[index] for index in indices]
    translations = [row["translation"] for row in rows]
    qualities = _qualities(args, sources, translations, references)
    [metric] = args.metrics
    bounds = (0.0, 100.0) if metric == "chrf" else (min(0.0, *qualities), max(1.0, *qualities))
    coverages = [row["coverage"] for row in rows]
    calibration = fit_calibration(
        [row["score"] for row in rows],
        [row["source_length"] for row in rows],
        qualities,
        settings=calibration_settings(decoding.decoding_options(args), args.source_lang, args.target_lang),
        coverages=None if None in coverages else coverages,
        metric=metric,
        bad=args.bad,
        bounds=bounds,
    )
    calibration.write(args.output_file)
    return _table(calibration)


def _qualities(
    args: argparse.Namespace, sources: Sequence[str], translations: Sequence[str], references: Sequence[str]
) -> list[float]:
    """Return the quality of each translation, by the metric of the options."""
    [metric] = args.metrics
    if metric == "chrf":
        return sentence_chrf(translations, references)
    return score_trained(args, metric, sources, translations, references).scores


def _translate(args: argparse.Namespace) -> list[dict[str, Any]] | None:
    """Translate the sources, and return the rows of the report. Processes that only help get None."""
    state = decoding.process_state(args.device)
    if state.is_main_process:
        decoding.pin_revision(args)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.jsonl")
        options = FileTranslationOptions(
            decoding=decoding.decoding_options(args),
            input_file=args.calibrate[0],
            report_file=report,
            device=args.device,
            source_lang=args.source_lang,
            target_lang=args.target_lang,
        )
        for _ in translate_windows(options, state):
            # The report has the translations too.
            pass
        if not state.is_main_process:
            return None
        return [json.loads(line) for line in each_line(report)]


def _table(calibration: Calibration) -> str:
    """Return what is known of a calibration, as text."""
    held_out = calibration.held_out
    sentences = f"{calibration.num_sentences} sentences, {calibration.method}."
    bad = f"{held_out['share_bad']:.1%} have a {calibration.metric} below {calibration.bad:g}."
    errors = f"held out: ECE {held_out['ece']:.3f}, Brier {held_out['brier']:.3f}"
    intervals = f"80% intervals cover {held_out['coverage']:.1%}"
    return f"{sentences} {bad}\n{errors}, {intervals}"
