"""Make the probing tasks that need no parser from any tokenised text.

    python -m benchmarks.probing generate --text_file books.tok.en.gz --data_dir probing

That makes SentLen, WordContent and BigramShift, in files of the size of SentEval's, and needs millions of sentences. A
small text gives smaller ones, and fewer words to ask for:

    python -m benchmarks.probing generate --text_file train.tok.en --data_dir probing --tasks word_content \\
        --num_train 4000 --num_validation 1000 --num_test 1000 --num_words 100

The files have SentEval's names and format; python -m benchmarks.probing run reads them. Beside each lies a JSON record
of how it was made.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.probing.data import format_probing_data
from benchmarks.probing.generators import GENERATED, SplitSizes, generate_task, unique_sentences
from hf_capsule_mt.cli.common import CommandParser, check_input_file, check_output_folder, report_user_errors
from hf_capsule_mt.data.parallel_text import read_lines
from hf_capsule_mt.files import hash_text, replace_text, write_json
from hf_capsule_mt.records import Environment

# By option: its default and its help.
_NUMBERS = {
    "num_train": (100_000, "sentences of the training split"),
    "num_validation": (10_000, "sentences of the validation split"),
    "num_test": (10_000, "sentences of the test split"),
    "num_words": (1000, "words that word_content asks for"),
    "seed": (0, "of what is drawn from the text"),
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    parser.add_argument(
        "--text_file", type=Path, required=True, help="a tokenised sentence a line, spaces between tokens; plain or .gz"
    )
    parser.add_argument("--data_dir", type=Path, required=True, help="folder for the files")
    parser.add_argument("--tasks", nargs="+", default=list(GENERATED), help=f"default: {' '.join(GENERATED)}")
    for name, (default, description) in _NUMBERS.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{description} (default: %(default)s)")
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Make all tasks, then write their files and records and say what they hold."""
    args = build_parser().parse_args(argv)
    check_input_file("--text_file", args.text_file, pipe=True)
    check_output_folder(args.data_dir, "--data_dir")
    files = {name: args.data_dir / f"{name}.txt" for name in args.tasks}
    for file in files.values():
        if file.exists():
            raise FileExistsError(f"{file} is there already; delete it, or name another --data_dir")
    sizes = SplitSizes(args.num_train, args.num_validation, args.num_test)
    lines = read_lines(args.text_file)
    sentences = unique_sentences(lines)
    generated = {
        name: generate_task(name, sentences, sizes, num_words=args.num_words, seed=args.seed) for name in files
    }
    made_from = {"settings": vars(args), "text_sha256": hash_text(lines), "environment": Environment.here("cpu")}
    args.data_dir.mkdir(parents=True, exist_ok=True)
    for name, (data, choice) in generated.items():
        write_json(args.data_dir / f"{name}.json", {"choice": choice, **made_from})
        replace_text(files[name], format_probing_data(data))
        counts = " + ".join(str(len(split)) for split in data.splits.values())
        print(f"{files[name]}: {counts} sentences, {len(data.labels)} classes; {choice}")


if __name__ == "__main__":
    main()
