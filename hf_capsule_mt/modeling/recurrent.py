"""Recurrent networks: LSTM and GRU layers, a conditional GRU, and a loop over tokens that can be exported."""

from collections.abc import Callable
from importlib import import_module

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

from .linear import GateLinear, UnitGainLinear
from .precision import compute_dtype, in_full_precision

Tensors = tuple[Tensor, ...]
Step = Callable[[Tensors, Tensors, Tensors], tuple[Tensors, Tensors]]


def scan_words(
    module: nn.Module, step: Step, states: Tensors, words: Tensors, others: Tensors = ()
) -> tuple[Tensors, Tensors]:
    """Read tokens one after the other. Return the last states, and the outputs, `[batch, length, ...]` each.

    `step` is a function of the states, the inputs of one token, `[batch, ...]` each, and `others`. It returns the next
    states and the outputs, in new tensors, and reads parameters of `module`. `words` are the inputs,
    `[batch, length, ...]` each, and `others` are the same for every token.
    """
    if is_exported():
        return _exported_scan(module, step, states, words, others)
    outputs = []
    for word in zip(*(each.unbind(1) for each in words)):
        states, output = step(states, word, others)
        outputs.append(output)
    return states, tuple(torch.stack(parts, dim=1) for parts in zip(*outputs))


def is_exported() -> bool:
    """Return whether `torch.export` traces the program with `strict=False`, its default."""
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


class _Step(nn.Module):
    """A step as the forward of a module, so that its parameters can be given as arguments."""

    def __init__(self, module: nn.Module, step: Step) -> None:
        super().__init__()
        self.module, self.step = module, step

    def forward(self, *args: Tensors) -> tuple[Tensors, Tensors]:
        return self.step(*args)


def _exported_scan(
    module: nn.Module, step: Step, states: Tensors, words: Tensors, others: Tensors
) -> tuple[Tensors, Tensors]:
    holder = _Step(module, step)
    parameters = {**dict(holder.named_parameters()), **dict(holder.named_buffers())}
    num_states, num_words = len(states), len(words)

    def combine(*tensors: Tensor) -> list[Tensor]:
        before, rest = tensors[:num_states], tensors[num_states:]
        word, given, shared = rest[:num_words], rest[num_words:][: len(parameters)], rest[num_words:][len(parameters) :]
        after, outputs = functional_call(holder, dict(zip(parameters, given)), (before, word, shared))
        return [*after, *(output.clone() for output in outputs)]

    # The public function `scan` would compile the step first, which takes twenty times as long.
    results = import_module("torch._higher_order_ops.scan").scan_op(
        combine,
        # Inputs and outputs must not share memory.
        [state.clone() for state in states],
        [each.transpose(0, 1) for each in words],
        additional_inputs=(*parameters.values(), *others),
    )
    return tuple(results[:num_states]), tuple(output.transpose(0, 1) for output in results[num_states:])


class RecurrentCache:
    """The states `[batch, d]` of a decoder's recurrent layers, two of an LSTM. At the start they are None."""

    # `generate()` reads these from any cache.
    is_compileable = False
    is_croppable = False
    is_linear = (False,)

    def __init__(self, num_layers: int) -> None:
        self.states: list[tuple[Tensor, ...] | None] = [None] * num_layers
        # It is a tensor, so that compiled code does not depend on its value.
        self._length: Tensor | None = None

    def update(self, layer: int, *state: Tensor, num_words: int) -> None:
        """Store the state of `layer` after `num_words` more tokens."""
        self.states[layer] = state
        if layer == 0:
            length = torch.zeros((), dtype=torch.long, device=state[0].device) if self._length is None else self._length
            self._length = length + num_words

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of tokens so far."""
        return 0 if self._length is None else int(self._length)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Continue with the chosen rows `[batch]` of the batch."""
        for layer, state in enumerate(self.states):
            if state is not None:
                self.states[layer] = tuple(part.index_select(0, beam_idx.to(part.device)) for part in state)


