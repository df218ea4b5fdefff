"""Translation models of every family by one name: marian-none, recurrent-rnmt and so on"""

import pytest
import torch
from aggregated_models import OUTPUTS, aggregated, aggregated_m2m100, training_batch
from recurrent_models import recurrent

# Those that differ in the code they reach.
MARIAN = ["none", "linear", "dynamic", "em_routing_joint", "heads_and_layers_em", "guided_attention", "everything"]
MARIAN += ["source_linear", "source_em_routing", "each_layer"]
RECURRENT = ["capsule", "no_strategies", "pooling", "rnmt", "guided_attention", "guided_hybrid"]
ONE_OF_EACH_FAMILY = ["marian-everything", "m2m100-everything", "recurrent-capsule", "recurrent-rnmt"]


def names(family, kinds):
    """The name of each kind of a family."""
    return [f"{family}-{kind}" for kind in kinds]


KINDS = [*names("marian", MARIAN), *names("m2m100", ["everything", "delta", "mhc"]), *names("recurrent", RECURRENT)]
every_kind = pytest.mark.parametrize("name", KINDS)
each_family = pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)


def translator(name, seed=0, **fields):
    """A model in evaluation mode; where Marian's family can add to what it replaces, it does."""
    family, _, kind = name.partition("-")
    if family == "marian":
        return aggregated(kind, seed, **{**OUTPUTS["residual"], **fields})
    if family == "m2m100":
        return aggregated_m2m100(kind, seed, **{**OUTPUTS["residual"], **fields})
    return recurrent(kind, seed, **fields)


def logits(model):
    """Logits of the training batch."""
    with torch.no_grad():
        return model(**training_batch()).logits
