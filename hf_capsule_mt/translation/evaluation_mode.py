"""Models in evaluation mode, for as long as any thread translates with them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident

from torch import nn
from transformers import PreTrainedModel


class _Modes:
    """Which models are in evaluation mode, and for whom.

    A thread that ends must not switch dropout on while another one still translates with the same model.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._users: dict[nn.Module, list[int]] = {}
        """The threads that use a model, one entry for each use."""
        self._trained: dict[nn.Module, list[nn.Module]] = {}
        """The modules of a model that were in training mode."""

    def begin(self, model: nn.Module, thread: int) -> None:
        """Put a model in evaluation mode for a thread."""
        with self._lock:
            self._users.setdefault(model, []).append(thread)
            trained = [module for module in model.modules() if module.training]
            self._trained.setdefault(model, []).extend(trained)
            if trained:
                model.eval()

    def end(self, model: nn.Module, thread: int) -> None:
        """Put a model back as it was, if nobody else uses it."""
        with self._lock:
            self._users[model].remove(thread)
            if not self._users[model]:
                self._put_back(model)

    def forget_other_threads(self) -> None:
        """Forget the threads that do not exist in a forked process, and their lock, which nobody would release."""
        self._lock = Lock()
        thread = get_ident()
        for model, threads in [*self._users.items()]:
            self._users[model] = [thread] * threads.count(thread)
            if not self._users[model]:
                self._put_back(model)

    def _put_back(self, model: nn.Module) -> None:
        del self._users[model]
        for module in self._trained.pop(model):
            module.training = True


_modes = _Modes()
os.register_at_fork(after_in_child=_modes.forget_other_threads)


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Switch dropout off until the end of the block. The last of several threads switches it on again."""
    thread = get_ident()
    _modes.begin(model, thread)
    try:
        yield
    finally:
        _modes.end(model, thread)
