"""The model next to Marian, and everything that a Transformers user asks of its forward and backward pass."""

import math

import pytest
import torch
from aggregated_models import (
    ALL,
    HEAD_AGGREGATIONS,
    HEADS,
    LAYERS,
    OUTPUTS,
    SHAPE,
    WIDTH,
    added,
    aggregated,
    marian,
    source_batch,
    training_batch,
)
from families import MARIAN
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import MarianModel
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from hf_capsule_mt import (
    CapsuleAggregatedMarianConfig,
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianModel,
    dynamic_routing,
    preset_config,
)
from hf_capsule_mt.analysis.routed_parts import has_routing
from hf_capsule_mt.configuration.description import describe_architecture
from hf_capsule_mt.modeling.routing import ROUTINGS, CapsuleRouting, RoutingAlgorithm

every_kind = pytest.mark.parametrize("kind", MARIAN)
every_aggregation = pytest.mark.parametrize("kind", MARIAN[1:])
MARIANS = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "two vocabularies": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23},
}
MARIANS["two vocabularies, untied"] = MARIANS["untied"] | MARIANS["two vocabularies"]
every_marian = pytest.mark.parametrize("fields", MARIANS.values(), ids=MARIANS)


def test_positions_are_those_of_marian():
    for fields in ({"d_model": 128, "max_position_embeddings": 300}, {"d_model": 12}, {"max_position_embeddings": 1}):
        model = CapsuleAggregatedMarianModel(CapsuleAggregatedMarianConfig(**{**SHAPE, **fields}))
        for stack in (model.encoder, model.decoder):
            expected = MarianSinusoidalPositionalEmbedding(*stack.embed_positions.weight.shape).create_weight()
            assert torch.equal(stack.embed_positions.weight, expected)


def run(model, **arguments):
    with torch.no_grad():
        return model(**training_batch(), output_hidden_states=True, output_attentions=True, **arguments)


def gradients(model):
    """Every gradient, by name, of the loss of one batch."""
    model.zero_grad()
    model(**training_batch()).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.requires_grad}


def assert_equal_outputs(actual, expected):
    """Every tensor of `expected` is in `actual`, bit for bit."""
    assert {"loss", "logits", "decoder_hidden_states"} <= set(expected)
    for name, value in expected.items():
        for tensor, other in zip(*([v] if torch.is_tensor(v) else v for v in (actual[name], value)), strict=True):
            assert torch.equal(tensor, other), name


@every_marian
def test_without_aggregation_is_marian(fields, tmp_path):
    parent = marian(**fields)
    assert parent.final_logits_bias.any()
    parent.save_pretrained(tmp_path)
    model = CapsuleAggregatedMarianForConditionalGeneration.from_pretrained(tmp_path)
    assert list(model.state_dict()) == list(parent.state_dict())
    assert_equal_outputs(run(model), run(parent))
    for one in (model, parent):
        one.set_attn_implementation("eager")
    with_attentions = run(parent)
    assert with_attentions.cross_attentions
    assert_equal_outputs(run(model), with_attentions)
    source = source_batch()
    assert torch.equal(model.generate(**source, max_length=9), parent.generate(**source, max_length=9))


def test_base_model_without_aggregation_is_marian():
    parent = marian()
    model, base = CapsuleAggregatedMarianModel(aggregated("none").config).eval(), MarianModel(parent.config).eval()
    for one in (model, base):
        one.load_state_dict(parent.model.state_dict())
    batch = {**source_batch(), "decoder_input_ids": torch.tensor([[0, 5, 9]] * 3)}
    assert torch.equal(model(**batch).last_hidden_state, base(**batch).last_hidden_state)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [*((kind, {}) for kind in MARIAN[1:]), *(("everything", fields) for fields in MARIANS.values() if fields)],
)
def test_warm_start_is_marian_at_first(kind, fields):
    parent = marian(**fields)
    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(parent, **ALL[kind])
    assert ALL[kind].items() <= model.config.to_dict().items()
    assert added(model)
    outputs = run(model)
    assert_equal_outputs({**outputs, "loss": outputs.lm_loss}, run(parent))


