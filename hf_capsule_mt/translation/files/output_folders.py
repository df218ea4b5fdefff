"""Folders with the outputs of several files: where each output is, and what all of them have in common."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hf_capsule_mt.decoding.products.int8 import Int8Choice
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import read_json, write_json

from ..generation.model_options import DecodingOptions

RECORDS = "_records"
"""The folder of records in a folder of outputs."""
_INT8_CHOICE = "int8_choice.json"


def output_paths(paths: Sequence[Path], output_dir: Path) -> dict[Path, Path]:
    """Return the output of each file: in the output folder, its path from the folder that all files have in common.

    A file that is named twice comes once.

    Args:
        paths: the files.
        output_dir: the folder of the outputs.

    Raises:
        UserError: if an output would replace one of the files, a file is an output of an earlier run, or an output
            would be among the records.
    """
    # Links stay: each of two names of a file has an output.
    absolute = {os.path.abspath(path): path for path in paths}
    base = os.path.commonpath([os.path.dirname(path) for path in absolute])
    outputs = {}
    for name, path in absolute.items():
        relative = Path(os.path.relpath(name, base))
        if relative.parts[0] == RECORDS:
            raise UserError(f"{output_dir / RECORDS} is for records, so {path} cannot have its output there.")
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
