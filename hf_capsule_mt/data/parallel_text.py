"""Parallel text from files and from the Hub.

A pair that is of no use is dropped and counted: one side is empty, or its bytes are not UTF-8. What puts the
alignment in doubt is an error: files of different length, a line of three columns, a missing language.
"""

import codecs
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from hf_capsule_mt.data.segments import each_unbroken, write_lines
from hf_capsule_mt.files import parse_json
from hf_capsule_mt.records import ReadReport

# One segment of each side, None where its bytes are not UTF-8.
RawPair = tuple[str | None, str | None]


@dataclass
class ParallelText:
    """Segment i of `sources` is translated by segment i of `targets`."""

    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    report: ReadReport = field(default_factory=ReadReport)


def read_parallel_text(
    files: Sequence[str | Path],
    source_lang: str | None = None,
    target_lang: str | None = None,
    *,
    name: str = "training data",
) -> ParallelText:
    """Read pairs from two line-aligned text files or from one .tsv or .jsonl file, each of them plain or .gz.

    Args:
        files: source and target file, one segment a line; or one .tsv file of two columns, source and target;
            or one .jsonl (.json) file with {"translation": {"en": "...", "de": "..."}} on each line.
        source_lang: key of the source in "translation"; only .jsonl needs it.
        target_lang: key of the target, likewise.
        name: what error messages call the data.

    Raises:
        ValueError: another number or kind of files, the same file twice, files of different length, a line that is
            not what its format asks for, or no pair left.
        OSError: a file that is missing or unreadable.
    """
    return _collect(_raw_pairs(files, source_lang, target_lang, name), f"{name} ({', '.join(map(str, files))})")


def each_source(
    files: Sequence[str | Path],
    source_lang: str | None = None,
    target_lang: str | None = None,
    *,
    name: str = "training data",
) -> Iterator[str]:
    """Yield the sources of the pairs that [`read_parallel_text`] keeps, as they are read; it has the arguments too.

    Raises:
        ValueError: see there, when the place in question is read.
        OSError: see there.
    """
    for source, _ in _useful(_raw_pairs(files, source_lang, target_lang, name), ReadReport()):
        yield source


def _raw_pairs(
    files: Sequence[str | Path], source_lang: str | None, target_lang: str | None, name: str
) -> Iterable[RawPair]:
    paths = [Path(file) for file in files]
    listed = ", ".join(map(str, paths))
    match [_format(path) for path in paths]:
        case ["text", "text"]:
            check_two_files(*paths, name)
            return _aligned_pairs(*paths, name)
        case ["tsv"]:
            return _tsv_pairs(paths[0])
        case ["jsonl"] if source_lang and target_lang:
            return _jsonl_pairs(paths[0], source_lang, target_lang)
        case ["jsonl"]:
            raise ValueError(f"{name}: {listed} needs source_lang and target_lang, such as en and de.")
        case _:
            raise ValueError(
                f"{name}: give a source and a target file of plain text, or one .tsv or .jsonl file (each "
                f"may be .gz), not {listed or 'nothing'}."
            )


def check_parallel_files(files: Sequence[str | Path], source_lang: str | None, target_lang: str | None) -> None:
    """Raise a ValueError unless [`write_parallel_text`] can write to files of these names."""
    formats = [_format(Path(file)) for file in files]
    if formats not in (["text", "text"], ["tsv"], ["jsonl"]) or len(set(files)) < len(formats):
        raise ValueError(
            "name a source and a target file of plain text, or one .tsv or .jsonl file (each may be .gz), not "
            f"{', '.join(map(str, files)) or 'nothing'}"
        )
    if formats == ["jsonl"] and not (source_lang and target_lang):
        raise ValueError(f"{files[0]} needs source_lang and target_lang, such as en and de")


