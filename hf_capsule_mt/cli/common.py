"""Shared by all commands: checks of files, processes, and how a command ends."""

import argparse
import atexit
import errno
import gc
import importlib
import importlib.util
import logging
import os
import select
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import PartialState
from huggingface_hub.errors import StrictDataclassError
from torch.distributed import distributed_c10d

from hf_capsule_mt.data.corpus_files import check_two_files, file_format
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.errors import UserError, sentence_of
from hf_capsule_mt.files import check_empty

logger = logging.getLogger(__name__)

MEETING = timedelta(minutes=10)
"""How long a process waits for the others to start."""
WORK = timedelta(days=7)
"""How long a process that has done its share waits for the others. If one dies, all end at once."""

_TICKS = Path("/proc/stat")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a disk. Code that writes to an open file does not know its name."""


def check_text_file(option: str, path: Path, any_kind: bool = False) -> None:
    """Check that there is a file at `path`, and that its name is not for a file of pairs, unless any kind will do."""
    if not path.is_file():
        raise FileNotFoundError(f"{option}: there is no file {path}.")
    if not any_kind and (kind := file_format(path)) != "text":
        raise UserError(f"{option} names {path}. A {kind} file holds pairs. Give a text file, one segment a line.")


def check_pairs(args: argparse.Namespace) -> None:
    """Check that `--input_file` and `--references` name two text files, before they are read."""
    check_text_file("--input_file", args.input_file)
    check_text_file("--references", args.references)
    check_two_files(args.input_file, args.references, "--input_file and --references")


def read_pairs(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the lines of `--input_file` and `--references`. Raise a UserError unless they are equally many."""
    sources = read_lines(args.input_file)
    references = read_lines(args.references)
    check_line_counts({f"--input_file {args.input_file}": sources, f"--references {args.references}": references})
    return sources, references


def check_line_counts(texts: Mapping[str, Sequence[str]]) -> None:
    """Raise a UserError unless texts, by option and file, have as many lines as the first of them."""
    (first, lines), *others = texts.items()
    for name, text in others:
        if len(text) != len(lines):
            raise UserError(
                f"{first} has {len(lines)} lines, and {name} has {len(text)}. Line i of both must be the same sentence."
            )


def check_output_file(path: Path | None) -> None:
    """Raise an error if no file can be written at `path`, before the work that fills it."""
    if path is None:
        return

    # A file would take the place of /dev/stdout, for every process of the machine.
    is_of_system = any(parent in (Path("/dev"), Path("/proc")) for parent in path.absolute().parents)
    if path.exists() and (is_of_system or not path.is_file()):
        raise OSError(f"{path} is not a file that can be replaced. Name a file.")
    if path.suffix in (".bz2", ".xz"):
        raise UserError(f"{path}: only .gz and .zst are written compressed.")

    folder = path.absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"The folder of {path} does not exist. Create it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{path} cannot be written: its folder is read-only.")


def check_distinct(outputs: Iterable[tuple[str, Path | None]], inputs: Iterable[Path | None]) -> None:
    """Raise a UserError if an output file, which comes with its option, is an input or another output."""
    taken = {path.resolve() for path in inputs if path is not None}
    for option, path in outputs:
        if path is None:
            continue
        if path.resolve() in taken:
            raise UserError(f"{option} names {path}, another file of this command, which would be lost.")
        taken.add(path.resolve())


