"""Learn a joint byte-level BPE tokenizer from parallel text.

    hf-capsule-mt train_tokenizer --train_file train.en train.de --vocab_size 10000 --output_dir tokenizer
    hf-capsule-mt train_tokenizer --train_file train.tsv.gz --output_dir tokenizer
    hf-capsule-mt train_tokenizer --train_file train.jsonl --source_lang en --target_lang de \\
        --output_dir tokenizer
    hf-capsule-mt train_tokenizer --dataset_name wmt/wmt14 --dataset_config_name de-en --source_lang en \\
        --target_lang de --vocab_size 37000 --output_dir tokenizer

It reads what `train` reads, and leaves it in the same cache. A sample of a large corpus is enough: --max_sentences
10000000 learns from as many sentences, drawn at random, half of them of each language.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from hf_capsule_mt.data.arrow_cache import Sentences, TextCorpus, read_corpus, read_hub_corpus
from hf_capsule_mt.data.parallel_text import Columns, find_corpora
from hf_capsule_mt.data.tokenizer import save_tokenizer, train_joint_bpe

from .common import CommandParser, at_least, check_output_folder, report_user_errors


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument(
        "--train_file",
        nargs="+",
        metavar="FILE",
        help="source and target text files, or .tsv, .jsonl, .csv or .parquet files, as in hf-capsule-mt train",
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
    texts = _read(args)
    for text in texts:
        print(text.report)
    tokenizer = train_joint_bpe(Sentences(texts, args.max_sentences), args.vocab_size)
    save_tokenizer(tokenizer, args.output_dir)
    print(f"{len(tokenizer)} tokens saved in {args.output_dir}")


def _read(args: argparse.Namespace) -> list[TextCorpus]:
    columns = Columns(args.source_lang, args.target_lang, args.source_column, args.target_column)
    if args.train_file:
        return [read_corpus(corpus, columns) for corpus in find_corpora(args.train_file, columns)]
    columns.check(f"--dataset_name {args.dataset_name}")
    return [read_hub_corpus(args.dataset_name, args.dataset_config_name, "train", columns)]


if __name__ == "__main__":
    main()
