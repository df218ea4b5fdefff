"""Routing as a module: the parameters of EM routing, and the choice of the algorithm."""

import torch
from torch import Tensor, nn
from transformers import initialization as init

from ...configuration.checks import check_choice
from ..ops.em_routing import em_routing
from ..ops.routing import dynamic_routing, simple_routing

_AGREEMENT_ROUTINGS = {"dynamic_routing": dynamic_routing, "simple_routing": simple_routing}
"""Routings without parameters of their own, which take and give what [`dynamic_routing`] does."""


class CapsuleRouting(nn.Module):
    """Routes votes to N output capsules and concatenates these.

    Args:
        algorithm: "dynamic_routing", "simple_routing" or "em_routing".
        num_capsules: N, a divisor of the width of the votes.
        num_iterations: iterations, at least 1.
        inverse_temperature: that of EM routing, as in [`em_routing`].

    Raises:
        ValueError: if the algorithm is unknown.
    """

    def __init__(
        self, algorithm: str, num_capsules: int, num_iterations: int = 3, inverse_temperature: float = 0.01
    ) -> None:
        super().__init__()
        check_choice("algorithm", algorithm, (*_AGREEMENT_ROUTINGS, "em_routing"))
        self.algorithm = algorithm
        self.num_capsules = num_capsules
        self.num_iterations = num_iterations
        self.inverse_temperature = inverse_temperature
        if algorithm == "em_routing":
            self.beta_a = nn.Parameter(torch.zeros(self.num_capsules))
            self.beta_u = nn.Parameter(torch.zeros(self.num_capsules))

    def init_weights(self, std: float) -> None:
        """Zero the costs of EM routing, unless they were loaded."""
        if self.algorithm == "em_routing":
            init.zeros_(self.beta_a)
            init.zeros_(self.beta_u)

    def forward(
        self, votes: Tensor, input_activations: Tensor | None = None, every_iteration: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Route votes `[..., I, d]`, of which output capsule n has the n-th part of width d / N.

        Args:
            votes: of the I input capsules.
            input_activations: of EM routing, `[..., I, 1 or N]`; 1 by default.
            every_iteration: whether to return the assignment of every iteration.

        Returns:
            The output capsules `[..., d]`, and the assignment that made them, `[..., I, N]`, or that of every
            iteration, `[..., iterations, I, N]`.
        """
        votes = votes.unflatten(-1, (self.num_capsules, -1))
        if self.algorithm == "em_routing":
            betas = self.beta_a, self.beta_u
            settings = self.num_iterations, input_activations, self.inverse_temperature
            routed = em_routing(votes, *betas, *settings, return_all_coefficients=every_iteration)
        else:
            algorithm = _AGREEMENT_ROUTINGS[self.algorithm]
            routed = algorithm(votes, self.num_iterations, return_all_coefficients=every_iteration)
        assignment = routed.all_coefficients.movedim(0, -3) if every_iteration else routed.coefficients
        return routed.capsules.flatten(-2), assignment
