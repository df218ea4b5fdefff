"""Commands in processes of their own, which may be killed, or kill themselves, in the middle.

They are forked from a server that has imported the package once and has run nothing.
"""

import multiprocessing
import os
import signal
import sys
import traceback
from importlib import import_module

from loopback import free_port

WAIT = 600
"""Seconds after which a process is taken for one that hangs, on the slowest machine."""

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [f"hf_capsule_mt.cli.{name}" for name in ("train", "distill", "translate")] + ["accelerate.state"]
)


def start(command, words, log, death=None, environment=None, pipe=None):
    """Start `hf_capsule_mt.cli.COMMAND` with `words`, its output in the file `log`; returns the process.

    `death` is a function of `deaths` and its arguments, which make the process kill itself; `pipe` the files of its
    standard input and of its standard output, which else is in the log.
    """
    args = command, list(map(str, words)), str(log), death, environment or {}, pipe
    process = _CONTEXT.Process(target=_run, args=args)
    process.start()
    return process


def end(process):
    """Wait for the end, which must come; returns the exit status, negative for a signal."""
    process.join(WAIT)
    if process.is_alive():
        process.kill()
        raise AssertionError("the process hangs")
    return process.exitcode


def run(command, words, log, **options):
    """Start it, and return its exit status."""
    return end(start(command, words, log, **options))


def start_both(command, words, log, deaths=(None, None)):
    """Start two processes as a launcher does, without one that ends both if one dies."""
    port = str(free_port())
    processes = []
    for rank, death in enumerate(deaths):
        group = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        group |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        processes.append(start(command, words, f"{log}{rank}", death=death, environment=group))
    return processes


def run_both(*args, **options):
    """Return the exit statuses of both."""
    return [end(process) for process in start_both(*args, **options)]


def kill():
    """Kill this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def _run(command, words, log, death, environment, pipe):
    # What was printed while the server imported, and is still in its buffer, is none of the command's output.
    sys.stdout.flush()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    if pipe is not None:
        os.dup2(os.open(pipe[0], os.O_RDONLY), 0)
        os.dup2(os.open(pipe[1], os.O_WRONLY | os.O_CREAT), 1)
    os.environ.update(environment, TOKENIZERS_PARALLELISM="false")
    try:
        if death is not None:
            name, *arguments = death
            getattr(import_module("deaths"), name)(*arguments)
        import_module(f"hf_capsule_mt.cli.{command}").main(words)
    except SystemExit as exit_:
        sys.exit(exit_.code)
    except BaseException:
        traceback.print_exc()
        # Without waiting for threads that wait for dead processes.
        os._exit(1)
