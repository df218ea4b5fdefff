"""Gradient checkpointing and torch.compile compute what the plain model does; the Trainer counts every word once."""

import pytest
import torch
from aggregated_models import aggregated, random_tokens, source_batch, training_batch
from families import RECURRENT, every_kind, names, translator
from recurrent_models import recurrent
from tiny_marian import tiny_tokenizer
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments
from transformers.modeling_layers import GradientCheckpointingLayer

from hf_capsule_mt.modeling.transformers_versions import CACHE

both_ways = pytest.mark.parametrize("use_reentrant", [False, True])


def differentiate(model, forward, **batch):
    """The loss and every gradient of one batch, with the same dropout each time."""
    model.zero_grad()
    torch.manual_seed(0)
    loss = forward(**(batch or training_batch())).loss
    loss.backward()
    named = model.named_parameters()
    return loss.detach(), {name: parameter.grad.clone() for name, parameter in named if parameter.requires_grad}


def checkpoint_activations(model, use_reentrant):
    # Old versions of Transformers have the older name.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": use_reentrant})


def assert_same(actual, expected):
    torch.testing.assert_close(actual[0], expected[0])
    assert set(actual[1]) == set(expected[1])
    for name, gradient in expected[1].items():
        torch.testing.assert_close(actual[1][name], gradient, msg=name)


def count_forwards(model):
    """A list that grows with every layer of a stack that runs, and with every word of a conditional GRU."""
    forwards = []
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            next(module.children()).register_forward_hook(lambda *_: forwards.append(1))
    return forwards


@both_ways
@every_kind
def test_gradient_checkpointing(name, use_reentrant):
    model = translator(name, dropout=0.2).double().train()
    forwards = count_forwards(model)
    expected = differentiate(model, model)
    once = len(forwards)
    assert once == (2 + 6 if model.config.model_type == "rnmt" else 2 + 2)
    checkpoint_activations(model, use_reentrant)
    assert_same(differentiate(model, model), expected)
    # Each ran once more in the backward pass.
    assert len(forwards) == 3 * once
    outputs = model(**training_batch(), output_hidden_states=True, output_routing=True)
    outputs.loss.backward()
    assert len(outputs.encoder_hidden_states) == 3


def test_checkpointed_layers_without_a_cache_to_fill():
    model, batch = recurrent("capsule").train(), training_batch()
    words = {"decoder_input_ids": batch.pop("labels").clamp(min=0)}
    cache = model(**batch, **words, use_cache=True)[CACHE]
    checkpoint_activations(model, use_reentrant=False)
    assert CACHE not in model(**batch, **words, use_cache=True)
    with pytest.raises(ValueError, match="Checkpointed layers"):
        model(**batch, **words, cache=cache)
    before = cache.get_seq_length()
    with torch.no_grad():
        model(**batch, **words, cache=cache)
    assert cache.get_seq_length() == before + words["decoder_input_ids"].shape[1]
    assert model.eval()(**batch, **words, cache=cache)[CACHE] is cache


