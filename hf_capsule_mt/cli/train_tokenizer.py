"""Learn a joint byte-level BPE tokenizer from parallel text.

    hf-capsule-mt train_tokenizer --train_file train.en train.de --vocab_size 10000 --output_dir tokenizer
    hf-capsule-mt train_tokenizer --train_file train.tsv.gz --output_dir tokenizer
    hf-capsule-mt train_tokenizer --train_file train.jsonl --source_lang en --target_lang de \\
        --output_dir tokenizer
    hf-capsule-mt train_tokenizer --dataset_name wmt/wmt14 --dataset_config_name de-en --source_lang en \\
        --target_lang de --vocab_size 37000 --output_dir tokenizer

It reads what `train` reads, and leaves it in the same cache. Of a large corpus a sample is enough: --max_sentences
10000000 learns from as many sentences, drawn at random, half of them of each language.
"""

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.data.columns import Columns
from hf_capsule_mt.data.corpus import Sentences, TextCorpus, read_corpus, read_hub_corpus
from hf_capsule_mt.data.pair_files import find_corpora
from hf_capsule_mt.data.parallel_text import check_corpus
from hf_capsule_mt.data.tokenizer import train_joint_bpe

from .common import CommandParser, at_least, check_output_folder, report_user_errors


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument(
        "--train_file",
        nargs="+",
        metavar="FILE",
        help="source and target text files, or .tsv, .jsonl or .parquet files, as of hf-capsule-mt train",
    )
    data.add_argument("--dataset_name", help="data set of the Hub, or a local folder")
    parser.add_argument("--dataset_config_name", help="configuration of the data set")
    parser.add_argument("--source_lang", help="key of the source in .jsonl files and data sets, such as en")
    parser.add_argument("--target_lang", help="key of the target, such as de")
    parser.add_argument("--source_column", help="column of the source, if it is not called as its language")
    parser.add_argument("--target_column", help="column of the target, likewise")
    parser.add_argument(
        "--max_sentences", type=at_least(2), help="most sentences to learn from; a random sample of them"
    )
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
    check_corpus(args.train_file, args.dataset_name, args.dataset_config_name)
    texts = _read(args)
    for text in texts:
        print(text.report)
    tokenizer = train_joint_bpe(Sentences(texts, args.max_sentences), args.vocab_size)
    _save(tokenizer, args.output_dir)
    print(f"{len(tokenizer)} tokens saved in {args.output_dir}")


def _read(args: argparse.Namespace) -> list[TextCorpus]:
    columns = Columns(args.source_lang, args.target_lang, args.source_column, args.target_column)
    if args.train_file:
        return [read_corpus(corpus, columns) for corpus in find_corpora(args.train_file, columns)]
    if None in (columns.source, columns.target):
        raise ValueError(f"--dataset_name {args.dataset_name} needs --source_lang and --target_lang, or their columns.")
    return [read_hub_corpus(args.dataset_name, args.dataset_config_name, "train", columns)]


def _save(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as unfinished:
        tokenizer.save_pretrained(unfinished)
        # An older tokenizer's, which Transformers 5 does not write but reads.
        for name in ("special_tokens_map.json", "added_tokens.json"):
            (folder / name).unlink(missing_ok=True)
        for file in Path(unfinished).iterdir():
            os.replace(file, folder / file.name)


if __name__ == "__main__":
    main()
