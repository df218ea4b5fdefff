"""Recurrent networks: LSTM and GRU layers, a conditional GRU, and a loop over tokens that can be exported."""

from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

from .linear import GateLinear, UnitGainLinear
from .numerics import compute_dtype, in_full_precision

Tensors = tuple[Tensor, ...]
NamedTensors = dict[str, Tensor]
Step = Callable[[Tensors, NamedTensors, NamedTensors], tuple[Tensors, Tensors]]


def scan_words(
    module: nn.Module, step: Step, states: Tensors, words: NamedTensors, others: NamedTensors | None = None
) -> tuple[Tensors, Tensors]:
    """Read tokens one after the other.

    Args:
        module: the module whose parameters `step` reads.
        step: a function of the states, of the inputs of one token, `[batch, ...]` each, and of `others`. It returns the
            next states and the outputs, `[batch, ...]` each, in new tensors.
        states: the states before the first token.
        words: the inputs of all tokens by name, `[batch, length, ...]` each.
        others: tensors by name that are the same for every token, none by default.

    Returns:
        The last states, and the outputs, `[batch, length, ...]` each.
    """
    others = others or {}
    if is_exported():
        return _exported_scan(module, step, states, words, others)
    tensors_by_position = [tensor.unbind(1) for tensor in words.values()]
    outputs = []
    for tensors in zip(*tensors_by_position):
        word = dict(zip(words, tensors))
        states, output = step(states, word, others)
        outputs.append(output)
    stacked = [torch.stack(parts, dim=1) for parts in zip(*outputs)]
    return states, tuple(stacked)


def is_exported() -> bool:
    """Return whether `torch.export` traces the program with `strict=False`, its default."""
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


class _Step(nn.Module):
    """A step as the forward of a module, so that its parameters can be given as arguments."""

    def __init__(self, module: nn.Module, step: Step) -> None:
        super().__init__()
        self.module = module
        self.step = step

    def forward(self, states: Tensors, word: NamedTensors, others: NamedTensors) -> tuple[Tensors, Tensors]:
        return self.step(states, word, others)


def _exported_scan(
    module: nn.Module, step: Step, states: Tensors, words: NamedTensors, others: NamedTensors
) -> tuple[Tensors, Tensors]:
    """Do the work of [`scan_words`] as one operator. It takes flat tuples, and every tensor that it reads."""
    holder = _Step(module, step)
    parameters = {**dict(holder.named_parameters()), **dict(holder.named_buffers())}
    sizes = [len(states), len(words), len(parameters), len(others)]

    def combine(*tensors: Tensor) -> list[Tensor]:
        before, word, values, shared = _split(tensors, sizes)
        named_word = dict(zip(words, word))
        named_others = dict(zip(others, shared))
        named_parameters = dict(zip(parameters, values))
        after, outputs = functional_call(holder, named_parameters, (before, named_word, named_others))
        # Two results must not share memory, and an output may be a state.
        copies = [output.clone() for output in outputs]
        return [*after, *copies]

    # A private name: the public function `scan` would compile the step first, which takes twenty times as long.
    scan_operator = import_module("torch._higher_order_ops.scan").scan_op
    results = scan_operator(
        combine,
        # Inputs and outputs must not share memory.
        [state.clone() for state in states],
        # It reads along the first dimension.
        [tensor.transpose(0, 1) for tensor in words.values()],
        additional_inputs=(*parameters.values(), *others.values()),
    )
    last_states = results[: len(states)]
    outputs = [output.transpose(0, 1) for output in results[len(states) :]]
    return tuple(last_states), tuple(outputs)


