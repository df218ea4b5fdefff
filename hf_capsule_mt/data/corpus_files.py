"""Files of parallel text: which formats there are, which files make a corpus, and how a row names its two sides."""

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_capsule_mt.errors import UserError

from .lines import RawPair, decode, without_compression

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

_FORMATS = {
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".csv": "csv",
    ".tmx": "tmx",
}

_WILDCARDS = {"**/": "((?:[^/]+/)*)", "*": "([^/]*)"}
"""What wildcards of patterns match, as regular expressions."""


@dataclass(frozen=True)
class Columns:
    """Names that tell the source from the target in a row.

    A row is {"translation": {"en": "...", "de": "..."}}, read by its languages, or {"en": "...", "de": "..."}, read by
    its columns. A column has the name of its language unless another is given.
    """

    source_lang: str | None = None
    target_lang: str | None = None
    source_column: str | None = None
    target_column: str | None = None

    @property
    def names(self) -> tuple[str | None, str | None]:
        """The columns of the source and of the target."""
        source = self.source_column or self.source_lang
        target = self.target_column or self.target_lang
        return source, target

    def check(self, where: str) -> None:
        """Raise a UserError unless both sides have a name, and not the same."""
        source, target = self.names
        if source is None or target is None or source == target:
            raise UserError(
                f"{where} needs two different names: source_lang and target_lang, such as en and de, or source_column "
                "and target_column."
            )

    def pick(self, row: Any, where: str) -> RawPair:
        """Return both sides of a row. A side that is null is empty.

        Args:
            row: an object with the two sides, or with them in its field "translation".
            where: begins an error message, such as FILE:LINE.

        Raises:
            UserError: if the row has no such side, or it is not text.
        """
        source_name, target_name = self.names
        sides = row

        # Columns with names of their own are in the row itself, or name languages otherwise than the model does.
        has_own_columns = self.source_column is not None and self.target_column is not None
        if _has_translation_field(row) and not (has_own_columns and source_name in row):
            if not has_own_columns:
                source_name = self.source_lang
                target_name = self.target_lang
            sides = row["translation"]

        if not _has_side(sides, source_name) or not _has_side(sides, target_name):
            raise UserError(f'{where} has no text for both "{source_name}" and "{target_name}": {row!r:.200}')
        return _text(sides[source_name]), _text(sides[target_name])

    def select(self, dataset: "Dataset | IterableDataset") -> "Dataset | IterableDataset":
        """Return only the columns of a data set that may hold the two sides, or all if its columns are not known."""
        known_columns = dataset.column_names or ()
        useful_columns = {"translation", *self.names}.intersection(known_columns)
        if not useful_columns:
            return dataset
        return dataset.select_columns(sorted(useful_columns))


def _has_translation_field(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("translation"), dict)


def _has_side(sides: Any, name: str | None) -> bool:
    """Return whether the sides of a pair have one of this name, which is text or null."""
    return isinstance(sides, dict) and name in sides and isinstance(sides[name], str | None)


def _text(side: str | None) -> str | None:
    """Return one side of a row: "" for null, and None for what UTF-8 cannot spell."""
    if side is None:
        return ""
    # JSON can spell half of a surrogate pair, which UTF-8 cannot.
    return decode(side.encode(errors="surrogatepass"))


@dataclass(frozen=True)
class Shard:
    """A file of pairs, or a file of sources and the file of their translations."""

    format: str
    """text, tsv, jsonl, parquet, csv or tmx."""
    paths: tuple[Path, ...]
    """Two for text, one for any other format."""


@dataclass(frozen=True)
class Corpus:
    """Files that are read one after the other."""

    shards: tuple[Shard, ...]

    def __str__(self) -> str:
        first_shard = self.shards[0]
        text = ", ".join(str(path) for path in first_shard.paths)
        others = len(self.shards) - 1
        if others:
            text += f" and {others} more"
        return text


def find_corpora(files: Sequence[str | Path], columns: Columns, name: str = "training data") -> list[Corpus]:
    """Return the corpora that `files` name.

    A corpus is one word that names a .tsv, .jsonl, .csv, .parquet or .tmx file, or two words that name a text file of
    sources and the file of their translations. A word may be a pattern, such as `part-*.tsv`. The files that it matches
    are one corpus, in the order of their names. Two patterns, such as `part-*.en` and `part-*.de`, join the files in
    which `*` matched the same.

    Args:
        files: the words.
        columns: how a row names its two sides. Only files of rows need it.
        name: what error messages call the data.

    Raises:
        UserError: if the files do not go together, or a pattern matches nothing.
    """
    corpora = []
    words = iter(files)
    for word in words:
        paths = expand(word, name)
        kind = file_format(paths[0])
        if kind == "text":
            translations = next(words, None)
            shards = _text_shards(word, paths, translations, several=len(files) > 2, name=name)
        else:
            shards = tuple(Shard(kind, (path,)) for path in paths)
            if kind != "tsv":
                columns.check(f"{name}: {word}")
        corpora.append(Corpus(shards))

    if not corpora:
        raise UserError(f"{name}: there are no files.")
    return corpora


