"""The learning rates of an optimizer: of weights that a method adds, and of a run that is resumed."""

from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.modeling.warm_start import added_weights

_OPTIONS = ("initial_lr", "betas", "eps", "weight_decay", "momentum")


def set_added_rate(optimizer: Optimizer, model: nn.Module, rate: float) -> None:
    """Give the weights that a method adds to a plain model groups with a learning rate of their own.

    Raises:
        UserError: if the optimizer has no such weights.
    """
    names = added_weights(model)
    added_ids = {id(weight) for name, weight in model.named_parameters() if name in names}
    groups = []
    has_added = False
    for group in optimizer.param_groups:
        plain = [weight for weight in group["params"] if id(weight) not in added_ids]
        added = [weight for weight in group["params"] if id(weight) in added_ids]
        if plain:
            groups.append({**group, "params": plain})
        if added:
            groups.append({**group, "params": added, "lr": rate})
            has_added = True
    if not has_added:
        raise UserError("added_learning_rate is given, but the optimizer has no added weights. Leave it out.")
    optimizer.param_groups = groups


class OptimizerOptions:
    """The numbers that a resumed run takes from its own options. The checkpoint's come back with the optimizer."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._groups: list[dict[str, Any]] = []
        for group in optimizer.param_groups:
            self._groups.append({name: group[name] for name in _OPTIONS if name in group})

    def restore(self, optimizer: Optimizer, schedule: LRScheduler) -> None:
        """Put them into an optimizer that was loaded, and the learning rates of now into it and its schedule."""
        for group, options in zip(optimizer.param_groups, self._groups):
            group.update(options)
        if type(schedule) is not LambdaLR:
            # Only a LambdaLR tells the rate of any update.
            return
        schedule.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        # Repeat the last step. Otherwise the next update, and its entry in the log, had the checkpoint's rates.
        schedule.last_epoch -= 1
        schedule.step()
