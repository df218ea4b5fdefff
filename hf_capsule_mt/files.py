"""Files and folders that are written whole or not at all, their locks, JSON and hashes."""

import gzip
import hashlib
import json
import logging
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO

from filelock import BaseFileLock, FileLock, Timeout

from hf_capsule_mt.errors import UserError

logger = logging.getLogger(__name__)

# The Trainer sends no file whose name begins so to the Hub.
LOCK = "_lock"
"""Name of the lock file in a folder."""
GRACE = 5
"""Seconds to wait for a lock, because a killed process may need some to die."""


def replace_text(path: Path, text: str) -> None:
    """Write `text` to `path` in UTF-8. An interruption leaves the old file."""
    with replaced_file(path) as file:
        file.write(text.encode())


@contextmanager
def replaced_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that becomes `path` when the block ends, as [`replaced_files`] does."""
    with replaced_files([path]) as [file]:
        yield file


@contextmanager
def replaced_files(paths: Sequence[Path]) -> Iterator[list[BinaryIO]]:
    """Yield files that become `paths` when the block ends. They are compressed if their names end in .gz or .zst.

    An interruption leaves the old files, or the last of them is missing. A new file may be read by those who may read
    the old one.
    """
    unfinished = [path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp") for path in paths]

    try:
        with ExitStack() as stack:
            files = []
            for new, path in zip(unfinished, paths):
                files.append(stack.enter_context(_written(new, path)))
            yield files

        # A new file next to an old one would look like a pair.
        for path in paths[1:]:
            path.unlink(missing_ok=True)
        for new, path in zip(unfinished, paths):
            os.replace(new, path)
    finally:
        for new in unfinished:
            new.unlink(missing_ok=True)


@contextmanager
def _written(unfinished: Path, path: Path) -> Iterator[BinaryIO]:
    with naming(path), open(unfinished, "xb") as file:
        if path.is_file():
            # Before anything is written: a private file would be open to all meanwhile, and afterwards.
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
        with _compressed(file, path.suffix) as compressed:
            yield compressed


@contextmanager
def _compressed(file: BinaryIO, ending: str) -> Iterator[BinaryIO]:
    """Yield a file that compresses what is written as the ending says. The same bytes make the same file."""
    if ending == ".gz":
        # Without a name and a time.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressed:
            yield compressed
    elif ending == ".zst":
        import pyarrow as pa

        with pa.CompressedOutputStream(pa.PythonFile(file, "w"), "zstd") as compressed:
            yield compressed
    else:
        yield file


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of the system that name no file, such as that of a full disk, name `path`."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(f"{path} cannot be written: {error.strerror}") from error


def check_empty(path: Path) -> None:
    """Raise a FileExistsError if there is a file at `path`, or a folder with files in it."""
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise FileExistsError(f"{path} is there and not empty. Name another folder.")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `path` when the block ends, and disappears if it is interrupted."""
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=f".{path.name}.") as temporary:
        folder = Path(temporary, "new")
        folder.mkdir()
        yield folder
        try:
            folder.replace(path)
        except OSError:
            check_empty(path)
            raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. The folder is made if it is missing, and then removed if it is empty at the end.

    The same thread may take the lock again inside the block.

    Raises:
        BlockingIOError: if another process or thread holds the lock.
    """
    is_new = not folder.exists()
    path = folder / LOCK
    folder.mkdir(parents=True, exist_ok=True)

    # A soft lock would outlive a killed process, and refuse a new one on another machine for ever.
    lock = FileLock(path.resolve(), is_singleton=True, fallback_to_soft=False)
    try:
        _acquire(lock, folder)
    except Timeout as error:
        refusal = f"Another process works in {folder}. Wait for it, or name another folder."
        raise BlockingIOError(refusal) from error
    except (OSError, NotImplementedError) as error:
        logger.warning("%s cannot be locked (%s). Make sure that no other process writes there.", path, error)

    try:
        yield
    finally:
        if lock.lock_counter <= 1:
            path.unlink(missing_ok=True)
        lock.release()
        if is_new:
            with suppress(OSError):
                folder.rmdir()


def _acquire(lock: BaseFileLock, folder: Path) -> None:
    """Take the lock of a folder, and make the folder again as often as another process removes it at its end."""
    while True:
        try:
            lock.acquire(timeout=GRACE)
            return
        except FileNotFoundError:
            # Without the lock two processes would write the same files.
            folder.mkdir(parents=True, exist_ok=True)


def write_json(path: Path, record: Any) -> None:
    """Write a record as JSON, whole or not at all. A dataclass becomes an object, and a path becomes text."""
    replace_text(path, json.dumps(record, indent=2, ensure_ascii=False, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) else str(value)


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of one JSON object. Raise a UserError, which names the file, if it holds none."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(record, dict):
        raise UserError(f"{path} holds no JSON object.")
    return record


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_text(lines: Iterable[str]) -> str:
    """Return the SHA-256 of lines, each ended by a newline."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()
