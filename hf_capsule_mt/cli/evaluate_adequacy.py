"""`--adequacy` of evaluate.py: what of the source is translated, and what twice, by word alignment."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_capsule_mt.markdown import markdown_table

if TYPE_CHECKING:
    from hf_capsule_mt.evaluation.alignment import Alignment
    from hf_capsule_mt.evaluation.streams import Streams

_UNITS = {
    "eflomal": "words ({source_tokenize}), aligned by eflomal (HMM), whose results differ a little from run to run",
    "attention": "tokens, aligned by the cross-attention of {model}",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """How words are aligned."""
    group = parser.add_argument_group(
        "adequacy", "coverage difference ratio (Kong et al. 2019), under- and over-translated source words (--sources)"
    )
    group.add_argument("--adequacy", action="store_true", help="measure it, with one file of references")
    group.add_argument(
        "--aligner",
        choices=list(_UNITS),
        help='default: eflomal where it is installed (pip install "hf-capsule-mt[align]"), else attention',
    )
    group.add_argument(
        "--alignment_data",
        type=Path,
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="eflomal: parallel text to learn from as well; a test set alone is little",
    )
    group.add_argument("--model", help="attention: a translation model of these languages, to align all systems")
    group.add_argument("--revision", help="attention: branch, tag or commit of a model on the Hub")
    group.add_argument("--device", help="attention: cpu, cuda, cuda:1, ... (default: what accelerate finds)")
    parser.set_defaults(dtype="auto")


def check_options(args: argparse.Namespace) -> None:
    """Choose the aligner; raise a ValueError or an OSError if the options cannot be met."""
    from .decoding import check_model

    of_aligner = {"eflomal": ["alignment_data"], "attention": ["model", "revision", "device"]}
    if not args.adequacy:
        _refuse(args, ["aligner", *of_aligner["eflomal"], *of_aligner["attention"]], "--adequacy")
        return
    if len(args.references) > 1:
        raise ValueError(f"--adequacy compares with one translation; --references names {len(args.references)}")
    args.aligner = _aligner(args)
    other = "attention" if args.aligner == "eflomal" else "eflomal"
    _refuse(args, of_aligner[other], f"--aligner {other}")
    if args.aligner == "attention":
        if args.model is None:
            raise ValueError("--aligner attention needs --model, a translation model of these languages")
        check_model(args.model, args.revision)
    for file in args.alignment_data or ():
        if not file.is_file():
            raise FileNotFoundError(f"--alignment_data {file} is not a file")


def _refuse(args: argparse.Namespace, names: list[str], needed: str) -> None:
    for name in names:
        if getattr(args, name) is not None:
            raise ValueError(f"--{name} is of use with {needed} alone")


def _aligner(args: argparse.Namespace) -> str:
    from hf_capsule_mt.evaluation.alignment import NO_EFLOMAL, has_eflomal

    if args.aligner is None and not has_eflomal():
        if args.model is None:
            raise ValueError(f"--adequacy needs an aligner, and {NO_EFLOMAL}; or name a translation model by --model")
        return "attention"
    if args.aligner == "eflomal" and not has_eflomal():
        raise ValueError(f"--aligner is eflomal, and {NO_EFLOMAL}")
    # With --model, its attention is what is asked for.
    return args.aligner or ("eflomal" if args.model is None else "attention")


def measure(args: argparse.Namespace, streams: "Streams") -> dict[str, Any]:
    """Align the reference and every system, and count."""
    from dataclasses import asdict

    from hf_capsule_mt.evaluation.adequacy import measure_adequacy

    align = {"eflomal": _align_words, "attention": _align_by_attention}[args.aligner]
    reference, *systems = align(args, streams)
    found = {name: measure_adequacy(reference, one) for name, one in zip(streams.systems, systems, strict=True)}
    names = ("aligner", "source_tokenize", "alignment_data", "model", "revision")
    return {
        "settings": {name: getattr(args, name) for name in names},
        "systems": {name: {"cdr": one.cdr, **asdict(one)} for name, one in found.items()},
    }


def _align_words(args: argparse.Namespace, streams: "Streams") -> list[list["Alignment"]]:
    from hf_capsule_mt.data.parallel_text import read_parallel_text
    from hf_capsule_mt.evaluation.alignment import align_words
    from hf_capsule_mt.evaluation.length import split_words

    more = {}
    if args.alignment_data is not None:
        text = read_parallel_text(args.alignment_data, name="--alignment_data")
        more = {
            "more_sources": split_words(text.sources, args.source_tokenize),
            "more_targets": split_words(text.targets, args.tokenize),
        }
    targets = [split_words(stream, args.tokenize) for stream in (*streams.references, *streams.systems.values())]
    print("aligning words by eflomal: minutes, if there are many", file=sys.stderr)
    return align_words(split_words(streams.sources, args.source_tokenize), targets, **more)


def _align_by_attention(args: argparse.Namespace, streams: "Streams") -> list[list["Alignment"]]:
    from tqdm import tqdm

    from hf_capsule_mt.evaluation.attention_alignment import align_by_attention

    from .decoding import load_model, load_tokenizer, pin_revision, process_state

    state = process_state(args.device)
    pin_revision(args)
    model, tokenizer = load_model(args, state), load_tokenizer(args)
    targets = [*streams.references, *streams.systems.values()]
    with tqdm(total=len(targets) * len(streams.sources), unit=" sentences") as bar:
        return align_by_attention(model, tokenizer, streams.sources, targets, on_batch=bar.update)


def report(record: dict[str, Any]) -> str:
    """The table in Markdown, and under it what it shows."""
    rows = [["system", "CDR", "under-translated", "over-translated"], ["---", "---:", "---:", "---:"]]
    for name, one in record["systems"].items():
        counts = (one["under_translated"], one["over_translated"])
        shares = [f"{count} ({100 * count / one['source_words']:.2f}%)" for count in counts]
        rows.append([name, f"{one['cdr']:.3f}", *shares])
    first = next(iter(record["systems"].values()))
    settings = record["settings"]
    caption = (
        f"Of {first['source_words']} source {_UNITS[settings['aligner']].format(**settings)}; the reference translates "
        f"{first['covered_by_reference']} of them. CDR: the share of these that the system translates too; "
        "under-translated: the others; over-translated: those for which it repeats a word."
    )
    return "\n".join([*markdown_table(rows), "", caption])
