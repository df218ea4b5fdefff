"""`--adequacy` of `hf-capsule-mt evaluate`: under- and over-translation of source words, by word alignment."""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hf_capsule_mt.data.parallel_text import read_parallel_text
from hf_capsule_mt.evaluation import alignment
from hf_capsule_mt.evaluation.adequacy import ALIGNERS, measure_adequacy
from hf_capsule_mt.evaluation.alignment import align_by_attention
from hf_capsule_mt.evaluation.length import split_words
from hf_capsule_mt.evaluation.scores import AlignedTexts
from hf_capsule_mt.translation.language_codes import LanguageCodes

from . import decoding
from .common import check_input_file, refuse_options


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of word alignment."""
    group = parser.add_argument_group(
        "adequacy", "coverage difference ratio (Kong et al. 2019), under- and over-translated source words (--sources)"
    )
    group.add_argument("--adequacy", action="store_true", help="measure it, with one file of references")
    group.add_argument(
        "--aligner",
        choices=list(ALIGNERS),
        help='default: eflomal where it is installed (pip install -e ".[align]"), else attention, as '
        "where --model is named and --input_file is not",
    )
    group.add_argument(
        "--alignment_data",
        type=Path,
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="eflomal: parallel text to learn from as well; a test set alone is little",
    )


def check_options(args: argparse.Namespace) -> None:
    """Choose the aligner; raise a ValueError or an OSError if the options cannot be met."""
    # A model that translates may be named with any aligner, or none.
    of_model = ["model", "revision", "device", "target_lang", *decoding.DEFAULTS] if args.input_file is None else []
    of_aligner = {"eflomal": ["alignment_data"], "attention": of_model}
    if not args.adequacy:
        refuse_options(args, ["aligner", *of_aligner["eflomal"]], "--adequacy")
        refuse_options(args, of_model, "--input_file or --adequacy", decoding.DEFAULTS)
        return
    if len(args.references) > 1:
        raise ValueError(f"--adequacy compares with one translation; --references names {len(args.references)}")
    args.aligner = _aligner(args)
    other = "attention" if args.aligner == "eflomal" else "eflomal"
    refuse_options(args, of_aligner[other], f"--aligner {other}", decoding.DEFAULTS)
    if args.aligner == "attention":
        if args.model is None:
            raise ValueError("--aligner attention needs --model, a translation model of these languages")
        if args.dtype == "int8" and args.input_file is None:
            raise ValueError("--dtype int8 is the engine's, which gives no attention; leave it out")
        decoding.check_model(args.model, args.revision)
        if decoding.pin_revision(args).model_type == "caps_nmt":
            raise ValueError("CapsNMT has no attention to align words by. Use --aligner eflomal, or another model.")
    for file in args.alignment_data or ():
        check_input_file("--alignment_data", file)


def _aligner(args: argparse.Namespace) -> str:
    if args.aligner is None and not alignment.has_eflomal():
        if args.model is None:
            missing = alignment.NO_EFLOMAL
            raise ValueError(f"--adequacy needs an aligner, and {missing}; or name a translation model by --model")
        return "attention"
    if args.aligner == "eflomal" and not alignment.has_eflomal():
        raise ValueError(f"--aligner is eflomal, and {alignment.NO_EFLOMAL}")
    # A model that is named but does not translate is meant for its attention.
    return args.aligner or ("eflomal" if args.model is None or args.input_file is not None else "attention")


def measure(args: argparse.Namespace, texts: AlignedTexts) -> dict[str, Any]:
    """Align the reference and every system, and count untranslated and repeated words."""
    align = {"eflomal": _align_words, "attention": _align_by_attention}[args.aligner]
    reference, *systems = align(args, texts)
    found = {name: measure_adequacy(reference, one) for name, one in zip(texts.systems, systems, strict=True)}
    names = ("aligner", "source_tokenize", "alignment_data", "model", "revision")
    return {
        "settings": {name: getattr(args, name) for name in names},
        "systems": {name: {"cdr": one.cdr, **asdict(one)} for name, one in found.items()},
    }


def _align_words(args: argparse.Namespace, texts: AlignedTexts) -> list[list[alignment.Alignment]]:
    more = {}
    if args.alignment_data is not None:
        text = read_parallel_text(args.alignment_data, name="--alignment_data")
        more = {
            "more_sources": split_words(text.sources, args.source_tokenize),
            "more_targets": split_words(text.targets, args.tokenize),
        }
    targets = [split_words(side, args.tokenize) for side in (*texts.references, *texts.systems.values())]
    print("aligning words by eflomal: minutes, if there are many", file=sys.stderr)
    return alignment.align_words(split_words(texts.sources, args.source_tokenize), targets, **more)


def _align_by_attention(args: argparse.Namespace, texts: AlignedTexts) -> list[list[alignment.Alignment]]:
    state = decoding.process_state(args.device)
    # The engine gives no attention; its precisions are those of translating the file beside.
    model, tokenizer = decoding.load(args, state, decodes=args.input_file is not None)
    targets = [*texts.references, *texts.systems.values()]
    with tqdm(total=len(targets) * len(texts.sources), unit=" sentences") as bar:
        options = {"max_tokens_per_batch": args.max_tokens_per_batch, "on_batch": bar.update}
        codes = LanguageCodes(tokenizer)
        sources = codes.sources(texts.sources, codes.of(args.target_lang, "target_lang"))
        return align_by_attention(model, tokenizer, sources, targets, **options)
