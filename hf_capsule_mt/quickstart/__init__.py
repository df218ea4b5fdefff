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
    with gzip.open(_FILE, "rt", encoding="utf-8") as lines:
        return [tuple(line.rstrip("\n").split("\t")) for line in islice(lines, num_sentences)]


def write_corpus(
    directory: str | Path, *, num_train: int = 8000, num_validation: int = 200, num_test: int = 400
) -> None:
    """Write {train,validation,test}.{en,de} to `directory`: a sentence a line, the two languages aligned.

    No English sentence is in two of the three parts.

    Raises:
        UserError: if there are not so many.
    """
    sizes = {"train": num_train, "validation": num_validation, "test": num_test}
    pairs = iter(read_corpus(sum(sizes.values())))
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for part, size in sizes.items():
        for language, lines in zip(("en", "de"), zip(*islice(pairs, size))):
            replace_text(directory / f"{part}.{language}", "".join(f"{line}\n" for line in lines))
