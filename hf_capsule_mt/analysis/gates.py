"""How far training has switched on the aggregation of layers or heads, routed or not, that a model began without.

A model made from a Marian model does: gamma, the vector that what is added is multiplied by, starts at zero.
"""

from collections.abc import Iterator

from torch import Tensor, nn

from hf_capsule_mt.modeling.aggregation import LayerAggregation, ResidualRoutedHeads

from .routing_kinds import side_of


def record_gates(model: nn.Module) -> dict[str, dict[str, float]]:
    """Return the mean and the largest magnitude of gamma, by the place of the layers or heads that are added."""
    found = {}
    for place, gamma in _gates(model):
        size = gamma.detach().float().abs()
        found[place] = {"mean": size.mean().item(), "largest": size.max().item()}
    return found


def _gates(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, module in model.named_modules():
        if isinstance(module, LayerAggregation) and module.gamma is not None:
            yield f"{side_of(name)} layers", module.gamma
        elif isinstance(module, ResidualRoutedHeads):
            yield f"heads {module.routed.routing.place}", module.gamma
