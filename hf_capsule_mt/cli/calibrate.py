"""The command `calibrate`. Its options stand in options/calibrate_options.py."""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accelerate import PartialState

from hf_capsule_mt.data.lines import each_line
from hf_capsule_mt.evaluation.calibration_fit import fit_calibration
from hf_capsule_mt.translation.files.lines import translate_windows
from hf_capsule_mt.translation.generation.model_options import DecodingOptions
from hf_capsule_mt.translation.quality.calibration import Calibration, calibration_settings

from . import decoding, quality
from .common import (
    check_distinct,
    check_output_file,
    check_pairs,
    import_code,
    leave_group_at_exit,
    read_pairs,
    report_user_errors,
)
from .options.calibrate_options import build_parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Translate, score, write the calibration, and say how well it fits."""
    args = build_parser().parse_args(argv)
    import_code(args.imports)
    _check_arguments(args)
    sources, references = read_pairs(args)
    state = decoding.process_state(args.device)
    model = decoding.decoding_options(args)
    if state.is_main_process:
        model = model.pinned()
    rows = _translate(args, model, state)
    # Processes that only help with translating have no rows.
    if rows is not None:
        settings = calibration_settings(model, args.source_lang, args.target_lang)
        calibration = _calibration(args, sources, references, rows, settings)
        calibration.write(args.output_file)
        print(_table(calibration))
    leave_group_at_exit()


def _check_arguments(args: argparse.Namespace) -> None:
    """Complete the options, and find mistakes before any work is done."""
    args.bad = quality.limit(args, args.metric)
    decoding.check_options(args)
    check_pairs(args)
    check_output_file(args.output_file)
    check_distinct([("--output_file", args.output_file)], [args.input_file, args.references, args.vocabulary])


def _translate(args: argparse.Namespace, model: DecodingOptions, state: PartialState) -> list[dict[str, Any]] | None:
    """Translate the sources, and return the rows of the report. Processes that only help get None."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.jsonl")
        options = decoding.file_options(args, model, input_file=args.input_file, report_file=report)
        for _ in translate_windows(options, state):
            # The report has the translations too.
            pass
        if not state.is_main_process:
            return None
        return [json.loads(line) for line in each_line(report)]


def _calibration(
    args: argparse.Namespace,
    sources: Sequence[str],
    references: Sequence[str],
    rows: Sequence[dict[str, Any]],
    settings: dict[str, Any],
) -> Calibration:
    """Fit a calibration to the translations.

    Args:
        args: the options of the command.
        sources: a sentence each.
        references: the reference of each source.
        rows: the report of the translations, a row for each source.
        settings: what the scores depend on.
    """
    # Blank lines, and those without letters, have no score.
    indices = [index for index, row in enumerate(rows) if row["score"] is not None]
    rows = [rows[index] for index in indices]
    qualities = quality.sentence_scores(
        args,
        args.metric,
        [sources[index] for index in indices],
        [row["translation"] for row in rows],
        [references[index] for index in indices],
    )
    bounds = (0.0, 100.0)
    if args.metric != "chrf":
        bounds = (min(0.0, *qualities), max(1.0, *qualities))
    coverages = [row["coverage"] for row in rows]
    return fit_calibration(
        [row["score"] for row in rows],
        [row["source_length"] for row in rows],
        qualities,
        settings=settings,
        coverages=None if None in coverages else coverages,
        metric=args.metric,
        bad=args.bad,
        bounds=bounds,
    )


def _table(calibration: Calibration) -> str:
    """Return what is known of a calibration, as text."""
    held_out = calibration.held_out
    sentences = f"{calibration.num_sentences} sentences, {calibration.method}."
    bad = f"{held_out['share_bad']:.1%} have a {calibration.metric} below {calibration.bad:g}."
    errors = f"held out: ECE {held_out['ece']:.3f}, Brier {held_out['brier']:.3f}"
    intervals = f"80% intervals cover {held_out['coverage']:.1%}"
    return f"{sentences} {bad}\n{errors}, {intervals}"
