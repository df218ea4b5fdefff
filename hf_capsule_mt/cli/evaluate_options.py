"""The options of the command `evaluate`, and the mistakes in them that are found before any work is done."""

import argparse
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from hf_capsule_mt.data.corpus_files import check_two_files
from hf_capsule_mt.environment import check_installed
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation import alignment
from hf_capsule_mt.evaluation.adequacy import ALIGNERS
from hf_capsule_mt.evaluation.drawing import check_figure_file
from hf_capsule_mt.evaluation.scores import make_metrics
from hf_capsule_mt.evaluation.significance import DEFAULT_SAMPLES, TESTS
from hf_capsule_mt.evaluation.term_scores import MODES
from hf_capsule_mt.evaluation.trained_metrics import DEFAULT_MODELS
from hf_capsule_mt.loading import commit_of

from . import decoding, quality
from .common import check_distinct, check_output_file, check_text_file
from .parser import add_decoding, add_glossary_languages, add_languages, add_model, add_vocabulary, at_least


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    _add_texts(parser)
    _add_scores(parser)
    _add_significance(parser)
    _add_lengths(parser)
    _add_adequacy(parser)
    _add_terms(parser)
    _add_report(parser)
    _add_trained_metrics(parser)
    _add_model(parser)


def _add_texts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("input and output")
    systems = group.add_mutually_exclusive_group()
    systems.add_argument("--hypotheses", type=Path, metavar="FILE", help="Translations to score, one sentence a line.")
    systems.add_argument(
        "--compare",
        type=_files_of_runs,
        nargs="+",
        metavar="FILE[,FILE...]",
        help="Translations of a baseline and of other systems. Join the files of several training runs of one system "
        "by commas.",
    )
    group.add_argument(
        "--references", type=Path, nargs="+", default=[], metavar="FILE", help="One or more files of references."
    )
    group.add_argument(
        "--input_file",
        type=Path,
        help="Sources, one sentence a line. --model translates them, unless there are --hypotheses or --compare. "
        "--length_buckets and --adequacy need them too.",
    )
    group.add_argument("--translations_file", type=Path, help="Keep the translations by --model here.")
    group.add_argument("--output_file", type=Path, help="Write a record of the results in JSON.")


def _files_of_runs(text: str) -> list[Path]:
    """Return the files that commas separate: the translations by each training run of a system."""
    # The name of one file may have a comma.
    if Path(text).exists():
        return [Path(text)]
    names = text.split(",")
    if "" in names:
        raise argparse.ArgumentTypeError(f"{text} has an empty name. Join files by one comma, without spaces.")
    return [Path(name) for name in names]


def _add_scores(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("scores")
    group.add_argument(
        "--metrics",
        nargs="+",
        metavar="METRIC",
        help="bleu, chrf, chrf++, ter (default: bleu chrf ter, with --compare only bleu), and comet, cometkiwi, "
        "xcomet, metricx, which need --input_file. The last three can score without --references.",
    )
    group.add_argument(
        "--tokenize",
        default="13a",
        metavar="TOKENIZER",
        help="Tokenizer of BLEU: 13a (default), intl, none (as multi-bleu.perl), zh, char, ja-mecab, ...",
    )
    group.add_argument(
        "--source_tokenize",
        metavar="TOKENIZER",
        help="Tokenizer for the words of sources (default: as --tokenize).",
    )
    group.add_argument("--lowercase", action="store_true", help="Compute BLEU and chrF of lower-cased text.")


def _add_trained_metrics(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("trained metrics", "Repositories or folders of their models. --device applies.")
    quality.add_models(group, DEFAULT_MODELS)
    group.add_argument("--metricx_tokenizer", metavar="NAME", help="Tokenizer of metricx (default: google/mt5-xl).")


def _add_model(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group(
        "model", "The model that translates --input_file, or aligns words with --aligner attention."
    )
    add_model(model, required=False)
    add_languages(model)
    add_vocabulary(model)
    add_decoding(parser.add_argument_group("decoding"))


def _add_report(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("report", "Which fields of a report by translate find bad translations?")
    group.add_argument("--quality", type=Path, metavar="REPORT", help="Measure each field of a report by --references.")
    quality.add_bad(group)


def _add_significance(parser: argparse.ArgumentParser) -> None:
    test = parser.add_argument_group("significance", "With --compare: is the difference from the baseline chance?")
    test.add_argument(
        "--significance",
        choices=TESTS,
        default="bootstrap",
        help="Significance test: bootstrap (default, Koehn 2004), randomization, or sign (only BLEU, Collins 2005). "
        "Several runs of a system have bootstrap.",
    )
    test.add_argument(
        "--num_samples",
        type=at_least(1),
        help="Samples of the significance test (default: 1000 for bootstrap, 10000 for randomization).",
    )
    test.add_argument(
        "--seed",
        type=at_least(1),
        default=12345,
        help="Random seed of the significance test (default: 12345, as in sacreBLEU).",
    )


def _add_lengths(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("length", "BLEU by the length of the source (--input_file).")
    lengths = group.add_mutually_exclusive_group()
    lengths.add_argument("--length_buckets", type=at_least(2), metavar="N", help="BLEU in N buckets by source length.")
    lengths.add_argument(
        "--length_edges",
        type=int,
        nargs="+",
        metavar="WORDS",
        help="Buckets by their longest source, as 10 20 30 40 50.",
    )
    group.add_argument("--figure_file", type=Path, help="Draw the buckets (.png, .svg or .pdf). It needs matplotlib.")


def _add_adequacy(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("adequacy", "Under- and over-translated words of the sources (--input_file).")
    group.add_argument("--adequacy", action="store_true", help="Coverage difference ratio (Kong et al. 2019).")
    group.add_argument(
        "--aligner",
        choices=list(ALIGNERS),
        help="How to align words (default: eflomal if it is installed, otherwise the attention of --model).",
    )
    group.add_argument(
        "--alignment_data",
        type=Path,
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="More parallel text for eflomal. A test set is too small for good alignments.",
    )


def _add_terms(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("terms", "How many terms of the sources (--input_file) are in translations.")
    group.add_argument(
        "--terms",
        type=Path,
        metavar="FILE",
        help="A glossary (.tsv, .csv or .tbx), or a .jsonl file with the terms of each source.",
    )
    group.add_argument(
        "--term_mode",
        choices=MODES,
        help="Terms that --model is given (default: proper). random: other words of a .jsonl file. Those that are "
        "counted are always the proper ones.",
    )
    add_glossary_languages(group)


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
        make_metrics(quality.untrained(args.metrics), tokenize)
    quality.check_trained_metrics(args)
    if not args.references and (_reads_sources(args) or not quality.need_no_references(args.metrics)):
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
