"""Write the card of every published row from its records: python model_cards/write_all.py [FOLDER]."""

import sys
from collections.abc import Iterator
from pathlib import Path

from hf_capsule_mt.cli.write_model_card import main as write_model_card

FOLDER = Path(__file__).parent
RECORDS = FOLDER.parent / "benchmarks" / "records"
CORPUS = {
    "--data_name": "Multi30k, lower-cased, normalised and Moses-tokenised",
    "--data_license": "research and education, non-commercial",
    "--license": "other",
    "--license_name": "non-commercial",
}
"""Options of the training data, and what follows from them."""
_NOTE = "The scores are of the mean of the run's last ten checkpoints, 100 updates apart, decoded with 5 beams."
_DISTILLED = " The targets of its training data are translations by multi30k-en-de-tiny-transformer-3000, with 4 beams."


def main(folder: Path = FOLDER) -> None:
    """Write the cards into a folder."""
    for record in sorted(RECORDS.glob("multi30k_*_run_record.json")):
        row = record.name.removeprefix("multi30k_").removesuffix("_run_record.json")
        write_model_card([*_options(row), "--run_record", str(record), "--output_file", str(folder / _card(row))])


def _card(row: str) -> str:
    return f"multi30k-en-de-tiny-{row}.md"


def _options(row: str) -> Iterator[str]:
    yield "--evaluations"
    yield from (str(RECORDS / f"multi30k_{row}_test_{year}_flickr.json") for year in (2016, 2017))
    if row == "rnmt-gdr":
        yield from ("--speed", str(RECORDS / "speed_tiny_rnmt-gdr.json"))
    elif row.startswith("transformer") or row in ("em-routing", "gdr"):
        yield from ("--speed", str(RECORDS / "speed_tiny.json"))
    yield from ("--note", _NOTE + (_DISTILLED if row.endswith("-distilled") else ""))
    yield from ("--example", "two dogs are running on the beach .")
    yield from (word for option in CORPUS.items() for word in option)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
