"""Folders with the outputs of several files: where each output is, and what all of them have in common."""

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hf_capsule_mt.data.lines import without_compression
from hf_capsule_mt.decoding.products.int8 import Int8Choice
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import read_json, write_json

from ..generation.model_options import DecodingOptions

RECORDS = ".records"
"""The folder of records in a folder of outputs. It is hidden, so that nobody publishes it with them."""
_OLD_RECORDS = "_records"
"""Its name in folders of earlier clones."""
_INT8_CHOICE = "int8_choice.json"


@dataclass(frozen=True)
class OutputName:
    """How outputs are called: a pattern such as "{stem}.{lang}{suffix}", or "values-{lang}/{name}".

    It stands for as many of the last parts of a path as it has itself. "{name}" is the name of the input, "{stem}" what
    is in front of its endings, and "{suffix}" its endings, also those of a compression.

    Args:
        pattern: the pattern.
        lang: what "{lang}" stands for, or None.

    Raises:
        UserError: if there is another name in braces, no language, another ending, or the pattern leaves the folder.
    """

    pattern: str = "{name}"
    lang: str | None = None

    def __post_init__(self) -> None:
        try:
            example = self.of(Path("a", "b.md"))
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            raise UserError(
                f"--output_name {self.pattern!r} cannot be read. Names in braces are {{name}}, {{stem}}, {{suffix}} "
                "and {lang}."
            ) from error
        if "{lang}" in self.pattern and self.lang is None:
            raise UserError(
                f"--output_name {self.pattern!r} needs --target_lang. Give it, or write the language in the name."
            )
        if example.is_absolute() or ".." in example.parts:
            raise UserError(f"--output_name {self.pattern!r} leaves the output folder. Name a path in it.")
        if example.suffix != ".md":
            raise UserError(f"--output_name {self.pattern!r} must end as the input does: with {{name}} or {{suffix}}.")

    def of(self, relative: Path) -> Path:
        """Return the path of an output, from that of its input in a folder."""
        # Of "1.2.de.md.gz" the endings are ".md.gz".
        plain = without_compression(relative)
        stem = plain.stem
        suffix = relative.name.removeprefix(stem)
        name = Path(self.pattern.format(name=relative.name, stem=stem, suffix=suffix, lang=self.lang))
        kept = relative.parts[: max(len(relative.parts) - len(name.parts), 0)]
        return Path(*kept, name)


def output_paths(paths: Sequence[Path], output_dir: Path, name: OutputName | None = None) -> dict[Path, Path]:
    """Return the output of each file: in the output folder, its path from a folder that has all files.

    This is the folder of an earlier run if it has them. Otherwise it is the nearest folder that they have in common.
    So a run over a part of the files finds their outputs where the run over all has put them.

    A file that is named twice comes once.

    Args:
        paths: the files.
        output_dir: the folder of the outputs.
        name: how outputs are called. By default as their inputs.

    Raises:
        UserError: if an output would replace one of the files or another output, a file is an output of an earlier run,
            an output would be among the records, or outputs of an earlier run would get other places.
    """
    _rename_old_records(output_dir)
    name = name or OutputName()
    # Links stay: each of two names of a file has an output.
    absolute = {_absolute(path): path for path in paths}
    base = _common_folder(absolute, output_dir, name)
    outputs: dict[Path, Path] = {}
    input_of: dict[Path, Path] = {}
    for whole_path, path in absolute.items():
        relative = name.of(whole_path.relative_to(base))
        if relative.parts[0] == RECORDS:
            raise UserError(f"{output_dir / RECORDS} is for records, so {path} cannot have its output there.")
        if Path(f"{relative}.json").parts[0] == _INT8_CHOICE:
            raise UserError(f"{path} cannot be translated into a folder, which has its own {_INT8_CHOICE}. Rename it.")
        other = input_of.setdefault(relative, path)
        if other is not path:
            raise UserError(f"{other} and {path} would both be written to {relative}. Give another --output_name.")
        outputs[path] = output_dir / relative
    replaced = {output.resolve() for output in outputs.values()}
    for path in outputs:
        if path.resolve() in replaced:
            raise UserError(f"--output_dir {output_dir} has {path}, which would be lost. Name another folder.")
        if _has_record(path, output_dir):
            raise UserError(
                f"{path} is an output in --output_dir {output_dir}. Leave it out of --input_file, or name another "
                "folder."
            )
    return outputs


