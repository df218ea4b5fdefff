"""Probing: what encoders know of a sentence (Li et al. 2019, Table 1; Conneau et al. 2018).

    python -m benchmarks.probing run --data_dir SentEval/data/probing --output_file probing.jsonl
    python -m benchmarks.probing run --data_dir probing --output_file trained.jsonl --models plain=runs/plain
    python -m benchmarks.probing generate --input_file books.tok.en.gz --data_dir probing
    python -m benchmarks.probing report probing.jsonl

The first trains the classifiers of the paper, whose encoders aggregate their heads in three ways, from scratch. The
second reads what the encoders of translation models make of sentences, and leaves them as they are. The data folder
holds some of SentEval's ten files by their own names (sentence_length.txt, ...), or those of `generate`, which makes
sentence_length, word_content and bigram_shift of any tokenised text. Every classifier adds a record to the output file.
Running the command again skips what has a record.
"""

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch

from benchmarks.common.records import append_records, json_settings, read_records
from benchmarks.probing.classifiers import Probed, probe, report
from benchmarks.probing.encoders import AGGREGATIONS, NewEncoder, TrainedEncoder
from benchmarks.probing.tasks import TASKS, format_probing_data, generate_task, read_probing_data, unique_sentences
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.environment import environment
from hf_capsule_mt.files import hash_file, hash_text, replace_text, write_json

GENERATED = ("sentence_length", "word_content", "bigram_shift")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--data_dir", type=Path, required=True, help="folder with the files of the tasks")
    run.add_argument("--output_file", type=Path, required=True, help="file of the records")
    run.add_argument("--tasks", nargs="+", choices=TASKS, help="default: all that have a file")
    run.add_argument("--aggregations", nargs="+", choices=AGGREGATIONS, default=list(AGGREGATIONS))
    run.add_argument("--models", nargs="+", metavar="ROW=FOLDER", help="trained models, by their rows in the table")
    run.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="default: 1 2 3")
    run.add_argument("--size", default="base", help="of a new encoder: tiny, base or big (default: %(default)s)")
    run.add_argument("--vocab_size", type=int, default=32000, help="most words of a new encoder (default: %(default)s)")
    run.add_argument("--epochs", type=int, default=10, help="the best on the validation split is tested")
    run.add_argument("--batch_size", type=int, default=64, help="sentences of an update (default: %(default)s)")
    run.add_argument("--learning_rate", type=float, default=5e-4, help="AdamW's peak (default: %(default)s)")
    generate = commands.add_parser("generate")
    generate.add_argument("--input_file", type=Path, required=True, help="a tokenised sentence a line, plain or .gz")
    generate.add_argument("--data_dir", type=Path, required=True, help="folder for the files")
    generate.add_argument("--tasks", nargs="+", choices=GENERATED, default=list(GENERATED))
    for name, default in (("train", 100_000), ("validation", 10_000), ("test", 10_000)):
        generate.add_argument(f"--num_{name}", type=int, default=default, help="sentences (default: %(default)s)")
    generate.add_argument(
        "--num_words", type=int, default=1000, help="that word_content asks for (default: %(default)s)"
    )
    generate.add_argument("--seed", type=int, default=0, help="of what is drawn from the text (default: %(default)s)")
    commands.add_parser("report").add_argument("records", type=Path, help="file of the records")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command."""
    args = build_parser().parse_args(argv)
    if args.command == "report":
        print(report(list(read_records(args.records).values())))
    elif args.command == "generate":
        generate(args)
    else:
        run(args)


def run(args: argparse.Namespace) -> None:
    """Train and test the classifiers that have no record, and print the table of all."""
    files = {name: args.data_dir / f"{name}.txt" for name in TASKS}
    names = args.tasks or [name for name, file in files.items() if file.is_file()]
    # All is read here, so that mistakes are found before training.
    data = {name: read_probing_data(files[name]) for name in names}
    if not data:
        file_names = [file.name for file in files.values()]
        raise SystemExit(f"{args.data_dir} has none of the files {', '.join(file_names)}.")
    encoders = _encoders(args)
    known = read_records(args.output_file)
    chosen = []
    for task, row, seed in product(names, encoders, args.seeds):
        name = f"{task}-{row}-{seed}"
        settings = {
            "task": task,
            "seed": seed,
            "epochs": args.epochs,
            "batch_size": args.batch_size,
            "learning_rate": args.learning_rate,
            "data_sha256": hash_file(files[task]),
            **encoders[row].settings,
        }
        if name not in known:
            print(f"{name} is trained", flush=True)
            result = probe(data[task], encoders[row], seed, args)
            record = {"kind": "probing", "version": 2, "settings": settings, **result, "environment": environment()}
            append_records(args.output_file, {name: record})
            known[name] = record
        elif not settings.items() <= known[name]["settings"].items():
            raise SystemExit(f"{args.output_file} has {name} with other settings. Name another file.")
        chosen.append(known[name])
    print(report(chosen))


def _encoders(args: argparse.Namespace) -> dict[str, Probed]:
    """Return the encoders that are probed, by their rows in the table."""
    if args.models is None:
        return {row: NewEncoder(row, args.size, args.vocab_size) for row in args.aggregations}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    encoders = {}
    for model in args.models:
        row, _, folder = model.partition("=")
        encoders[row] = TrainedEncoder(row, folder, device)
    return encoders


def generate(args: argparse.Namespace) -> None:
    """Make tasks from a text, each with a JSON record of how it was made."""
    lines = read_lines(args.input_file)
    sentences = unique_sentences(lines)
    sizes = (args.num_train, args.num_validation, args.num_test)
    # All are made before any is written, so that mistakes leave nothing.
    tasks = {}
    for name in args.tasks:
        tasks[name] = generate_task(name, sentences, sizes, args.num_words, args.seed)
    settings = json_settings(args)
    made_from = {"settings": settings, "text_sha256": hash_text(lines), "environment": environment("cpu")}
    args.data_dir.mkdir(parents=True, exist_ok=True)
    for name, (data, choice) in tasks.items():
        write_json(args.data_dir / f"{name}.json", {"choice": choice, **made_from})
        replace_text(args.data_dir / f"{name}.txt", format_probing_data(data))
        numbers = " + ".join(str(len(split)) for split in data.values())
        print(f"{name}.txt: {numbers} sentences; {choice}")


if __name__ == "__main__":
    main()
