"""RNMT (Bahdanau et al. 2015) word by word, given a model's parameters: alone, with CapsNMT (Wang et al. 2019), guided.

Every sentence is alone, without its padding, and attention looks at one source word after the other.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from .guided_routing import guided_attention, guided_classifier, guided_dynamic_routing
from .recurrent import both_ways, embed, gru, gru_step, within
from .sentence_capsules import sentence_state


def rnmt(
    config: PreTrainedConfig, parameters: Mapping[str, Tensor], source: list[int], target: list[int]
) -> tuple[Tensor, Tensor]:
    """The logits [T, V] after each of the words that the decoder reads, and the attention [T, S]."""
    encoder, decoder = within(parameters, "model.encoder."), within(parameters, "model.decoder.")
    states = embed(config, encoder["embed_tokens.weight"], source)
    for layer in range(config.encoder_layers):
        of_layer = within(encoder, f"layers.{layer}.")
        states = both_ways(gru, within(of_layer, "forward_gru."), within(of_layer, "backward_gru."), states)
    words = embed(config, decoder["embed_tokens.weight"], target)
    if config.sentence_aggregation is not None:
        sentence = sentence_state(config, encoder, states)
        words = [sentence + word for word in words]
    state = torch.tanh(_linear(decoder, "start.", sum(states) / len(states)))
    logits, attention = [], []
    for word in words:
        # s' = GRU_1(u, s)
        first = within(decoder, "recurrence.step.first.")
        by_word = _linear(decoder, "recurrence.from_words.", word)
        between = gru_step(by_word, _linear(first, "from_hidden.", state), state)
        weights = _attend(encoder, within(decoder, "recurrence.step.attention."), between, states)
        context = sum(weight * state for weight, state in zip(weights, states))
        # s = GRU_2(a, s')
        second = within(decoder, "recurrence.step.second.")
        by_context = _linear(decoder, "recurrence.step.from_context.", context)
        state = gru_step(by_context, _linear(second, "from_hidden.", between), between)
        # tanh(W [u; s; a]), or with o in the place of s
        guided = state if config.guided_routing is None else _guided(config, encoder, decoder, state, states)
        readout = torch.tanh(_linear(decoder, "readout.", torch.cat([word, guided, context])))
        logits.append(parameters["lm_head.weight"] @ readout)
        attention.append(weights)
    return torch.stack(logits), torch.stack(attention)


def _guided(
    config: PreTrainedConfig, encoder: Mapping[str, Tensor], decoder: Mapping[str, Tensor], state: Tensor, states: list
) -> Tensor:
    """o = z + FFN([z; PAST; FUTURE]) of Zheng et al. 2019, of one word."""
    votes, routing = within(encoder, "guided_votes."), within(decoder, "guided_routing.")
    vote_weights = votes["votes.weight"].unflatten(0, (-1, config.guided_capsule_dim))
    keys, queries = votes["keys.weight"], routing["queries.weight"]
    given = state[None, None], torch.stack(states)[None], vote_weights
    past = config.num_past_capsules
    if config.guided_routing == "gdr":
        # W_b, whose parts are those of z, v and Omega.
        guide = torch.cat([queries, keys, routing["capsule_map"]], dim=1)
        iterations = config.guided_routing_iterations
        capsules, _ = guided_dynamic_routing(*given, guide, routing["score_weight"][0], iterations)
    elif config.guided_routing == "classifier":
        capsules, _ = guided_classifier(*given, torch.cat([queries, keys], dim=1), routing["score_weight"], past)
    else:
        maps = (weight.unflatten(0, (2, -1)) for weight in (queries, keys))
        capsules, _ = guided_attention(*given, *maps, past)
    kept = capsules[0, 0, : past + config.num_future_capsules].flatten()
    hidden = torch.relu(_linear(routing, "fc1.", torch.cat([state, kept])))
    return state + _linear(routing, "fc2.", hidden)


def _attend(
    encoder: Mapping[str, Tensor], attention: Mapping[str, Tensor], query: Tensor, states: list[Tensor]
) -> Tensor:
    """softmax_s(v . tanh(W s' + U h_s + b))"""
    scores = []
    for state in states:
        key = _linear(encoder, "key_projection.", state)
        scores.append(attention["score"].dot(torch.tanh(attention["query.weight"] @ query + key)))
    exponentials = [score.exp() for score in scores]
    return torch.stack(exponentials) / sum(exponentials)


def _linear(parameters: Mapping[str, Tensor], prefix: str, vector: Tensor) -> Tensor:
    return parameters[f"{prefix}weight"] @ vector + parameters[f"{prefix}bias"]