def _rename_old_records(output_dir: Path) -> None:
    """Give the records of an earlier clone their place, so that finished outputs stay finished."""
    old = output_dir / _OLD_RECORDS
    new = output_dir / RECORDS
    if any(old.rglob("*.json")) and not new.exists():
        with suppress(OSError):
            # Of processes that begin together one is the first.
            old.rename(new)


def name_for_record(path: Path, output_dir: Path) -> str:
    """Return the path of an input as a record has it: from the output folder, so that both may move together."""
    return os.path.relpath(_absolute(path), output_dir.resolve())


def check_input_of(record: Mapping[str, Any], path: Path, output: Path, output_dir: Path) -> None:
    """Check that a record is not of another input that still exists. Old records do not name theirs.

    Args:
        record: the record of the output.
        path: what would be translated into the output.
        output: the output.
        output_dir: the folder of the outputs.

    Raises:
        UserError: if the output is of another file.
    """
    earlier = _input_of(record, output_dir)
    if earlier is not None and not earlier.samefile(path):
        raise UserError(
            f"{output} is the translation of {earlier}, and that of {path} would replace it. Name another folder."
        )


def _input_of(record: Mapping[str, Any], output_dir: Path) -> Path | None:
    """Return the input of a record, or None if it names none or the file is no longer there."""
    name = record.get("input")
    if not isinstance(name, str):
        return None
    path = _absolute(output_dir.resolve() / name)
    if not path.is_file():
        return None
    return path


def _absolute(path: Path) -> Path:
    """Return the absolute path of a file without `..`. Only links in front of `..` are followed."""
    path = Path.cwd() / path
    absolute = Path(path.anchor)
    for part in path.parts[1:]:
        if part != "..":
            absolute /= part
        elif absolute.is_symlink():
            # The folder above it is not the one in front of it.
            absolute = absolute.resolve().parent
        else:
            absolute = absolute.parent
    return absolute


def _common_folder(paths: Iterable[Path], output_dir: Path, name: OutputName) -> Path:
    """Return the folder from which outputs have their paths.

    Raises:
        UserError: if outputs of an earlier run would get other places.
    """
    common = Path(os.path.commonpath([path.parent for path in paths]))
    earlier_folders = _earlier_folders(output_dir, name)
    for earlier in sorted(earlier_folders):
        if common.is_relative_to(earlier):
            return earlier
    for earlier in sorted(earlier_folders):
        if earlier.is_relative_to(common):
            raise UserError(
                f"--output_dir {output_dir} has the files of {earlier}. With files of {common} they would get other "
                "places. Name another folder."
            )
    return common


def _earlier_folders(output_dir: Path, name: OutputName) -> set[Path]:
    """Return the folders from which outputs of earlier runs have their paths, while inputs and outputs are there."""
    folders = set()
    records = output_dir / RECORDS
    for record_file in records.rglob("*.json"):
        relative = record_file.relative_to(records).with_suffix("")
        if not (output_dir / relative).is_file():
            continue
        # What is wrong with a record is said with its file.
        with suppress(UserError, OSError):
            path = _input_of(read_json(record_file), output_dir)
            if path is not None:
                folders.update(folder for folder in path.parents if name.of(path.relative_to(folder)) == relative)
    return folders


def _has_record(path: Path, output_dir: Path) -> bool:
    """Return whether a file is an output of an earlier run."""
    path = path.resolve()
    output_dir = output_dir.resolve()
    if not path.is_relative_to(output_dir):
        return False
    return (output_dir / RECORDS / f"{path.relative_to(output_dir)}.json").is_file()


def with_common_int8(decoding: DecodingOptions, output_dir: Path) -> DecodingOptions:
    """Return options that compute int8 as all other processes do that write, or wrote, into the folder."""
    if decoding.int8_choice is None:
        return decoding
    path = output_dir / RECORDS / _INT8_CHOICE
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            own_choice = Path(folder, path.name)
            write_json(own_choice, decoding.int8_choice)
            # Of processes that begin together the first one chooses. A file that is replaced would be the last one's.
            with suppress(FileExistsError):
                path.hardlink_to(own_choice)
    return replace(decoding, int8_choice=Int8Choice(**read_json(path)))
