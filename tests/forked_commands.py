"""Commands in processes of their own, which may be killed, or kill themselves, in the middle.

They are forked from a server that has imported the package once and has run nothing.
"""

import gc
import multiprocessing
import os
import signal
import sys
import time
import traceback
from importlib import import_module
from itertools import count
from pathlib import Path

import torch
import transformers.modeling_utils
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from loopback import free_port
from transformers import TrainerState

from hf_capsule_mt.cli import common
from hf_capsule_mt.training.trainer import TranslationTrainer

WAIT = 600
"""Seconds after which a process is taken for one that hangs, on the slowest machine."""

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [f"hf_capsule_mt.cli.{name}" for name in ("train", "distill", "translate")] + ["accelerate.state"]
)


def start(command, words, log, death=None, environment=None, pipe=None):
    """Start `hf_capsule_mt.cli.COMMAND` with `words`, its output in the file `log`; returns the process.

    `death` is the name of a function below and its arguments, which make the process kill itself. `pipe` has the files
    of its standard input and of its standard output, which else is in the log.
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


def start_both(command, words, log, deaths=(None, None), environment=None):
    """Start two processes as a launcher does, without one that ends both if one dies."""
    port = str(free_port())
    processes = []
    for rank, death in enumerate(deaths):
        group = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        group |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **(environment or {})}
        processes.append(start(command, words, f"{log}{rank}", death=death, environment=group))
    return processes


def run_both(*args, **options):
    """Return the exit statuses of both."""
    return [end(process) for process in start_both(*args, **options)]


def kill():
    """Kill this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def _run(command, words, log, death, environment, pipe):
    # Nothing that the server imported is garbage, so it is not looked through again and again.
    gc.freeze()
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
            globals()[name](*arguments)
        import_module(f"hf_capsule_mt.cli.{command}").main(words)
    except SystemExit as exit_:
        sys.exit(exit_.code)
    except BaseException:
        traceback.print_exc()
        # Without waiting for threads that wait for dead processes.
        os._exit(1)


def in_an_update(update):
    """Before the gradients of an update are summed over the processes."""
    step = TranslationTrainer.training_step

    def training_step(self, *args, **kwargs):
        if self.state.global_step == update:
            kill()
        return step(self, *args, **kwargs)

    TranslationTrainer.training_step = training_step


def in_a_file(name, checkpoint):
    """With half of a file of `checkpoint` written."""
    save, save_weights, save_state = torch.save, transformers.modeling_utils.safe_save_file, TrainerState.save_to_json

    def die_in(original, path_of):
        def write(*args, **kwargs):
            path = Path(path_of(*args, **kwargs))
            original(*args, **kwargs)
            if path.name == name and path.parent.name == checkpoint:
                content = path.read_bytes()
                path.write_bytes(content[: len(content) // 2])
                kill()

        return write

    torch.save = die_in(save, lambda _, path, *__, **___: path)
    transformers.modeling_utils.safe_save_file = die_in(save_weights, lambda _, path, *__, **___: path)
    TrainerState.save_to_json = die_in(save_state, lambda _, path: path)


def stop():
    """Stop this process as Ctrl-Z does, until SIGCONT comes."""
    os.kill(os.getpid(), signal.SIGSTOP)


def in_small_parts(size, replaces=None, end="kill"):
    """In parts of `size` characters, after so many files were replaced by new ones, or not at all.

    `end` is "kill" or "stop".
    """
    from hf_capsule_mt.data import row_formats
    from hf_capsule_mt.translation.files import job

    row_formats.PART_SIZE = job.PART_SIZE = size
    replace, done = os.replace, count()
    leave = {"kill": kill, "stop": stop}[end]

    def replace_or_die(*args):
        if next(done) == replaces:
            leave()
        replace(*args)

    os.replace = replace_or_die


def nobody_comes(seconds):
    """No death of its own: the others did not start, and it waits for them only so long."""
    common.MEETING = common.timedelta(seconds=seconds)


def late_to_work(meeting, seconds):
    """No death: it meets the others within `meeting` seconds, and the second keeps them waiting longer than that."""
    nobody_comes(meeting)
    state = common.meet(cpu=True)
    time.sleep(seconds * state.process_index)
    state.wait_for_everyone()
    raise SystemExit(0)


def allow_fsdp_on_cpus():
    """No death: accelerate spreads weights over processes on CPUs, as it does on every accelerator."""
    init = AcceleratorState.__init__

    def init_with_plugin(self, *args, fsdp_plugin=None, **kwargs):
        init(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None:
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            self.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = init_with_plugin
