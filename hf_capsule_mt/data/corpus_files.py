"""Files of parallel text: which formats there are, which files make a corpus, and how a row names its two sides."""

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_capsule_mt.errors import UserError

from .lines import decode, without_compression

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

# One segment of each side, None where its bytes are not UTF-8.
RawPair = tuple[str | None, str | None]

_FORMATS = {".tsv": "tsv", ".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet", ".csv": "csv", ".tmx": "tmx"}


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
        return self.source_column or self.source_lang, self.target_column or self.target_lang

    def check(self, where: str) -> None:
        """Raise a UserError unless both sides have a name, and not the same."""
        if None in self.names or self.names[0] == self.names[1]:
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
        names = self.names
        sides = row
        # A column of one's own name is in the row itself.
        has_own_columns = self.source_column is not None and self.target_column is not None
        if isinstance(row, dict) and isinstance(row.get("translation"), dict) and not has_own_columns:
            names = (self.source_lang, self.target_lang)
            sides = row["translation"]
        has_both = isinstance(sides, dict) and all(name in sides for name in names)
        if not has_both or not all(isinstance(sides[name], str | None) for name in names):
            raise UserError(f'{where} has no text for both "{names[0]}" and "{names[1]}": {row!r:.200}')
        return _text(sides[names[0]]), _text(sides[names[1]])

    def select(self, dataset: "Dataset | IterableDataset") -> "Dataset | IterableDataset":
        """Return only the columns of a data set that may hold the two sides, or all if its columns are not known."""
        names = {"translation", *self.names} & {*(dataset.column_names or ())}
        return dataset.select_columns(sorted(names)) if names else dataset


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
        more = f" and {len(self.shards) - 1} more" if len(self.shards) > 1 else ""
        return f"{', '.join(map(str, self.shards[0].paths))}{more}"


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


def expand(file: str | Path, name: str = "training data") -> tuple[Path, ...]:
    """Return the file, or those that a pattern matches. Raise a UserError, about `name`, if there are none."""
    if not glob.has_magic(str(file)) or Path(file).is_file():
        return (Path(file),)
    matches = (Path(match) for match in sorted(glob.glob(str(file))))
    paths = tuple(path for path in matches if path.is_file())
    if not paths:
        raise UserError(f"{name}: {file} matches no file.")
    if len({file_format(path) for path in paths}) > 1:
        raise UserError(f"{name}: {file} matches files of several formats.")
    return paths


def _text_shards(
    word: str | Path, sources: tuple[Path, ...], translations: str | Path | None, *, several: bool, name: str
) -> tuple[Shard, ...]:
    """Return the shards of a word for sources and the word behind it. `several` says that there are more words."""
    targets = () if translations is None else expand(translations, name)
    is_text = targets and file_format(targets[0]) == "text"
    # Two files with one ending are sources, as a shell writes them for a pattern without quotes.
    endings = {without_compression(paths[0]).suffix for paths in (sources, targets) if paths}
    if not is_text or (several and len(endings) == 1):
        raise UserError(
            f"{name}: {word} is followed by {translations or 'nothing'}. Name the file of its translations behind it, "
            "and put patterns in quotes."
        )
    return _pairs((word, sources), (translations, targets), name)


def _pairs(
    source: tuple[str | Path, tuple[Path, ...]], target: tuple[str | Path, tuple[Path, ...]], name: str
) -> tuple[Shard, ...]:
    """Pair the files of two words, each a pattern and the files that it matches."""
    source_word, source_paths = source
    target_word, target_paths = target
    sources = {_matched(source_word, path): path for path in source_paths}
    targets = {_matched(target_word, path): path for path in target_paths}
    if len(source_paths) == len(target_paths) == 1:
        # Two names without a pattern have nothing in common.
        targets = dict.fromkeys(sources, target_paths[0])
    is_ambiguous = len(sources) < len(source_paths) or len(targets) < len(target_paths)
    if is_ambiguous or sources.keys() != targets.keys():
        raise UserError(f"{name}: each file of {source_word} needs one of {target_word} in which * matches the same.")
    for key, path in sources.items():
        check_two_files(path, targets[key], name)
    return tuple(Shard("text", (path, targets[key])) for key, path in sources.items())


def _matched(pattern: str | Path, path: Path) -> tuple[str, ...]:
    """Return what each `*` of a pattern has matched in a path, compression aside."""
    fixed = str(without_compression(Path(pattern))).split("*")
    expression = "([^/]*)".join(map(re.escape, fixed))
    match = re.fullmatch(expression, str(without_compression(path)), re.DOTALL)
    return match.groups() if match else (str(path),)


def check_two_files(source: Path, target: Path, name: str) -> None:
    """Raise a UserError, about `name`, if the sources and their translations are in the same file."""
    if source.is_file() and target.is_file() and source.samefile(target):
        raise UserError(f"{name}: {source} and {target} are the same file.")


def file_format(path: Path) -> str:
    """Return the format of a file by its name: text, tsv, jsonl, parquet, csv or tmx."""
    return _FORMATS.get(without_compression(path).suffix, "text")
