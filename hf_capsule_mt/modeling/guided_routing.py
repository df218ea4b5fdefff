"""PAST and FUTURE capsules (Zheng et al. 2019): equations, modules and losses."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init
from transformers.utils import ModelOutput

from .differentiation import differentiable_once
from .linear import Linear
from .losses import bag_of_words_loss, bag_of_words_loss_of_scores, content_agreement_loss, shares
from .outputs import OutputRouting
from .precision import compute_dtype, in_compute_dtype
from .routing import squash

# Hidden units in a chunk. On a CPU they stay in the cache of a core. On an accelerator they are 64 MiB of float32.
_PAIR_CHUNK = {"cpu": 1 << 18}
_ACCELERATOR_PAIR_CHUNK = 1 << 24
# With so few queries or keys, as in decoding, an exponential for each costs as much as one for each pair.
_FEW = 8


def additive_scores(queries: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    """Return sum_d weight[k, d] tanh(queries[..., t, d] + keys[..., s, d]), `[..., T, S, K]`.

    Queries are `[..., T, D]`, keys `[..., S, D]` with the same leading dimensions, and the weight is `[K, D]`.
    """
    leading = queries.shape[:-2]
    queries, keys = (tensor.reshape(-1, *tensor.shape[-2:]) for tensor in (queries, keys))
    scores = AdditiveScoresFunction.apply(queries, keys, weight)
    return scores.reshape(*leading, *scores.shape[1:])


class AdditiveScoresFunction(torch.autograd.Function):
    """[`additive_scores`] with one leading dimension."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
        """Score chunk by chunk."""
        ctx.save_for_backward(queries, keys, weight)
        (rows, length, _), source = queries.shape, keys.shape[1]
        scores = queries.new_empty(rows, length, source, weight.shape[0])
        # tanh(x) = 2 sigmoid(2 x) - 1
        hidden_of, weight = _hidden_layer(queries, keys), 2 * weight
        for row, part in _pair_chunks(queries, keys):
            scores[row, part] = _product(hidden_of(row, part), weight)
        return scores.sub_(weight.sum(-1) / 2)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Differentiate chunk by chunk."""
        queries, keys, weight = ctx.saved_tensors
        grad_queries, grad_keys, grad_weight = map(torch.zeros_like, (queries, keys, weight))
        hidden_of = _hidden_layer(queries, keys)
        for row, part in _pair_chunks(queries, keys):
            hidden, gradient = hidden_of(row, part), grad_scores[row, part]
            if weight.shape[0] == 1:
                # Every gradient has the weight as a factor, which follows at the end.
                slope = hidden * gradient
                grad_weight += slope.sum((0, 1, 2))
            else:
                grad_weight += _product(gradient.flatten(0, -2).t(), hidden.flatten(0, -2).t())
                slope = _product(gradient, weight.t()).mul_(hidden)
            slope = slope.addcmul_(slope, hidden, value=-1)
            grad_queries[row, part] = slope.sum(-2)
            grad_keys[row] += slope.sum(-3)
        factor = 4 * weight[0] if weight.shape[0] == 1 else 4
        grad_weight = 2 * grad_weight - grad_scores.sum((0, 1, 2)).unsqueeze(-1)
        return grad_queries.mul_(factor), grad_keys.mul_(factor), grad_weight


def _hidden_layer(queries: Tensor, keys: Tensor) -> Callable[[slice, slice], Tensor]:
    """Return the function from a chunk to its sigmoids of twice the sums, `[rows, length, source, D]`."""
    if _can_multiply(queries, keys):
        # sigmoid(2 (q + k)) = 1 / (1 + exp(-2 q) exp(-2 k)) needs no exponential for each pair.
        queries, keys = (-2 * queries).exp_(), (-2 * keys).exp_()
        return lambda row, part: (queries[row, part, None] * keys[row, None]).add_(1).reciprocal_()
    queries = 2 * queries
    # With 2 * keys, decoding would copy the keys of all sentences at every step.
    return lambda row, part: torch.add(queries[row, part, None], keys[row, None], alpha=2).sigmoid_()


def _can_multiply(queries: Tensor, keys: Tensor) -> bool:
    """Return whether there are enough pairs, and exp(-2 q) and exp(-2 k) are finite and not zero.

    An accelerator would have to wait for the answer, so there it is False.
    """
    # A compiler would turn unknown lengths into conditions.
    if torch.compiler.is_compiling() or queries.device.type != "cpu":
        return False
    if min(queries.shape[1], keys.shape[1]) < _FEW:
        return False
    largest = 0.49 * math.log(torch.finfo(queries.dtype).max)
    # A tensor of absolute values would take longer.
    return all(
        -largest < tensor.amin().item() and tensor.amax().item() < largest
        for tensor in (queries, keys)
        if tensor.numel()
    )


def _product(inputs: Tensor, weight: Tensor) -> Tensor:
    """Return inputs @ weight.t(). Under compilation it is a sum, so that the compiler fuses the inputs into it."""
    if torch.compiler.is_compiling():
        return (inputs.unsqueeze(-2) * weight).sum(-1)
    return inputs @ weight.t()


def _pair_chunks(queries: Tensor, keys: Tensor) -> Iterator[tuple[slice, slice]]:
    """Return slices of the rows and of the queries in them, or one chunk under compilation, which unrolls loops."""
    (rows, length, width), source = queries.shape, keys.shape[1]
    if torch.compiler.is_compiling():
        yield slice(None), slice(None)
        return
    budget = _PAIR_CHUNK.get(queries.device.type, _ACCELERATOR_PAIR_CHUNK) // max(1, source * width)
    row_step, step = max(1, budget // max(1, length)), max(1, min(length, budget))
    for row in range(0, rows, row_step):
        for start in range(0, length, step):
            yield slice(row, row + row_step), slice(start, start + step)


class GuidedRoutingOutput(NamedTuple):
    """Capsules, and the assignment of source tokens to them.

    Attributes:
        capsules: `[B, T, J, D]`.
        assignment: source tokens to capsules, or in the baselines to PAST, FUTURE and redundant as groups. The last
            iteration gives `[B, T, S, J]`, every iteration `[B, T, iterations, S, J]`. It has no gradient.
    """

    capsules: Tensor
    assignment: Tensor


def guided_dynamic_routing(
    votes: Tensor,
    keys: Tensor,
    queries: Tensor,
    capsule_map: Tensor,
    score_weight: Tensor,
    num_iterations: int = 3,
    mask: Tensor | None = None,
    every_iteration: bool = False,
) -> GuidedRoutingOutput:
    """Guided dynamic routing (Algorithm 1, Eq. 4-7). W_b of Eq. 7 is in three parts.

    Votes v (Eq. 5) and keys W_v v are `[B, J, S, D]`, and queries W_z z are `[B, T, D]`. `capsule_map` is W_Omega
    `[D, D]`, and `score_weight` is w `[1, D]`. The mask `[B, S]` is False for padding.
    """
    dtype = queries.dtype
    votes, keys, queries, capsule_map, score_weight = in_compute_dtype(votes, keys, queries, capsule_map, score_weight)
    # The first assignment is the same for every target position.
    logits = votes.new_zeros(*votes.shape[:2], 1, votes.shape[2])
    every = []
    for iteration in range(num_iterations):
        coefficients = _hide(logits.softmax(1), mask)
        every.append(coefficients.detach())
        capsules = squash(coefficients @ votes)
        if iteration + 1 < num_iterations:
            guides = queries.unsqueeze(1) + capsules @ capsule_map.t()
            logits = logits + additive_scores(guides, keys, score_weight).squeeze(-1)
    # After the first iteration there is one position.
    positions = -1, -1, queries.shape[1], -1
    assignments = [each.expand(positions).movedim(1, -1) for each in every]
    return GuidedRoutingOutput(
        capsules.expand(positions).transpose(1, 2).to(dtype),
        (torch.stack(assignments, dim=2) if every_iteration else assignments[-1]).to(dtype),
    )


def guided_classifier(
    values: Tensor, keys: Tensor, queries: Tensor, score_weight: Tensor, num_past: int, mask: Tensor | None = None
) -> GuidedRoutingOutput:
    """The baseline CLF (Fig. 6, footnote 5): each token is PAST, FUTURE or redundant, and capsules are weighted sums.

    Values are `[B, J, S, D]`, for `num_past` PAST capsules, then for FUTURE. Keys W_h h are `[B, 1, S, D]`, queries
    W_z z `[B, T, D]`, and weights of the classes `[2 or 3, D]`. The mask `[B, S]` is False for padding.
    """
    dtype = queries.dtype
    values, keys, queries, score_weight = in_compute_dtype(values, keys, queries, score_weight)
    scores = additive_scores(queries.unsqueeze(1), keys, score_weight).squeeze(1)
    classes = _hide(scores.softmax(-1).movedim(-1, 1), mask)
    return _weighted_sums(classes, values, num_past, dtype)


def guided_attention(
    values: Tensor, keys: Tensor, queries: Tensor, num_past: int, mask: Tensor | None = None
) -> GuidedRoutingOutput:
    """The baseline ATTN (Fig. 6): scaled dot-product attention to PAST, and another to FUTURE.

    Keys are `[B, 2, S, D]`, and queries `[B, T, 2 * D]`. All else is as in [`guided_classifier`].
    """
    dtype = queries.dtype
    values, keys, queries = in_compute_dtype(values, keys, queries)
    queries = queries.unflatten(-1, (2, -1)).transpose(1, 2)
    scores = queries @ keys.transpose(-1, -2) / keys.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None], torch.finfo(scores.dtype).min)
    return _weighted_sums(_hide(scores.softmax(-1), mask), values, num_past, dtype)


def _hide(coefficients: Tensor, mask: Tensor | None) -> Tensor:
    """Zero the assignment `[B, J, T, S]` of padding."""
    return coefficients if mask is None else coefficients.masked_fill(~mask[:, None, None], 0.0)


def _weighted_sums(weights: Tensor, values: Tensor, num_past: int, dtype: torch.dtype) -> GuidedRoutingOutput:
    """Return capsules, given weights `[B, 2 or 3, T, S]` of PAST, FUTURE (and redundant), and values `[B, J, S, D]`."""
    past, future = values.split([num_past, values.shape[1] - num_past], dim=1)
    capsules = torch.cat([weights[:, :1] @ past, weights[:, 1:2] @ future], dim=1)
    return GuidedRoutingOutput(capsules.transpose(1, 2).to(dtype), weights.detach().movedim(1, -1).to(dtype))


class GuidedVotes(nn.Module):
    """Votes of the source tokens for capsules, and keys for their scores. The encoder makes them once a sentence."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        kind, width, self.capsule_dim = config.guided_routing, config.d_model, config.guided_capsule_dim
        self.routes = kind == "gdr"
        redundant = config.num_redundant_capsules if self.routes else 0
        voted_for = config.num_past_capsules + config.num_future_capsules + redundant
        self.votes = Linear(width, voted_for * self.capsule_dim, bias=False)
        if self.routes:
            self.keys = Linear(self.capsule_dim, self.capsule_dim, bias=False)
        else:
            attentions = 2 if kind == "attention" else 1
            self.keys = Linear(width, attentions * self.capsule_dim, bias=False)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return votes (Eq. 5) and keys, `[B, ..., S, D]` in the dtype of routing, of states `[B, S, width]`."""
        if mask is not None:
            states = states.masked_fill(~mask.unsqueeze(-1), 0.0)
        votes = self._split(self.votes(states))
        keys = self.keys(votes) if self.routes else self._split(self.keys(states))
        return in_compute_dtype(votes, keys)

    def of(self, encoded: ModelOutput, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return votes and keys from the output of an encoder. If it lacks them, compute them."""
        votes, keys = getattr(encoded, "guided_votes", None), getattr(encoded, "guided_keys", None)
        if votes is None or keys is None:
            return self(encoded.last_hidden_state, mask)
        return votes, keys

    def _split(self, concatenated: Tensor) -> Tensor:
        return concatenated.unflatten(-1, (-1, self.capsule_dim)).transpose(1, 2).contiguous()


