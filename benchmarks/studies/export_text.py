"""Write a split of a data set of the Hub as text files.

    python -m benchmarks.studies.export_text --dataset_name wmt/wmt14 --dataset_config_name de-en --split test \\
        --source_lang en --target_lang de --output_file newstest2014.en newstest2014.de
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from hf_capsule_mt.cli.common import (
    CommandParser,
    check_distinct,
    check_output_file,
    files_of_dataset,
    report_user_errors,
)
from hf_capsule_mt.data.parallel_text import check_parallel_files, load_hub_parallel_text, write_parallel_text


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    parser.add_argument("--dataset_name", required=True, help="data set of the Hub, or a local folder")
    parser.add_argument("--dataset_config_name", help="configuration of the data set")
    parser.add_argument("--split", required=True, help="train, validation, test, ...")
    parser.add_argument("--source_lang", required=True, help="as the data set names it (en)")
    parser.add_argument("--target_lang", required=True, help="likewise (de)")
    parser.add_argument("--output_file", nargs="+", required=True, help="two text files, or one .tsv or .jsonl (.gz)")
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Write the files."""
    args = build_parser().parse_args(argv)
    check_parallel_files(args.output_file, args.source_lang, args.target_lang)
    for file in args.output_file:
        check_output_file(Path(file))
    outputs = (("--output_file", Path(file)) for file in args.output_file)
    check_distinct(outputs, files_of_dataset(args.dataset_name))
    languages = args.source_lang, args.target_lang
    text = load_hub_parallel_text(args.dataset_name, args.dataset_config_name, args.split, *languages)
    write_parallel_text(args.output_file, text.sources, text.targets, *languages)
    print(f"{', '.join(args.output_file)}: {text.report}")


if __name__ == "__main__":
    main()
