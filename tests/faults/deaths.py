"""Ways to die for a process of the training command, each at a certain point."""

import os
import signal
import time
from pathlib import Path

import torch
import transformers.modeling_utils
from forked_commands import kill
from transformers import TrainerState

from hf_capsule_mt.cli import common
from hf_capsule_mt.training.trainer import TranslationTrainer


def in_an_update(update, number=signal.SIGKILL):
    """Before the gradients of an update are summed over the processes; by a signal, which may stop it only."""
    step = TranslationTrainer.training_step

    def training_step(self, *args, **kwargs):
        if self.state.global_step == update:
            os.kill(os.getpid(), number)
        return step(self, *args, **kwargs)

    TranslationTrainer.training_step = training_step


def in_evaluation():
    """With its first batch."""
    TranslationTrainer.prediction_step = lambda *_, **__: kill()


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
