"""A corpus that needs no download: 8,600 different English sentences with German translations, drawn from a grammar.

read_corpus(8000)          # [("He tried to thank Maria.", "Er hat versucht, Maria zu danken."), ...]
write_corpus("builtin")    # builtin/train.en, builtin/train.de, builtin/validation.en, ...
"""

import gzip
from itertools import islice
from pathlib import Path

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import replace_text

SIZE = 8600
_FILE = Path(__file__).with_name("corpus.tsv.gz")


def read_corpus(num_sentences: int = SIZE) -> list[tuple[str, str]]:
    """Return the first `num_sentences` (English, German) pairs. No English sentence comes twice.

    Raises:
        UserError: if there are not so many.
    """
    if num_sentences > SIZE:
        raise UserError(f"num_sentences is {num_sentences}. The built-in corpus has {SIZE}.")
    pairs = []
    with gzip.open(_FILE, "rt", encoding="utf-8") as lines:
        for line in islice(lines, num_sentences):
            text = line.rstrip("\n")
            english, german = text.split("\t")
            pairs.append((english, german))
    return pairs


def write_corpus(
    directory: str | Path, *, num_train: int = 8000, num_validation: int = 200, num_test: int = 400
) -> None:
    """Write train.en, train.de, validation.en, validation.de, test.en and test.de: a sentence a line, aligned.

    No English sentence is in two of the three parts.

    Args:
        directory: the folder, which is made if it does not exist.
        num_train: pairs in the training text.
        num_validation: pairs in the validation text.
        num_test: pairs in the test text.

    Raises:
        UserError: if there are not so many pairs.
    """
    train_end = num_train
    validation_end = train_end + num_validation
    pairs = read_corpus(validation_end + num_test)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    _write_part(directory, "train", pairs[:train_end])
    _write_part(directory, "validation", pairs[train_end:validation_end])
    _write_part(directory, "test", pairs[validation_end:])


def _write_part(directory: Path, part: str, pairs: list[tuple[str, str]]) -> None:
    english = ""
    german = ""
    for source, target in pairs:
        english += source + "\n"
        german += target + "\n"
    replace_text(directory / f"{part}.en", english)
    replace_text(directory / f"{part}.de", german)
