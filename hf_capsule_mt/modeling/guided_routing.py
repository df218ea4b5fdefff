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
    queries = queries.reshape(-1, *queries.shape[-2:])
    keys = keys.reshape(-1, *keys.shape[-2:])
    scores = AdditiveScoresFunction.apply(queries, keys, weight)
    return scores.reshape(*leading, *scores.shape[1:])


class AdditiveScoresFunction(torch.autograd.Function):
    """[`additive_scores`] with one leading dimension."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
        """Score chunk by chunk.

        Args:
            ctx: keeps the arguments.
            queries: `[rows, T, D]`.
            keys: `[rows, S, D]`.
            weight: `[K, D]`.

        Returns:
            The scores, `[rows, T, S, K]`.
        """
        ctx.save_for_backward(queries, keys, weight)
        rows, length, _ = queries.shape
        scores = queries.new_empty(rows, length, keys.shape[1], weight.shape[0])
        hidden_of = _hidden_layer(queries, keys)
        # tanh(x) = 2 sigmoid(2 x) - 1
        twice = 2 * weight
        for row, part in _pair_chunks(queries, keys):
            scores[row, part] = _product(hidden_of(row, part), twice)
        return scores.sub_(twice.sum(-1) / 2)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Differentiate chunk by chunk."""
        queries, keys, weight = ctx.saved_tensors
        grad_queries = torch.zeros_like(queries)
        grad_keys = torch.zeros_like(keys)
        grad_weight = torch.zeros_like(weight)
        hidden_of = _hidden_layer(queries, keys)
        for row, part in _pair_chunks(queries, keys):
            hidden = hidden_of(row, part)
            gradient = grad_scores[row, part]
            if weight.shape[0] == 1:
                # Every gradient has the weight as a factor, which follows at the end.
                slope = hidden * gradient
                grad_weight += slope.sum((0, 1, 2))
            else:
                grad_weight += _product(gradient.flatten(0, -2).t(), hidden.flatten(0, -2).t())
                slope = _product(gradient, weight.t()).mul_(hidden)
            # The derivative of a sigmoid h is h (1 - h).
            slope = slope.addcmul_(slope, hidden, value=-1)
            grad_queries[row, part] = slope.sum(-2)
            grad_keys[row] += slope.sum(-3)
        # From tanh(x) = 2 sigmoid(2 x) - 1: two for each 2.
        factor = 4 * weight[0] if weight.shape[0] == 1 else 4
        grad_weight = 2 * grad_weight - grad_scores.sum((0, 1, 2)).unsqueeze(-1)
        return grad_queries.mul_(factor), grad_keys.mul_(factor), grad_weight


def _hidden_layer(queries: Tensor, keys: Tensor) -> Callable[[slice, slice], Tensor]:
    """Return the function from a chunk to its sigmoids of twice the sums, `[rows, length, source, D]`."""
    if _can_multiply(queries, keys):
        # sigmoid(2 (q + k)) = 1 / (1 + exp(-2 q) exp(-2 k)) needs no exponential for each pair.
        exp_queries = (-2 * queries).exp_()
        exp_keys = (-2 * keys).exp_()

        def multiply(row: slice, part: slice) -> Tensor:
            return (exp_queries[row, part, None] * exp_keys[row, None]).add_(1).reciprocal_()

        return multiply
    twice_queries = 2 * queries

    def add(row: slice, part: slice) -> Tensor:
        # With 2 * keys, decoding would copy the keys of all sentences at every step.
        return torch.add(twice_queries[row, part, None], keys[row, None], alpha=2).sigmoid_()

    return add


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
    for tensor in (queries, keys):
        if tensor.numel() == 0:
            continue
        # A tensor of absolute values would take longer.
        if not -largest < tensor.amin().item() or not tensor.amax().item() < largest:
            return False
    return True


def _product(inputs: Tensor, weight: Tensor) -> Tensor:
    """Return inputs @ weight.t(). Under compilation it is a sum, so that the compiler fuses the inputs into it."""
    if torch.compiler.is_compiling():
        return (inputs.unsqueeze(-2) * weight).sum(-1)
    return inputs @ weight.t()


