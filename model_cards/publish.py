"""Write a model to try out from a run of the study, and score it.

    python model_cards/publish.py outputs/does_routing_pay/plain multi30k-en-de-transformer

It is the first seed's, stored in bfloat16 and loaded in float32, with its tokenizer, its source and a card that has the
scores of these very weights, in checkpoints/NAME. The folder that the command is given in has the study's data.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
from write_all import CORPUS

import hf_capsule_mt  # noqa: F401
from benchmarks.studies.study import Row, Study
from benchmarks.studies.study_file import read_study
from hf_capsule_mt.cli.evaluate import main as evaluate
from hf_capsule_mt.cli.translate import main as translate
from hf_capsule_mt.cli.write_model_card import main as write_model_card
from hf_capsule_mt.files import check_empty, new_folder, read_json, write_json

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "checkpoints"
STUDY = ROOT / "benchmarks" / "studies" / "does_routing_pay.yaml"
CARD = {
    **CORPUS,
    "--example": "a dog runs through the snow .",
    "--note": "The weights are stored in bfloat16 and loaded in float32, which the engine decodes. The scores are of "
    "these weights, by `hf-capsule-mt translate` with 5 beams and a length penalty of 1.",
}

TAUGHT = " Its training targets are translations of the sources by the study's row `{teacher}`, not those of people."
FOUND = {
    "capsnmt-hybrid": " It hardly uses its capsules, and is not shown to be better than RNMT without them.",
    "head-em-routing-rate": " It is not shown to be better than the plain Transformer by the same learning rate.",
    "plain-one-layer": " In a few sentences it repeats a word without end, which `translate --report` marks.",
    "rnmt-gdr-on": " It hardly uses its capsules, and is not shown to be better than RNMT without them.",
}
"""What the study found that a user of the model should know."""


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", type=Path, help="a row's folder in the study's folder of runs")
    parser.add_argument("name", help="of the new folder")
    args = parser.parse_args()
    run, study = args.row / "seed1", read_study(STUDY)
    row = study.row(args.row.name)
    if row is None:
        parser.error(f"{args.row} is no row of {STUDY.name}")
    check_empty(FOLDER / args.name)
    with new_folder(FOLDER / args.name) as folder, TemporaryDirectory() as scores:
        AutoModelForSeq2SeqLM.from_pretrained(run, dtype=torch.bfloat16).save_pretrained(folder)
        load_in_float32(folder / "config.json")
        AutoTokenizer.from_pretrained(run).save_pretrained(folder)
        evaluations = list(evaluate_all(folder, study, Path(scores)))
        given = ["--run_record", str(run / "run_record.json"), "--output_file", str(folder / "README.md")]
        card = {**CARD, "--note": note(row), "--repo_id": f"{FOLDER.name}/{args.name}"}
        options = [word for option in card.items() for word in option]
        write_model_card([*given, *options, "--evaluations", *evaluations])
        without_revision(folder / "README.md")
    print(FOLDER / args.name)


def note(row: Row) -> str:
    """Return what the card says of the weights, of their teacher, and of what the study found."""
    taught = TAUGHT.format(teacher=row.teacher) if row.teacher else ""
    return CARD["--note"] + taught + FOUND.get(row.name, "")


def without_revision(card: Path) -> None:
    """Leave out what a card says of revisions, which a folder does not have."""
    text, count = re.subn(
        r', revision="COMMIT"|, and pin the\n`revision` to the commit you read', "", card.read_text("utf-8")
    )
    if count != 4:
        raise ValueError(f"{card}: revisions are named {count} times, and not 4")
    card.write_text(text, encoding="utf-8")


def load_in_float32(config: Path) -> None:
    """Have `from_pretrained` load the weights in float32, whatever they are stored in."""
    write_json(config, {**read_json(config), "dtype": "float32"})


def evaluate_all(model: Path, study: Study, folder: Path) -> Iterator[str]:
    """Translate and score every test set; yield the records."""
    for test in study.tests:
        written, record = folder / f"{test.name}.de", folder / f"{test.name}.json"
        texts = ["--input_file", test.source, "--output_file", str(written)]
        decoding = [f"--{name}={value}" for name, value in study.sections["translate"].items()]
        translate(["--model", str(model), *texts, *decoding])
        references = ["--references", *test.references, "--tokenize", "none"]
        evaluate(["--hypotheses", str(written), *references, "--output_file", str(record)])
        yield str(record)


if __name__ == "__main__":
    main()
