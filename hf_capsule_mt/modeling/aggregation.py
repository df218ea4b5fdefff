"""Aggregation of the layers of a stack (Dou et al. 2019) and of attention heads (Li et al. 2019)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.utils.output_capturing import OutputRecorder

from .linear import Linear, UnitGainLinear
from .outputs import OutputRouting
from .routing import CapsuleRouting


class BlockLinear(nn.Module):
    """One linear map for each block: `[..., blocks, in_features]` -> `[..., blocks, out_features]`."""

    def __init__(self, num_blocks: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_blocks, in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(num_blocks, out_features))

    def init_weights(self, std: float) -> None:
        """Draw the weights from N(0, std^2) and zero the bias, unless they were loaded."""
        init.normal_(self.weight, mean=0.0, std=std)
        init.zeros_(self.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map block b of the inputs by `weight[b]`."""
        flat = inputs.reshape(-1, *inputs.shape[-2:]).transpose(0, 1)
        outputs = torch.baddbmm(self.bias.unsqueeze(1), flat, self.weight)
        return outputs.transpose(0, 1).reshape(*inputs.shape[:-1], -1)


class LinearCombination(nn.Module):
    """Eq. 3: sum_l w_l * H^l with learned vectors w_l, 1/L at the start."""

    def __init__(self, num_layers: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_layers, width))

    def init_weights(self, std: float) -> None:
        """Start from the mean of the layers, unless the weights were loaded."""
        init.constant_(self.weight, 1 / self.weight.shape[0])

    def forward(self, layers: Tensor, output_routing: OutputRouting = False) -> tuple[Tensor, None]:
        """Aggregate `[..., L, d]` to `[..., d]`."""
        return (self.weight * layers).sum(-2), None


class DynamicCombination(nn.Module):
    """Eq. 4: the weights of every position come from a feed-forward network of all layers, L d -> 4 d -> L d."""

    def __init__(self, num_layers: int, width: int) -> None:
        super().__init__()
        self.fc1 = Linear(num_layers * width, 4 * width)
        self.fc2 = Linear(4 * width, num_layers * width)

    def forward(self, layers: Tensor, output_routing: OutputRouting = False) -> tuple[Tensor, None]:
        """Aggregate `[..., L, d]` to `[..., d]`."""
        weights = self.fc2(torch.relu(self.fc1(layers.flatten(-2))))
        return (weights.view_as(layers) * layers).sum(-2), None


COMBINATIONS = {"linear": LinearCombination, "dynamic": DynamicCombination}
"""Aggregations of layers that do not route."""


class RoutedAggregation(nn.Module):
    """Eq. 5-16: the layers vote for output capsules, which are concatenated.

    Args:
        num_layers: L, the input capsules.
        width: d.
        routing: of their votes.
        context: with "all", F_l sees every layer; with "own", H^l alone (Table 3).
        parameterization: with "factored", W_l and A_l act on one input capsule each; with "joint", V and A are each one
            map of the concatenated input capsules, and A gives one activation for each pair of capsules.
    """

    def __init__(
        self,
        num_layers: int,
        width: int,
        routing: CapsuleRouting,
        context: str = "all",
        parameterization: str = "factored",
    ) -> None:
        super().__init__()
        concatenated, joint = num_layers * width, parameterization == "joint"
        self.num_layers = num_layers
        whole = context == "all"
        self.inputs = Linear(concatenated, concatenated) if whole else BlockLinear(num_layers, width, width)
        self.votes = Linear(concatenated, concatenated) if joint else BlockLinear(num_layers, width, width)
        self.routing = routing
        self.activations = None
        if routing.reads_activations:
            pairs = num_layers * self.routing.num_capsules
            self.activations = Linear(concatenated, pairs) if joint else BlockLinear(num_layers, width, 1)

    def forward(self, layers: Tensor, output_routing: OutputRouting = False) -> tuple[Tensor, Tensor | None]:
        """Aggregate `[..., L, d]` to `[..., d]`; see [`LayerAggregation.forward`] for the second result."""
        capsules = self._map(self.inputs, layers)
        activations = None if self.activations is None else self._map(self.activations, capsules).sigmoid()
        votes = self._map(self.votes, capsules)
        aggregate, assignment = self.routing(votes, activations, every_iteration=output_routing == "all")
        return aggregate, assignment if output_routing else None

    def _map(self, module: nn.Module, capsules: Tensor) -> Tensor:
        if isinstance(module, BlockLinear):
            return module(capsules)
        return module(capsules.flatten(-2)).unflatten(-1, (self.num_layers, -1))


class LayerAggregation(nn.Module):
    """An aggregator, the LayerNorm after it, and the way its result joins the model.

    Args:
        aggregator: maps `[..., L, d]` to `[..., d]`.
        width: d.
        output: "replace": LayerNorm(aggregate); "residual": H^L + gamma * LayerNorm(aggregate), gamma 0 at the start.
    """

    def __init__(self, aggregator: nn.Module, width: int, output: str) -> None:
        super().__init__()
        self.aggregator = aggregator
        self.layer_norm = nn.LayerNorm(width)
        self.gamma = nn.Parameter(torch.zeros(width)) if output == "residual" else None

    def init_weights(self, std: float) -> None:
        """Switch the residual off, unless gamma was loaded."""
        if self.gamma is not None:
            init.zeros_(self.gamma)

    def forward(self, layers: list[Tensor], output_routing: OutputRouting = False) -> tuple[Tensor, Tensor | None]:
        """Aggregate the outputs of the layers, bottom to top.

        Args:
            layers: L tensors `[..., d]`.
            output_routing: True for the assignment of the last iteration, "all" for that of every iteration.

        Returns:
            The aggregate `[..., d]`, and the assignment `[..., L, N]` (or `[..., iterations, L, N]`), if there is
            routing and it was asked for, else None.
        """
        aggregate, routing = self.aggregator(torch.stack(layers, dim=-2), output_routing)
        # A CPU sums up the gradients of a norm in the dtype of its input, under autocast in bfloat16.
        aggregate = self.layer_norm(aggregate.to(self.layer_norm.weight.dtype))
        if self.gamma is not None:
            aggregate = layers[-1] + self.gamma * aggregate
        return aggregate, routing