class GuidedContext(NamedTuple):
    """Output of [`GuidedRouting`].

    Attributes:
        states: o `[B, T, width]`, which predicts the next tokens.
        capsules: PAST, then FUTURE, `[B, T, J, D]`, or None without guided routing.
        assignment: as in [`GuidedRoutingOutput`], if asked for.
    """

    states: Tensor
    capsules: Tensor | None
    assignment: Tensor | None


class GuidedRouting(nn.Module):
    """o = z + FFN([z; PAST; FUTURE]) (section 3.2), where z and the votes make the capsules.

    `hidden_width` is that of the FFN's hidden layer. Dropout acts on the output of the FFN.
    """

    def __init__(self, config: PreTrainedConfig, hidden_width: int) -> None:
        super().__init__()
        self.kind = kind = config.guided_routing
        width, capsule_dim = config.d_model, config.guided_capsule_dim
        self.num_past = config.num_past_capsules
        self.num_capsules = config.num_past_capsules + config.num_future_capsules
        self.num_iterations = config.guided_routing_iterations
        attends = kind == "attention"
        self.queries = Linear(width, (2 if attends else 1) * capsule_dim, bias=False)
        # Plain parameters: sharding and offloading load the weights of an nn.Linear only while its own forward runs.
        if kind == "gdr":
            self.capsule_map = nn.Parameter(torch.empty(capsule_dim, capsule_dim))
        if not attends:
            classes = 1 if kind == "gdr" else 2 + (config.num_redundant_capsules > 0)
            self.score_weight = nn.Parameter(torch.empty(classes, capsule_dim))
        self.fc1 = Linear(width + self.num_capsules * capsule_dim, hidden_width)
        self.fc2 = Linear(hidden_width, width)
        self.dropout = nn.Dropout(config.dropout)

    def init_weights(self, std: float | None = None) -> None:
        """Draw the parameters of this module from N(0, std^2), or with unit gain, unless they were loaded."""
        for _, weight in self.named_parameters(recurse=False):
            init.normal_(weight, mean=0.0, std=std or weight.shape[1] ** -0.5)

    def switch_off(self) -> None:
        """Let o equal z until the first update."""
        for parameter in self.fc2.parameters():
            init.zeros_(parameter)

    def forward(
        self,
        states: Tensor,
        votes: Tensor,
        keys: Tensor,
        mask: Tensor | None = None,
        output_routing: OutputRouting = False,
    ) -> GuidedContext:
        """Route for the decoder's states z `[B, T, width]`, given the result of [`GuidedVotes`] and a mask `[B, S]`."""
        queries = self.queries(states)
        with torch.autocast(states.device.type, enabled=False):
            capsules, assignment = self._route(votes, keys, queries, mask, output_routing == "all")
        capsules = capsules[:, :, : self.num_capsules]
        context = torch.cat([states, capsules.flatten(-2).to(states.dtype)], dim=-1)
        outputs = states + self.dropout(self.fc2(self.fc1(context).relu()))
        return GuidedContext(outputs, capsules, assignment if output_routing else None)

    def _route(
        self, votes: Tensor, keys: Tensor, queries: Tensor, mask: Tensor | None, every_iteration: bool
    ) -> GuidedRoutingOutput:
        if self.kind == "gdr":
            weights = self.capsule_map, self.score_weight
            return guided_dynamic_routing(votes, keys, queries, *weights, self.num_iterations, mask, every_iteration)
        if self.kind == "classifier":
            routed = guided_classifier(votes, keys, queries, self.score_weight, self.num_past, mask)
        else:
            routed = guided_attention(votes, keys, queries, self.num_past, mask)
        return routed._replace(assignment=routed.assignment.unsqueeze(2)) if every_iteration else routed


