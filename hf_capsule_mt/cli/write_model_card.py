"""Write a model card from the records of a run.

    hf-capsule-mt write_model_card --run_record run/run_record.json --output_file run/average/README.md \\
        --evaluations run/test_2016.json run/test_2017.json --license apache-2.0 --repo_id user/name

Training writes a card of its own, README.md in its output folder; this command writes one for another checkpoint of the
run, an average or the checkpoint-N that the file is in, or one with the scores of test sets and what no record says.
The evaluations are what hf-capsule-mt evaluate --output_file wrote, the speed what python -m benchmarks.speed train
--output_file wrote.
"""

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from transformers.utils import CONFIG_NAME

from hf_capsule_mt.files import read_json, replace_text
from hf_capsule_mt.hub.model_card import CardDetails, make_model_card
from hf_capsule_mt.records import EvaluationRecord, RunRecord, SpeedRecord, read
from hf_capsule_mt.trainer_state import step_of
from hf_capsule_mt.training.averaging import averaged_checkpoints

from .common import CommandParser, check_distinct, check_output_file, report_user_errors

_DETAILS = {field.name for field in fields(CardDetails)}
# Fields that a checkpoint may have otherwise than its run.
_NOT_OF_THE_RUN = {"architectures", "dtype", "transformers_version", "use_cache"}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    parser.add_argument("--run_record", type=Path, required=True, help="run_record.json of the training run")
    parser.add_argument("--output_file", type=Path, required=True, help="README.md in the checkpoint's folder")
    parser.add_argument("--evaluations", type=Path, nargs="+", default=[], help="records of hf-capsule-mt evaluate")
    parser.add_argument("--speed", type=Path, help="a record of python -m benchmarks.speed train")
    parser.add_argument("--repo_id", help="user/name on the Hub (default: push_to_hub fills it in)")
    parser.add_argument("--source_lang", help="ISO 639 code (default: the data's, or the ending of the file)")
    parser.add_argument("--target_lang", help="likewise")
    parser.add_argument("--license", help="of the model, as the Hub names it: apache-2.0, cc-by-4.0, other, ...")
    parser.add_argument("--license_name", help="name of a licence that the Hub does not know, with --license other")
    parser.add_argument("--data_name", help="of the training data (default: its data set or files)")
    parser.add_argument("--data_license", help="of the training data")
    parser.add_argument("--example", help="a sentence to translate in the card's examples")
    parser.add_argument("--note", help="a paragraph under the results: how the translations were made")
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Write the card."""
    args = build_parser().parse_args(argv)
    check_output_file(args.output_file)
    check_distinct([("--output_file", args.output_file)], [args.run_record, args.speed, *args.evaluations])
    folder, record = args.output_file.absolute().parent, read(RunRecord, args.run_record)
    _check_model(folder / CONFIG_NAME, record, args.run_record)
    given = {name: value for name, value in vars(args).items() if name in _DETAILS and value is not None}
    card = make_model_card(
        record,
        [read(EvaluationRecord, path) for path in args.evaluations],
        read(SpeedRecord, args.speed) if args.speed is not None else None,
        CardDetails(**given, averaged=averaged_checkpoints(folder), updates=step_of(folder)),
    )
    replace_text(args.output_file, str(card))
    print(args.output_file)


def _check_model(file: Path, record: RunRecord, record_file: Path) -> None:
    """Raise a ValueError if a model is beside the card, by its configuration, that another run trained."""
    found = read_json(file) if file.is_file() else {}
    for name, value in record.config.items():
        if name not in _NOT_OF_THE_RUN and found.get(name, value) != value:
            raise ValueError(
                f"{file} has {name} = {found[name]!r:.80}, but the run of {record_file} {value!r:.80}; give the record "
                "of the run that trained this model, or the folder of a model of that run"
            )


if __name__ == "__main__":
    main()
