"""Judge translations: scores by sacreBLEU, significance, length and adequacy.

    hf-capsule-mt evaluate --hypotheses out.de --references ref.de
    hf-capsule-mt evaluate --model outputs/run --input_file test.en --references ref.de --num_beams 4
    hf-capsule-mt evaluate --hypotheses out.en --references ref0.en ref1.en ref2.en ref3.en --lowercase
    hf-capsule-mt evaluate --hypotheses out.tok.de --references ref.tok.de --tokenize none --metrics bleu
    hf-capsule-mt evaluate --compare baseline.de em.de gdr.de --references ref.de --test sign
    hf-capsule-mt evaluate --compare baseline.de gdr.de --references ref.de --sources test.en \\
        --length_buckets 6 --length_figure lengths.png --adequacy --alignment_data train.en train.de

The second translates first; with --adequacy, the model's attention can align words as well. The fourth is the BLEU of
multi-bleu.perl. Files are line-aligned, plain or .gz. TER is case-insensitive, as is usual.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_capsule_mt.data.parallel_text import read_lines
from hf_capsule_mt.evaluation.adequacy import adequacy_report
from hf_capsule_mt.evaluation.bleu_statistics import pack_statistics, sentence_statistics
from hf_capsule_mt.evaluation.length import length_report
from hf_capsule_mt.evaluation.scores import AlignedTexts, make_metrics, score_report, score_translations
from hf_capsule_mt.evaluation.significance import comparison_report
from hf_capsule_mt.files import environment, hash_file, write_json

from . import evaluate_adequacy, evaluate_comparison, evaluate_length, evaluate_translation
from .common import (
    CommandParser,
    check_distinct,
    check_input_file,
    check_line_counts,
    check_output_file,
    report_user_errors,
)
from .processes import leave_group_at_exit, warn_if_alone

_PARTS = (evaluate_translation, evaluate_comparison, evaluate_length, evaluate_adequacy)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    systems = parser.add_mutually_exclusive_group(required=True)
    systems.add_argument("--hypotheses", type=Path, help="the translations to score, one segment a line")
    systems.add_argument("--input_file", type=Path, help="what --model is to translate, one segment a line")
    systems.add_argument("--compare", type=Path, nargs="+", help="several: of a baseline, then of each other system")
    parser.add_argument("--references", type=Path, nargs="+", required=True, help="one or more reference files")
    parser.add_argument("--sources", type=Path, help="what was translated, for length and adequacy")
    parser.add_argument(
        "--tokenize", default="13a", help="BLEU's tokenizer: 13a (default), intl, none, zh, char, ja-mecab, ..."
    )
    parser.add_argument("--source_tokenize", help="likewise for the words of the sources (default: as --tokenize)")
    parser.add_argument("--lowercase", action="store_true", help="BLEU and chrF of lower-cased text")
    parser.add_argument(
        "--metrics", nargs="+", help="of bleu, chrf, chrf++, ter (default: all but chrf++; with --compare, bleu)"
    )
    parser.add_argument("--output_file", type=Path, help="a JSON record of what was found, and what it was made from")
    for part in _PARTS:
        part.add_options(parser)
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Print the table of each measurement as soon as it is made; write the record if asked."""
    args = build_parser().parse_args(argv)
    warn_if_alone("hf_capsule_mt.cli.evaluate")
    _check_arguments(args)
    texts = _read(args)
    if texts is not None:
        _judge(args, texts)
    leave_group_at_exit()


def _judge(args: argparse.Namespace, texts: AlignedTexts) -> None:
    settings = {name: getattr(args, name) for name in ("tokenize", "lowercase", "metrics")}
    record: dict[str, Any] = {}
    for name, found, table in _measure(args, texts, settings):
        print(f"\n{table}" if record else table, flush=True)
        record[name] = found
    if args.output_file is not None:
        if "scores" in record and "bleu" in args.metrics:
            record["bleu_statistics"] = _bleu_statistics(args, texts)
        record = {"kind": "evaluation", "version": 2, **record, "settings": settings, **_provenance(args)}
        write_json(args.output_file, record)


