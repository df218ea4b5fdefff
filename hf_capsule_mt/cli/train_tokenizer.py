"""Learn a joint byte-level BPE tokenizer from parallel text.

    hf-capsule-mt train_tokenizer --train_file train.en train.de --vocab_size 10000 --output_dir tokenizer
    hf-capsule-mt train_tokenizer --train_file train.tsv.gz --output_dir tokenizer
    hf-capsule-mt train_tokenizer --train_file train.jsonl --source_lang en --target_lang de \\
        --output_dir tokenizer
    hf-capsule-mt train_tokenizer --dataset_name wmt/wmt14 --dataset_config_name de-en --source_lang en \\
        --target_lang de --vocab_size 37000 --output_dir tokenizer
"""

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.data.parallel_text import ParallelText, load_hub_parallel_text, read_parallel_text
from hf_capsule_mt.data.tokenizer import train_joint_bpe

from .errors import report_user_errors
from .output import check_output_folder
from .parser import CommandParser


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument(
        "--train_file",
        nargs="+",
        metavar="FILE",
        help="source and target text files aligned by line, or one .tsv or .jsonl file; each may be .gz",
    )
    data.add_argument("--dataset_name", help="data set of the Hub, or a local folder, with a translation column")
    parser.add_argument("--dataset_config_name", help="configuration of the data set")
    parser.add_argument("--source_lang", help="key of the source in .jsonl files and data sets, such as en")
    parser.add_argument("--target_lang", help="key of the target, such as de")
    parser.add_argument("--vocab_size", type=int, default=32_000, help="number of tokens (default: %(default)s)")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder to save the tokenizer in")
    parser.add_argument(
        "--overwrite_output_dir", action="store_true", help="write into the folder even if it is not empty"
    )
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Read the text, learn the tokenizer, and save it."""
    args = build_parser().parse_args(argv)
    check_output_folder(args.output_dir)
    if not args.overwrite_output_dir and args.output_dir.is_dir() and any(args.output_dir.iterdir()):
        raise ValueError(f"--output_dir {args.output_dir} is not empty. Choose another, or add --overwrite_output_dir.")
    text = _read(args)
    print(text.report)
    tokenizer = train_joint_bpe([*text.sources, *text.targets], args.vocab_size)
    _save(tokenizer, args.output_dir)
    print(f"{len(tokenizer)} tokens saved in {args.output_dir}")


def _read(args: argparse.Namespace) -> ParallelText:
    if args.train_file:
        return read_parallel_text(args.train_file, args.source_lang, args.target_lang)
    if not args.source_lang or not args.target_lang:
        raise ValueError(f"--dataset_name {args.dataset_name} needs --source_lang and --target_lang.")
    languages = args.source_lang, args.target_lang
    return load_hub_parallel_text(args.dataset_name, args.dataset_config_name, "train", *languages)


def _save(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as unfinished:
        tokenizer.save_pretrained(unfinished)
        for file in Path(unfinished).iterdir():
            os.replace(file, folder / file.name)


if __name__ == "__main__":
    main()
