"""The command `evaluate`. Its options stand in options/evaluate_options.py."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from hf_capsule_mt.data.languages import KnownLanguages
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.data.parallel_text import read_parallel_text
from hf_capsule_mt.environment import environment
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation import alignment
from hf_capsule_mt.evaluation.adequacy import adequacy_report, measure_adequacy
from hf_capsule_mt.evaluation.bleu_statistics import pack_statistics, sentence_statistics
from hf_capsule_mt.evaluation.drawing import draw_lengths, save_figure
from hf_capsule_mt.evaluation.length import length_report, quantile_edges, score_by_length, split_words
from hf_capsule_mt.evaluation.scores import make_metrics, score_report, score_translations
from hf_capsule_mt.evaluation.significance import compare_runs, compare_systems, comparison_report
from hf_capsule_mt.evaluation.term_scores import measure_terms, read_terms, term_report, translate_with_terms
from hf_capsule_mt.files import hash_file, write_json
from hf_capsule_mt.translation.files.job import Job
from hf_capsule_mt.translation.files.run import translated_lines
from hf_capsule_mt.translation.terms.glossary import Term
from hf_capsule_mt.translation.text.segments import texts_with_codes
from hf_capsule_mt.translation.text_translator import TextTranslator

from . import decoding, evaluate_checks, evaluate_metrics
from .common import check_line_counts, import_code, leave_group_at_exit, report_user_errors
from .options.evaluate_options import build_parser


class _Texts(NamedTuple):
    """Texts of which line i belongs to the same sentence."""

    systems: dict[str, list[str]]  # Translations by the name of the system.
    references: list[list[str]]
    sources: list[str] | None
    terms: Mapping[str, Sequence[Sequence[Term]]] | None = None
    """The terms of each source, by the mode that a model may be given them in."""


_TRANSLATION = (
    *("model", "revision", "num_beams", "length_penalty", "max_new_tokens", "dtype"),
    *("source_lang", "target_lang"),
)
"""Options that a record keeps if the model translated."""


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Print each table as soon as it is made, and write the record if there is an --output_file."""
    args = build_parser().parse_args(argv)
    import_code(args.imports)
    evaluate_checks.check(args)
    texts = _read(args)
    # Processes that only help with translating have no translations.
    if texts is not None:
        _evaluate(args, texts)
    leave_group_at_exit()


def _evaluate(args: argparse.Namespace, texts: _Texts) -> None:
    """Print the table of each measurement, and write the record of all."""
    settings = {
        "tokenize": args.tokenize,
        "lowercase": args.lowercase,
        "metrics": evaluate_metrics.untrained(args.metrics),
    }

    results: dict[str, Any] = {}
    for name, result, table in _measure(args, texts, settings):
        if results:
            print()
        print(table, flush=True)
        results[name] = result

    if args.output_file is None:
        return

    record = {"kind": "evaluation", "version": 2, **results, "settings": settings, **_provenance(args)}
    if "scores" in results and "bleu" in args.metrics:
        [hypotheses] = texts.systems.values()
        bleu = make_metrics(("bleu",), args.tokenize, args.lowercase)["bleu"]
        record["bleu_statistics"] = pack_statistics(sentence_statistics(bleu, hypotheses, texts.references))
    write_json(args.output_file, record)


def _read(args: argparse.Namespace) -> _Texts | None:
    """Read the texts, or translate. Processes that only help with translating get None."""
    files = []
    if not evaluate_checks.translates(args):
        files = evaluate_checks.compared_files(args) or [args.hypotheses]
    systems = {str(file): read_lines(file) for file in files}
    references = [read_lines(file) for file in args.references]

    sources = None
    texts = dict(systems)
    if args.input_file is not None:
        sources = read_lines(args.input_file)
        texts[f"--input_file {args.input_file}"] = sources
    for file, reference in zip(args.references, references, strict=True):
        texts[f"--references {file}"] = reference
    check_line_counts(texts)

    if sources is not None and args.length_buckets is not None:
        # Too many buckets are refused before the model translates.
        quantile_edges(_lengths(args, sources), args.length_buckets)

    terms = None
    if args.terms is not None:
        terms = read_terms(args.terms, sources, *(args.glossary_languages or ()))
        if args.term_mode not in (None, "none", *terms):
            raise UserError(f"--term_mode {args.term_mode} needs a .jsonl file. All terms of a glossary are proper.")

    if evaluate_checks.translates(args):
        translations = _translate(args)
        if translations is None:
            return None
        systems = {args.model: translations}

    return _Texts(systems, references, sources, terms)