def _bleu_statistics(args: argparse.Namespace, texts: AlignedTexts) -> dict[str, str]:
    [hypotheses] = texts.systems.values()
    metric = make_metrics(("bleu",), args.tokenize, args.lowercase)["bleu"]
    return pack_statistics(sentence_statistics(metric, hypotheses, texts.references))


def _check_arguments(args: argparse.Namespace) -> None:
    check_output_file(args.output_file)
    args.metrics = args.metrics or (["bleu", "chrf", "ter"] if args.compare is None else ["bleu"])
    args.source_tokenize = args.source_tokenize or args.tokenize
    for tokenize in (args.tokenize, args.source_tokenize):
        make_metrics(args.metrics, tokenize)
    for part in _PARTS:
        part.check_options(args)
    single = {"--hypotheses": args.hypotheses, "--sources": args.sources}
    several = {"--compare": args.compare, "--references": args.references}
    given = [*single.items(), *((option, path) for option, paths in several.items() for path in paths or ())]
    for option, path in given:
        if path is not None:
            check_input_file(option, path, pipe=True)
    outputs = [(f"--{name}", getattr(args, name)) for name in ("output_file", "length_figure", "translations_file")]
    check_distinct(outputs, [args.input_file, *(args.alignment_data or ()), *(path for _, path in given)])
    if args.input_file is not None:
        return
    wanted = evaluate_length.is_wanted(args) or args.adequacy
    if wanted != (args.sources is not None):
        use = "--length_buckets, --length_edges and --adequacy"
        raise ValueError(f"{use} need --sources" if wanted else f"--sources needs {use}")


def _measure(
    args: argparse.Namespace, texts: AlignedTexts, settings: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the name in the record, the result and its table of each measurement that was asked for."""
    if args.compare is None:
        [hypotheses] = texts.systems.values()
        scores = score_translations(hypotheses, texts.references, **settings)
        yield "scores", scores, score_report(scores)
    else:
        found = evaluate_comparison.measure(args, texts)
        yield "comparison", found, comparison_report(found)
    if evaluate_length.is_wanted(args):
        found = evaluate_length.measure(args, texts)
        yield "by_length", found, length_report(found)
    if args.adequacy:
        found = evaluate_adequacy.measure(args, texts)
        yield "adequacy", found, adequacy_report(found)


def _read(args: argparse.Namespace) -> AlignedTexts | None:
    """Read the texts, or translate; None in processes that only help with translating."""
    references = [read_lines(file) for file in args.references]
    sources = None if args.sources is None else read_lines(args.sources)
    others = {f"--references {file}": lines for file, lines in zip(args.references, references)}
    if args.input_file is not None:
        # What is wrong with them would be seen too late.
        check_line_counts({f"--input_file {args.input_file}": sources, **others})
        evaluate_length.check_sources(args, sources)
        translations = evaluate_translation.translate_input(args)
        return None if translations is None else AlignedTexts({args.model: translations}, references, sources)
    files = args.compare or [args.hypotheses]
    short = {file.name for file in files}
    names = [file.name if len(short) == len(files) else str(file) for file in files]
    if len(set(names)) < len(names):
        raise ValueError(f"--compare names a file twice: {' '.join(names)}")
    systems = {name: read_lines(file) for name, file in zip(names, files)}
    option = "--hypotheses" if args.compare is None else "--compare"
    if sources is not None:
        others[f"--sources {args.sources}"] = sources
    check_line_counts({f"{option} {file}": lines for file, lines in zip(files, systems.values())} | others)
    return AlignedTexts(systems, references, sources)


def _provenance(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a record that describe the texts and the environment."""

    def describe(path: Path) -> dict[str, str | None]:
        # What came through a pipe is gone: a second reading would find nothing, or wait for ever.
        return {"file": str(path), "sha256": None if path.is_fifo() else hash_file(path)}

    hypotheses = args.hypotheses or args.translations_file
    return {
        "hypotheses": None if hypotheses is None else describe(hypotheses),
        "translation": None if args.input_file is None else evaluate_translation.settings(args),
        "systems": None if args.compare is None else [describe(path) for path in args.compare],
        "sources": None if args.sources is None else describe(args.sources),
        "references": [describe(path) for path in args.references],
        # Without a model, the CPU does all the work.
        "environment": environment("cpu" if args.model is None else args.device),
    }


if __name__ == "__main__":
    main()