class GuidedLosses(nn.Module):
    """The bag-of-words loss and the bilingual content agreement loss, not yet weighted. One of weight 0 is left out."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        width, self.num_past = config.d_model, config.num_past_capsules
        past, future = (n * config.guided_capsule_dim for n in (config.num_past_capsules, config.num_future_capsules))
        self.names = [name for name in ("bow_loss", "bca_loss") if getattr(config, f"{name}_weight") > 0]
        if "bow_loss" in self.names:
            self.past_bow, self.future_bow = (Linear(size, width, bias=False) for size in (past, future))
        if "bca_loss" in self.names:
            self.past_bca, self.future_bca = (Linear(width, size, bias=False) for size in (past, future))

    def forward(
        self,
        states: Tensor,
        capsules: Tensor,
        labels: Tensor,
        embedding: Tensor | nn.Module,
        num_items_in_batch: Tensor | int | None = None,
    ) -> dict[str, Tensor]:
        """Return the losses by name: the mean over the target tokens, or the sum divided by `num_items_in_batch`.

        States are z `[B, T, width]`. Capsules are PAST, then FUTURE, `[B, T, J, D]`. Labels are token ids `[B, T]`,
        -100 for padding. The output embedding is `[V, width]`, or a projection that computes scores.
        """
        labels = labels.to(states.device)
        mask = labels != -100
        # Padding may hold anything, even NaN.
        capsules = capsules.masked_fill(~mask[..., None, None], 0.0)
        states = states.masked_fill(~mask[..., None], 0.0)
        past, future = (part.flatten(-2) for part in capsules.tensor_split([self.num_past], dim=2))
        items = mask.sum() if num_items_in_batch is None else torch.as_tensor(num_items_in_batch, device=mask.device)
        # For every token: the tokens before it, the tokens until it, and the tokens from it on.
        pairs, dtype = mask.unsqueeze(1) & mask.unsqueeze(2), compute_dtype(states)
        before, until, after = (shares(members, dtype) for members in (pairs.tril(-1), pairs.tril(), pairs.triu()))
        sums = {}
        if "bow_loss" in self.names:
            words = labels.masked_fill(~mask, 0)
            # Both bags together need only one pass over the vocabulary.
            queries, bags = torch.cat([self.past_bow(past), self.future_bow(future)]), torch.cat([before, after])
            words = words.repeat(2, 1)
            if isinstance(embedding, Tensor):
                sums["bow_loss"] = bag_of_words_loss(queries, embedding.to(states.device), words, bags)
            else:
                sums["bow_loss"] = bag_of_words_loss_of_scores(embedding(queries).to(states.device), words, bags)
        if "bca_loss" in self.names:
            with torch.autocast(states.device.type, enabled=False):
                read, unread = (bag @ states.to(dtype) for bag in (until, after))
            agreements = (past, self.past_bca, read), (future, self.future_bca, unread)
            sums["bca_loss"] = sum(
                content_agreement_loss(part, mapped(content.to(states.dtype)), mask)
                for part, mapped, content in agreements
            )
        return {name: total / items for name, total in sums.items()}


GUIDED_PARTS = "model.encoder.guided_votes.", "model.guided_routing.", "model.decoder.guided_routing.", "guided_losses."
"""Prefixes of the names of guided routing's weights in all models."""
READ_BY_LOSSES = (r"^guided_losses\.",)
"""Names of weights that only losses read. A model without these losses lacks them."""