def _translate(args: argparse.Namespace) -> list[str] | None:
    """Translate the input file. Processes that only help get None."""
    state = decoding.process_state(args.device)
    job = Job(
        decoding.decoding_options(args),
        source_lang=args.source_lang,
        target_lang=args.target_lang,
        device=args.device,
    )
    lines = []
    for window in translated_lines(job, state, args.input_file, args.translations_file):
        lines += window
    if not state.is_main_process:
        return None
    return lines if args.translations_file is None else read_lines(args.translations_file)


def _measure(
    args: argparse.Namespace, texts: _Texts, settings: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the name in the record, the result and its table of each measurement that was asked for."""
    if args.compare is None:
        scores = _scores(args, texts, settings)
        yield "scores", scores, score_report(scores)
    else:
        comparison = _comparison(args, texts, settings)
        yield "comparison", comparison, comparison_report(comparison)

    if args.length_buckets or args.length_edges:
        by_length = _scores_by_length(args, texts)
        if args.figure_file is not None:
            save_figure(draw_lengths(by_length), args.figure_file)
        yield "by_length", by_length, length_report(by_length)

    if args.adequacy:
        adequacy = _adequacy(args, texts)
        yield "adequacy", adequacy, adequacy_report(adequacy)

    if texts.terms is not None:
        terms = _terms(args, texts)
        yield "terms", terms, term_report(terms)


def _scores(args: argparse.Namespace, texts: _Texts, settings: Mapping[str, Any]) -> dict[str, dict[str, float | str]]:
    """Return the score of each metric in the order of `--metrics`."""
    [translations] = texts.systems.values()
    scores = {}
    if settings["metrics"]:
        scores = score_translations(translations, texts.references, **settings)
    for metric in evaluate_metrics.trained(args.metrics):
        references = texts.references[0] if texts.references else None
        scored = evaluate_metrics.score_trained(args, metric, texts.sources, translations, references)
        scores[metric] = {"score": scored.mean, "signature": scored.model}
    return {metric: scores[metric] for metric in args.metrics}


def _comparison(args: argparse.Namespace, texts: _Texts, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return how each system differs from the first one, the baseline."""
    runs_by_system = {}
    for files in args.compare:
        name = ",".join(map(str, files))
        runs_by_system[name] = [texts.systems[str(file)] for file in files]

    (baseline, baseline_runs), *systems = runs_by_system.items()
    samples = {"num_samples": args.num_samples, "seed": args.seed}
    has_runs = evaluate_checks.has_runs(args)

    compared = {}
    # One system takes seconds, and needs no progress bar.
    for name, runs in tqdm(systems, desc="comparing", unit=" systems", disable=len(systems) < 2):
        if has_runs:
            compared[name] = compare_runs(baseline_runs, runs, texts.references, **settings, **samples)
            continue
        [translations] = baseline_runs
        [others] = runs
        compared[name] = compare_systems(
            translations, others, texts.references, test=args.significance, **settings, **samples
        )

    # sacreBLEU's bootstrap of one run each looks in one direction.
    two_sided = has_runs or args.significance != "bootstrap"
    test = {"test": args.significance, "two_sided": two_sided, **samples}
    return {"baseline": baseline, "settings": test, "systems": compared}


def _scores_by_length(args: argparse.Namespace, texts: _Texts) -> dict[str, Any]:
    """Return the BLEU of each system in buckets of sentences, by the length of their sources."""
    lengths = _lengths(args, texts.sources)
    edges = args.length_edges or quantile_edges(lengths, args.length_buckets)
    cut = {"tokenize": args.tokenize, "lowercase": args.lowercase}
    buckets = score_by_length(texts.systems, texts.references, lengths, edges, **cut)
    return {"source_tokenize": args.source_tokenize, "buckets": buckets}


def _lengths(args: argparse.Namespace, sources: Sequence[str]) -> list[int]:
    """Return the number of words of each source."""
    return [len(words) for words in split_words(sources, args.source_tokenize)]


def _adequacy(args: argparse.Namespace, texts: _Texts) -> dict[str, Any]:
    """Return how much of the sources each system leaves out or repeats."""
    align = _align_words if args.aligner == "eflomal" else _align_by_attention
    reference, *systems = align(args, texts)
    measured = {}
    for name, system in zip(texts.systems, systems, strict=True):
        measured[name] = measure_adequacy(reference, system)
    names = ("aligner", "source_tokenize", "alignment_data", "model", "revision")
    return {"settings": {name: getattr(args, name) for name in names}, "systems": measured}


def _terms(args: argparse.Namespace, texts: _Texts) -> dict[str, dict[str, Any]]:
    """Return what the translations have of their terms, those of the model without and with them, and the references.

    What the references have is the most that one may expect.
    """
    systems = dict(texts.systems)
    if args.term_mode is not None:
        [translations] = systems.values()
        systems = {"without terms": translations}
        if args.term_mode != "none":
            systems[f"{args.term_mode} terms"] = _translate_with_terms(args, texts)

    counted = texts.terms["proper"]
    record = {}
    for name, translations in systems.items():
        chrf = None
        if texts.references:
            scores = score_translations(translations, texts.references, lowercase=args.lowercase, metrics=["chrf"])
            chrf = scores["chrf"]["score"]
        record[name] = {**asdict(measure_terms(translations, counted)), "chrf": chrf}

    for file, references in zip(args.references, texts.references, strict=True):
        record[str(file)] = {**asdict(measure_terms(references, counted)), "chrf": None}
    return record


def _translate_with_terms(args: argparse.Namespace, texts: _Texts) -> list[str]:
    """Translate the sources with the terms of --term_mode."""
    state = decoding.process_state(args.device)
    options = decoding.decoding_options(args)
    translator = TextTranslator(*options.load(decoding.device_of(args, state)))

    return translate_with_terms(
        translator,
        texts.sources,
        texts.terms[args.term_mode],
        direction=translator.reader.languages.direction(args.source_lang, args.target_lang),
        max_tokens_per_batch=args.max_tokens_per_batch,
        **options.generate_options(),
    )


def _align_words(args: argparse.Namespace, texts: _Texts) -> list[list[alignment.Alignment]]:
    """Align the sources with the references and with each system, by eflomal."""
    more = {}
    if args.alignment_data is not None:
        text = read_parallel_text(args.alignment_data, name="--alignment_data")
        more = {
            "more_sources": split_words(text.sources, args.source_tokenize),
            "more_targets": split_words(text.targets, args.tokenize),
        }
    targets = [split_words(side, args.tokenize) for side in (*texts.references, *texts.systems.values())]
    print("eflomal aligns words. This takes minutes for many sentences.", file=sys.stderr)
    return alignment.align_words(split_words(texts.sources, args.source_tokenize), targets, **more)


def _align_by_attention(args: argparse.Namespace, texts: _Texts) -> list[list[alignment.Alignment]]:
    """Align the sources with the references and with each system, by the attention of --model."""
    state = decoding.process_state(args.device)
    # The engine gives no attention. Its own precisions are only used for translating.
    loaded = decoding.decoding_options(args)
    decodes = evaluate_checks.translates(args)
    model, tokenizer = loaded.load(decoding.device_of(args, state), decodes=decodes)

    targets = [*texts.references, *texts.systems.values()]
    languages = KnownLanguages(tokenizer)
    direction = languages.direction(args.source_lang, args.target_lang)
    sources = texts_with_codes(languages.codes, texts.sources, direction.code)
    options = {"max_tokens_per_batch": args.max_tokens_per_batch}
    with direction.spoken_by(tokenizer):
        return alignment.align_by_attention(model, tokenizer, sources, targets, **options)


def _provenance(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a record that describe the texts and the environment."""
    translation = None
    if evaluate_checks.translates(args):
        translation = {name: getattr(args, name) for name in _TRANSLATION}
        translation["vocabulary"] = _description(args.vocabulary)

    systems = None
    if args.compare is not None:
        systems = [_description(file) for file in evaluate_checks.compared_files(args)]

    return {
        "hypotheses": _description(args.hypotheses or args.translations_file),
        "translation": translation,
        "systems": systems,
        "sources": _description(args.input_file),
        "references": [_description(file) for file in args.references],
        "terms_file": _description(args.terms),
        "environment": environment("cpu" if args.model is None else args.device),
    }


def _description(path: Path | None) -> dict[str, str | None] | None:
    """Return the name and the hash of a file."""
    if path is None:
        return None
    # A pipe can be read only once.
    digest = None if path.is_fifo() else hash_file(path)
    return {"file": str(path), "sha256": digest}
