"""Gradient checkpointing and torch.compile compute what the plain model does; the Trainer counts every word once."""

import pytest
import torch
from aggregated_models import training_batch
from recurrent_models import KINDS, RNMT_KINDS, recurrent
from tiny_marian import tiny_tokenizer
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments
from transformers.modeling_layers import GradientCheckpointingLayer

every_kind = pytest.mark.parametrize("kind", KINDS)


def differentiate(model, forward):
    """The loss and every gradient of one batch, with the same dropout each time."""
    model.zero_grad()
    torch.manual_seed(0)
    loss = forward(**training_batch()).loss
    loss.backward()
    return loss.detach(), {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def assert_same(actual, expected):
    torch.testing.assert_close(actual[0], expected[0])
    assert set(actual[1]) == set(expected[1])
    for name, gradient in expected[1].items():
        torch.testing.assert_close(actual[1][name], gradient, msg=name)


@pytest.mark.parametrize("use_reentrant", [False, True])
@every_kind
def test_gradient_checkpointing(kind, use_reentrant):
    model = recurrent(kind, dropout=0.2).double().train()
    forwards = []
    for stack in (model.get_encoder(), model.get_decoder()):
        # Every layer of a stack, or every word of a conditional GRU.
        for module in stack.modules():
            if isinstance(module, GradientCheckpointingLayer):
                next(module.children()).register_forward_hook(lambda *_: forwards.append(1))
    expected = differentiate(model, model)
    once = len(forwards)
    assert once == (2 + 6 if kind in RNMT_KINDS else 2 + 2)
    # Transformers 5.17 has the older name.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": use_reentrant})
    assert_same(differentiate(model, model), expected)
    # Each ran once more in the backward pass.
    assert len(forwards) == 3 * once
    outputs = model(**training_batch(), output_hidden_states=True, output_routing=True)
    outputs.loss.backward()
    assert len(outputs.encoder_hidden_states) == 3


@pytest.mark.slow
@every_kind
def test_compiled_in_one_graph(kind):
    torch.compiler.reset()
    model = recurrent(kind).double()
    # This backend traces forward and backward, and runs what it traced without a C++ compiler.
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert_same(differentiate(model, compiled), differentiate(model, model))


@pytest.mark.parametrize("kind", ["capsule", "pooling", "rnmt", "hybrid"])
def test_accumulation_changes_nothing(kind, tmp_path):
    """Sentences of different lengths, one at a time or four together."""
    tokenizer = tiny_tokenizer()
    lines = ["a b c d e f", "g", "h i", "j k l m", "n o p", "q", "r s t u v", "w x"]
    data = [dict(tokenizer(line, text_target=line)) for line in lines]
    trained = []
    for accumulated in (1, 4):
        model = recurrent(kind, dropout=0, label_smoothing=0.1)
        args = Seq2SeqTrainingArguments(
            str(tmp_path),
            max_steps=2,
            per_device_train_batch_size=4 // accumulated,
            gradient_accumulation_steps=accumulated,
            optim="sgd",
            learning_rate=0.5,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
        )
        Seq2SeqTrainer(model, args, DataCollatorForSeq2Seq(tokenizer, model), data, processing_class=tokenizer).train()
        trained.append(dict(model.named_parameters()))
    before = recurrent(kind)
    for name, parameter in trained[0].items():
        torch.testing.assert_close(parameter, trained[1][name], msg=name)
        assert not torch.equal(parameter, before.get_parameter(name)), name
