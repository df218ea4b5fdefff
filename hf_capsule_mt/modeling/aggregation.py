"""Aggregation of the layers of a stack (Dou et al. 2019), and of attention heads (Li et al. 2019)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers import initialization as init
from transformers.utils.output_capturing import OutputRecorder

from .linear import Linear, UnitGainLinear
from .outputs import OutputRouting
from .routing import ROUTINGS, CapsuleRouting, unknown_name


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
        # Blocks come first: [blocks, rows, in_features].
        rows = inputs.reshape(-1, *inputs.shape[-2:])
        outputs = torch.baddbmm(self.bias.unsqueeze(1), rows.transpose(0, 1), self.weight)
        rows = outputs.transpose(0, 1)
        return rows.reshape(*inputs.shape[:-1], -1)


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
        weighted = self.weight * layers
        return weighted.sum(-2), None


class DynamicCombination(nn.Module):
    """Eq. 4: the weights of every position come from a feed-forward network of all layers, L d -> 4 d -> L d."""

    def __init__(self, num_layers: int, width: int) -> None:
        super().__init__()
        self.fc1 = Linear(num_layers * width, 4 * width)
        self.fc2 = Linear(4 * width, num_layers * width)

    def forward(self, layers: Tensor, output_routing: OutputRouting = False) -> tuple[Tensor, None]:
        """Aggregate `[..., L, d]` to `[..., d]`."""
        hidden = self.fc1(layers.flatten(-2))
        weights = self.fc2(torch.relu(hidden))
        weighted = weights.view_as(layers) * layers
        return weighted.sum(-2), None


class LayerAttention(nn.Module):
    """sum_l a_l H^l with the scalars a = softmax_l(w . RMSNorm(H^l)) (Attention Residuals, arXiv 2603.15031).

    The query w starts at 0, so that the aggregate starts as the mean of the layers.
    """

    is_mean = True  # So the source needs no LayerNorm behind it.

    def __init__(self, num_layers: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def init_weights(self, std: float) -> None:
        """Start from the mean of the layers, unless the weights were loaded."""
        init.zeros_(self.weight)

    def forward(self, layers: Tensor, output_routing: OutputRouting = False) -> tuple[Tensor, None]:
        """Aggregate `[..., L, d]` to `[..., d]`."""
        weighted = self.shares(layers).unsqueeze(-1) * layers
        return weighted.sum(-2), None

    def shares(self, layers: Tensor) -> Tensor:
        """Return the share a of each layer, `[..., L]`, for layers `[..., L, d]`."""
        width = layers.shape[-1]
        keys = F.rms_norm(layers, (width,), eps=1e-6)
        scores = (self.weight * keys).sum(-1, keepdim=True)
        return scores.softmax(-2).squeeze(-1)


class LayerMixture(nn.Module):
    """sum_l softmax(w)_l H^l with learned scalars w, the same for all positions (Bapna et al. 2018).

    The scalars start at 0, so that the aggregate starts as the mean of the layers.
    """

    is_mean = True  # So the source needs no LayerNorm behind it.

    def __init__(self, num_layers: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_layers))

    def init_weights(self, std: float) -> None:
        """Start from the mean of the layers, unless the weights were loaded."""
        init.zeros_(self.weight)

    def forward(self, layers: Tensor, output_routing: OutputRouting = False) -> tuple[Tensor, None]:
        """Aggregate `[..., L, d]` to `[..., d]`."""
        return torch.einsum("l,...ld->...d", self.shares(layers), layers), None

    def shares(self, layers: Tensor) -> Tensor:
        """Return the share of each layer, `[L]`. It does not depend on the layers `[..., L, d]`."""
        return self.weight.softmax(-1)


class LayerSum(nn.Module):
    """sum_l w_l H^l with learned scalars w, the same for all positions, 1/L at the start (DLCL, Wang et al. 2019)."""

    def __init__(self, num_layers: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_layers))

    def init_weights(self, std: float) -> None:
        """Start from the mean of the layers, unless the weights were loaded."""
        init.constant_(self.weight, 1 / self.weight.shape[0])

    def forward(self, layers: Tensor, output_routing: OutputRouting = False) -> tuple[Tensor, None]:
        """Aggregate `[..., L, d]` to `[..., d]`."""
        return torch.einsum("l,...ld->...d", self.weight, layers), None

    def shares(self, layers: Tensor) -> Tensor:
        """Return the weight of each layer, `[L]`, which may be negative. It does not depend on `[..., L, d]`."""
        return self.weight


class DenseLayerSum(LayerSum):
    """The same, but it starts as the top layer: w is 1 there, and 0 elsewhere (DenseFormer, arXiv 2402.02622)."""

    def init_weights(self, std: float) -> None:
        """Start from the top layer, unless the weights were loaded."""
        start = torch.zeros_like(self.weight)
        start[-1] = 1
        init.copy_(self.weight, start)


COMBINATIONS = {"linear": LinearCombination, "dynamic": DynamicCombination, "attention": LayerAttention}
"""Aggregations of layers without routing."""


class RoutedAggregation(nn.Module):
    """Eq. 5-16: L layers of width d vote for output capsules, which are concatenated.

    With the context "all", F_l reads every layer, with "own" only H^l (Table 3). With the parameterization "factored",
    W_l and A_l act on one input capsule each. With "joint", V and A are each one map of the concatenated input
    capsules, and A gives one activation for each pair of capsules.
    """

    def __init__(self, config: PreTrainedConfig, num_layers: int) -> None:
        super().__init__()
        self.num_layers = num_layers
        width = config.d_model
        concatenated = num_layers * width

        is_joint = config.layer_aggregation_parameterization == "joint"
        if config.layer_aggregation_context == "all":
            self.inputs = Linear(concatenated, concatenated)
        else:
            self.inputs = BlockLinear(num_layers, width, width)
        self.votes = Linear(concatenated, concatenated) if is_joint else BlockLinear(num_layers, width, width)

        self.routing = CapsuleRouting(config.layer_aggregation, config)
        if not ROUTINGS[config.layer_aggregation].reads_activations:
            self.activations = None
        elif is_joint:
            self.activations = Linear(concatenated, num_layers * self.routing.num_capsules)
        else:
            self.activations = BlockLinear(num_layers, width, 1)

    def forward(self, layers: Tensor, output_routing: OutputRouting = False) -> tuple[Tensor, Tensor | None]:
        """Aggregate `[..., L, d]` to `[..., d]`. [`LayerAggregation.forward`] describes the second result."""
        capsules = self._map(self.inputs, layers)
        activations = None
        if self.activations is not None:
            activations = self._map(self.activations, capsules).sigmoid()
        votes = self._map(self.votes, capsules)
        every_iteration = output_routing == "all"
        aggregate, assignment = self.routing(votes, activations, every_iteration=every_iteration)
        if not output_routing:
            assignment = None
        return aggregate, assignment

    def _map(self, module: nn.Module, capsules: Tensor) -> Tensor:
        """Apply one of the three maps above to capsules `[..., L, d]`."""
        if isinstance(module, BlockLinear):
            return module(capsules)
        mapped = module(capsules.flatten(-2))
        return mapped.unflatten(-1, (self.num_layers, -1))


def _make_aggregator(config: PreTrainedConfig, num_layers: int) -> nn.Module:
    """Return the aggregator that a configuration names for the top of a stack, or for the source."""
    name = config.layer_aggregation
    if name == "linear" and config.layer_aggregation_place == "source":
        return LayerMixture(num_layers, config.d_model)
    if name in COMBINATIONS:
        return COMBINATIONS[name](num_layers, config.d_model)
    if name in ROUTINGS:
        return RoutedAggregation(config, num_layers)
    raise unknown_name("layer_aggregation", name, [*COMBINATIONS, *ROUTINGS])


class LayerAggregation(nn.Module):
    """An aggregator of the layers of a stack, from `[..., L, d]` to `[..., d]`, and a LayerNorm.

    With the output "replace" the result is LayerNorm(aggregate). With "residual" it is
    H^L + gamma * LayerNorm(aggregate), and gamma starts at 0. `input_norm` normalises what is aggregated.

    At other places than the top, "replace" has no LayerNorm where the papers have none: for each layer of a decoder
    behind weighted means, and for each layer of a stack if it normalises its inputs itself.

    Args:
        config: the configuration of the model.
        num_layers: L.
        aggregator: maps `[..., L, d]` to `[..., d]`. By default it is the one that the configuration names.
    """

    def __init__(self, config: PreTrainedConfig, num_layers: int, aggregator: nn.Module | None = None) -> None:
        super().__init__()
        width = config.d_model
        self.aggregator = aggregator or _make_aggregator(config, num_layers)
        self.input_norm = config.layer_aggregation_input_norm

        is_residual = config.layer_aggregation_output == "residual"
        has_norm = True
        if config.layer_aggregation_place == "source":
            has_norm = not getattr(self.aggregator, "is_mean", False)
        elif config.layer_aggregation_place == "layers":
            has_norm = not config.is_pre_norm

        self.layer_norm = nn.LayerNorm(width) if has_norm or is_residual else None
        self.gamma = nn.Parameter(torch.zeros(width)) if is_residual else None

    def init_weights(self, std: float) -> None:
        """Switch the residual off, unless gamma was loaded."""
        if self.gamma is not None:
            init.zeros_(self.gamma)

    def forward(
        self, layers: list[Tensor], output_routing: OutputRouting = False, capsules: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Aggregate the outputs of L layers.

        Args:
            layers: the outputs `[..., d]`, from bottom to top.
            output_routing: whether to return an assignment.
            capsules: what `input_capsules` returns for these layers, if it was called before.

        Returns:
            The aggregate `[..., d]`. With `output_routing=True` also the assignment of the last iteration,
            `[..., L, N]`, and with "all" that of every iteration, `[..., iterations, L, N]`.
        """
        if capsules is None:
            capsules = self.input_capsules(layers)
        aggregate, routing = self.aggregator(capsules, output_routing)
        if self.layer_norm is not None:
            # Otherwise a CPU would sum the gradients of the norm in the dtype of autocast.
            aggregate = self.layer_norm(aggregate.to(self.layer_norm.weight.dtype))
        if self.gamma is not None:
            aggregate = layers[-1] + self.gamma * aggregate
        return aggregate, routing

    def input_capsules(self, layers: list[Tensor]) -> Tensor:
        """Return what is aggregated, `[..., L, d]`, of the outputs `[..., d]` of L layers."""
        return self.normalised(torch.stack(layers, dim=-2))

    def normalised(self, layers: Tensor) -> Tensor:
        """Normalise layers `[..., L, d]`, if `input_norm` is set."""
        if self.input_norm:
            return F.layer_norm(layers, layers.shape[-1:])
        return layers