class OneWayRNN(nn.RNNBase):
    """A recurrent network of one layer and one direction, on batches `[batch, length, width]`.

    It reads its weights when it runs, so they can be offloaded or replaced, and `torch.compile` can trace it.
    """

    def __init__(self, width: int, hidden_width: int) -> None:
        super().__init__(self.mode, width, hidden_width, batch_first=True)

    def init_weights(self) -> None:
        """Draw the weights as Transformers does, and zero the biases, unless they were loaded."""
        for weight in (self.weight_ih_l0, self.weight_hh_l0):
            init.xavier_uniform_(weight)
        for bias in (self.bias_ih_l0, self.bias_hh_l0):
            init.zeros_(bias)

    def _run(self, fused: Callable[..., Tensors], inputs: Tensor, *start: Tensor) -> Tensors:
        """Return the outputs and the last states of a `fused` function of torch, given the states before the inputs."""
        if is_exported():
            states, (outputs,) = scan_words(self, self._read_word, start, (inputs,))
            return outputs, *states
        weights = (self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0)
        # The flag of training is on because cuDNN needs it for the backward pass. There is no dropout inside.
        options = (True, 1, 0.0, torch.is_grad_enabled(), False, True)
        # Autocast would make the cell of an LSTM bfloat16 on a CPU, where long sums stall, and float16 on a GPU, where
        # the gradients of large batches vanish.
        with torch.autocast(inputs.device.type, enabled=False):
            inputs, *start = (tensor.to(weights[0].dtype) for tensor in (inputs, *start))
            start = [state.unsqueeze(0) for state in start]
            outputs, *states = fused(inputs, start[0] if len(start) == 1 else start, weights, *options)
        return outputs, *(state.squeeze(0) for state in states)


