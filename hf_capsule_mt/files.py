"""Files and folders that are written whole or not at all, their locks, files of JSON, and hashes."""

import gzip
import hashlib
import io
import json
import logging
import os
import platform
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, is_dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from filelock import FileLock, Timeout

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

# Windows has none.
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
# The Trainer sends no file whose name begins so to the Hub.
LOCK = "_lock"
"""Name of the file in a folder that the process which works there holds locked."""
GRACE = 5
"""Seconds that a process which was killed may need to die, and its lock with it."""

_held: ContextVar[frozenset[Path]] = ContextVar("_held", default=frozenset())


def replace_text(path: Path, text: str) -> None:
    """Write `text` to `path` in UTF-8; an interruption leaves the old file, or none."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path`; an interruption leaves the old file, or none.

    Raises:
        OSError: if the file cannot be written.
    """
    with _replaced([path]) as [file]:
        file.write(data)


@contextmanager
def replaced_file(path: Path) -> Iterator[BinaryIO]:
    """Yield the file of [`replaced_files`] for one path; an interruption leaves the old file, or none."""
    with replaced_files([path]) as [file]:
        yield file


@contextmanager
def replaced_files(paths: Sequence[Path]) -> Iterator[list[BinaryIO]]:
    """Yield files that become `paths`, in their order, when the block ends, compressed if their names end in .gz.

    An interruption leaves the old files, or the last of them is missing.

    Raises:
        OSError: if a file cannot be written; what the block itself raises stays as it is.
    """
    with _replaced(paths) as files, ExitStack() as stack:
        yield [
            stack.enter_context(_compressed(file) if path.suffix == ".gz" else file) for path, file in zip(paths, files)
        ]


def _compressed(file: BinaryIO) -> gzip.GzipFile:
    # No name and no time in it, so that the same bytes are the same file.
    return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)


@contextmanager
def _replaced(paths: Sequence[Path]) -> Iterator[list[BinaryIO]]:
    temporaries = [path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in paths]
    try:
        with ExitStack() as stack:
            files = (io.BufferedWriter(_temporary(*both)) for both in zip(temporaries, paths))
            yield [stack.enter_context(file) for file in files]
        # A new file beside an old one would look like a pair.
        for path in paths[1:]:
            path.unlink(missing_ok=True)
        for temporary, path in zip(temporaries, paths):
            with naming(path):
                os.replace(temporary, path)
    finally:
        for temporary in temporaries:
            with suppress(OSError):
                temporary.unlink()


def _temporary(temporary: Path, path: Path) -> "_NamedFile":
    """Return a new file at `temporary`, whose errors name `path`."""
    # A link that somebody laid here would lead the bytes to another file.
    with naming(path):
        temporary.unlink(missing_ok=True)
    return _NamedFile(path, temporary, "xb")


class _NamedFile(io.FileIO):
    """A file at `place` to write, whose errors name `path`; a symbolic link is not followed."""

    def __init__(self, path: Path, place: Path, mode: str) -> None:
        self._path = path
        with naming(path):
            super().__init__(place, mode, opener=lambda file, flags: os.open(file, flags | _NOFOLLOW, 0o666))

    def write(self, data: bytes) -> int:
        with naming(self._path):
            return super().write(data)

    def truncate(self, size: int | None = None) -> int:
        with naming(self._path):
            return super().truncate(size)

    def close(self) -> None:
        with naming(self._path):
            super().close()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of the system name `path`, which is being written.

    Raises:
        OSError: in the place of one that the block raises.
    """
    try:
        yield
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}") from error


def open_to_append(path: Path) -> BinaryIO:
    """Open a file to append to, made if it is not there; the file's errors name it.

    Raises:
        OSError: if it cannot be opened, or is a symbolic link, which would lead what is written elsewhere.
    """
    try:
        return io.BufferedWriter(_NamedFile(path, path, "ab"))
    except OSError as error:
        if path.is_symlink():
            raise OSError(f"{path} is a symbolic link, which is not followed here; remove it") from error
        raise


def check_empty(path: Path) -> None:
    """Raise a FileExistsError if there is a file at `path`, or a folder with files in it."""
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise FileExistsError(f"{path} is there and not empty; name another folder")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `path` when the block ends, and disappears if it is interrupted.

    Raises:
        FileExistsError: if somebody else has put files there meanwhile.
    """
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
    """Hold the lock of a folder, which is made if need be; the lock ends with the block, and with the process.

    A block within another of the same folder and thread adds nothing. A folder that is made here, and empty at the
    end, is removed.

    Raises:
        BlockingIOError: if another process, or thread, holds the lock, and does so for [`GRACE`] more.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _locked_by(folder / LOCK, f"another process works in {folder}; wait for it, or name another folder"):
            yield
    finally:
        if is_new:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Hold the lock of a file that is to be written, `path` with `.lock` behind it, likewise."""
    with _locked_by(Path(f"{path}.lock"), f"another process writes {path}; wait for it, or name another file"):
        yield