def test_too_few_positions():
    model = aggregated(max_position_embeddings=16)
    long, short = torch.full((1, 17), 5), torch.full((1, 4), 5)
    with pytest.raises(ValueError, match=r"17 tokens, and the model 16 positions"):
        model(input_ids=long, decoder_input_ids=short)
    with pytest.raises(ValueError, match="17 tokens"):
        model(input_ids=short, decoder_input_ids=long)
    model(input_ids=long[:, :16], decoder_input_ids=long[:, :16])
    # The last word that is written is not read.
    assert model.generate(short, min_new_tokens=16, max_new_tokens=16).shape == (1, 17)
    with pytest.raises(ValueError, match="17 tokens"):
        model.generate(short, min_new_tokens=17, max_new_tokens=17)


def test_warm_start_with_more_positions():
    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(marian(), max_position_embeddings=60)
    assert model.get_encoder().embed_positions.weight.shape[0] == 60
    assert_equal_outputs(run(model), run(marian()))


def test_warm_start_without_the_output_projections_of_heads():
    fields = {"head_aggregation": "em_routing", "head_aggregation_output": "replace", "num_output_capsules": 4}
    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(marian(), **fields)
    dropped = set(marian().state_dict()) - set(model.state_dict())
    assert {name.rsplit(".", 2)[1] for name in dropped} == {"out_proj"}
    assert not torch.equal(run(model).logits, run(marian()).logits)


def test_warm_start_from_a_folder(tmp_path):
    parent = marian()
    parent.generation_config.update(num_beams=6, bad_words_ids=[[0]], max_length=12)
    parent.save_pretrained(tmp_path)
    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(tmp_path, layer_aggregation="em_routing")
    assert not model.training
    assert_equal_outputs(run(model), run(parent))
    kept = model.generation_config
    assert (kept.num_beams, kept.bad_words_ids, kept.max_length) == (6, [[0]], 12)
    assert torch.equal(model.generate(**source_batch()), parent.generate(**source_batch()))


def test_warm_start_from_a_shared_embedding_beside_an_output_of_its_own(tmp_path):
    parent = marian(tie_word_embeddings=False)
    for side in (parent.model.encoder, parent.model.decoder):
        side.embed_tokens.weight = parent.model.shared.weight
    parent.save_pretrained(tmp_path)
    assert "model.encoder.embed_tokens.weight" not in load_file(tmp_path / "model.safetensors")
    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(tmp_path, layer_aggregation="em_routing")
    assert_equal_outputs(run(model), run(parent))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_warm_start_keeps_dtype_and_attention(dtype, attention):
    parent = marian().to(dtype)
    parent.set_attn_implementation(attention)
    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(parent, layer_aggregation="em_routing")
    assert {tensor.dtype for tensor in model.state_dict().values()} == {dtype}
    assert model.config.dtype == dtype
    assert model.config._attn_implementation == attention
    assert torch.equal(model(**training_batch()).logits, parent(**training_batch()).logits)


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [({}, torch.float32), ({"dtype": "auto"}, torch.float16), ({"dtype": torch.bfloat16}, torch.bfloat16)],
)
def test_warm_start_from_a_folder_in_float16_can_be_trained(fields, dtype, tmp_path):
    parent = marian().half()
    parent.save_pretrained(tmp_path)
    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(tmp_path, guided_routing="gdr", **fields)
    assert {tensor.dtype for tensor in model.state_dict().values()} == {dtype}
    assert model.config.dtype == dtype
    shared = model.get_input_embeddings().weight
    assert torch.equal(shared, parent.get_input_embeddings().weight.to(dtype))


@pytest.mark.parametrize("saved", [False, True])
def test_warm_start_takes_plain_models_of_its_own_class(saved, tmp_path):
    plain = aggregated("none")
    plain.save_pretrained(tmp_path)
    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(
        tmp_path if saved else plain, layer_aggregation="em_routing"
    )
    assert added(model)
    assert_equal_outputs(run(model.eval()), run(plain.eval()))


def test_a_routing_that_is_added_by_its_name_is_configured_run_analysed_and_described(monkeypatch):
    monkeypatch.setitem(ROUTINGS, "uniform_routing", RoutingAlgorithm(dynamic_routing))
    fields = {"layer_aggregation": "uniform_routing", "layer_aggregation_context": "own", "routing_iterations": 2}
    config = preset_config("transformer", "tiny", **fields)
    assert has_routing(config)
    assert "aggregated by uniform routing" in describe_architecture(config)
    assert aggregated("none", **fields)(**training_batch(), output_routing=True).encoder_layer_routing is not None