class SourceAggregation(nn.Module):
    """z_1..z_M: for each layer of the decoder an aggregate of its own of the layers of the encoder (Bapna et al. 2018).

    The lowest of the L + 1 layers of the encoder is that of the embeddings.
    """

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        num_layers = config.encoder_layers + 1
        self.layers = nn.ModuleList(LayerAggregation(config, num_layers) for _ in range(config.decoder_layers))

    def forward(self, layers: list[Tensor], output_routing: OutputRouting = False) -> tuple[Tensor, Tensor | None]:
        """Aggregate the embeddings and the outputs of the encoder's layers, `[B, S, d]` each.

        Returns:
            z, `[B, M, S, d]`. For routing also the assignments that were asked for, `[B, M, S, L + 1, N]`, or of every
            iteration `[B, M, S, iterations, L + 1, N]`.
        """
        # All of them read the same. A layer in one piece is faster to read than in parts of one position.
        stacked = torch.stack(layers).movedim(0, -2)
        capsules = self.layers[0].normalised(stacked)

        aggregates = []
        assignments = []
        for aggregation in self.layers:
            aggregate, assignment = aggregation(layers, output_routing, capsules)
            aggregates.append(aggregate)
            if assignment is not None:
                assignments.append(assignment)

        states = torch.stack(aggregates, dim=1)
        if not assignments:
            return states, None
        return states, torch.stack(assignments, dim=1)