class LSTM(OneWayRNN):
    """[`torch.nn.LSTM`] with forget gates that start open (Jozefowicz et al. 2015)."""

    mode = "LSTM"

    def init_weights(self) -> None:
        """Draw the weights as Transformers does, and set the biases, unless they were loaded."""
        super().init_weights()
        gates = torch.zeros(4, self.hidden_size)
        gates[1] = 1
        init.copy_(self.bias_ih_l0, gates.flatten())

    def forward(self, inputs: Tensor, states: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the hidden state after every token `[batch, length, width]`, and the last hidden and cell state.

        `states` are those before the first token, zero by default.
        """
        hidden, cell = states or (inputs.new_zeros(inputs.shape[0], self.hidden_size),) * 2
        if inputs.shape[1] == 1:
            hidden, cell = self._step(inputs.squeeze(1), hidden, cell)
            return hidden.unsqueeze(1), hidden, cell
        return self._run(torch.lstm, inputs, hidden, cell)

    def _read_word(self, states: Tensors, word: Tensors, _: Tensors) -> tuple[Tensors, Tensors]:
        states = self._step(*word, *states)
        return states, states[:1]

    def _step(self, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return the hidden and the cell state after one more token. All are `[batch, width]`."""
        from_inputs = in_full_precision(F.linear(inputs, self.weight_ih_l0, self.bias_ih_l0))
        gates = from_inputs + F.linear(hidden, self.weight_hh_l0, self.bias_hh_l0)
        write, keep, candidate, read = gates.chunk(4, dim=-1)
        cell = keep.sigmoid() * cell + write.sigmoid() * candidate.tanh()
        return read.sigmoid() * cell.tanh(), cell


class GRU(OneWayRNN):
    """[`torch.nn.GRU`]. The reset gate acts on the projected state."""

    mode = "GRU"

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the state after every token `[batch, length, width]`, from zero, and the last state."""
        return self._run(torch.gru, inputs, inputs.new_zeros(inputs.shape[0], self.hidden_size))

    def _read_word(self, states: Tensors, word: Tensors, _: Tensors) -> tuple[Tensors, Tensors]:
        weights = self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0
        state = torch.gru_cell(*word, *states, *weights)
        return (state,), (state,)


class BidirectionalLayer(GradientCheckpointingLayer):
    """LayerNorm(x + dropout[forward LSTM; backward LSTM]), each direction with half of the width (Eq. 1)."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.forward_lstm = LSTM(width, width // 2)
        self.backward_lstm = LSTM(width, width // 2)
        self.dropout = nn.Dropout(dropout)
        self.layer_norm = nn.LayerNorm(width)

    def forward(self, hidden_states: Tensor, forward_order: Tensor | None, backward_order: Tensor) -> Tensor:
        """Map states `[batch, length, d]`, given [`reading_orders`]."""
        forward = _read(self.forward_lstm, hidden_states, forward_order)
        backward = _read(self.backward_lstm, hidden_states, backward_order)
        return self.layer_norm(hidden_states + self.dropout(torch.cat([forward, backward], dim=-1)))


class BidirectionalGRULayer(GradientCheckpointingLayer):
    """[forward GRU; backward GRU] of half the width each, with dropout of inputs (Bahdanau et al. 2015, sec. 3.2)."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.forward_gru = GRU(width, width // 2)
        self.backward_gru = GRU(width, width // 2)

    def forward(self, hidden_states: Tensor, forward_order: Tensor | None, backward_order: Tensor) -> Tensor:
        """Map states `[batch, length, d]`, given [`reading_orders`]."""
        states = self.dropout(hidden_states)
        forward = _read(self.forward_gru, states, forward_order)
        backward = _read(self.backward_gru, states, backward_order)
        return torch.cat([forward, backward], dim=-1)


class RecurrentLayer(GradientCheckpointingLayer):
    """LayerNorm(x + dropout(LSTM(x))), from left to right. `layer` is its index, from the bottom."""

    def __init__(self, width: int, dropout: float, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.lstm = LSTM(width, width)
        self.dropout = nn.Dropout(dropout)
        self.layer_norm = nn.LayerNorm(width)

    def forward(self, hidden_states: Tensor, mask: Tensor | None = None, cache: RecurrentCache | None = None) -> Tensor:
        """Map states `[batch, length, d]`, given a mask `[batch, length]`, False for padding, and update the cache."""
        if cache is not None:
            outputs = self._continue(hidden_states, mask, cache)
        else:
            outputs = _read(self.lstm, hidden_states, None if mask is None else reading_orders(mask)[0])
        return self.layer_norm(hidden_states + self.dropout(outputs))

    def _continue(self, inputs: Tensor, mask: Tensor | None, cache: RecurrentCache) -> Tensor:
        states = cache.states[self.layer]
        if mask is None:
            outputs, *states = self.lstm(inputs, states)
        else:
            # If padding follows, the fused kernel does not return the cell state after the last token.
            states = states or (torch.zeros_like(inputs[:, 0]),) * 2
            states, (outputs,) = scan_words(self.lstm, self._read_word, tuple(states), (inputs, mask))
        cache.update(self.layer, *states, num_words=inputs.shape[1])
        return outputs

    def _read_word(self, states: Tensors, word: Tensors, _: Tensors) -> tuple[Tensors, Tensors]:
        inputs, is_word = word
        output, *after = self.lstm(inputs.unsqueeze(1), states)
        states = tuple(torch.where(is_word.unsqueeze(1), new, old) for new, old in zip(after, states))
        return states, (output.squeeze(1),)


def reading_orders(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions `[batch, length]` of the tokens from first to last, and from last to first.

    In both orders padding comes last, so no recurrence carries it to a token.
    """
    places = torch.arange(mask.shape[1], device=mask.device)
    padding = places + mask.shape[1]
    return torch.where(mask, places, padding).argsort(-1), torch.where(mask, places.flip(0), padding).argsort(-1)


def _read(network: OneWayRNN, states: Tensor, order: Tensor | None) -> Tensor:
    """Return the outputs at the positions of `states`, which are read in an order `[batch, length]`, if given."""
    if order is None:
        return network(states)[0]
    return _take(network(_take(states, order))[0], order.argsort(-1))


def _take(states: Tensor, places: Tensor) -> Tensor:
    return states.gather(1, places.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


class GRUStep(nn.Module):
    """One step of [`torch.nn.GRUCell`], given the projected input of its gates."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.from_hidden = GateLinear(width, 3 * width)

    def forward(self, from_inputs: Tensor, hidden: Tensor) -> Tensor:
        """Return the state `[batch, width]` after `hidden`. `from_inputs` is `[batch, 3 * width]`."""
        # In bfloat16 a gate near 1 would be rounded to 1.
        from_inputs, hidden = in_full_precision(from_inputs), in_full_precision(hidden)
        reset, keep, candidate = from_inputs.chunk(3, dim=-1)
        reset_by_hidden, keep_by_hidden, candidate_by_hidden = self.from_hidden(hidden).chunk(3, dim=-1)
        keep = (keep + keep_by_hidden).sigmoid()
        candidate = (candidate + (reset + reset_by_hidden).sigmoid() * candidate_by_hidden).tanh()
        return keep * hidden + (1 - keep) * candidate


class AdditiveAttention(nn.Module):
    """A mean of values with weights softmax(v . tanh(W q + k_s)), given a query and keys (Bahdanau et al. 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = UnitGainLinear(width, width, bias=False)
        self.score = nn.Parameter(torch.empty(width))

    def init_weights(self) -> None:
        """Draw v with unit gain, unless it was loaded."""
        init.normal_(self.score, mean=0.0, std=self.score.shape[0] ** -0.5)

    def forward(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the mean `[batch, d]` and the weights `[batch, source]`, both zero for a sentence without tokens.

        The query is `[batch, d]`, and keys and values `[batch, source, d]`. The mask `[batch, source]` is False for
        padding.
        """
        scores = (self.query(query).unsqueeze(1) + keys).tanh() @ self.score
        scores = scores.to(compute_dtype(scores))
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        if mask is not None:
            # Without tokens, softmax would spread over the padding.
            weights = weights.masked_fill(~mask, 0.0)
        weights = weights.to(values.dtype)
        return (weights.unsqueeze(1) @ values).squeeze(1), weights


class ConditionalGRUStep(GradientCheckpointingLayer):
    """One token: s' = GRU_1(u, s), a = attention(s', h), and the next state is GRU_2(a, s')."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = GRUStep(width)
        self.attention = AdditiveAttention(width)
        self.from_context = GateLinear(width, 3 * width)
        self.second = GRUStep(width)

    def forward(
        self, from_word: Tensor, state: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, real: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read a token. Return the next state, the context `[batch, d]`, and the weights `[batch, source]`.

        `from_word` is the projected token for the gates of GRU_1, `[batch, 3 * d]`. `real`, `[batch]`, is False for
        padding, which leaves the state unchanged. All else is as in [`AdditiveAttention.forward`].
        """
        between = self.first(from_word, state)
        context, weights = self.attention(between, keys, values, mask)
        after = self.second(self.from_context(context), between)
        if real is not None:
            after = torch.where(real.unsqueeze(-1), after, state)
        return after, context, weights


class ConditionalGRU(nn.Module):
    """Reads the tokens of a target one after the other, because attention depends on the state."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.from_words = GateLinear(width, 3 * width)
        self.step = ConditionalGRUStep(width)

    def forward(
        self,
        words: Tensor,
        state: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        real: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read token embeddings `[batch, target, d]`. Return states, contexts, both of this shape, and weights.

        Weights are `[batch, 1, target, source]`, as of one head. `state` is `[batch, d]`, before the first token.
        `real`, `[batch, target]`, is False for padding, which does not change the state. All else is as in
        [`AdditiveAttention.forward`].
        """
        read = (self.from_words(words), *(() if real is None else (real,)))
        source = (keys, values, *(() if mask is None else (mask,)))
        _, (states, contexts, weights) = scan_words(self.step, self._read_word, (state,), read, source)
        return states, contexts, weights.unsqueeze(1)

    def _read_word(self, states: Tensors, word: Tensors, source: Tensors) -> tuple[Tensors, Tensors]:
        (from_word, *real), (keys, values, *mask) = word, source
        outputs = self.step(from_word, *states, keys, values, *(mask or [None]), *(real or [None]))
        return outputs[:1], outputs
