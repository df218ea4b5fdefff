"""Streams between the layers of a stack: against loops, where they are read, and how they start."""

import pytest
import torch
from aggregated_models import (
    EACH_LAYER,
    SHAPE,
    WIDTH,
    aggregated,
    aggregated_m2m100,
    m2m100,
    source_batch,
    training_batch,
)
from huggingface_hub.errors import StrictDataclassError
from reference.streams import run_stream
from test_layer_aggregation import assert_near, differentiate, leaves
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt import (
    CapsuleAggregatedM2M100Config,
    CapsuleAggregatedM2M100ForConditionalGeneration,
    CapsuleAggregatedMarianConfig,
    preset_config,
)
from hf_capsule_mt.decoding import generate
from hf_capsule_mt.modeling.streams import STREAMS, LayerStates, Stream, make_stream, sinkhorn

LAYERS = 3
SIZES = {"encoder_layers": LAYERS, "decoder_layers": LAYERS}
DLCL = {"layer_aggregation_input_norm": True}
DENSE = {"layer_aggregation_input_norm": False}
MARIAN = (CapsuleAggregatedMarianConfig, aggregated)
M2M100 = (CapsuleAggregatedM2M100Config, aggregated_m2m100)
KINDS = {
    "dlcl_post_norm": (*MARIAN, "linear", {}),
    "dlcl": (*M2M100, "linear", DLCL),
    "dense": (*M2M100, "linear", DENSE),
    "attention": (*M2M100, "attention", DENSE),
    "attention_normed": (*M2M100, "attention", DLCL),
    "delta": (*M2M100, "delta-attention", DENSE),
    "delta_normed": (*M2M100, "delta-attention", DLCL),
    "hyper": (*M2M100, "hyper-connections", {"layer_aggregation_streams": 3}),
    "manifold": (*M2M100, "manifold-hyper-connections", {"layer_aggregation_streams": 3}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
both_outputs = pytest.mark.parametrize("output", ["replace", "residual"])


def fields_of(kind, output):
    _, _, aggregation, fields = KINDS[kind]
    fields = {**SIZES, **EACH_LAYER, **fields, "layer_aggregation": aggregation}
    return {**fields, "layer_aggregation_output": output}


def make_model(kind, output="replace"):
    _, make, _, _ = KINDS[kind]
    return make("none", **fields_of(kind, output))


def read_by_layers(module, embeddings, layers):
    """What each layer reads, and what leaves the stack."""
    states = LayerStates(module)
    states.begin(embeddings)
    read = []
    for layer in layers:
        read.append(states.next_input())
        states.append(layer(read[-1]))
    return torch.stack([*read, states.top()])


@both_outputs
@every_kind
def test_matches_loops(kind, output):
    config = KINDS[kind][0](**{**SHAPE, **fields_of(kind, output)})
    module = make_stream(config, LAYERS, "encoder").double()
    torch.manual_seed(0)
    parameters = dict(module.named_parameters())
    for parameter in parameters.values():
        torch.nn.init.normal_(parameter, std=0.5)
    embeddings = leaves([torch.randn(2, 3, WIDTH)], torch.float64)
    matrices = [torch.randn(WIDTH, WIDTH).double() for _ in range(LAYERS)]
    layers = [lambda vector, matrix=matrix: vector + (vector @ matrix).tanh() for matrix in matrices]
    cotangent = torch.randn(LAYERS + 1, 2, 3, WIDTH).double()

    fast, fast_gradients = differentiate(
        lambda inputs: read_by_layers(module, inputs[0], layers), embeddings, parameters, cotangent
    )
    slow, slow_gradients = differentiate(
        lambda inputs: torch.stack(run_stream(config, parameters, inputs[0], layers)), embeddings, parameters, cotangent
    )

    assert_near("inputs", fast, slow, 1e-12)
    if kind == "manifold":
        # All streams are equal below the first layer, and whatever mean of them is the same.
        for gradients in (fast_gradients, slow_gradients):
            for name in ("start", "weight", "scale"):
                assert gradients.pop(f"mixing.0.{name}").abs().max() < 1e-13
    for name, expected in slow_gradients.items():
        assert expected.any(), name
        assert_near(name, fast_gradients[name], expected, 1e-10)


def spy(begin, calls):
    """The same function, which also adds what it is called with to `calls`."""

    def begin_and_tell(embeddings):
        calls.append(embeddings)
        return begin(embeddings)

    return begin_and_tell


def read_again(stream, embeddings, outputs):
    """What layers with these outputs read, and what leaves the stack."""
    recorded = iter(outputs)
    return read_by_layers(stream, embeddings, [lambda inputs: next(recorded)] * len(outputs))


@both_outputs
@every_kind
def test_each_layer_reads_what_its_stream_says(kind, output, monkeypatch):
    model = make_model(kind, output).double()
    stacks = {"encoder": model.model.encoder, "decoder": model.model.decoder}
    begun = {name: [] for name in stacks}
    read = {name: [] for name in stacks}
    wrote = {name: [] for name in stacks}
    for name, stack in stacks.items():
        monkeypatch.setattr(stack.stack_aggregation, "begin", spy(stack.stack_aggregation.begin, begun[name]))
        for layer in stack.layers:
            layer.register_forward_pre_hook(lambda module, args, name=name: read[name].append(args[0]))
            layer.register_forward_hook(lambda module, args, result, name=name: wrote[name].append(result))

    with torch.no_grad():
        outputs = model.model(**source_batch(), decoder_input_ids=torch.tensor([[2, 9, 4]] * 3))

    left = {"encoder": outputs.encoder_last_hidden_state, "decoder": outputs.last_hidden_state}
    for name, stack in stacks.items():
        found = read_again(stack.stack_aggregation, begun[name][0], wrote[name])
        torch.testing.assert_close(torch.stack(read[name]), found[:-1])
        top = found[-1]
        if hasattr(stack, "layer_norm"):
            top = stack.layer_norm(top)
        torch.testing.assert_close(left[name], top)


@every_kind
def test_decoding_with_a_cache(kind):
    model = make_model(kind).double()
    options = {"num_beams": 3, "max_new_tokens": 8}
    cached, uncached = (model.generate(**source_batch(), **options, use_cache=cache) for cache in (True, False))
    assert torch.equal(cached, uncached)


WARM_STARTS = {"dense": "replace", "dlcl": "residual", "attention": "residual", "delta": "residual"}


@pytest.mark.parametrize(("kind", "output"), WARM_STARTS.items())
def test_warm_starts_are_exact(kind, output):
    parent = m2m100(**SIZES)
    fields = {name: value for name, value in fields_of(kind, output).items() if name not in SIZES}
    model = CapsuleAggregatedM2M100ForConditionalGeneration.from_m2m100(parent, **fields)
    with torch.no_grad():
        assert torch.equal(model(**training_batch()).logits, parent(**training_batch()).logits)
    model(**training_batch()).loss.backward()
    awake = "aggregator.weight" if kind == "dense" else "gamma"
    for name, parameter in model.named_parameters():
        if name.endswith(awake):
            assert parameter.grad.any(), name


def test_dlcl_starts_as_the_mean():
    config = preset_config(
        "dlcl", "tiny", d_model=16, vocab_size=11, encoder_attention_heads=1, decoder_attention_heads=1
    )
    model = CapsuleAggregatedM2M100ForConditionalGeneration(config)
    for stack in (model.model.encoder, model.model.decoder):
        for layer, aggregation in enumerate(stack.stack_aggregation.layers, start=2):
            assert torch.equal(aggregation.aggregator.weight, torch.full((layer,), 1 / layer))
            assert aggregation.layer_norm is None
        assert {norm.weight.shape for norm in stack.stack_aggregation.norms} == {(16,)}


def test_one_side_alone():
    model = aggregated("each_layer", layer_aggregation_sides=["encoder"])
    assert model.model.encoder.stack_aggregation is not None
    assert model.model.decoder.stack_aggregation is None
    assert model(**training_batch()).loss.isfinite()


def test_parameters_at_base():
    """On each side 2 + ... + 7 scalars, and a norm of the embeddings and of each layer."""
    with torch.device("meta"):
        model, plain = (
            CapsuleAggregatedM2M100ForConditionalGeneration(preset_config(method, "base"))
            for method in ("dlcl", "pre-norm-transformer")
        )
    assert model.num_parameters() - plain.num_parameters() == 2 * (27 + 7 * 2 * 512)


@pytest.mark.parametrize("kind", ["hyper", "manifold"])
def test_hyper_connections_start_as_the_plain_stack(kind):
    parent = m2m100(**SIZES).double()
    fields = {name: value for name, value in fields_of(kind, "residual").items() if name not in SIZES}
    model = CapsuleAggregatedM2M100ForConditionalGeneration.from_m2m100(parent, **fields)

    with torch.no_grad():
        expected = parent(**training_batch()).logits
    torch.testing.assert_close(model(**training_batch()).logits, expected, rtol=1e-6, atol=1e-6)  # starts are float32

    model(**training_batch()).loss.backward()
    for name, parameter in model.named_parameters():
        # A scale of weights that are 0 waits until they are not.
        if "stack_aggregation" in name and not name.endswith("scale"):
            assert parameter.grad.any(), name


def test_streams_do_not_stay_equal():
    """After one step each stream is another, though all begin as the embeddings."""
    config = CapsuleAggregatedM2M100Config(**{**SHAPE, **fields_of("manifold", "replace")})
    torch.manual_seed(0)
    stream = make_stream(config, LAYERS, "encoder").double()
    for weights in (*stream.reading, *stream.mixing, *stream.writing):
        weights.init_weights(0.02)
    embeddings = torch.randn(5, WIDTH).double()
    layers = [lambda vector: vector + vector.tanh()] * LAYERS
    read_by_layers(stream, embeddings, layers).square().sum().backward()

    # All streams leave the stack alike, so the last layer is the same for them.
    for weights in stream.writing[:-1]:
        # Streams get other gradients for what a layer adds to them.
        assert weights.start.grad.std() > 1e-6


def test_mixed_streams_are_means_of_streams():
    """Rows and columns sum to 1, and columns exactly so even for weights that 20 rounds do not level."""
    torch.manual_seed(0)
    near = sinkhorn(torch.randn(50, 4, 4).double())
    far = sinkhorn(200 * torch.randn(50, 4, 4).double())
    ones = torch.ones(50, 4).double()
    torch.testing.assert_close(near.sum(-1), ones, rtol=1e-3, atol=1e-3)
    for matrix in (near, far):
        assert (matrix >= 0).all()
        torch.testing.assert_close(matrix.sum(-2), ones)


def test_streams_stay_in_float32_under_autocast():
    model = make_model("manifold")
    state = model.model.encoder.stack_aggregation.begin(torch.randn(2, WIDTH))
    with torch.autocast("cpu", torch.bfloat16):
        inputs = model.model.encoder.stack_aggregation.read(state, 1)
        state = model.model.encoder.stack_aggregation.write(state, 1, inputs, inputs.bfloat16())
    assert inputs.dtype == state.dtype == torch.float32


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        # On each side, for each of 6 layers, a query of its own, and a LayerNorm and a gamma.
        ("delta-residuals", 2 * 6 * (512 + 3 * 512)),
        # a and b: 4 starts, 512 weights and a scale each. R: 16, 4 * 512 and 1.
        ("hyper-connections", 2 * 6 * (2 * (4 + 512 + 1) + 16 + 4 * 512 + 1)),
        # The same of 4 * 512 inputs.
        ("mhc", 2 * 6 * (2 * (4 + 4 * 2048 + 1) + 16 + 16 * 2048 + 1)),
    ],
)
def test_parameters_of_streams_at_base(method, expected):
    with torch.device("meta"):
        model, plain = (
            CapsuleAggregatedM2M100ForConditionalGeneration(preset_config(name, "base"))
            for name in (method, "pre-norm-transformer")
        )
    assert model.num_parameters() - plain.num_parameters() == expected