def write_parallel_text(
    files: Sequence[str | Path],
    sources: Iterable[str],
    targets: Iterable[str],
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> None:
    """Write pairs as they come, as [`read_parallel_text`] reads them; an interruption leaves old files, or none.

    A line break in a segment becomes a space, with a warning that counts them, and so does a tab in a .tsv file, which
    could not hold it otherwise.

    Raises:
        ValueError: see [`check_parallel_files`]; or a segment holds half of a surrogate pair. Nothing is written then.
        OSError: if a file cannot be written, or reads back as another number of segments.
    """
    check_parallel_files(files, source_lang, target_lang)
    paths = [Path(file) for file in files]
    sources = each_unbroken(sources, f"sources for {paths[0]}")
    targets = each_unbroken(targets, f"targets for {paths[-1]}")
    pairs = zip(sources, targets, strict=True)
    match _format(paths[0]):
        case "tsv":
            contents = [(f"{_one_column(source)}\t{_one_column(target)}" for source, target in pairs)]
        case "jsonl":
            rows = ({"translation": {source_lang: source, target_lang: target}} for source, target in pairs)
            contents = [(json.dumps(row, ensure_ascii=False) for row in rows)]
        case _:
            contents = [sources, targets]
    write_lines(paths, contents)


def _one_column(text: str) -> str:
    return text.replace("\t", " ")


def load_hub_parallel_text(
    dataset_name: str,
    dataset_config_name: str | None,
    split: str,
    source_lang: str,
    target_lang: str,
) -> ParallelText:
    """Read pairs from the "translation" column of a data set of the Hub or of a local folder.

    Raises:
        ValueError: no such configuration, split, column or language, or no pair left.
        OSError: no such data set.
    """
    where = f"{dataset_name}, split {split}"
    return _collect(_hub_pairs(dataset_name, dataset_config_name, split, source_lang, target_lang), where)


def each_hub_source(
    dataset_name: str, dataset_config_name: str | None, split: str, source_lang: str, target_lang: str
) -> Iterator[str]:
    """Yield the sources of the pairs that [`load_hub_parallel_text`] keeps; it has the arguments, and raises, too."""
    pairs = _hub_pairs(dataset_name, dataset_config_name, split, source_lang, target_lang)
    for source, _ in _useful(pairs, ReadReport()):
        yield source


def _hub_pairs(
    dataset_name: str, dataset_config_name: str | None, split: str, source_lang: str, target_lang: str
) -> Iterator[RawPair]:
    from datasets import load_dataset

    dataset = load_dataset(dataset_name, dataset_config_name, split=split)
    where = f"{dataset_name}, split {split}"
    if "translation" not in dataset.column_names:
        raise ValueError(f'{where}: no column "translation", only {", ".join(dataset.column_names)}.')
    for translation in dataset["translation"]:
        yield _pick(translation, source_lang, target_lang, where)


def read_lines(path: str | Path) -> list[str]:
    """Segments of a plain or .gz text file: only a line feed ends one, with or without a carriage return.

    Raises:
        ValueError: a line that is not UTF-8, or a damaged .gz file.
        OSError: a file that is missing or unreadable.
    """
    return list(each_line(path))


def each_line(path: str | Path) -> Iterator[str]:
    """Yield the segments of [`read_lines`] as they are read."""
    for number, line in enumerate(_byte_lines(Path(path)), start=1):
        text = _decode(line)
        if text is None:
            raise ValueError(f"{path}:{number}: not UTF-8. Convert the file, for example by iconv.")
        yield text


def is_plain_text(file: str | Path) -> bool:
    """Return whether a file is, by its name, plain text with a segment a line."""
    return _format(Path(file)) == "text"


def _format(path: Path) -> str:
    suffix = (path.with_suffix("") if path.suffix == ".gz" else path).suffix
    return {".tsv": "tsv", ".jsonl": "jsonl", ".json": "jsonl"}.get(suffix, "text")


def _byte_lines(path: Path) -> Iterator[bytes]:
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        try:
            for number, line in enumerate(file):
                line = line.removesuffix(b"\n").removesuffix(b"\r")
                yield line if number else line.removeprefix(codecs.BOM_UTF8)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} is not a whole gzip file: {error}") from error


def _decode(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def check_two_files(source: Path, target: Path, name: str) -> None:
    """Raise a ValueError, about `name`, if the sources and their translations are in the same file."""
    if source.is_file() and target.is_file() and source.samefile(target):
        raise ValueError(f"{name}: {source} and {target} are the same file; name the sources, and their translations.")


def _aligned_pairs(source_file: Path, target_file: Path, name: str) -> Iterator[RawPair]:
    sides = _byte_lines(source_file), _byte_lines(target_file)
    for number, pair in enumerate(zip_longest(*sides)):
        if None in pair:
            lengths = [number + (line is not None) + sum(1 for _ in side) for line, side in zip(pair, sides)]
            raise ValueError(
                f"{name}: {source_file} has {lengths[0]} lines and {target_file} has {lengths[1]}; line i of "
                "one must translate line i of the other."
            )
        yield _decode(pair[0]), _decode(pair[1])


def _tsv_pairs(path: Path) -> Iterator[RawPair]:
    for number, line in enumerate(_byte_lines(path), start=1):
        columns = line.split(b"\t") if line.strip() else [b"", b""]
        if len(columns) != 2:
            raise ValueError(f"{path}:{number}: {len(columns)} columns; there must be 2, source and target.")
        yield _decode(columns[0]), _decode(columns[1])


def _jsonl_pairs(path: Path, source_lang: str, target_lang: str) -> Iterator[RawPair]:
    for number, raw in enumerate(_byte_lines(path), start=1):
        where = f"{path}:{number}"
        line = _decode(raw)
        if line is None:
            yield None, None
        elif not line.strip():
            yield "", ""
        else:
            yield _pick(_translation(line, where), source_lang, target_lang, where)


def _translation(line: str, where: str) -> Any:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise ValueError(f"{where}: not JSON: {error}") from error
    return row.get("translation") if isinstance(row, dict) else None


def _pick(translation: Any, source_lang: str, target_lang: str, where: str) -> RawPair:
    if not isinstance(translation, dict):
        raise ValueError(f'{where}: expected {{"translation": {{"en": "...", "de": "..."}}}}.')
    for lang in (source_lang, target_lang):
        if lang not in translation:
            raise ValueError(f'{where}: no language "{lang}", only {", ".join(translation)}.')
        if not isinstance(translation[lang], str | None):
            raise ValueError(f'{where}: "{lang}" must be a string, not {translation[lang]!r:.80}.')
    return _encodable(translation[source_lang] or ""), _encodable(translation[target_lang] or "")


def _encodable(text: str) -> str | None:
    # JSON can spell half of a surrogate pair, which no UTF-8 can.
    return _decode(text.encode(errors="surrogatepass"))


def _collect(pairs: Iterable[RawPair], where: str) -> ParallelText:
    text = ParallelText()
    for source, target in _useful(pairs, text.report):
        text.sources.append(source)
        text.targets.append(target)
    if not text.report.kept:
        raise ValueError(f"{where} holds no usable pair: {text.report}.")
    return text


def _useful(pairs: Iterable[RawPair], report: ReadReport) -> Iterator[tuple[str, str]]:
    """Yield the pairs with text on both sides, and count all in the report."""
    for source, target in pairs:
        report.read += 1
        if source is None or target is None:
            report.invalid_utf8 += 1
        elif not source.strip() or not target.strip():
            report.empty += 1
        else:
            report.kept += 1
            yield source, target