class RecordedHeads(NamedTuple):
    """What [`HeadRouting`] returns. Transformers records elements of it by their index.

    Attributes:
        capsules: `[..., d]`.
        assignment: the place of the heads, and their assignment of the last iteration, `[..., H, N]`.
        votes: the module, and the votes `[..., H, d]` that it read.
    """

    capsules: Tensor
    assignment: tuple[str, Tensor]
    votes: tuple["HeadRouting", Tensor]


class HeadRouting(CapsuleRouting):
    """Routes the votes of heads, and lets Transformers record the assignment under a place such as "encoder_self.0"."""

    def __init__(self, config: PreTrainedConfig, place: str) -> None:
        super().__init__(config.head_aggregation, config)
        self.place = place

    def forward(self, votes: Tensor, every_iteration: bool = False) -> RecordedHeads:
        """Route votes `[..., H, d]` to capsules `[..., d]`."""
        capsules, assignment = super().forward(votes, every_iteration=every_iteration)
        return RecordedHeads(capsules, (self.place, assignment), (self, votes))


class RoutedHeads(nn.Module):
    """Eq. 5-12: each of H heads has an input capsule, computed from all heads, which votes for the output capsules.

    The paper does not say which nonlinearity Eq. 5 has. Here it is tanh. `input_norm` normalises input capsules to mean
    0 and variance 1 before it. The paper does not. High learning rates saturate the tanh without it.

    LoRA finds two linear maps here: `inputs` (f, for all heads together) and `votes` (W).
    """

    def __init__(self, config: PreTrainedConfig, num_heads: int, place: str) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.input_norm = config.head_aggregation_input_norm
        self.inputs = UnitGainLinear(config.d_model, num_heads * config.d_model)
        self.votes = UnitGainLinear(config.d_model, config.d_model)
        self.routing = HeadRouting(config, place)

    def forward(self, heads: Tensor) -> Tensor:
        """Aggregate concatenated heads `[..., d]` to `[..., d]`."""
        votes = self.votes(self.input_capsules(heads))
        return self.routing(votes).capsules

    def input_capsules(self, heads: Tensor) -> Tensor:
        """Return the input capsules `[..., H, d]` of concatenated heads `[..., d]` (Eq. 5)."""
        capsules = self.inputs(heads).unflatten(-1, (self.num_heads, -1))
        if self.input_norm:
            capsules = F.layer_norm(capsules, capsules.shape[-1:])
        return capsules.tanh()