def _split(tensors: Sequence[Tensor], sizes: list[int]) -> list[Tensors]:
    """Return the tensors in tuples of the given sizes."""
    remaining = iter(tensors)
    return [tuple(islice(remaining, size)) for size in sizes]


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
        if layer > 0:
            # The first layer has counted these tokens.
            return
        if self._length is None:
            self._length = torch.zeros((), dtype=torch.long, device=state[0].device)
        self._length = self._length + num_words

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of tokens so far."""
        return 0 if self._length is None else int(self._length)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Continue with the chosen rows `[batch]` of the batch."""
        for layer, state in enumerate(self.states):
            if state is not None:
                # The layers may be on different devices.
                rows = beam_idx.to(state[0].device)
                self.states[layer] = tuple(tensor.index_select(0, rows) for tensor in state)


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

    def _weights(self) -> Tensors:
        """Return the weights and biases in the order of PyTorch's functions."""
        return self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0

    def _fused_options(self) -> dict[str, Any]:
        """Return the options of PyTorch's fused functions for a whole sequence."""
        return {
            "has_biases": True,
            "num_layers": 1,
            "dropout": 0.0,
            # cuDNN needs it for the backward pass. There is no dropout that it would switch on.
            "train": torch.is_grad_enabled(),
            "bidirectional": False,
            "batch_first": True,
        }


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
        if states is None:
            zeros = inputs.new_zeros(inputs.shape[0], self.hidden_size)
            states = (zeros, zeros)
        hidden, cell = states
        if inputs.shape[1] == 1:
            hidden, cell = self._step(inputs.squeeze(1), hidden, cell)
            return hidden.unsqueeze(1), hidden, cell
        if is_exported():
            (hidden, cell), (outputs,) = scan_words(self, self._read_word, (hidden, cell), {"inputs": inputs})
            return outputs, hidden, cell
        # Autocast would make the cell bfloat16 on a CPU, where long sums stall, and float16 on a GPU, where the
        # gradients of large batches vanish.
        with torch.autocast(inputs.device.type, enabled=False):
            dtype = self.weight_ih_l0.dtype
            start = (hidden.to(dtype).unsqueeze(0), cell.to(dtype).unsqueeze(0))
            outputs, hidden, cell = torch.lstm(inputs.to(dtype), start, self._weights(), **self._fused_options())
        return outputs, hidden.squeeze(0), cell.squeeze(0)

    def _read_word(self, states: Tensors, word: NamedTensors, _: NamedTensors) -> tuple[Tensors, Tensors]:
        hidden, cell = self._step(word["inputs"], *states)
        return (hidden, cell), (hidden,)

    def _step(self, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return the hidden and the cell state after one more token. All are `[batch, width]`."""
        from_inputs = in_full_precision(F.linear(inputs, self.weight_ih_l0, self.bias_ih_l0))
        gates = from_inputs + F.linear(hidden, self.weight_hh_l0, self.bias_hh_l0)
        write, keep, candidate, read = gates.chunk(4, dim=-1)
        cell = keep.sigmoid() * cell + write.sigmoid() * candidate.tanh()
        hidden = read.sigmoid() * cell.tanh()
        return hidden, cell


class GRU(OneWayRNN):
    """[`torch.nn.GRU`]. The reset gate acts on the projected state."""

    mode = "GRU"

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the state after every token `[batch, length, width]`, from zero, and the last state."""
        state = inputs.new_zeros(inputs.shape[0], self.hidden_size)
        if is_exported():
            (state,), (outputs,) = scan_words(self, self._read_word, (state,), {"inputs": inputs})
            return outputs, state
        # As in an LSTM.
        with torch.autocast(inputs.device.type, enabled=False):
            dtype = self.weight_ih_l0.dtype
            start = state.to(dtype).unsqueeze(0)
            outputs, state = torch.gru(inputs.to(dtype), start, self._weights(), **self._fused_options())
        return outputs, state.squeeze(0)

    def _read_word(self, states: Tensors, word: NamedTensors, _: NamedTensors) -> tuple[Tensors, Tensors]:
        (before,) = states
        state = torch.gru_cell(word["inputs"], before, *self._weights())
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
        forward = _read_in_order(self.forward_lstm, hidden_states, forward_order)
        backward = _read_in_order(self.backward_lstm, hidden_states, backward_order)
        both = torch.cat([forward, backward], dim=-1)
        return self.layer_norm(hidden_states + self.dropout(both))


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
        forward = _read_in_order(self.forward_gru, states, forward_order)
        backward = _read_in_order(self.backward_gru, states, backward_order)
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
        elif mask is None:
            outputs = _read_in_order(self.lstm, hidden_states, None)
        else:
            first_to_last, _ = reading_orders(mask)
            outputs = _read_in_order(self.lstm, hidden_states, first_to_last)
        return self.layer_norm(hidden_states + self.dropout(outputs))

    def _continue(self, inputs: Tensor, mask: Tensor | None, cache: RecurrentCache) -> Tensor:
        """Read on from the states in the cache, and update it."""
        states = cache.states[self.layer]
        if mask is None:
            outputs, *states = self.lstm(inputs, states)
        else:
            # If padding follows, the fused kernel does not return the cell state after the last token.
            if states is None:
                zeros = torch.zeros_like(inputs[:, 0])
                states = (zeros, zeros)
            words = {"inputs": inputs, "is_word": mask}
            states, (outputs,) = scan_words(self.lstm, self._read_word, states, words)
        cache.update(self.layer, *states, num_words=inputs.shape[1])
        return outputs

    def _read_word(self, states: Tensors, word: NamedTensors, _: NamedTensors) -> tuple[Tensors, Tensors]:
        """Read a token. Padding does not change the states."""
        is_word = word["is_word"].unsqueeze(1)
        hidden, cell = states
        output, next_hidden, next_cell = self.lstm(word["inputs"].unsqueeze(1), states)
        hidden = torch.where(is_word, next_hidden, hidden)
        cell = torch.where(is_word, next_cell, cell)
        return (hidden, cell), (output.squeeze(1),)


def reading_orders(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions `[batch, length]` of the tokens from first to last, and from last to first.

    In both orders padding comes last, so no recurrence carries it to a token.
    """
    positions = torch.arange(mask.shape[1], device=mask.device)
    # Larger than the rank of any token.
    padding = positions + mask.shape[1]
    first_to_last = torch.where(mask, positions, padding).argsort(-1)
    last_to_first = torch.where(mask, positions.flip(0), padding).argsort(-1)
    return first_to_last, last_to_first


def _read_in_order(network: OneWayRNN, states: Tensor, order: Tensor | None) -> Tensor:
    """Return the outputs at the positions of `states`, which are read in an order `[batch, length]`, if given."""
    if order is None:
        return network(states)[0]
    outputs = network(_at_positions(states, order))[0]
    # The order of the order leads back to where the states were.
    return _at_positions(outputs, order.argsort(-1))


def _at_positions(states: Tensor, positions: Tensor) -> Tensor:
    """Return the states `[batch, length, d]` at positions `[batch, length]`."""
    width = states.shape[-1]
    return states.gather(1, positions.unsqueeze(-1).expand(-1, -1, width))


class GRUStep(nn.Module):
    """One step of [`torch.nn.GRUCell`], given the projected input of its gates."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.from_hidden = GateLinear(width, 3 * width)

    def forward(self, from_inputs: Tensor, hidden: Tensor) -> Tensor:
        """Return the state `[batch, width]` after `hidden`. `from_inputs` is `[batch, 3 * width]`."""
        # In bfloat16 a gate near 1 would be rounded to 1.
        from_inputs = in_full_precision(from_inputs)
        hidden = in_full_precision(hidden)
        from_hidden = self.from_hidden(hidden)
        reset, keep, candidate = from_inputs.chunk(3, dim=-1)
        reset_by_hidden, keep_by_hidden, candidate_by_hidden = from_hidden.chunk(3, dim=-1)
        reset = (reset + reset_by_hidden).sigmoid()
        keep = (keep + keep_by_hidden).sigmoid()
        candidate = (candidate + reset * candidate_by_hidden).tanh()
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
        """Attend to the source.

        Args:
            query: `[batch, d]`.
            keys: `[batch, source, d]`.
            values: `[batch, source, d]`.
            mask: `[batch, source]`, False for padding, or None.

        Returns:
            The mean `[batch, d]` and the weights `[batch, source]`, both zero for a sentence without tokens.
        """
        hidden = self.query(query).unsqueeze(1) + keys
        scores = hidden.tanh() @ self.score
        scores = scores.to(compute_dtype(scores))
        if mask is not None:
            lowest = torch.finfo(scores.dtype).min
            scores = scores.masked_fill(~mask, lowest)
        weights = scores.softmax(-1)
        if mask is not None:
            # Without tokens, softmax would spread over the padding.
            weights = weights.masked_fill(~mask, 0.0)
        weights = weights.to(values.dtype)
        mean = weights.unsqueeze(1) @ values
        return mean.squeeze(1), weights


class ConditionalGRUStep(GradientCheckpointingLayer):
    """One token: s' = GRU_1(u, s), a = attention(s', h), and the next state is GRU_2(a, s')."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = GRUStep(width)
        self.attention = AdditiveAttention(width)
        self.from_context = GateLinear(width, 3 * width)
        self.second = GRUStep(width)

    def forward(
        self,
        from_word: Tensor,
        state: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        is_word: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read a token.

        Args:
            from_word: the projected token for the gates of GRU_1, `[batch, 3 * d]`.
            state: the state before it, `[batch, d]`.
            keys: as in [`AdditiveAttention.forward`].
            values: the same.
            mask: the same.
            is_word: `[batch]`, False for padding, which leaves the state unchanged, or None.

        Returns:
            The next state, the context `[batch, d]`, and the weights of attention, `[batch, source]`.
        """
        between = self.first(from_word, state)
        context, weights = self.attention(between, keys, values, mask)
        after = self.second(self.from_context(context), between)
        if is_word is not None:
            after = torch.where(is_word.unsqueeze(-1), after, state)
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
        is_word: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read all tokens.

        Args:
            words: token embeddings, `[batch, target, d]`.
            state: the state before the first token, `[batch, d]`.
            keys: `[batch, source, d]`, for the attention.
            values: `[batch, source, d]`, for the attention.
            mask: `[batch, source]`, False for padding of the source. By default there is none.
            is_word: `[batch, target]`, False for padding, which does not change the state. By default there is none.

        Returns:
            States `[batch, target, d]`, contexts `[batch, target, d]`, and weights of attention as of one head,
            `[batch, 1, target, source]`.
        """
        inputs = {"from_word": self.from_words(words)}
        if is_word is not None:
            inputs["is_word"] = is_word
        source = {"keys": keys, "values": values}
        if mask is not None:
            source["mask"] = mask
        _, outputs = scan_words(self.step, self._read_word, (state,), inputs, source)
        states, contexts, weights = outputs
        return states, contexts, weights.unsqueeze(1)

    def _read_word(self, states: Tensors, word: NamedTensors, source: NamedTensors) -> tuple[Tensors, Tensors]:
        (before,) = states
        # Positional arguments, because gradient checkpointing passes nothing else.
        outputs = self.step(
            word["from_word"],
            before,
            source["keys"],
            source["values"],
            source.get("mask"),
            word.get("is_word"),
        )
        state, _, _ = outputs
        return (state,), outputs