def matching_files(file: str | Path, name: str) -> tuple[Path, ...]:
    """Return the file, or those that a pattern matches. `**` stands for any folders.

    Raises:
        UserError: about `name`, if there are none.
    """
    # A file may have "*" in its name.
    if not glob.has_magic(str(file)) or Path(file).is_file():
        return (Path(file),)
    matches = sorted(glob.glob(str(file), recursive=True))
    paths = tuple(Path(match) for match in matches if Path(match).is_file())
    if not paths:
        raise UserError(f"{name}: {file} matches no file.")
    return paths


def expand(file: str | Path, name: str = "training data") -> tuple[Path, ...]:
    """Return the file, or those that a pattern matches.

    Raises:
        UserError: about `name`, if there are none, or they are of several formats.
    """
    paths = matching_files(file, name)
    formats = {file_format(path) for path in paths}
    if len(formats) > 1:
        raise UserError(f"{name}: {file} matches files of several formats.")
    return paths


def _text_shards(
    word: str | Path,
    sources: tuple[Path, ...],
    translations: str | Path | None,
    *,
    several: bool,
    name: str,
) -> tuple[Shard, ...]:
    """Return the shards of a word for sources and the word behind it. `several` says that there are more words."""
    targets = ()
    if translations is not None:
        targets = expand(translations, name)

    is_text = bool(targets) and file_format(targets[0]) == "text"
    # Two files with one ending are sources, as a shell writes them for a pattern without quotes.
    has_one_ending = is_text and _ending(sources[0]) == _ending(targets[0])
    if not is_text or (several and has_one_ending):
        raise UserError(
            f"{name}: {word} is followed by {translations or 'nothing'}. Name the file of its translations behind it, "
            "and put patterns in quotes."
        )

    if len(sources) == len(targets) == 1:
        # Two names without a pattern have nothing in common.
        pairs = [(sources[0], targets[0])]
    else:
        pairs = _pairs_by_match(word, sources, translations, targets, name)

    for source, target in pairs:
        check_two_files(source, target, name)
    return tuple(Shard("text", pair) for pair in pairs)


def _ending(path: Path) -> str:
    return without_compression(path).suffix


def _pairs_by_match(
    source_word: str | Path,
    source_paths: tuple[Path, ...],
    target_word: str | Path,
    target_paths: tuple[Path, ...],
    name: str,
) -> list[tuple[Path, Path]]:
    """Pair the files of two patterns in which each `*` matches the same."""
    sources = {_matched(source_word, path): path for path in source_paths}
    targets = {_matched(target_word, path): path for path in target_paths}
    # Of two files with the same match only one would be left, such as part-1.en and part-1.en.gz.
    is_ambiguous = len(sources) < len(source_paths) or len(targets) < len(target_paths)
    if is_ambiguous or sources.keys() != targets.keys():
        raise UserError(f"{name}: each file of {source_word} needs one of {target_word} in which * matches the same.")
    return [(path, targets[match]) for match, path in sources.items()]


def _matched(pattern: str | Path, path: Path) -> tuple[str, ...]:
    """Return what each `*` of a pattern has matched in a path, compression aside."""
    pattern_text = str(without_compression(Path(pattern)))
    path_text = str(without_compression(path))
    expression = ""
    for part in re.split(r"(\*\*/|\*)", pattern_text):
        expression += _WILDCARDS.get(part) or re.escape(part)
    match = re.fullmatch(expression, path_text, re.DOTALL)
    if match is None:
        # Patterns may also have "?" or "[...]", which this does not read.
        return (str(path),)
    return match.groups()


def check_two_files(source: Path, target: Path, name: str) -> None:
    """Raise a UserError, about `name`, if the sources and their translations are in the same file."""
    if source.is_file() and target.is_file() and source.samefile(target):
        raise UserError(f"{name}: {source} and {target} are the same file.")


def file_format(path: Path) -> str:
    """Return the format of a file by its name: text, tsv, jsonl, parquet, csv or tmx."""
    return _FORMATS.get(without_compression(path).suffix, "text")