@contextmanager
def _locked_by(path: Path, refusal: str) -> Iterator[None]:
    place = path.resolve()
    if place in _held.get():
        yield
        return
    lock = FileLock(path)
    try:
        lock.acquire(timeout=GRACE)
    except Timeout as error:
        raise BlockingIOError(refusal) from error
    except OSError as error:
        # Some network file systems have no locks.
        logger.warning("%s cannot be locked (%s); see that no other process writes there", path, error)
        with suppress(OSError):
            path.unlink()
        yield
        return
    outer = _held.set(_held.get() | {place})
    try:
        yield
    finally:
        _held.reset(outer)
        # While it is held: who opened the file before looks whether it is still there.
        with suppress(OSError):
            path.unlink()
        lock.release()


def write_json(path: Path, record: Any) -> None:
    """Write a record as JSON, whole or not at all. A dataclass becomes an object, and a path becomes text."""
    replace_text(path, json.dumps(record, indent=2, ensure_ascii=False, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) else str(value)


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of one JSON object.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds no JSON object.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    try:
        record = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(record, dict):
        raise ValueError(f"{path} is not valid JSON: it is no object")
    return record


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parse_json(text: str) -> Any:
    """Return the value that `text` spells; raise a ValueError, and no other error, if it cannot be read as JSON."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("brackets are nested too deeply in it") from error


def hash_text(lines: Iterable[str]) -> str:
    """Return the SHA-256 of lines, each ended by a newline."""
    digest = hashlib.sha256()
    deque(each_hashed(lines, digest), maxlen=0)
    return digest.hexdigest()


def each_hashed(lines: Iterable[str], digest: "hashlib._Hash") -> Iterator[str]:
    """Yield lines, and take them into the digest of [`hash_text`]."""
    for line in lines:
        digest.update(line.encode() + b"\n")
        yield line


def parse_override(text: str) -> tuple[str, Any]:
    """Split `name=value`, where the value is JSON, one of Python's True, False and None, or plain text.

    Raises:
        ValueError: if there is no equals sign, or a list or an object is not JSON.
    """
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"config_overrides has {text!r}. Write name=value.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError as error:
        if value.lstrip().startswith(("[", "{")):
            raise ValueError(f"""config_overrides has {text!r}. Write lists as JSON: '{name}=["a", "b"]'.""") from error
        return name, {"True": True, "False": False, "None": None}.get(value, value)


_PACKAGES = (
    "hf-capsule-mt",
    "torch",
    "transformers",
    "accelerate",
    "tokenizers",
    "datasets",
    "sacrebleu",
    "ctranslate2",
)


def environment(device: "torch.device | str | None" = None) -> dict[str, Any]:
    """Return what a record says of this process: versions, device, threads, commit and date.

    Args:
        device: the device that does the work. Default: a GPU if there is one.
    """
    import torch

    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    packages = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            packages[name] = version(name)
    return {
        "python": platform.python_version(),
        # The version of PyTorch names its build: +cpu, +cu130.
        "packages": packages | {"torch": str(torch.__version__)},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "cpu_threads": torch.get_num_threads(),
        "commit": _commit(),
        "date": date.today().isoformat(),
    }


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    here = Path(__file__)
    git = ["git", "-C", str(here.parent)]
    try:
        # An installed package can lie in a folder of another repository.
        subprocess.run([*git, "ls-files", "--error-unmatch", here.name], capture_output=True, check=True)
        describe = [*git, "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
