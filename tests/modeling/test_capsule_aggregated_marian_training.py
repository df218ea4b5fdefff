"""Gradient checkpointing and torch.compile compute what the plain model does."""

import pytest
import torch
from aggregated_models import ALL, OUTPUTS, aggregated, marian, training_batch

every_kind = pytest.mark.parametrize("kind", ALL)
both_outputs = pytest.mark.parametrize("output", OUTPUTS)


def differentiate(model, forward):
    """The loss and every gradient of one batch, with the same dropout each time."""
    model.zero_grad()
    torch.manual_seed(0)
    loss = forward(**training_batch()).loss
    loss.backward()
    named = model.named_parameters()
    return loss.detach(), {name: parameter.grad.clone() for name, parameter in named if parameter.requires_grad}


def checkpoint_activations(model, use_reentrant):
    # Transformers 5.17 has the older name.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": use_reentrant})


def assert_same(actual, expected):
    torch.testing.assert_close(actual[0], expected[0])
    assert set(actual[1]) == set(expected[1])
    for name, gradient in expected[1].items():
        torch.testing.assert_close(actual[1][name], gradient, msg=name)


@pytest.mark.parametrize("use_reentrant", [False, True])
@both_outputs
@every_kind
def test_gradient_checkpointing(kind, output, use_reentrant):
    model = aggregated(kind, **OUTPUTS[output], dropout=0.2).double().train()
    forwards = []
    for stack in (model.get_encoder(), model.get_decoder()):
        stack.layers[0].fc1.register_forward_hook(lambda *_: forwards.append(1))
    expected = differentiate(model, model)
    assert len(forwards) == 2
    checkpoint_activations(model, use_reentrant)
    assert_same(differentiate(model, model), expected)
    # Both layers ran once more in the backward pass.
    assert len(forwards) == 2 + 4


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_with_outputs(use_reentrant):
    model = aggregated("heads_and_layers_em").train()
    checkpoint_activations(model, use_reentrant)
    outputs = model(**training_batch(), output_hidden_states=True, output_routing=True)
    outputs.loss.backward()
    assert len(outputs.encoder_hidden_states) == 3
    assert outputs.encoder_layer_routing.shape == (3, 7, 2, 16)
    assert len(outputs.head_routing) == 6
    assert outputs.head_routing["encoder_self.1"].shape == (3, 7, 4, 16)
    assert outputs.head_routing["cross.0"].shape == (3, 6, 4, 16)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    ["marian", "none", "linear", "dynamic", "dynamic_routing", "em_routing", "heads_simple", "heads_and_layers_em"]
    + ["gdr", "guided_classifier", "guided_attention", "everything"],
)
def test_compiled_in_one_graph(kind):
    torch.compiler.reset()
    model = (marian() if kind == "marian" else aggregated(kind)).double()
    # This backend traces forward and backward, and runs what it traced without a C++ compiler.
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert_same(differentiate(model, compiled), differentiate(model, model))


@pytest.mark.slow
@pytest.mark.parametrize("fullgraph", [False, True])
def test_compiled_routing_is_recorded_when_asked(fullgraph):
    torch.compiler.reset()
    model = aggregated("heads_and_layers_em")
    compiled = torch.compile(model, fullgraph=fullgraph, backend="eager")
    for option in (False, True, "all", False, True):
        with torch.no_grad():
            expected, actual = (one(**training_batch(), output_routing=option) for one in (model, compiled))
        assert set(actual) == set(expected), option
        if option:
            torch.testing.assert_close(actual.head_routing, expected.head_routing)
            torch.testing.assert_close(actual.encoder_layer_routing, expected.encoder_layer_routing)
