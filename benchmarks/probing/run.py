"""Train probing classifiers, on new encoders or on those of trained models.

    python -m benchmarks.probing run --data_dir SentEval/data/probing --output_dir probing_senteval
    python -m benchmarks.probing run --data_dir probing --output_dir probing_tiny --size tiny --seeds 1 2
    python -m benchmarks.probing run --data_dir probing --output_dir trained --models plain=runs/plain heads=runs/heads

The first two train the classifiers of Li et al. 2019, Table 1, whose encoders aggregate their heads in three ways, from
scratch. The third reads what the encoders of translation models make of sentences, and leaves them as they are.
The folder holds some of SentEval's ten files by their own names (sentence_length.txt, word_content.txt, ...), or those
of `generate_probing`. Every classifier leaves a JSON record in the output folder; the table, in Markdown, is made from
the records of the call and is also written there, to table.md. Running the command again skips what has a record and
resumes the run that was interrupted.
"""

import argparse
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.probing.classifiers import Probed, ProbingSettings, probe
from benchmarks.probing.data import ProbingData, find_tasks, read_probing_data
from benchmarks.probing.encoders import AGGREGATIONS, NewEncoder, TrainedEncoder
from benchmarks.probing.tables import report
from hf_capsule_mt.cli.common import (
    CommandParser,
    check_output_folder,
    quiet_transformers,
    refuse_options,
    report_user_errors,
)
from hf_capsule_mt.cli.decoding import process_state
from hf_capsule_mt.cli.processes import check_alone
from hf_capsule_mt.files import hash_file, locked, read_json, replace_text, write_json
from hf_capsule_mt.json_fields import decode
from hf_capsule_mt.records import Environment, ProbingRecord, ProbingRunSettings, read, write

