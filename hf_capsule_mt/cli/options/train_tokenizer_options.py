"""Learn a joint byte-level BPE tokenizer from parallel text.

    hf-capsule-mt train_tokenizer --train_file train.en train.de --vocab_size 10000 --output_dir tokenizer
    29000 pairs read, 29000 kept, 0 dropped with an empty side, 0 dropped as invalid UTF-8
    10000 tokens saved in tokenizer

    hf-capsule-mt train_tokenizer --train_file train.tsv.gz --output_dir tokenizer
    hf-capsule-mt train_tokenizer --train_file train.jsonl --source_lang en --target_lang de --output_dir tokenizer
    hf-capsule-mt train_tokenizer --dataset_name wmt/wmt14 --dataset_config_name de-en --source_lang en \\
        --target_lang de --vocab_size 37000 --output_dir tokenizer

It reads what `train` reads, and leaves it in the same cache. A sample of a large corpus is enough.
"""

import argparse
from pathlib import Path

from hf_capsule_mt.cli.parser import CommandParser, add_columns, at_least


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    files = parser.add_argument_group("input and output")
    data = files.add_mutually_exclusive_group(required=True)
    data.add_argument(
        "--train_file",
        nargs="+",
        help="Source and target text files, or .tsv, .jsonl, .csv, .parquet or .tmx files, as for hf-capsule-mt train.",
    )
    data.add_argument("--dataset_name", help="Data set of the Hub, or a local folder.")
    files.add_argument("--dataset_config_name", help="Configuration of the data set.")

    files.add_argument("--source_lang", help="Source language, as a .jsonl file or a data set names it, such as en.")
    files.add_argument("--target_lang", help="Target language, as a .jsonl file or a data set names it, such as de.")
    add_columns(files)

    files.add_argument("--output_dir", type=Path, required=True, help="Folder for the tokenizer.")
    files.add_argument("--overwrite_output_dir", action="store_true", help="Write into a folder that is not empty.")

    learning = parser.add_argument_group("learning")
    learning.add_argument(
        "--max_sentences",
        type=at_least(2),
        help="Learn from a random sample of this size. Half of it is of each language.",
    )
    learning.add_argument("--vocab_size", type=int, default=32_000, help="Number of tokens (default: %(default)s).")
    return parser
