"""The records of benchmarks/records, each as a file of its own, as a command wrote it."""

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

from benchmarks.records import FOLDER, read_records


@cache
def records(series):
    """The records of a study or a series, by name."""
    return read_records(FOLDER / f"{series}.jsonl")


@cache
def _folder():
    folder = tempfile.mkdtemp(prefix="records-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def stored(name):
    """The file of a record."""
    file = _folder() / f"{name}.json"
    series = next(each for each in ("multi30k", "speed", "decoding") if name in records(each))
    file.write_text(json.dumps(records(series)[name]))
    return file