@pytest.mark.parametrize(("output", "context"), [("replace", "own"), ("residual", "all")])
@every_aggregation
def test_every_parameter_learns_by_the_second_step(kind, output, context):
    # Trained from the start of a real run: a new model, or a warm-started one.
    fields = {**ALL[kind], **OUTPUTS[output], "layer_aggregation_context": context}
    if output == "replace":
        config = CapsuleAggregatedMarianConfig(**{**marian().config.to_dict(), **fields, "init_std": 0.2})
        model = CapsuleAggregatedMarianForConditionalGeneration(config)
    else:
        # Which refuses what the model does not read.
        routed = ALL[kind].get("layer_aggregation") in ("dynamic_routing", "em_routing")
        fields = {**ALL[kind], **({"layer_aggregation_context": context} if routed else {})}
        model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(marian(), **fields)
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.1)
    first = gradients(model)
    # gamma = 0 switches the residual off, and of its parameters only gamma has a gradient. What guided routing adds is
    # switched off in the same way, but its capsules have losses of their own.
    asleep = {name for name in added(model) if not name.endswith("gamma") and "guided" not in name}
    asleep |= {name for name in added(model) if "guided_routing.fc1" in name}
    assert {name for name, gradient in first.items() if not gradient.any()} == (
        asleep if output == "residual" else set()
    )
    optimizer.step()
    for name, gradient in gradients(model).items():
        assert gradient.isfinite().all(), name
        assert gradient.any(), name


@every_kind
def test_sdpa_is_eager(kind):
    model = aggregated(kind).double()
    model.set_attn_implementation("sdpa")
    fused, fused_gradients = model(**training_batch()), gradients(model)
    model.set_attn_implementation("eager")
    eager, eager_gradients = model(**training_batch()), gradients(model)
    real = training_batch()["labels"] != -100
    torch.testing.assert_close(fused.logits[real], eager.logits[real])
    for name, gradient in fused_gradients.items():
        torch.testing.assert_close(gradient, eager_gradients[name], msg=name)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2**-4), (torch.float16, 2**-7)])
@pytest.mark.parametrize("output", ["residual"])
@every_kind
def test_half_precision(kind, output, dtype, tolerance):
    model = aggregated(kind, **OUTPUTS[output])
    expected = model(**training_batch())
    model.to(dtype)
    actual = model(**training_batch())
    assert actual.logits.dtype == dtype
    errors = (actual.logits.float() - expected.logits).norm(dim=-1) / expected.logits.norm(dim=-1)
    # 16 roundings of 2^-8 (2^-11): at most positions, since EM routing can amplify those of one without bound.
    assert errors.median() < tolerance
    assert actual.loss.dtype == torch.float32
    assert all(gradient.isfinite().all() and gradient.dtype == dtype for gradient in gradients(model).values())


@every_aggregation
def test_autocast(kind):
    model = aggregated(kind)
    expected = model(**training_batch()).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(**training_batch()).loss
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=0.05, atol=0)


@pytest.mark.parametrize(("kind", "capsules"), [("dynamic_routing", WIDTH), ("em_routing", WIDTH), ("em_routing", 4)])
def test_output_routing(kind, capsules):
    model = aggregated(kind, num_output_capsules=capsules, routing_iterations=4, decoder_layers=3)
    silent, last, every = (run(model, output_routing=option) for option in (False, True, "all"))
    for side, length, layers in (("encoder", 7, LAYERS), ("decoder", 6, 3)):
        name = f"{side}_layer_routing"
        assert name not in silent
        assert last[name].shape == (3, length, layers, capsules)
        assert every[name].shape == (3, length, 4, layers, capsules)
        torch.testing.assert_close(every[name].sum(-1), torch.ones(3, length, 4, layers))
        assert torch.equal(every[name][..., -1, :, :], last[name])
        # The first assignment is uniform, of entropy ln N; the last is not.
        entropy = torch.special.entr(every[name]).sum(-1)
        torch.testing.assert_close(entropy[:, :, 0], torch.full((3, length, layers), math.log(capsules)))
        assert entropy[:, :, -1].mean() < math.log(capsules) - 1e-3
    assert torch.equal(silent.logits, every.logits)


