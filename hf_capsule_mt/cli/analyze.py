"""The command `analyze`. Its options stand in options/analyze_options.py."""

import argparse
from collections.abc import Sequence

from hf_capsule_mt.analysis.ablation import measure_worth, record_gates
from hf_capsule_mt.analysis.corpus import EncodedCorpus, encode_references, translate_corpus
from hf_capsule_mt.analysis.routed_parts import has_routing, mixes_layers
from hf_capsule_mt.analysis.routing_report import record_routing, report, write_report
from hf_capsule_mt.analysis.sentence import read_encoded
from hf_capsule_mt.analysis.statistics import measure_routing
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.environment import check_installed, environment
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import new_folder

from . import decoding
from .common import check_new_folder, check_text_file, import_code, read_pairs, report_user_errors
from .options.analyze_options import _DRAWN, build_parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Translate unless there are references, measure, draw, and write the report."""
    args = build_parser().parse_args(argv)
    import_code(args.imports)
    _check_arguments(args)

    options = decoding.decoding_options(args).pinned()
    config = options.config()
    if not has_routing(config) and not mixes_layers(config):
        raise UserError(
            f"{args.model} ({config.model_type}) has no routing, and no layer with shares of other layers. Give a "
            "model of another --method of hf-capsule-mt train."
        )

    references = None
    if args.references is None:
        lines = read_lines(args.input_file)
    else:
        lines, references = read_pairs(args)

    state = decoding.process_state(args.device)
    if state.num_processes > 1:
        raise UserError(f"There are {state.num_processes} processes. Start this command in one, without accelerate.")
    model, tokenizer = options.load(decoding.device_of(args, state), decodes=references is None)

    limit = {"max_tokens_per_batch": args.max_tokens_per_batch}
    if references is None:
        corpus = translate_corpus(model, tokenizer, lines, **limit, **options.generate_options())
    else:
        corpus = encode_references(model, tokenizer, lines, references)
    statistics = measure_routing(model, corpus, **limit)

    record = {
        "settings": {**vars(args), **options.settings()},
        "sentences": len(corpus.lines),
        "architecture": model.config.model_type,
        "gates": record_gates(model),
        "worth": measure_worth(model, corpus, **limit),
        **record_routing(statistics, tokenizer),
        "environment": environment(model.device),
    }

    sentences = {}
    for index in _lines_to_draw(args, corpus):
        pair = corpus.sources[index], corpus.targets[index]
        sentences[f"line {index + 1}"] = read_encoded(model, tokenizer, *pair)

    with new_folder(args.output_dir) as folder:
        write_report(folder, statistics, record, sentences)
    print(f"The report: {args.output_dir / 'index.html'}\n")
    print("\n".join(report(record)))


def _lines_to_draw(args: argparse.Namespace, corpus: EncodedCorpus) -> list[int]:
    """Return the indices of the lines with a picture: those of --lines that are not blank, or the first ones."""
    if args.lines is None:
        return corpus.lines[:_DRAWN]
    return [number - 1 for number in dict.fromkeys(args.lines) if number - 1 in corpus.lines]


def _check_arguments(args: argparse.Namespace) -> None:
    decoding.check_options(args)
    for option, path in (("--input_file", args.input_file), ("--references", args.references)):
        if path is not None:
            check_text_file(option, path)
    check_new_folder(args.output_dir)
    check_installed("matplotlib", "figures")
