"""Entropy of an assignment and diversity of its output capsules, by iteration (Dou et al. 2019, Eq. 17-18).

An assignment is `[R, iterations, inputs, N]`: of R routings, each of some input capsules to N output capsules. `mask`
is `[R, inputs]` bool, True where the input capsule exists: others count for nothing. Sums are in float64.
"""

import torch
from torch import Tensor


def entropies(assignment: Tensor) -> Tensor:
    """-sum_n C_n log C_n of every input capsule, `[R, iterations, inputs]` (Eq. 17).

    It is printed with a factor 1 / N and without the minus. At the first iteration, where C is uniform, it is log N:
    the paper reports 6.24 = log 512, which Eq. 17 as printed does not give.
    """
    return torch.special.entr(assignment.double()).sum(-1)


def diversities(assignment: Tensor, mask: Tensor | None = None) -> Tensor:
    """1 minus the mean cosine of every two output capsules' assignments, `[R, iterations]` (Eq. 18, but for the 1 -).

    Capsules that all get the same have the diversity 0, as the paper reports of the first iteration. The cosine with a
    capsule that gets nothing is 0; a single output capsule has the diversity 0.
    """
    capsules = assignment.shape[-1]
    if capsules == 1:
        return assignment.new_zeros(assignment.shape[:2], dtype=torch.float64)
    assignment = assignment.double()
    if mask is not None:
        assignment = assignment.masked_fill(~mask[:, None, :, None], 0.0)
    units = torch.nn.functional.normalize(assignment, dim=-2, eps=1e-300)
    # The sum over pairs, from the square of the sum.
    cosines = (units.sum(-1).square().sum(-1) - units.square().sum((-1, -2))) / 2
    # Rounding alone makes it negative.
    return (1 - cosines / (capsules * (capsules - 1) / 2)).clamp(min=0)


class AssignmentSums:
    """The means over many routings, added up batch by batch.

    Args:
        keep_inputs: whether input capsule i is the same in all routings, as layers and heads are, so that each has a
            mean of its own; words of sentences have one together.
    """

    def __init__(self, keep_inputs: bool) -> None:
        self.keep_inputs = keep_inputs
        self.routings = self.inputs = 0
        self._entropy = self._diversity = self._assignment = 0

    def add(self, assignment: Tensor, mask: Tensor | None = None) -> None:
        """Add routings `[R, iterations, inputs, N]`; those without any input capsule count for nothing."""
        if mask is None:
            mask = torch.ones(assignment.shape[0], assignment.shape[2], dtype=torch.bool, device=assignment.device)
        there = mask.any(-1)
        assignment, mask = assignment[there].double(), mask[there]
        self.routings += len(assignment)
        self.inputs += int(mask.sum())
        self._entropy += entropies(assignment).masked_fill(~mask[:, None], 0.0).sum((0, 2)).cpu()
        self._diversity += diversities(assignment, mask).sum(0).cpu()
        summed = assignment.masked_fill(~mask[:, None, :, None], 0.0).sum(0)
        self._assignment += (summed if self.keep_inputs else summed.sum(1, keepdim=True)).cpu()

    @property
    def entropy(self) -> list[float]:
        """The mean over input capsules, in nats, by iteration."""
        return (self._entropy / self.inputs).tolist()

    @property
    def diversity(self) -> list[float]:
        """The mean over routings, by iteration."""
        return (self._diversity / self.routings).tolist()

    @property
    def mean_assignment(self) -> Tensor:
        """`[iterations, inputs, N]`, float64; `[iterations, 1, N]`, the mean over all words, without `keep_inputs`."""
        return self._assignment / (self.routings if self.keep_inputs else self.inputs)