class Running(Stream):
    """An own stream: a running mean of outputs, with a gate in a module of its own class."""

    class Gate(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.share = torch.nn.Parameter(torch.tensor([0.3]))

        def forward(self, old, new):
            return old + self.share * (new - old)

    def __init__(self, config, num_layers, side):
        super().__init__()
        self.gates = torch.nn.ModuleList(self.Gate() for _ in range(num_layers))

    def write(self, state, layer, inputs, outputs):
        return self.gates[layer - 1](state, outputs)


class PositionwiseRunning(Running):
    is_positionwise = True


@pytest.mark.parametrize("stream_class", [Running, PositionwiseRunning])
@pytest.mark.parametrize("make", [aggregated, aggregated_m2m100])
def test_an_own_stream(make, stream_class, monkeypatch, tmp_path, engine_calls):
    """It is entered, trained, saved, loaded again and, if it says that it may be, decoded by the engine."""
    monkeypatch.setitem(STREAMS, "running", stream_class)
    model = make("none", **SIZES, layer_aggregation="running", layer_aggregation_place="layers", vocab_size=29)
    model(**training_batch()).loss.backward()
    for name, parameter in model.named_parameters():
        if "gates" in name:
            assert parameter.grad.any(), name

    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(loaded(**training_batch()).logits, model(**training_batch()).logits)

    options = {"num_beams": 3, "max_new_tokens": 8}
    expected = loaded.generate(**source_batch(), **options)
    assert torch.equal(loaded.generate(**source_batch(), **options, custom_generate=generate), expected)
    assert bool(engine_calls) == stream_class.is_positionwise


@pytest.mark.parametrize(
    ("method", "fields", "message"),
    [
        ("transformer", {"layer_aggregation": "linear", **DLCL}, "Set it to False"),
        ("pre-norm-transformer", {"layer_aggregation": "linear", "decoder_layerdrop": 0.1}, "decoder_layerdrop"),
        ("pre-norm-transformer", {}, "layer_aggregation is not set"),
        ("pre-norm-transformer", {"layer_aggregation": "linear", "layer_aggregation_streams": 1}, "Give 2 or more"),
    ],
)
def test_fields_that_do_not_fit_are_refused(method, fields, message):
    with pytest.raises(StrictDataclassError, match=message):
        preset_config(method, "tiny", layer_aggregation_place="layers", **fields)


@pytest.mark.parametrize(
    ("method", "fields", "message"),
    [
        ("transformer", {"layer_aggregation": "em_routing"}, "'em_routing'. Use one of linear, attention"),
        ("transformer", {"layer_aggregation": "attention"}, "not for the family"),
        ("transformer", {"layer_aggregation": "hyper-connections"}, "not for the family"),
        ("pre-norm-transformer", {"layer_aggregation": "dynamic"}, "'dynamic'. Use one of linear, attention"),
    ],
)
def test_streams_that_do_not_fit_are_refused(method, fields, message):
    config = preset_config(method, "tiny", layer_aggregation_place="layers", **fields)
    with pytest.raises(ValueError, match=message), torch.device("meta"):
        AutoModelForSeq2SeqLM.from_config(config)