class AttentionTypes(TorchFunctionMode):
    """Remembers the types of the queries, keys and values that are attended with."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is scaled_dot_product_attention:
            self.seen |= {tensor.dtype for tensor in args}
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("checkpointed", [False, True])
def test_attention_is_in_float32_under_autocast_on_a_cpu(checkpointed):
    model = aggregated("heads_em", dropout=0.2).train()
    if checkpointed:
        checkpoint_activations(model, use_reentrant=False)
    seen = {}
    for autocasts in (False, True):
        with AttentionTypes() as types, torch.autocast("cpu", torch.bfloat16, enabled=autocasts):
            loss, gradients = differentiate(model, model)
        assert types.seen == {torch.float32}
        seen[autocasts] = loss, torch.cat([gradient.flatten() for gradient in gradients.values()])
    torch.testing.assert_close(seen[True][0], seen[False][0], rtol=0.02, atol=0)
    assert (seen[True][1] - seen[False][1]).norm() < 0.05 * seen[False][1].norm()


@pytest.mark.parametrize("has_target_mask", [True, False])
@pytest.mark.parametrize("has_mask", [True, False])
def test_masks_that_an_accelerator_gets(has_mask, has_target_mask, monkeypatch):
    """They are made without a look for padding, and change nothing."""
    model = translator("marian-everything", dropout=0.2).double().train()
    batch = training_batch()
    if not has_mask:
        del batch["attention_mask"]
    without_target_mask = differentiate(model, model, **batch)
    if has_target_mask:
        # The second token of every target is hidden from the others.
        batch["decoder_attention_mask"] = torch.ones_like(batch["labels"])
        batch["decoder_attention_mask"][:, 1] = 0
    expected = differentiate(model, model, **batch)
    assert torch.equal(expected[0], without_target_mask[0]) == (not has_target_mask)
    monkeypatch.setattr("hf_capsule_mt.modeling.stacks.waits_for", lambda _: True)
    looks = []
    monkeypatch.setattr(torch.Tensor, "all", lambda *args, **kwargs: looks.append(args))
    assert_same(differentiate(model, model, **batch), expected)
    assert not looks


@pytest.mark.slow
# The first backend traces forward and backward, and runs that without a C++ compiler. "eager" only traces forward.
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("marian-everything", "aot_eager_default_partitioner"),
        ("marian-source_linear", "eager"),
        ("marian-each_layer", "eager"),
        ("recurrent-guided_hybrid", "eager"),
    ],
)
def test_compiled_in_one_graph(name, backend):
    torch.compiler.reset()
    # The second iteration is the first that reads an assignment; a third is compiled as the second, as are a layer, a
    # capsule and a word that the RNMT decoder reads.
    least = {"routing_iterations": 2, "guided_routing_iterations": 2, "encoder_layers": 1, "decoder_layers": 1}
    if name.startswith("marian"):
        # What is aggregated in one place is compiled as in another: heads over the source, layers in the encoder.
        nowhere = {"head_aggregation_encoder_layers": [], "head_aggregation_decoder_layers": []}
        least |= {**nowhere, "layer_aggregation_sides": ["encoder"]}
    else:
        least["num_sentence_capsules"] = 2
    model = translator(name, **least).double()
    batch = {**source_batch((2, 1)), "labels": random_tokens((2, 2), seed=2, padding=-100)}
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    assert_same(differentiate(model, compiled, **batch), differentiate(model, model, **batch))


@pytest.mark.parametrize("kind", ["capsule", "hybrid"])
def test_accumulation_changes_nothing(kind, tmp_path):
    """Sentences of different lengths, one at a time or four together."""
    tokenizer = tiny_tokenizer()
    lines = ["a b c d e f", "g", "h i", "j k l m", "n o p", "q", "r s t u v", "w x"]
    data = [dict(tokenizer(line, text_target=line)) for line in lines]
    trained = []
    for accumulated in (1, 4):
        model = recurrent(kind, dropout=0, label_smoothing=0.1)
        options = {"max_steps": 2, "optim": "sgd", "learning_rate": 0.5, "save_strategy": "no", "report_to": "none"}
        options |= {"per_device_train_batch_size": 4 // accumulated, "gradient_accumulation_steps": accumulated}
        args = Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True, **options)
        Seq2SeqTrainer(model, args, DataCollatorForSeq2Seq(tokenizer, model), data, processing_class=tokenizer).train()
        trained.append(dict(model.named_parameters()))
    before = recurrent(kind)
    for name, parameter in trained[0].items():
        torch.testing.assert_close(parameter, trained[1][name], msg=name)
        assert not torch.equal(parameter, before.get_parameter(name)), name


# Of Marian's family those that have any but Marian's own, which are no modules.
@pytest.mark.parametrize("name", [*names("recurrent", RECURRENT), "marian-guided_classifier", "marian-everything"])
def test_every_dropout_acts(name):
    """With the probability of the configuration."""
    model = translator(name, dropout=0.5).train()
    dropouts = {place for place, module in model.named_modules() if isinstance(module, torch.nn.Dropout)}
    acted = set()
    for place in dropouts:
        module = model.get_submodule(place)
        assert module.p == 0.5, place
        module.register_forward_hook(lambda *_, place=place: acted.add(place))
    model(**training_batch())
    assert acted == dropouts != set()
