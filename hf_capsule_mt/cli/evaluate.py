"""Score translations with sacreBLEU.

    python scripts/evaluate.py --hypotheses out.de --references ref.de
    python scripts/evaluate.py --hypotheses out.en --references ref0.en ref1.en ref2.en ref3.en --lowercase
    python scripts/evaluate.py --hypotheses out.tok.de --references ref.tok.de --tokenize none --metrics bleu

The last is the BLEU of multi-bleu.perl. Files are line-aligned, plain or .gz. TER is case-insensitive, as is usual.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import report_user_errors


def build_parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hypotheses", type=Path, required=True, help="the translations, one segment a line")
    parser.add_argument("--references", type=Path, nargs="+", required=True, help="one or more reference files")
    parser.add_argument(
        "--tokenize", default="13a", help="BLEU's tokenizer: 13a (default), intl, none, zh, char, ja-mecab, ..."
    )
    parser.add_argument("--lowercase", action="store_true", help="BLEU and chrF of lower-cased text")
    parser.add_argument(
        "--metrics",
        nargs="+",
        default=["bleu", "chrf", "ter"],
        help="of bleu, chrf, chrf++, ter (default: all but chrf++)",
    )
    parser.add_argument("--output_file", type=Path, help="a JSON record of the scores and what they were made from")
    return parser


@report_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Print a table of scores and signatures; write the record if asked."""
    args = build_parser().parse_args(argv)

    from hf_capsule_mt.data.parallel_text import read_lines
    from hf_capsule_mt.evaluation.scores import score_translations

    from .output import check_output_file, write_json

    if args.output_file is not None:
        check_output_file(args.output_file)
    settings = {"tokenize": args.tokenize, "lowercase": args.lowercase, "metrics": args.metrics}
    scores = score_translations(read_lines(args.hypotheses), [read_lines(path) for path in args.references], **settings)
    print(_table(scores))
    if args.output_file is not None:
        record = {"scores": scores, "settings": settings, **_provenance(args.hypotheses, args.references)}
        write_json(args.output_file, record)


def _table(scores: Mapping[str, Mapping[str, float | str]]) -> str:
    rows = [f"{name:<8}{entry['score']:>7.2f}  {entry['signature']}" for name, entry in scores.items()]
    return "\n".join([f"{'metric':<8}{'score':>7}  signature", *rows])


def _provenance(hypotheses: Path, references: Sequence[Path]) -> dict:
    import hashlib
    import platform
    from importlib.metadata import version

    def describe(path: Path) -> dict[str, str]:
        return {"file": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}

    return {
        "hypotheses": describe(hypotheses),
        "references": [describe(path) for path in references],
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in ("hf-capsule-mt", "sacrebleu")},
        },
    }