@pytest.mark.parametrize("kind", HEAD_AGGREGATIONS)
def test_output_routing_of_heads(kind):
    model = aggregated(kind, routing_iterations=4, head_aggregation_decoder_layers=[1], encoder_attention_heads=2)
    silent, last, every = (run(model, output_routing=option) for option in (False, True, "all"))
    assert "head_routing" not in silent
    shapes = {"encoder_self.0": (7, 2), "encoder_self.1": (7, 2)}
    shapes |= dict.fromkeys(("decoder_self.1", "cross.0", "cross.1"), (6, HEADS))
    assert set(last.head_routing) == set(every.head_routing) == set(shapes)
    capsules = model.config.num_output_capsules or WIDTH
    for place, (length, heads) in shapes.items():
        final, iterations = last.head_routing[place], every.head_routing[place]
        assert iterations.shape == (3, length, 4, heads, capsules)
        torch.testing.assert_close(iterations.sum(-1), torch.ones(3, length, 4, heads))
        assert torch.equal(iterations[..., -1, :, :], final)
        torch.testing.assert_close(iterations[:, :, 0], torch.full((3, length, heads, capsules), 1 / capsules))
        assert iterations[:, :, -1].std() > 1e-3 / capsules
    assert torch.equal(silent.logits, every.logits)
    assert ("encoder_layer_routing" in every) == (model.config.layer_aggregation is not None)


def attention_at(model, place):
    site, layer = place.split(".")
    stack = model.model.encoder if site == "encoder_self" else model.model.decoder
    return getattr(stack.layers[int(layer)], "encoder_attn" if site == "cross" else "self_attn")


@pytest.mark.parametrize("option", [True, "all"])
@pytest.mark.parametrize("kind", ["heads_simple", "heads_em"])
def test_head_routing_is_that_of_its_place(kind, option):
    model, heads = aggregated(kind, decoder_layers=3), {}
    recorded = run(model, output_routing=option).head_routing
    # Of both layers of the encoder, and of both attentions of three layers of the decoder.
    assert len(recorded) == 8
    for place in recorded:
        projection = attention_at(model, place).out_proj
        projection.register_forward_pre_hook(lambda module, args, place=place: heads.update({place: args[0]}))
    run(model)
    for place, assignment in recorded.items():
        routed = attention_at(model, place).out_proj
        votes = routed.votes(routed.inputs(heads[place]).tanh().unflatten(-1, (HEADS, WIDTH)))
        layers = CapsuleRouting.forward(routed.routing, votes, every_iteration=option == "all")
        assert torch.equal(assignment, layers[1]), place


@pytest.mark.parametrize("kind", ["linear", "em_routing"])
@pytest.mark.parametrize(("side", "other"), [("encoder", "decoder"), ("decoder", "encoder")])
def test_one_side_alone(kind, side, other):
    parent, model = marian(), aggregated(kind, layer_aggregation_sides=[side])
    plain, aggregating = (getattr(model.model, name) for name in (other, side))
    assert plain.aggregation is None
    assert aggregating.aggregation is not None
    assert [name for name in model.state_dict() if name not in parent.state_dict()] == [
        f"model.{side}.aggregation.{name}" for name in aggregating.aggregation.state_dict()
    ]
    getattr(parent.model, other).load_state_dict(plain.state_dict())
    hidden = torch.randn(3, 7, WIDTH)
    inputs = {"input_ids": torch.tensor([[5, 6, 7]] * 3)}
    if other == "decoder":
        inputs |= {"encoder_hidden_states": hidden, "encoder_attention_mask": source_batch()["attention_mask"]}
    expected = getattr(parent.model, other)(**inputs).last_hidden_state
    assert torch.equal(plain(**inputs).last_hidden_state, expected)
    names = {name for name in run(model, output_routing=True) if "routing" in name}
    assert names == ({f"{side}_layer_routing"} if kind == "em_routing" else set())


@every_kind
def test_padding_of_the_source_changes_nothing(kind):
    model, batch = aggregated(kind).double(), training_batch()
    expected = model(**batch).logits
    padded = {name: F.pad(batch[name], (0, 3)) for name in ("input_ids", "attention_mask")}
    torch.testing.assert_close(model(**padded, labels=batch["labels"]).logits, expected)
