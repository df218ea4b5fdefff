"""Streams: what passes between the layers of a stack, at each position by itself."""

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers import initialization as init

from .aggregation import DenseLayerSum, LayerAggregation, LayerAttention, LayerSum
from .numerics import in_compute_dtype
from .routing import unknown_name

SINKHORN_ROUNDS = 20
"""How often the rows and columns of a matrix are normalised in turns."""


class Stream(nn.Module):
    """The plain stack: a layer reads the output of the layer below. Others are entered in `STREAMS`.

    All that a stream knows on its way up is its state, which may be any object. Layers are counted from 1.
    """

    is_positionwise: ClassVar[bool] = False
    """Whether what happens at a position depends on nothing else. Then the decoder engine runs the stream."""
    needs_pre_norm: ClassVar[bool] = False
    """Whether it is only for layers that normalise what goes into their parts, such as those of M2M-100."""

    def begin(self, embeddings: Tensor) -> Any:
        """Return the state in front of the first layer. `embeddings` `[..., d]` have their positions."""
        return embeddings

    def read(self, state: Any, layer: int) -> Tensor:
        """Return what a layer reads, `[..., d]`."""
        return state

    def write(self, state: Any, layer: int, inputs: Tensor, outputs: Tensor) -> Any:
        """Return the state behind a layer. The state that is given must not change.

        Args:
            state: the state in front of the layer.
            layer: the number of the layer.
            inputs: what it read, `[..., d]`.
            outputs: what came out of it, `[..., d]`, with its residual connections. The rest is what it added.
        """
        return outputs

    def finish(self, state: Any) -> Tensor:
        """Return what leaves the stack, `[..., d]`. In M2M-100 a norm follows."""
        return state


class Mixture(NamedTuple):
    """The state of [`LayerMixing`]: the highest output, and what is mixed of all outputs, `[..., d]` each."""

    top: Tensor
    parts: list[Tensor]