def _pair_chunks(queries: Tensor, keys: Tensor) -> Iterator[tuple[slice, slice]]:
    """Return slices of the rows and of the queries in them, or one chunk under compilation, which unrolls loops."""
    if torch.compiler.is_compiling():
        yield slice(None), slice(None)
        return
    rows, length, width = queries.shape
    units_of_query = max(1, keys.shape[1] * width)
    units_in_chunk = _PAIR_CHUNK.get(queries.device.type, _ACCELERATOR_PAIR_CHUNK)
    # Queries in a chunk: several rows of them, or a part of one row.
    budget = units_in_chunk // units_of_query
    row_step = max(1, budget // max(1, length))
    step = max(1, min(length, budget))
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

    Args:
        votes: v of Eq. 5, `[B, J, S, D]`.
        keys: W_v v, `[B, J, S, D]`.
        queries: W_z z, `[B, T, D]`.
        capsule_map: W_Omega, `[D, D]`.
        score_weight: w, `[1, D]`.
        num_iterations: iterations, at least 1.
        mask: `[B, S]`, False for padding. By default there is none.
        every_iteration: whether to return the assignment of all iterations.
    """
    dtype = queries.dtype
    votes, keys, queries, capsule_map, score_weight = in_compute_dtype(votes, keys, queries, capsule_map, score_weight)
    num_sentences, num_capsules, source, _ = votes.shape
    # The first assignment is the same for every target position.
    logits = votes.new_zeros(num_sentences, num_capsules, 1, source)
    assignments = []
    for iteration in range(num_iterations):
        coefficients = _hide(logits.softmax(1), mask)
        assignments.append(coefficients.detach())
        capsules = squash(coefficients @ votes)
        # The assignment after the last capsules would not be read.
        if iteration + 1 < num_iterations:
            guides = queries.unsqueeze(1) + capsules @ capsule_map.t()
            logits = logits + additive_scores(guides, keys, score_weight).squeeze(-1)
    # After the first iteration there is one position for all.
    target = queries.shape[1]
    capsules = capsules.expand(-1, -1, target, -1).transpose(1, 2)
    assignments = [assignment.expand(-1, -1, target, -1).movedim(1, -1) for assignment in assignments]
    assignment = torch.stack(assignments, dim=2) if every_iteration else assignments[-1]
    return GuidedRoutingOutput(capsules.to(dtype), assignment.to(dtype))


def guided_classifier(
    values: Tensor, keys: Tensor, queries: Tensor, score_weight: Tensor, num_past: int, mask: Tensor | None = None
) -> GuidedRoutingOutput:
    """The baseline CLF (Fig. 6, footnote 5): each token is PAST, FUTURE or redundant, and capsules are weighted sums.

    Args:
        values: for the PAST capsules, then for FUTURE, `[B, J, S, D]`.
        keys: W_h h, `[B, 1, S, D]`.
        queries: W_z z, `[B, T, D]`.
        score_weight: the weights of the classes, `[2 or 3, D]`.
        num_past: the number of PAST capsules.
        mask: `[B, S]`, False for padding. By default there is none.
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

    Args:
        values: as in [`guided_classifier`].
        keys: for PAST, then for FUTURE, `[B, 2, S, D]`.
        queries: the same, next to each other, `[B, T, 2 * D]`.
        num_past: as in [`guided_classifier`].
        mask: the same.
    """
    dtype = queries.dtype
    values, keys, queries = in_compute_dtype(values, keys, queries)
    queries = queries.unflatten(-1, (2, -1)).transpose(1, 2)
    scores = queries @ keys.transpose(-1, -2) / keys.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None], torch.finfo(scores.dtype).min)
    # For a sentence without tokens softmax would spread over the padding.
    weights = _hide(scores.softmax(-1), mask)
    return _weighted_sums(weights, values, num_past, dtype)


def _hide(coefficients: Tensor, mask: Tensor | None) -> Tensor:
    """Zero the assignment `[B, J, T, S]` of padding."""
    if mask is None:
        return coefficients
    return coefficients.masked_fill(~mask[:, None, None], 0.0)


def _weighted_sums(weights: Tensor, values: Tensor, num_past: int, dtype: torch.dtype) -> GuidedRoutingOutput:
    """Return capsules, given weights `[B, 2 or 3, T, S]` of PAST, FUTURE (and redundant), and values `[B, J, S, D]`."""
    past_values, future_values = values.tensor_split([num_past], dim=1)
    past = weights[:, 0:1] @ past_values
    future = weights[:, 1:2] @ future_values
    capsules = torch.cat([past, future], dim=1).transpose(1, 2)
    assignment = weights.detach().movedim(1, -1)
    return GuidedRoutingOutput(capsules.to(dtype), assignment.to(dtype))


class GuidedVotes(nn.Module):
    """Votes of the source tokens for capsules, and keys for their scores. The encoder makes them once a sentence."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        width = config.d_model
        self.capsule_dim = config.guided_capsule_dim
        self.routes = config.guided_routing == "gdr"
        num_capsules = config.num_past_capsules + config.num_future_capsules
        if self.routes:
            num_capsules += config.num_redundant_capsules
        self.votes = Linear(width, num_capsules * self.capsule_dim, bias=False)
        if self.routes:
            # The keys are computed from the votes.
            self.keys = Linear(self.capsule_dim, self.capsule_dim, bias=False)
        else:
            num_keys = 2 if config.guided_routing == "attention" else 1
            self.keys = Linear(width, num_keys * self.capsule_dim, bias=False)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return votes (Eq. 5) and keys, `[B, ..., S, D]` in the dtype of routing, of states `[B, S, width]`."""
        if mask is not None:
            states = states.masked_fill(~mask.unsqueeze(-1), 0.0)
        votes = self._split(self.votes(states))
        keys = self.keys(votes) if self.routes else self._split(self.keys(states))
        return in_compute_dtype(votes, keys)

    def of(self, encoded: ModelOutput, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return votes and keys from the output of an encoder. If it lacks them, compute them."""
        votes = getattr(encoded, "guided_votes", None)
        keys = getattr(encoded, "guided_keys", None)
        if votes is None or keys is None:
            return self(encoded.last_hidden_state, mask)
        return votes, keys

    def _split(self, concatenated: Tensor) -> Tensor:
        """Turn `[B, S, J * D]` into `[B, J, S, D]`."""
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
        self.kind = config.guided_routing
        width = config.d_model
        capsule_dim = config.guided_capsule_dim
        self.num_past = config.num_past_capsules
        self.num_capsules = config.num_past_capsules + config.num_future_capsules
        self.num_iterations = config.guided_routing_iterations
        num_queries = 2 if self.kind == "attention" else 1
        self.queries = Linear(width, num_queries * capsule_dim, bias=False)
        # Plain parameters: sharding and offloading load the weights of an nn.Linear only while its own forward runs.
        if self.kind == "gdr":
            self.capsule_map = nn.Parameter(torch.empty(capsule_dim, capsule_dim))
            self.score_weight = nn.Parameter(torch.empty(1, capsule_dim))
        elif self.kind == "classifier":
            num_classes = 3 if config.num_redundant_capsules > 0 else 2
            self.score_weight = nn.Parameter(torch.empty(num_classes, capsule_dim))
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
        """Route for the states of the decoder.

        Args:
            states: z, `[B, T, width]`.
            votes: from [`GuidedVotes`].
            keys: the same.
            mask: `[B, S]`, False for padding of the source. By default there is none.
            output_routing: True returns the assignment of the last iteration, "all" those of every iteration.
        """
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
        if not every_iteration:
            return routed
        # The baselines have one iteration.
        return GuidedRoutingOutput(routed.capsules, routed.assignment.unsqueeze(2))


class GuidedLosses(nn.Module):
    """The bag-of-words loss and the bilingual content agreement loss, not yet weighted. One of weight 0 is left out."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        width = config.d_model
        self.num_past = config.num_past_capsules
        past = config.num_past_capsules * config.guided_capsule_dim
        future = config.num_future_capsules * config.guided_capsule_dim
        self.names = [name for name in ("bow_loss", "bca_loss") if getattr(config, f"{name}_weight") > 0]
        if "bow_loss" in self.names:
            self.past_bow = Linear(past, width, bias=False)
            self.future_bow = Linear(future, width, bias=False)
        if "bca_loss" in self.names:
            self.past_bca = Linear(width, past, bias=False)
            self.future_bca = Linear(width, future, bias=False)

    def forward(
        self,
        states: Tensor,
        capsules: Tensor,
        labels: Tensor,
        embedding: Tensor | nn.Module,
        num_items_in_batch: Tensor | int | None = None,
    ) -> dict[str, Tensor]:
        """Compute the losses.

        Args:
            states: z, `[B, T, width]`.
            capsules: PAST, then FUTURE, `[B, T, J, D]`.
            labels: token ids `[B, T]`, -100 for padding.
            embedding: the output embedding `[V, width]`, or a projection that computes scores.
            num_items_in_batch: what the sums are divided by, the number of target tokens by default.

        Returns:
            The losses by name, of those in `names`.
        """
        labels = labels.to(states.device)
        mask = labels != -100
        # Padding may hold anything, even NaN.
        capsules = capsules.masked_fill(~mask[..., None, None], 0.0)
        states = states.masked_fill(~mask[..., None], 0.0)
        past_capsules, future_capsules = capsules.tensor_split([self.num_past], dim=2)
        past = past_capsules.flatten(-2)
        future = future_capsules.flatten(-2)
        bags = _Bags.of(mask, compute_dtype(states))
        sums = {}
        if "bow_loss" in self.names:
            token_ids = labels.masked_fill(~mask, 0)
            sums["bow_loss"] = self._bag_of_words(past, future, token_ids, bags, embedding)
        if "bca_loss" in self.names:
            sums["bca_loss"] = self._agreement(past, future, states, mask, bags)
        items = mask.sum()
        if num_items_in_batch is not None:
            items = torch.as_tensor(num_items_in_batch, device=mask.device)
        return {name: total / items for name, total in sums.items()}

    def _bag_of_words(
        self, past: Tensor, future: Tensor, token_ids: Tensor, bags: "_Bags", embedding: Tensor | nn.Module
    ) -> Tensor:
        """PAST predicts the tokens before a position, and FUTURE those from it on."""
        # Both together need only one pass over the vocabulary.
        queries = torch.cat([self.past_bow(past), self.future_bow(future)])
        both_bags = torch.cat([bags.before, bags.after])
        token_ids = token_ids.repeat(2, 1)
        device = past.device
        if isinstance(embedding, Tensor):
            return bag_of_words_loss(queries, embedding.to(device), token_ids, both_bags)
        return bag_of_words_loss_of_scores(embedding(queries).to(device), token_ids, both_bags)

    def _agreement(self, past: Tensor, future: Tensor, states: Tensor, mask: Tensor, bags: "_Bags") -> Tensor:
        """PAST is near the mean state until a position, and FUTURE near that from it on."""
        with torch.autocast(states.device.type, enabled=False):
            translated = bags.until @ states.to(bags.until.dtype)
            untranslated = bags.after @ states.to(bags.after.dtype)
        past_content = self.past_bca(translated.to(states.dtype))
        past_loss = content_agreement_loss(past, past_content, mask)
        future_content = self.future_bca(untranslated.to(states.dtype))
        return past_loss + content_agreement_loss(future, future_content, mask)


class _Bags(NamedTuple):
    """Shares of the tokens of a target in the bag of every position, `[B, T, T]` each.

    Attributes:
        before: of the tokens before the position.
        until: of these and its own.
        after: of its own and those after it.
    """

    before: Tensor
    until: Tensor
    after: Tensor

    @classmethod
    def of(cls, mask: Tensor, dtype: torch.dtype) -> "_Bags":
        """Return equal shares for the tokens of a mask `[B, T]`."""
        pairs = mask.unsqueeze(1) & mask.unsqueeze(2)
        return cls(shares(pairs.tril(-1), dtype), shares(pairs.tril(), dtype), shares(pairs.triu(), dtype))


GUIDED_PARTS = "model.encoder.guided_votes.", "model.guided_routing.", "model.decoder.guided_routing.", "guided_losses."
"""Prefixes of the names of guided routing's weights in all models."""
READ_BY_LOSSES = (r"^guided_losses\.",)
"""Names of weights that only losses read. A model without these losses lacks them."""
