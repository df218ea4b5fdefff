"""A corpus that needs no download: English sentences with German translations from a grammar of our own.

    generate_corpus(8000)      # [("Why is the boy crying?", "Warum weint der Junge?"), ...]
    write_corpus("builtin")    # builtin/train.en, builtin/train.de, builtin/validation.en, ...

`lexicon` has the words, `grammar` puts a clause into both languages, and `sentences`
decides what is said.
"""

import random
from itertools import islice
from pathlib import Path

from hf_capsule_mt.files import replace_text

from .sentences import sentences


def generate_corpus(num_sentences: int, *, seed: int = 0) -> list[tuple[str, str]]:
    """Draw `num_sentences` different (English, German) pairs: the same ones for a seed on every machine.

    No English sentence comes twice, and the grammar gives each only one German translation.

    Raises:
        ValueError: if `num_sentences` is negative or more than the grammar has.
    """
    grammar = sentences()
    if not 0 <= num_sentences <= grammar.size:
        raise ValueError(
            f"num_sentences is {num_sentences}, but the built-in grammar has {grammar.size} sentences; "
            "ask for a number from 0 to that."
        )
    rng = random.Random(seed)
    german_of: dict[str, str] = {}
    while len(german_of) < num_sentences:
        english, german = grammar.draw(rng)
        german_of.setdefault(english, german)
    return list(german_of.items())


def write_corpus(
    directory: str | Path,
    *,
    num_train: int = 8000,
    num_validation: int = 200,
    num_test: int = 400,
    seed: int = 0,
) -> None:
    """Write {train,validation,test}.{en,de} to `directory`: a sentence a line, the two languages aligned.

    No English sentence is in two of the three parts.

    Raises:
        ValueError: if a number is below 1, or they add up to more than the grammar has.
    """
    sizes = {"train": num_train, "validation": num_validation, "test": num_test}
    for part, size in sizes.items():
        if size < 1:
            raise ValueError(f"num_{part} is {size}; it must be at least 1.")
    pairs = iter(generate_corpus(sum(sizes.values()), seed=seed))
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for part, size in sizes.items():
        for language, lines in zip(("en", "de"), zip(*islice(pairs, size))):
            replace_text(directory / f"{part}.{language}", "".join(f"{line}\n" for line in lines))
