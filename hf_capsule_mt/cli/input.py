"""The files that a command reads."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hf_capsule_mt.data.pair_files import ending_of_pairs


def check_input_file(option: str, path: Path, pipe: bool = False) -> None:
    """Raise a FileNotFoundError unless there is a file at `path`, which `option` names, or a pipe where one will do."""
    if not (path.is_file() or (pipe and path.is_fifo())):
        raise FileNotFoundError(f"{option} names {path}, which is not a file; check the path")


def check_text_file(option: str, path: Path) -> None:
    """Check that there is a file at `path`, which `option` names, and that it is not one of pairs, by its name.

    Raises:
        FileNotFoundError: if there is no file.
        ValueError: if its name ends as that of a file of pairs, whose lines are more than their sources.
    """
    check_input_file(option, path)
    ending = ending_of_pairs(path)
    if ending is not None:
        cut = f": {'' if path.suffix == ending else 'unpacked, '}cut -f1 {path.name}" if ending == ".tsv" else ""
        raise ValueError(
            f"{option} names {path}, and a {ending} file holds more than the text to translate; give a text file, one "
            f"segment a line{cut}"
        )


def files_of_dataset(name: str | None) -> Iterator[Path]:
    """Yield the files of a data set that is a folder; one of the Hub has none here."""
    if name is not None:
        yield from (path for path in Path(name).rglob("*") if path.is_file())


def check_line_counts(texts: Mapping[str, Sequence[str]]) -> None:
    """Raise a ValueError unless texts, by option and file, have as many lines as the first of them."""
    (first, lines), *others = texts.items()
    for name, text in others:
        if len(text) != len(lines):
            raise ValueError(
                f"{first} has {len(lines)} lines, and {name} has {len(text)}; line i of both must be the same sentence"
            )
