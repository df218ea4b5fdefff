"""Train probing classifiers on encoders that aggregate their heads in three ways.

These are the classifiers of Li et al. 2019, Table 1.

    hf-capsule-mt probe --data_dir SentEval/data/probing --output_dir probing_runs
    hf-capsule-mt probe --data_dir probing --output_dir probing_runs --size tiny --tasks bigram_shift --seeds 1 2

The folder holds some of SentEval's ten files by their own names (sentence_length.txt, word_content.txt, ...), or those
of `generate_probing`. Every classifier is trained from scratch and leaves a JSON record in the output folder;
the table, in Markdown, is made from the records and is also written there, to table.md. Running the command again skips
what has a record and resumes the run that was interrupted.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import report_user_errors
from .output import check_output_folder
from .parser import CommandParser
from .quiet import quiet_transformers

if TYPE_CHECKING:
    from hf_capsule_mt.data.probing import ProbingData
    from hf_capsule_mt.evaluation.probing import ProbingSettings

AGGREGATIONS = ("base", "simple", "em")
# Option: type, default, what it is.
_SETTINGS = {
    "size": (str, "base", "of the three-layer encoder: tiny, base or big"),
    "vocab_size": (int, 32000, "most words: the most frequent of the training split"),
    "epochs": (int, 10, "passes over the training split; the best on the validation split is tested"),
    "batch_size": (int, 64, "sentences of an update"),
    "learning_rate": (float, 5e-4, "AdamW's peak; it rises over a tenth of the updates, then falls to 0"),
}


def build_parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = CommandParser(__doc__)
    parser.add_argument("--data_dir", type=Path, required=True, help="folder with the files of the tasks")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder for records and table.md")
    parser.add_argument("--tasks", nargs="+", default=[], help="names of files without .txt (default: all there are)")
    parser.add_argument(
        "--aggregations", nargs="+", default=list(AGGREGATIONS), help=f"default: {' '.join(AGGREGATIONS)}"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="default: 1 2 3")
    for name, (kind, default, description) in _SETTINGS.items():
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{description} (default: %(default)s)")
    return parser


@dataclass(frozen=True)
class _Run:
    """One classifier; `settings` is all that decides what comes out."""

    settings: Mapping[str, Any]
    data: "ProbingData"
    folder: Path

    @property
    def record_file(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.json")


@report_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Carry out the runs that have no record, delete their checkpoints, then print the table of all and write it."""
    args = build_parser().parse_args(argv)

    import shutil
    import sys

    from hf_capsule_mt.evaluation.probing import ProbingSettings
    from hf_capsule_mt.evaluation.probing_report import report
    from hf_capsule_mt.files import replace_text
    from hf_capsule_mt.records import ProbingRecord, read

    check_output_folder(args.output_dir)
    settings = ProbingSettings(**{name: getattr(args, name) for name in _SETTINGS})
    runs = _runs(args, settings)
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


def _runs(args: argparse.Namespace, settings: "ProbingSettings") -> list[_Run]:
    """Every task with every aggregation and seed; all data is read now, so that mistakes in it show before training."""
    from dataclasses import asdict
    from itertools import product

    from hf_capsule_mt.configuration.checks import check_choice
    from hf_capsule_mt.data.probing import find_tasks, read_probing_data
    from hf_capsule_mt.files import hash_file

    for aggregation in args.aggregations:
        check_choice("aggregations has an entry that", aggregation, AGGREGATIONS)
    for seed in args.seeds:
        if seed < 0:
            raise ValueError(f"seeds has {seed}; seeds are 0 or more")
    runs = []
    for task in find_tasks(args.data_dir, args.tasks):
        file = args.data_dir / task.file_name
        data, digest = read_probing_data(file), hash_file(file)
        for aggregation, seed in product(dict.fromkeys(args.aggregations), dict.fromkeys(args.seeds)):
            chosen = {"task": task.name, "aggregation": aggregation, "seed": seed, **asdict(settings)}
            folder = args.output_dir / f"{task.name}-{aggregation}-{seed}"
            runs.append(_Run({**chosen, "data_sha256": digest}, data, folder))
    return runs


def _check_earlier(run: _Run) -> None:
    """Raise ValueError if there is a record or an interrupted run of the same name that had other settings."""
    import json

    for file in (run.record_file, run.folder / "settings.json"):
        if not file.exists():
            continue
        found = json.loads(file.read_text(encoding="utf-8"))["settings"]
        for name, value in run.settings.items():
            if found.get(name) != value:
                raise ValueError(
                    f"{file} is of a run with {name} {found.get(name)!r}, and now it is {value!r}; repeat the run as "
                    "it was, or name another --output_dir"
                )


def _carry_out(run: _Run, settings: "ProbingSettings") -> None:
    """Train and test, and write the record."""
    import time

    from hf_capsule_mt.evaluation.probing import probe
    from hf_capsule_mt.json_fields import decode
    from hf_capsule_mt.records import Environment, ProbingRecord, ProbingRunSettings, write

    from .output import write_json

    started, environment = time.time(), Environment.here()
    run.folder.mkdir(parents=True, exist_ok=True)
    write_json(run.folder / "settings.json", {"settings": run.settings})
    # The Trainer warns that tied embeddings are missing in a checkpoint, where they are once.
    with quiet_transformers():
        result = probe(run.data, run.settings["aggregation"], run.settings["seed"], settings, run.folder)
    record = ProbingRecord(
        settings=decode(ProbingRunSettings, run.settings),
        **result,
        seconds_of_this_call=round(time.time() - started, 1),
        environment=environment,
    )
    write(record, run.record_file)


if __name__ == "__main__":
    main()