# By option: its type and its help.
_NEW_ENCODER = {
    "size": (str, "tiny, base or big"),
    "vocab_size": (int, "most words, the most frequent of the training split"),
}
_SETTINGS = {
    "epochs": (int, "passes over the training split; the best on the validation split is tested"),
    "batch_size": (int, "sentences of an update"),
    "learning_rate": (float, "AdamW's peak; it rises over a tenth of the updates, then falls to 0"),
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    parser.add_argument("--data_dir", type=Path, required=True, help="folder with the files of the tasks")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder for records and table.md")
    parser.add_argument("--tasks", nargs="+", default=[], help="names of files without .txt (default: all there are)")
    encoders = parser.add_mutually_exclusive_group()
    encoders.add_argument(
        "--aggregations", nargs="+", default=list(AGGREGATIONS), help=f"default: {' '.join(AGGREGATIONS)}"
    )
    encoders.add_argument(
        "--models", nargs="+", metavar="ROW=FOLDER", help="trained translation models, by their rows in the table"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="default: 1 2 3")
    for name, (kind, description) in _NEW_ENCODER.items():
        default = getattr(NewEncoder, name)
        parser.add_argument(f"--{name}", type=kind, help=f"of a new encoder: {description} (default: {default})")
    for name, (kind, description) in _SETTINGS.items():
        default = getattr(ProbingSettings, name)
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{description} (default: {default})")
    return parser


@dataclass(frozen=True)
class _Run:
    """One classifier; `settings` determines its result."""

    settings: Mapping[str, Any]
    encoder: Probed
    data: ProbingData
    folder: Path

    @property
    def record_file(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.json")


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Carry out the runs that have no record, delete their checkpoints, then print the table of all and write it."""
    args = build_parser().parse_args(argv)
    check_output_folder(args.output_dir)
    check_alone(process_state(None))
    settings = ProbingSettings(**{name: getattr(args, name) for name in _SETTINGS})
    runs = _runs(args, settings)
    with locked(args.output_dir):
        for run in runs:
            _check_earlier(run)
        for number, run in enumerate(runs, start=1):
            state = "has a record" if run.record_file.exists() else "is trained"
            print(f"{number} of {len(runs)}: {run.folder.name} {state}", file=sys.stderr)
            if not run.record_file.exists():
                _carry_out(run, settings)
            shutil.rmtree(run.folder, ignore_errors=True)
    table = report([read(ProbingRecord, run.record_file) for run in runs])
    replace_text(args.output_dir / "table.md", table + "\n")
    print(table)


def _runs(args: argparse.Namespace, settings: ProbingSettings) -> list[_Run]:
    """Return every task with every encoder and seed; all is read here, to find mistakes before training."""
    for seed in args.seeds:
        if seed < 0:
            raise ValueError(f"seeds has {seed}; seeds are 0 or more")
    tasks = find_tasks(args.data_dir, args.tasks)
    encoders = _encoders(args)
    data = {task.name: read_probing_data(args.data_dir / task.file_name) for task in tasks}
    runs = []
    for task in tasks:
        digest = hash_file(args.data_dir / task.file_name)
        for row, seed in product(encoders, dict.fromkeys(args.seeds)):
            encoder, fields = encoders[row]
            chosen = {"task": task.name, **fields, "seed": seed, **asdict(settings), "data_sha256": digest}
            runs.append(_Run(chosen, encoder, data[task.name], args.output_dir / f"{task.name}-{row}-{seed}"))
    return runs


def _encoders(args: argparse.Namespace) -> dict[str, tuple[Probed, dict[str, Any]]]:
    """Return each row's encoder, and the settings that name it."""
    if args.models is None:
        fields = {name: value for name in _NEW_ENCODER if (value := getattr(args, name)) is not None}
        new = (NewEncoder(aggregation, **fields) for aggregation in dict.fromkeys(args.aggregations))
        return {encoder.aggregation: (encoder, asdict(encoder)) for encoder in new}
    refuse_options(args, tuple(_NEW_ENCODER), "new encoders")
    folders = _folders(args.models)
    device = process_state(None).device
    with quiet_transformers():
        trained = {row: TrainedEncoder(folder, device) for row, folder in folders.items()}
    return {row: (encoder, {"model": row, "model_sha256": encoder.sha256}) for row, encoder in trained.items()}


def _folders(models: Sequence[str]) -> dict[str, str]:
    """Return the folder of each row; raise a ValueError for an item that is no ROW=FOLDER, or a row named twice."""
    folders: dict[str, str] = {}
    for item in models:
        row, _, folder = item.partition("=")
        if not folder or not re.fullmatch(r"[\w.-]+", row) or row in folders:
            raise ValueError(
                f"--models has {item!r}; name each model once, by its row (letters, digits, points, hyphens and "
                "underscores) and its folder: ROW=FOLDER"
            )
        folders[row] = folder
    return folders


def _check_earlier(run: _Run) -> None:
    """Raise ValueError if there is a record or an interrupted run of the same name that had other settings."""
    for file in (run.record_file, run.folder / "settings.json"):
        if not file.exists():
            continue
        found = read_json(file).get("settings")
        found = found if isinstance(found, dict) else {}
        for name, value in run.settings.items():
            if found.get(name) != value:
                raise ValueError(
                    f"{file} is of a run with {name} {found.get(name)!r}, and now it is {value!r}; repeat the run as "
                    "it was, or name another --output_dir"
                )


def _carry_out(run: _Run, settings: ProbingSettings) -> None:
    """Train and test, and write the record."""
    started, environment = time.time(), Environment.here()
    run.folder.mkdir(parents=True, exist_ok=True)
    write_json(run.folder / "settings.json", {"settings": run.settings})
    # The Trainer warns that tied embeddings, which a checkpoint holds once, are missing from it.
    with quiet_transformers():
        result = probe(run.data, run.encoder, run.settings["seed"], settings, run.folder)
    record = ProbingRecord(
        settings=decode(ProbingRunSettings, run.settings),
        **result,
        seconds_of_this_call=round(time.time() - started, 1),
        environment=environment,
    )
    write(record, run.record_file)


if __name__ == "__main__":
    main()