class ResidualRoutedHeads(nn.Module):
    """W^O O + gamma * routed(O): a trained W^O plus routed heads. Gamma starts at 0.

    The LayerNorm of the attention's residual connection follows. W^O keeps Marian's names `out_proj.weight` and
    `out_proj.bias`.
    """

    def __init__(self, config: PreTrainedConfig, num_heads: int, place: str) -> None:
        super().__init__()
        width = config.d_model
        self.weight = nn.Parameter(torch.empty(width, width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.routed = RoutedHeads(config, num_heads, place)
        self.gamma = nn.Parameter(torch.zeros(width))

    def init_weights(self, std: float) -> None:
        """Draw the projection, and switch the routed heads off, unless they were loaded."""
        init.normal_(self.weight, mean=0.0, std=std)
        init.zeros_(self.bias)
        init.zeros_(self.gamma)

    def forward(self, heads: Tensor) -> Tensor:
        """Aggregate concatenated heads `[..., d]` to `[..., d]`."""
        projected = F.linear(heads, self.weight, self.bias)
        return projected + self.gamma * self.routed(heads)


RECORDED_HEADS = {
    "head_routing": OutputRecorder(HeadRouting, index=1),
    "head_votes": OutputRecorder(HeadRouting, index=2),
}
"""Outputs of heads that Transformers can record, as it records hidden states."""


def with_head_routing(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a stack with `head_routing`, made of what Transformers recorded.

    Args:
        outputs: the outputs of Marian's encoder or decoder, with `head_routing` for the assignment of the last
            iteration, or `head_votes` for that of every iteration, or neither.

    Returns:
        The outputs. `head_routing` has assignments by place, `[batch, positions, H, N]`, or for every iteration
        `[batch, positions, iterations, H, N]`. It is None if nothing was recorded.
    """
    others = {name: value for name, value in outputs.items() if name not in RECORDED_HEADS}
    assignments = dict(outputs.get("head_routing", ()))
    for routing, votes in outputs.get("head_votes", ()):
        assignments[routing.place] = _assignment_of_every_iteration(routing, votes)
    return {**others, "head_routing": assignments or None}


@torch.no_grad()
def _assignment_of_every_iteration(routing: HeadRouting, votes: Tensor) -> Tensor:
    """Route votes `[..., H, d]` again. Return the assignment `[..., iterations, H, N]`."""
    if torch.compiler.is_compiling():
        # A compiler cannot trace the hook by which Transformers records a call of the module.
        recorded = HeadRouting.forward(routing, votes, every_iteration=True)
    else:
        # Hooks of sharding gather the weights only for a call of the module.
        recorded = routing(votes, every_iteration=True)
    _, assignment = recorded.assignment
    return assignment
