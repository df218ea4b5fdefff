"""The aggregation of a sentence (Wang et al. 2019) as loops over words and capsules, given a module's parameters.

A word that the mask rules out is never visited, and not counted among the places of the others.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from .recurrent import within
from .routing import squash


def route_sentences(
    config: PreTrainedConfig, parameters: Mapping[str, Tensor], states: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """The capsules [B, M, d] of states [B, S, d], and the assignment [B, iterations, S, M] (Algorithm 1)."""
    capsules, assignments = [], []
    for sentence, present in zip(states, mask):
        places = [place for place in range(len(sentence)) if present[place]]
        words = [sentence[place] for place in places]
        routed, history = _route(config, parameters, words)
        assignment = states.new_zeros(config.routing_iterations, len(sentence), config.num_sentence_capsules)
        for iteration, coefficients in enumerate(history):
            for place, row in zip(places, coefficients):
                assignment[iteration, place] = torch.stack(row).detach()
        capsules.append(torch.stack(routed))
        assignments.append(assignment)
    return torch.stack(capsules), torch.stack(assignments)


def pool_sentences(states: Tensor, mask: Tensor) -> Tensor:
    """Eq. 2-4: [B, 4, d]."""
    pooled = []
    for sentence, present in zip(states, mask):
        words = [word for word, real in zip(sentence, present) if real]
        if not words:
            pooled.append(states.new_zeros(4, states.shape[-1]))
            continue
        largest = words[0]
        for word in words[1:]:
            largest = torch.where(word > largest, word, largest)
        pooled.append(torch.stack([largest, sum(words) / len(words), words[0], words[-1]]))
    return torch.stack(pooled)


def sentence_state(config: PreTrainedConfig, encoder: Mapping[str, Tensor], states: list[Tensor]) -> Tensor:
    """W_c [c_1, ..., c_M] of Eq. 5 [d], given the parameters of an encoder and its states of one sentence."""
    mask = torch.ones(1, len(states), dtype=torch.bool)
    if config.sentence_aggregation == "capsule":
        vectors = route_sentences(config, within(encoder, "aggregation."), torch.stack(states)[None], mask)[0]
    else:
        vectors = pool_sentences(torch.stack(states)[None], mask)
    return encoder["projection.weight"] @ torch.cat(list(vectors[0]))


def sinusoid(place: int, width: int) -> Tensor:
    """Vaswani et al. 2017, section 3.5, with all sines first: [d]."""
    angles = [place / 10000 ** (2 * k / width) for k in range(width // 2)]
    return torch.tensor([*map(math.sin, angles), *map(math.cos, angles)], dtype=torch.float64)


def _route(
    config: PreTrainedConfig, parameters: Mapping[str, Tensor], words: list[Tensor]
) -> tuple[list[Tensor], list[list[list[Tensor]]]]:
    """One sentence: words [d] to M capsules [d], and the coefficients by iteration, word and capsule."""
    num_capsules, width = config.num_sentence_capsules, config.d_model
    if config.position_aware_routing:
        words = [word + sinusoid(place, width) for place, word in enumerate(words)]
    logits = [[torch.zeros((), dtype=torch.float64) for _ in range(num_capsules)] for _ in words]
    history = []
    for iteration in range(config.routing_iterations):
        weights = parameters["weight"][0 if config.share_routing_weights else iteration]
        # Eq. 8
        messages = [[(word @ weight).relu() for weight in weights.split(width, dim=1)] for word in words]
        # Eq. 11
        coefficients = [list(torch.stack(row).softmax(0)) for row in logits]
        history.append(coefficients)
        capsules = []
        for j in range(num_capsules):
            # Eq. 7, 9, 10
            total = torch.zeros(width, dtype=torch.float64)
            for alpha, message in zip(coefficients, messages):
                total = total + alpha[j] * message[j]
            capsules.append(squash(total))
        for i, word in enumerate(words):
            for j, capsule in enumerate(capsules):
                logits[i][j] = logits[i][j] + _score(config, parameters, capsule, j, word, messages[i][j])
    return capsules, history


def _score(
    config: PreTrainedConfig, parameters: Mapping[str, Tensor], capsule: Tensor, j: int, word: Tensor, message: Tensor
) -> Tensor:
    if config.position_aware_routing:
        position = sinusoid(j, config.d_model)
        capsule = capsule + position / position.norm()
    if config.separable_scoring and config.routing_iterations > 1:
        # Eq. 14
        return _g(parameters, capsule).dot(_g(parameters, word))
    # Eq. 12
    return capsule.dot(message)


def _g(parameters: Mapping[str, Tensor], vector: Tensor) -> Tensor:
    hidden = (parameters["scoring.0.weight"] @ vector + parameters["scoring.0.bias"]).relu()
    return parameters["scoring.2.weight"] @ hidden + parameters["scoring.2.bias"]
