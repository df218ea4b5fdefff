"""Mistakes in the options of `evaluate` that are found before any work is done."""

import argparse
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from hf_capsule_mt.data.corpus_files import check_two_files
from hf_capsule_mt.environment import check_installed
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation import alignment
from hf_capsule_mt.evaluation.drawing import check_figure_file
from hf_capsule_mt.evaluation.scores import make_metrics
from hf_capsule_mt.evaluation.significance import DEFAULT_SAMPLES
from hf_capsule_mt.loading import commit_of

from . import decoding, evaluate_metrics
from .common import check_distinct, check_output_file, check_text_file


def translates(args: argparse.Namespace) -> bool:
    """Return whether the model translates the input file before the scoring."""
    return args.hypotheses is None and args.compare is None


def compared_files(args: argparse.Namespace) -> list[Path]:
    """Return the files of all runs that are compared."""
    return list(chain.from_iterable(args.compare or ()))


def has_runs(args: argparse.Namespace) -> bool:
    """Return whether a compared system has several training runs."""
    return any(len(files) > 1 for files in args.compare)


def check(args: argparse.Namespace) -> None:
    """Complete the options, and find mistakes before any work is done."""
    _check_metrics(args)
    _check_comparison(args)
    _check_edges(args.length_edges or [])
    if args.figure_file is not None:
        check_figure_file(args.figure_file)
    _check_translation(args)
    if args.input_file is None and _reads_sources(args):
        raise UserError("--adequacy, --length_buckets and --length_edges need --input_file.")
    if args.adequacy:
        _check_adequacy(args)
    _check_terms(args)
    _check_files(args)


def _reads_sources(args: argparse.Namespace) -> bool:
    """Return whether something is measured that compares sources, translations and references."""
    return bool(args.adequacy or args.length_buckets or args.length_edges)


def _check_metrics(args: argparse.Namespace) -> None:
    """Complete the metrics and tokenizers, and find mistakes in them."""
    if not args.metrics:
        args.metrics = ["bleu", "chrf", "ter"] if args.compare is None else ["bleu"]
    args.source_tokenize = args.source_tokenize or args.tokenize
    for tokenize in (args.tokenize, args.source_tokenize):
        # An unknown metric or tokenizer fails here.
        make_metrics(evaluate_metrics.untrained(args.metrics), tokenize)
    evaluate_metrics.check_trained_metrics(args)
    if not args.references and (_reads_sources(args) or not evaluate_metrics.need_no_references(args.metrics)):
        raise UserError("Give --references. Only cometkiwi, xcomet and metricx can score without them.")


def _check_comparison(args: argparse.Namespace) -> None:
    """Complete the options for `--compare`, and find mistakes in them."""
    if args.compare is None:
        return
    if len(args.compare) < 2:
        raise UserError("--compare needs a baseline and at least one other system. For one, use --hypotheses.")

    files = set()
    for file in compared_files(args):
        if file.resolve() in files:
            raise UserError(f"--compare names {file} twice. Name each file once.")
        files.add(file.resolve())

    if has_runs(args) and args.significance != "bootstrap":
        raise UserError(f"--significance {args.significance} compares one run of each system. Use bootstrap.")
    if args.significance == "sign" and args.metrics != ["bleu"]:
        raise UserError(f"The sign test is only for bleu, not for {', '.join(args.metrics)}. Use bootstrap.")
    args.num_samples = args.num_samples or DEFAULT_SAMPLES.get(args.significance)


def _check_translation(args: argparse.Namespace) -> None:
    """Find mistakes in the options of the model, and in the texts that it translates."""
    if translates(args):
        if args.model is None or args.input_file is None:
            raise UserError("Give --hypotheses or --compare, or --model and --input_file to translate.")
        check_text_file("--input_file", args.input_file)
        for file in args.references:
            check_two_files(args.input_file, file, "--input_file and --references")
    if args.model is not None:
        decoding.check_options(args)
        # All that reads the model, and the record, has the same commit.
        args.revision = commit_of(args.model, args.revision)


def _check_files(args: argparse.Namespace) -> None:
    """Find output files that cannot be written, or that would replace an input."""
    inputs = [
        args.hypotheses,
        args.input_file,
        args.terms,
        args.vocabulary,
        *args.references,
        *compared_files(args),
        *(args.alignment_data or ()),
    ]

    outputs = [(f"--{name}", getattr(args, name)) for name in ("output_file", "figure_file", "translations_file")]
    for _, path in outputs:
        check_output_file(path)
    check_distinct(outputs, inputs)


def _check_edges(edges: Sequence[int]) -> None:
    before = 0
    for edge in edges:
        if edge <= before:
            raise UserError(f"--length_edges {' '.join(map(str, edges))} must rise, from at least 1.")
        before = edge


def _check_adequacy(args: argparse.Namespace) -> None:
    if len(args.references) > 1:
        raise UserError(f"--adequacy compares with one reference, and --references names {len(args.references)}.")

    if args.aligner is None:
        # A model that translates nothing is there for its attention.
        only_aligns = args.model is not None and not translates(args)
        args.aligner = "eflomal" if alignment.has_eflomal() and not only_aligns else "attention"

    if args.aligner == "eflomal":
        check_installed("eflomal", "align")
    if args.aligner == "attention":
        if args.model is None:
            raise UserError(
                '--aligner attention needs --model. Name one, or install eflomal: pip install -e ".[align]"'
            )
        if decoding.decoding_options(args).config().model_type == "caps_nmt":
            raise UserError("CapsNMT has no attention to align words by. Use --aligner eflomal, or another model.")


def _check_terms(args: argparse.Namespace) -> None:
    """Complete the options for terms, and find mistakes."""
    if args.terms is None:
        if args.term_mode is not None or args.glossary_languages is not None:
            raise UserError("--term_mode and --glossary_languages need --terms.")
        return

    if args.input_file is None:
        raise UserError("--terms needs --input_file. Terms are looked for in the sources.")
    if args.term_mode is not None and not translates(args):
        raise UserError("--term_mode is for translations by --model. Leave it out.")

    if translates(args):
        args.term_mode = args.term_mode or "proper"
        if args.term_mode != "none" and args.vocabulary is not None:
            raise UserError("--vocabulary may lack words of --terms. Leave it out, or give --term_mode none.")
        if args.term_mode != "none" and args.engine == "transformers":
            raise UserError("--terms needs --engine fast. Leave out --engine, or give --term_mode none.")
