"""Score translations by sacreBLEU, and compare systems.

    hf-capsule-mt evaluate --hypotheses out.de --references test.de --metrics bleu
    metric    score  signature
    bleu      39.40  nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0

    hf-capsule-mt evaluate --model run --input_file test.en --references test.de --num_beams 4
    hf-capsule-mt evaluate --hypotheses out.tok.de --references test.tok.de --tokenize none --metrics bleu
    hf-capsule-mt evaluate --compare baseline.de em.de gdr.de --references test.de --significance sign
    hf-capsule-mt evaluate --compare plain-1.de,plain-2.de gdr-1.de,gdr-2.de --references test.de
    hf-capsule-mt evaluate --compare baseline.de gdr.de --references test.de --input_file test.en \\
        --length_buckets 6 --figure_file lengths.png --adequacy --alignment_data train.en train.de
    hf-capsule-mt evaluate --hypotheses out.de --references test.de --input_file test.en --metrics comet
    hf-capsule-mt evaluate --model run --input_file test.en --references test.de --num_beams 4 --terms terms.tsv

Line i of all files must be the same sentence. Files may end in .gz. TER ignores case, as is usual.
"""

import argparse
from pathlib import Path

from hf_capsule_mt.cli.parser import (
    CommandParser,
    add_decoding,
    add_glossary_languages,
    add_languages,
    add_model,
    add_vocabulary,
    at_least,
)
from hf_capsule_mt.evaluation.metric_models import DEFAULT_MODELS


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    _add_texts(parser)
    _add_scores(parser)
    _add_significance(parser)
    _add_lengths(parser)
    _add_adequacy(parser)
    _add_terms(parser)
    _add_trained_metrics(parser)
    _add_model(parser)
    return parser


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
    for metric, model in DEFAULT_MODELS.items():
        default = model or "none, because its models forbid commercial use"
        group.add_argument(f"--{metric}_model", metavar="NAME", help=f"Model of {metric} (default: {default}).")
    group.add_argument("--metricx_tokenizer", metavar="NAME", help="Tokenizer of metricx (default: google/mt5-xl).")


def _add_model(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group(
        "model", "The model that translates --input_file, or aligns words with --aligner attention."
    )
    add_model(model, required=False)
    add_languages(model)
    add_vocabulary(model)
    add_decoding(parser.add_argument_group("decoding"))


def _add_significance(parser: argparse.ArgumentParser) -> None:
    test = parser.add_argument_group("significance", "With --compare: is the difference from the baseline chance?")
    test.add_argument(
        "--significance",
        choices=["bootstrap", "randomization", "sign"],
        default="bootstrap",
        help="Significance test: bootstrap (default, Koehn 2004), randomization, or sign (only BLEU, Collins 2005). "
        "Several runs of a system need bootstrap.",
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
        choices=["eflomal", "attention"],
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
        choices=["none", "proper", "random"],
        help="Terms that --model is given (default: proper). random: other words of a .jsonl file. Those that are "
        "counted are always the proper ones.",
    )
    add_glossary_languages(group)