class HeadRouting(CapsuleRouting):
    """Routes the votes of the heads at one place, and lets Transformers record how it did.

    Args:
        place: the site and the layer, as in "encoder_self.0".
        *args: those of [`CapsuleRouting`].
        **kwargs: likewise.
    """

    def __init__(self, place: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.place = place

    def forward(
        self, votes: Tensor, every_iteration: bool = False
    ) -> tuple[Tensor, tuple[str, Tensor], tuple["HeadRouting", Tensor]]:
        """Route votes `[..., H, d]`: the capsules `[..., d]`, and what [`RECORDED_HEADS`] records."""
        capsules, assignment = super().forward(votes, every_iteration=every_iteration)
        return capsules, (self.place, assignment), (self, votes)


class RoutedHeads(nn.Module):
    """Eq. 5-12: an input capsule for each head, computed from all heads, votes for the output capsules.

    Adapters such as LoRA that change linear maps find two here: `inputs` (f, all heads' at once) and `votes` (W).

    Args:
        width: d, of the concatenated heads.
        num_heads: H, the input capsules.
        routing: of their votes.
        input_norm: whether input capsules are normalised to mean 0 and variance 1 before their tanh. The paper does
            not; at high learning rates it keeps the tanh from saturating, behind which attention learns no more.
    """

    def __init__(self, width: int, num_heads: int, routing: HeadRouting, input_norm: bool = False) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.input_norm = input_norm
        self.inputs = UnitGainLinear(width, num_heads * width)
        self.votes = UnitGainLinear(width, width)
        self.routing = routing

    def forward(self, heads: Tensor) -> Tensor:
        """Aggregate concatenated heads `[..., d]` to `[..., d]`."""
        return self.routing(self.votes(self.input_capsules(heads)))[0]

    def input_capsules(self, heads: Tensor) -> Tensor:
        """Eq. 5: the input capsules `[..., H, d]` of concatenated heads `[..., d]`."""
        capsules = self.inputs(heads).unflatten(-1, (self.num_heads, -1))
        if self.input_norm:
            capsules = F.layer_norm(capsules, capsules.shape[-1:])
        return capsules.tanh()


class ResidualRoutedHeads(nn.Module):
    """W^O, as it was trained, and routed heads beside it: W^O O + gamma * routed(O), with gamma 0 at the start.

    The LayerNorm of the attention's own residual connection follows, so this one needs none. The projection has its
    weights under Marian's names, `out_proj.weight` and `out_proj.bias`.

    Args: those of [`RoutedHeads`].
    """

    def __init__(self, width: int, num_heads: int, routing: HeadRouting, input_norm: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.routed = RoutedHeads(width, num_heads, routing, input_norm)
        self.gamma = nn.Parameter(torch.zeros(width))

    def init_weights(self, std: float) -> None:
        """Draw the projection, and switch the routed heads off, unless they were loaded."""
        init.normal_(self.weight, mean=0.0, std=std)
        init.zeros_(self.bias)
        init.zeros_(self.gamma)

    def forward(self, heads: Tensor) -> Tensor:
        """Aggregate concatenated heads `[..., d]` to `[..., d]`."""
        return F.linear(heads, self.weight, self.bias) + self.gamma * self.routed(heads)


RECORDED_HEADS = {
    "head_routing": OutputRecorder(HeadRouting, index=1),
    "head_votes": OutputRecorder(HeadRouting, index=2),
}
"""Outputs of the heads' routing that Transformers can record, as it records hidden states and attentions."""


def record_heads(output_routing: OutputRouting) -> dict[str, bool]:
    """The arguments of a stack's forward that make Transformers record what [`split_head_routing`] needs."""
    if not output_routing:
        return {}
    return {"output_head_votes" if output_routing == "all" else "output_head_routing": True}


def split_head_routing(outputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor] | None]:
    """Take what was recorded of the heads out of a stack's outputs.

    Returns:
        The other outputs; and by place the assignments `[batch, positions, H, N]`, or those of every iteration,
        `[batch, positions, iterations, H, N]`; None if nothing was recorded.
    """
    others = {name: value for name, value in outputs.items() if name not in RECORDED_HEADS}
    assignments = dict(outputs.get("head_routing", ()))
    with torch.no_grad():
        for routing, votes in outputs.get("head_votes", ()):
            # As a module, whose weights may be elsewhere when it is not it that runs; a compiler cannot trace the hook
            # that records it.
            run = routing if not torch.compiler.is_compiling() else partial(HeadRouting.forward, routing)
            _, (place, assignment), _ = run(votes, every_iteration=True)
            assignments[place] = assignment
    return others, assignments or None