class LayerMixing(Stream):
    """x_{l+1} = Agg_l(h_0, ..., h_l): a layer reads an aggregate of its own of all layers below (Wang et al. 2019).

    h_0 are the embeddings, which the lowest layer reads as they are. `input_norm` normalises each h once.
    """

    is_positionwise = True
    norm_has_gain: ClassVar[bool] = False
    """Whether the norms of `input_norm` have a gain and a bias."""

    def __init__(self, config: PreTrainedConfig, num_layers: int, side: str) -> None:
        super().__init__()
        aggregations = []
        for num_parts in range(2, num_layers + 2):
            aggregator = self.aggregator(config, num_parts)
            aggregations.append(LayerAggregation(config, num_parts, aggregator))
        self.layers = nn.ModuleList(aggregations)

        self.norms = None
        if config.layer_aggregation_input_norm:
            count = num_layers + 1
            norms = [nn.LayerNorm(config.d_model, elementwise_affine=self.norm_has_gain) for _ in range(count)]
            self.norms = nn.ModuleList(norms)

    def aggregator(self, config: PreTrainedConfig, num_parts: int) -> nn.Module:
        """Return the module that mixes `[..., num_parts, d]` to `[..., d]`."""
        raise NotImplementedError

    def part(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Return what is mixed of a layer, `[..., d]`, before its norm."""
        return outputs

    def begin(self, embeddings: Tensor) -> Mixture:
        """Begin with the embeddings."""
        return Mixture(embeddings, [self._normalised(embeddings, 0)])

    def read(self, state: Mixture, layer: int) -> Tensor:
        """Return the aggregate of all layers below."""
        return state.top if layer == 1 else self._aggregate(state)

    def write(self, state: Mixture, layer: int, inputs: Tensor, outputs: Tensor) -> Mixture:
        """Add a part."""
        part = self._normalised(self.part(inputs, outputs), layer)
        return Mixture(outputs, [*state.parts, part])

    def finish(self, state: Mixture) -> Tensor:
        """Return the aggregate of all layers."""
        return self._aggregate(state)

    def _normalised(self, part: Tensor, layer: int) -> Tensor:
        return part if self.norms is None else self.norms[layer](part)

    def _aggregate(self, state: Mixture) -> Tensor:
        aggregation = self.layers[len(state.parts) - 2]
        # A layer in one piece is faster to read than in parts of one position.
        stacked = torch.stack(state.parts).movedim(0, -2)
        aggregate, _ = aggregation([state.top], capsules=stacked)
        return aggregate


class LinearMixing(LayerMixing):
    """Learned numbers weigh the layers: DLCL (Wang et al. 2019) with norms, and DenseFormer (2402.02622) without."""

    norm_has_gain = True

    def aggregator(self, config: PreTrainedConfig, num_parts: int) -> nn.Module:
        """Return a learned sum."""
        # What is normalised cannot be the top layer itself.
        starts_as_top = config.is_pre_norm and not config.layer_aggregation_input_norm
        sum_class = DenseLayerSum if starts_as_top else LayerSum
        return sum_class(num_parts, config.d_model)


class AttentionMixing(LayerMixing):
    """A softmax at each position weighs the outputs of layers (from Attention Residuals, arXiv 2603.15031)."""

    needs_pre_norm = True

    def aggregator(self, config: PreTrainedConfig, num_parts: int) -> nn.Module:
        """Return attention over layers."""
        return LayerAttention(num_parts, config.d_model)


class DeltaMixing(AttentionMixing):
    """The same of what each layer added, y_l - x_l, and of the embeddings (from arXiv 2605.18855)."""

    def part(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Return what a layer added, `[..., d]`."""
        return outputs - inputs


class StreamWeights(nn.Module):
    """Numbers for each of n streams: start + s tanh(RMSNorm(S_i) W) for the stream S_i. W is 0 at the start.

    Args:
        width: that of a stream, d.
        start: the numbers at the start, `[n, count]`.
    """

    def __init__(self, width: int, start: Tensor) -> None:
        super().__init__()
        # Not as a tensor, which would go to the device and the dtype of a new model before it has weights.
        self._first_numbers = start.tolist()

        num_inputs, num_outputs = self.shape_of_weight(width, *start.shape)
        self.start = nn.Parameter(torch.empty(start.shape))
        self.weight = nn.Parameter(torch.empty(num_inputs, num_outputs))
        # Sharding takes no tensor without a dimension.
        self.scale = nn.Parameter(torch.empty(1))

    def init_weights(self, std: float) -> None:
        """Set the numbers of the start, unless the weights were loaded."""
        init.copy_(self.start, torch.tensor(self._first_numbers))
        init.zeros_(self.weight)
        init.constant_(self.scale, 0.01)

    def shape_of_weight(self, width: int, num_streams: int, count: int) -> tuple[int, int]:
        """Return the shape of W."""
        return width, count

    def forward(self, streams: Tensor) -> Tensor:
        """Return the numbers for streams `[..., n, d]`, `[..., n, count]`."""
        normalised = F.rms_norm(streams, streams.shape[-1:], eps=1e-6)
        return self.start + self.scale * (normalised @ self.weight).tanh()


class JointStreamWeights(StreamWeights):
    """Numbers for each of n streams: start + s RMSNorm(S) W for all streams S side by side."""

    def shape_of_weight(self, width: int, num_streams: int, count: int) -> tuple[int, int]:
        """Return the shape of W."""
        return num_streams * width, num_streams * count

    def forward(self, streams: Tensor) -> Tensor:
        """Return the numbers for streams `[..., n, d]`, `[..., n, count]`."""
        side_by_side = streams.flatten(-2)
        normalised = F.rms_norm(side_by_side, side_by_side.shape[-1:], eps=1e-6)
        return self.start + self.scale * (normalised @ self.weight).unflatten(-1, self.start.shape)


class HyperConnections(Stream):
    """n streams S `[..., n, d]`, at first the embeddings n times (arXiv 2409.19606).

    Layer l reads x = sum_i a_i S_i, and adds to each stream: S'_j = sum_i R_ij S_i + b_j (y - x). What leaves the stack
    is the mean of the streams. At the start the layers read the streams in turns, R is 1, and all b are 1, so that all
    streams are what a plain stack has.
    """

    is_positionwise = True
    needs_pre_norm = True
    weights_class: ClassVar[type[StreamWeights]] = StreamWeights
    """Makes a, R and b of the streams."""

    def __init__(self, config: PreTrainedConfig, num_layers: int, side: str) -> None:
        super().__init__()
        self.num_streams = config.layer_aggregation_streams
        self.reading = nn.ModuleList()
        self.mixing = nn.ModuleList()
        self.writing = nn.ModuleList()
        for layer in range(num_layers):
            favourite = layer % self.num_streams
            self.reading.append(self.weights_class(config.d_model, self.start_of_reading(favourite)))
            self.mixing.append(self.weights_class(config.d_model, self.start_of_mixing()))
            self.writing.append(self.weights_class(config.d_model, self.start_of_writing()))

    def start_of_reading(self, favourite: int) -> Tensor:
        """Return the weights of a, `[n, 1]`, for a layer that begins with one stream."""
        return _identity(self.num_streams)[:, [favourite]]

    def start_of_mixing(self) -> Tensor:
        """Return the weights of R, `[n, n]`."""
        return _identity(self.num_streams)

    def start_of_writing(self) -> Tensor:
        """Return the weights of b, `[n, 1]`."""
        return torch.ones(self.num_streams, 1, device="cpu")

    def begin(self, embeddings: Tensor) -> Tensor:
        """Begin with the embeddings in each stream."""
        return torch.stack([embeddings] * self.num_streams, dim=-2)

    def read(self, state: Tensor, layer: int) -> Tensor:
        """Return the weighted sum of the streams."""
        # Autocast would keep the streams, which are sums of all layers, in 16 bits.
        with torch.autocast(state.device.type, enabled=False):
            shares = self.shares_read(state, layer)
            return _sums_of_streams(shares, state).squeeze(-2)

    def write(self, state: Tensor, layer: int, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Mix the streams, and add what the layer added to each of them."""
        with torch.autocast(state.device.type, enabled=False):
            mixed = _sums_of_streams(self.shares_mixed(state, layer), state)
            added = (outputs - inputs).to(state.dtype)
            return mixed + self.shares_written(state, layer) * added.unsqueeze(-2)

    def finish(self, state: Tensor) -> Tensor:
        """Return the mean of the streams."""
        return state.mean(-2)

    def shares_read(self, state: Tensor, layer: int) -> Tensor:
        """Return a, `[..., n, 1]`."""
        return self.reading[layer - 1](state)

    def shares_mixed(self, state: Tensor, layer: int) -> Tensor:
        """Return R, `[..., n, n]`, whose rows are old streams, and whose columns are new ones."""
        return self.mixing[layer - 1](state)

    def shares_written(self, state: Tensor, layer: int) -> Tensor:
        """Return b, `[..., n, 1]`."""
        return self.writing[layer - 1](state)


class ManifoldHyperConnections(HyperConnections):
    """[`HyperConnections`] whose R is doubly stochastic, with a in (0, 1) and b in (0, 2) (mHC, arXiv 2512.24880).

    A softmax or a sigmoid is never 0 or 1. So at the start a layer reads nine tenths of one stream and shares the last
    tenth among the others, and R keeps nine tenths of each stream. All b are 1. Streams are equal then, so the stack
    starts as the plain one too.
    """

    weights_class = JointStreamWeights

    def start_of_reading(self, favourite: int) -> Tensor:
        """Return the logits of a, `[n, 1]`."""
        return _softened(super().start_of_reading(favourite)).logit()

    def start_of_mixing(self) -> Tensor:
        """Return the logarithms of R, `[n, n]`."""
        return _softened(super().start_of_mixing()).log()

    def start_of_writing(self) -> Tensor:
        """Return the logits of half of b, `[n, 1]`."""
        return torch.zeros(self.num_streams, 1, device="cpu")

    def shares_read(self, state: Tensor, layer: int) -> Tensor:
        """Return a, `[..., n, 1]`."""
        return super().shares_read(state, layer).sigmoid()

    def shares_mixed(self, state: Tensor, layer: int) -> Tensor:
        """Return R, `[..., n, n]`."""
        return sinkhorn(super().shares_mixed(state, layer))

    def shares_written(self, state: Tensor, layer: int) -> Tensor:
        """Return b, `[..., n, 1]`."""
        return 2 * super().shares_written(state, layer).sigmoid()


def sinkhorn(logits: Tensor) -> Tensor:
    """Return exp(logits) `[..., n, n]` with rows and columns normalised in turns, until all sum to 1.

    Columns come last. So each new stream is a weighted mean of old ones, however far the rounds got.
    """
    dtype = logits.dtype
    (logarithms,) = in_compute_dtype(logits)
    # Of logarithms, because the sum of a column may be too small for a number.
    for _ in range(SINKHORN_ROUNDS):
        logarithms = logarithms.log_softmax(-1)
        logarithms = logarithms.log_softmax(-2)
    return logarithms.exp().to(dtype)


def _sums_of_streams(weights: Tensor, streams: Tensor) -> Tensor:
    """Return sums of streams `[..., n, d]` by weights `[..., n, sums]`, as `[..., sums, d]`."""
    return weights.transpose(-1, -2) @ streams


def _identity(size: int) -> Tensor:
    # Large models are made on a device without memory, which has no numbers.
    return torch.eye(size, device="cpu")


def _softened(choice: Tensor) -> Tensor:
    """Return nine tenths where `choice` `[n, ...]` is 1, and equal parts of one tenth elsewhere in a column."""
    others = 0.1 / (len(choice) - 1)
    return torch.where(choice == 1, 0.9, others)


STREAMS: dict[str, type[Stream]] = {
    "linear": LinearMixing,
    "attention": AttentionMixing,
    "delta-attention": DeltaMixing,
    "hyper-connections": HyperConnections,
    "manifold-hyper-connections": ManifoldHyperConnections,
}
"""Streams by the name that `layer_aggregation` has at the place "layers". A module that adds one enters it here.

Each is made of the configuration, the number of layers, and the side, "encoder" or "decoder".
"""


def make_stream(config: PreTrainedConfig, num_layers: int, side: str) -> Stream:
    """Return the stream that a configuration names.

    Args:
        config: the configuration of the model.
        num_layers: the number of layers of the stack.
        side: "encoder" or "decoder".

    Raises:
        ValueError: if there is no such stream, or it does not fit the family or another field.
    """
    name = config.layer_aggregation
    if name not in STREAMS:
        raise unknown_name("layer_aggregation for layer_aggregation_place 'layers'", name, STREAMS)

    stream_class = STREAMS[name]
    if stream_class.needs_pre_norm and not config.is_pre_norm:
        raise ValueError(
            f"layer_aggregation {name!r} at layer_aggregation_place 'layers' is not for the family "
            f"{config.model_type}, whose layers normalise their outputs. Use the family of M2M-100, such as "
            "--method pre-norm-transformer."
        )

    return stream_class(config, num_layers, side)


class LayerStates:
    """What is between the layers of a stack while it runs.

    Args:
        stream: makes what each layer reads. None is the plain stack.
    """

    def __init__(self, stream: Stream | None) -> None:
        self.states: list[Tensor] = []
        """The embeddings with their positions, and the outputs of layers, `[..., d]` each."""
        self._stream = Stream() if stream is None else stream
        self._state: Any = None
        self._inputs: Tensor | None = None

    def begin(self, embeddings: Tensor) -> None:
        """Begin with the embeddings."""
        self.states.append(embeddings)
        self._state = self._stream.begin(embeddings)

    def next_input(self) -> Tensor:
        """Return what the next layer reads, `[..., d]`."""
        # The embeddings are the first of the states.
        self._inputs = self._stream.read(self._state, len(self.states))
        return self._inputs

    def append(self, outputs: Tensor) -> None:
        """Add the output of the layer."""
        self._state = self._stream.write(self._state, len(self.states), self._inputs, outputs)
        self.states.append(outputs)

    def top(self) -> Tensor:
        """Return what leaves the stack, `[..., d]`."""
        return self._stream.finish(self._state)
