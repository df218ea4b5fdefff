"""Guided routing and its losses (Zheng et al. 2019) as loops over sentences, positions, words and capsules.

Everything is float64 and differentiated by autograd. A source word that the mask rules out, and a target position
without a word, is never visited.
"""

import torch
from torch import Tensor

from .routing import squash


def guided_dynamic_routing(
    states: Tensor,
    sources: Tensor,
    vote_weights: Tensor,
    guide_weight: Tensor,
    score_weight: Tensor,
    num_iterations: int = 3,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Algorithm 1: capsules [B, T, J, D], and the assignment of every iteration [B, T, iterations, S, J].

    states z [B, T, d], sources h [B, S, e], vote_weights W_j [J, D, e], guide_weight W_b [D, d + 2 D], score_weight [D]
    """
    capsules, assignments = [], []
    for b, sentence in enumerate(states.double()):
        words = _words(mask, b, sources.shape[1])
        # Eq. 5
        votes = {(s, j): weight @ sources[b, s] for s in words for j, weight in enumerate(vote_weights)}
        for state in sentence:
            shape = sources.shape[1], len(vote_weights)
            routed = _route(state, votes, words, shape, guide_weight, score_weight, num_iterations)
            capsules.append(routed[0])
            assignments.append(routed[1])
    leading = states.shape[:2]
    return torch.stack(capsules).unflatten(0, leading), torch.stack(assignments).unflatten(0, leading)


def _route(
    state: Tensor,
    votes: dict[tuple[int, int], Tensor],
    words: list[int],
    shape: tuple[int, int],
    guide_weight: Tensor,
    score_weight: Tensor,
    num_iterations: int,
) -> tuple[Tensor, Tensor]:
    """One target position: [J, D], and [iterations, S, J]."""
    (num_words, num_capsules), width = shape, len(score_weight)
    logits = {pair: state.new_zeros(()) for pair in votes}
    history = []
    for _ in range(num_iterations):
        # Eq. 6
        assignment = state.new_zeros(num_words, num_capsules)
        for s in words:
            assignment[s] = torch.stack([logits[s, j] for j in range(num_capsules)]).softmax(0)
        history.append(assignment)
        # Eq. 4
        capsules = []
        for j in range(num_capsules):
            capsules.append(squash(sum((assignment[s, j] * votes[s, j] for s in words), state.new_zeros(width))))
        # Eq. 7
        for s, j in votes:
            hidden = torch.tanh(guide_weight @ torch.cat([state, votes[s, j], capsules[j]]))
            logits[s, j] = logits[s, j] + score_weight @ hidden
    return torch.stack(capsules), torch.stack(history)


def guided_classifier(
    states: Tensor,
    sources: Tensor,
    value_weights: Tensor,
    hidden_weight: Tensor,
    class_weight: Tensor,
    num_past: int,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """CLF of Fig. 6: capsules [B, T, J, D] and the classes of every word [B, T, S, 2 or 3].

    value_weights [J, D, e], hidden_weight [D, d + e], class_weight [2 or 3, D].
    """
    capsules, classes = [], states.new_zeros(*states.shape[:2], sources.shape[1], len(class_weight))
    for b, sentence in enumerate(states):
        words = _words(mask, b, sources.shape[1])
        for t, state in enumerate(sentence):
            shares = {}
            for s in words:
                hidden = torch.tanh(hidden_weight @ torch.cat([state, sources[b, s]]))
                shares[s] = (class_weight @ hidden).softmax(0)
                classes[b, t, s] = shares[s].detach()
            for j, weight in enumerate(value_weights):
                capsules.append(sum(shares[s][int(j >= num_past)] * (weight @ sources[b, s]) for s in words))
    return torch.stack(capsules).reshape(*states.shape[:2], *value_weights.shape[:2]), classes


def guided_attention(
    states: Tensor,
    sources: Tensor,
    value_weights: Tensor,
    query_weights: Tensor,
    key_weights: Tensor,
    num_past: int,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """ATTN of Fig. 6: capsules [B, T, J, D] and the attention to every word [B, T, S, 2].

    value_weights [J, D, e], query_weights [2, D, d], key_weights [2, D, e].
    """
    capsules, attentions = [], states.new_zeros(*states.shape[:2], sources.shape[1], 2)
    for b, sentence in enumerate(states):
        words = _words(mask, b, sources.shape[1])
        for t, state in enumerate(sentence):
            shares = []
            for group in range(2):
                query = query_weights[group] @ state
                scores = [query @ (key_weights[group] @ sources[b, s]) / len(query) ** 0.5 for s in words]
                shares.append(dict(zip(words, torch.stack(scores).softmax(0))))
                attentions[b, t, words, group] = torch.stack(list(shares[group].values())).detach()
            for j, weight in enumerate(value_weights):
                capsules.append(sum(shares[int(j >= num_past)][s] * (weight @ sources[b, s]) for s in words))
    return torch.stack(capsules).reshape(*states.shape[:2], *value_weights.shape[:2]), attentions


def bag_of_words_loss(
    past: Tensor, future: Tensor, past_weight: Tensor, future_weight: Tensor, embedding: Tensor, labels: Tensor
) -> Tensor:
    """The mean over target words of -log p, averaged over the words before, plus that of the words from there on.

    past and future [B, T, ...] capsules; their weights W_bow; the embedding [V, d]; the labels [B, T].
    """
    losses = []
    for b, sentence in enumerate(labels):
        real = [t for t, word in enumerate(sentence.tolist()) if word != -100]
        for t in real:
            loss = labels.new_zeros((), dtype=torch.float64)
            for capsules, weight, bag in (
                (past, past_weight, [i for i in real if i < t]),
                (future, future_weight, [i for i in real if i >= t]),
            ):
                log_p = (embedding @ (weight @ capsules[b, t].flatten())).log_softmax(0)
                if bag:
                    loss = loss - sum(log_p[sentence[i]] for i in bag) / len(bag)
            losses.append(loss)
    return sum(losses) / len(losses)


def content_agreement_loss(
    past: Tensor, future: Tensor, past_weight: Tensor, future_weight: Tensor, states: Tensor, labels: Tensor
) -> Tensor:
    """The mean over target words of the squared errors of W_bca times the mean state so far, and from there on."""
    losses = []
    for b, sentence in enumerate(labels):
        real = [t for t, word in enumerate(sentence.tolist()) if word != -100]
        for t in real:
            until, after = ([states[b, i] for i in real if i <= t], [states[b, i] for i in real if i >= t])
            for capsules, weight, seen in ((past, past_weight, until), (future, future_weight, after)):
                error = capsules[b, t].flatten() - weight @ (sum(seen) / len(seen))
                losses.append((error**2).mean())
    return 2 * sum(losses) / len(losses)


def _words(mask: Tensor | None, sentence: int, num_words: int) -> list[int]:
    return [s for s in range(num_words) if mask is None or mask[sentence, s]]