def check_output_folder(path: Path) -> None:
    """Raise an OSError if `path` is no folder that can be written, and cannot become one."""
    nearest = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(f"{path} cannot be made, because {nearest} is a file. Name a folder.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"{path} cannot be written, because {nearest} is read-only. Name another folder.")


def check_new_folder(path: Path) -> None:
    """Raise an OSError if a folder at `path` cannot be made, or has files in it, or cannot be replaced."""
    check_empty(path)
    if path.is_symlink() or os.path.ismount(path) or path.resolve() == Path.cwd():
        raise FileExistsError(f"{path} cannot be replaced. Name a folder in it, such as {path / 'new'}.")
    check_output_folder(path.absolute().parent)


def import_code(names: Iterable[str]) -> None:
    """Import what the user names with `--import`: code that enters routings or aggregations of his own.

    Nothing else is imported in this way, and never what a checkpoint names. An error of the code keeps its traceback.

    Args:
        names: files that end with `.py`, and modules that Python finds. What was imported already is not run again.

    Raises:
        FileNotFoundError: if there is no such file.
        UserError: if there is no such module, or a file has the name of another module.
    """
    for name in names:
        if name.endswith(".py"):
            _import_file(Path(name))
            continue

        if not all(part.isidentifier() for part in name.split(".")):
            raise UserError(f"--import: {name!r} is no name of a module. Name a file that ends with .py, or a module.")

        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            # The code may lack another module.
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise UserError(
                f"--import: there is no module {name}. Name a file that ends with .py, or install the module."
            ) from error


def _import_file(path: Path) -> None:
    """Import a file as a module of its name, which processes find that are started with Python's path."""
    if not path.is_file():
        raise FileNotFoundError(f"--import: there is no file {path}.")

    folder = str(path.resolve().parent)
    if folder not in sys.path:
        # Not in front: files beside this one must not take the place of installed modules.
        sys.path.append(folder)

    spec = None
    # The module of the program itself cannot be looked up.
    if path.stem.isidentifier() and path.stem != "__main__":
        spec = importlib.util.find_spec(path.stem)

    if spec is None or spec.origin is None or Path(spec.origin).resolve() != path.resolve():
        raise UserError(
            f"--import: {path} cannot be imported as {path.stem}. Give the file another name, of letters, digits and "
            "underscores, that no other module has."
        )
    importlib.import_module(path.stem)


def usable_device(name: str | torch.device) -> torch.device:
    """Return the device of this name. Raise a UserError if it cannot be used."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UserError(f"--device {name} cannot be used: {str(error).partition(chr(10))[0]}") from error
    return device


def idle_processors() -> float:
    """Return how many processors are idle now, such as 1.5 if one works half of the time. It takes half a second.

    The load of the last minute also counts what has just ended, such as an installation.
    """
    processors = os.cpu_count() or 1
    idle, total = _processor_ticks()
    time.sleep(0.5)
    idle_later, total_later = _processor_ticks()
    if total_later == total:
        return processors - min(os.getloadavg()[0], processors)
    return processors * (idle_later - idle) / (total_later - total)


def _processor_ticks() -> tuple[int, int]:
    """Return the ticks in which processors were idle, and all ticks, both 0 on systems that do not count them."""
    if not _TICKS.is_file():
        return 0, 0
    first_line = _TICKS.read_text().partition("\n")[0]
    # Ticks for guests count as those of users too.
    user, nice, system, idle, waiting, *others = map(int, first_line.split()[1:9])
    idle += waiting
    return idle, user + nice + system + idle + sum(others)


def warn_if_busy(device: torch.device) -> None:
    """Warn if a CPU's threads would wait for other programs: an update can take four times as long then."""
    may_wait = device.type == "cpu" and torch.get_num_threads() > 1 and "OMP_NUM_THREADS" not in os.environ
    if not may_wait or os.getloadavg()[0] + torch.get_num_threads() / 2 <= (os.cpu_count() or 1):
        return
    # What made the load may have ended.
    if idle_processors() < torch.get_num_threads() / 2:
        logger.warning("Other programs use the processors. With fewer threads this is faster: set OMP_NUM_THREADS=1.")


def warn_of_one_process(num_processes: int) -> None:
    """Warn if `accelerate launch` was asked for several processes and started only this one, as it does on CPUs."""
    # For several processes it says where they meet. A launcher that starts them also says how many they are.
    is_asked_for_several = "ACCELERATE_MIXED_PRECISION" in os.environ and "MASTER_ADDR" in os.environ
    if is_asked_for_several and "WORLD_SIZE" not in os.environ and num_processes == 1:
        logger.warning(
            "`accelerate launch` was asked for several processes, but started only one, as it does without several "
            "GPUs. For two on CPUs, start `torchrun --nproc_per_node 2` instead."
        )


def meet(*, cpu: bool) -> PartialState:
    """Return the state of this process among those launched together, when all have come.

    Raises:
        TimeoutError: if one does not come within [`MEETING`].
    """
    try:
        state = PartialState(cpu=cpu, timeout=MEETING)
    except torch.distributed.DistError as error:
        raise TimeoutError(
            f"Not all processes of this command started within {MEETING}. See why one failed, and start all again."
        ) from error
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        # A group has one time limit, and PyTorch no public way to change it.
        distributed_c10d._set_pg_timeout(WORK)
    return state


def leave_group_at_exit() -> None:
    """Let this process leave its group before it exits: with the group alive it can abort in gloo's threads.

    Call it when the work is done: a process that failed must not wait for those that wait for it.
    """
    atexit.register(_leave_group)


def _leave_group() -> None:
    """End the group of processes, if there is one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        # Its threads end with the last reference, and a Trainer is part of reference cycles.
        gc.collect()


class Interrupted(SystemExit, KeyboardInterrupt):
    """The end by Ctrl-C. Code that catches a KeyboardInterrupt sees it. The interpreter exits without a traceback."""


@contextmanager
def report_user_errors() -> Iterator[None]:
    """End a command on an error that the user caused with `error: ...` and exit status 2.

    These are a UserError, an OSError that names a file or comes from a library, and a wrong value in a configuration.
    Every other error may be a fault of the package, and keeps its traceback.

    If another process of the command has died, the line says so, and the exit status is 1. The traceback is logged at
    DEBUG level. If nobody reads the output any more, the command ends without a message. Ctrl-C ends it with one line
    and exit status 130.
    """
    _limit_caches()
    _open_closed_streams()

    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError as error:
        if _output_is_read():
            print(f"error: Another process of this command died: {error}. Start it again.", file=sys.stderr)
            raise SystemExit(1) from error
        # The interpreter writes what is left when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except Interrupted:
        # An inner command has said it.
        raise
    except KeyboardInterrupt as error:
        print("interrupted", file=sys.stderr)
        raise Interrupted(130) from error
    except Exception as error:
        message, status = _explain(error)
        if message is None:
            raise
        logger.debug("traceback", exc_info=True)
        print(f"error: {message}", file=sys.stderr)
        raise SystemExit(status) from error


def _limit_caches() -> None:
    """Let oneDNN and torch keep fewer shapes: up to a megabyte for each of the last 1,024 fills gigabytes."""
    for limit in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(limit, "128")


def _output_is_read() -> bool:
    """Return whether a program still reads the output, or a file or screen takes it."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    # Errors are always told.
    poll.register(sys.stdout.fileno(), 0)
    return not any(events & select.POLLERR for _, events in poll.poll(0))


def _open_closed_streams() -> None:
    """Open the output streams that the shell closed, as `>&-` does. Python has None in their place."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _explain(error: Exception) -> tuple[str | None, int]:
    """Return the message for a user, and the exit status. There is no message for errors in our own code."""
    text = str(error)
    is_of_group = isinstance(error, torch.distributed.DistError) or "/gloo/" in text
    if is_of_group or (isinstance(error, RuntimeError) and text.startswith("DataLoader worker")):
        first = text.partition("\n")[0]
        return f"Another process of this command died or does not answer: {first} Start all processes again.", 1

    if not _is_of_user(error):
        return None, 1

    if text.startswith("Caught ") and "Original Traceback" in text:
        # PyTorch raises errors of a loader's process again, with their traceback as text.
        text = text.rstrip().rpartition("\n")[2].partition(": ")[2]
    elif isinstance(error, StrictDataclassError):
        text = sentence_of(error)
    return text, 2


def _is_of_user(error: Exception) -> bool:
    """Return whether the user, or the user's machine, caused an error."""
    if isinstance(error, UserError | StrictDataclassError):
        # A configuration of huggingface_hub finds wrong values of its fields.
        return True
    if os.strerror(errno.ENOSPC) in str(error):
        # safetensors and tokenizers raise errors of their own where the disk is full.
        return True
    if not isinstance(error, OSError):
        return False

    # Libraries raise a sentence without a number. The system gives a number, and the file if there is one.
    is_sentence = error.errno is None
    return is_sentence or error.filename is not None or error.errno in _FULL
