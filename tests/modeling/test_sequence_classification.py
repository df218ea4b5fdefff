"""The classifier: what it reads, what it learns, and where its encoder comes from."""

import pytest
import torch
from aggregated_models import ALL, SHAPE, aggregated, randomise, source_batch
from torch.nn import functional as F
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

from hf_capsule_mt import CapsuleAggregatedMarianConfig, CapsuleAggregatedMarianForSequenceClassification

# Those whose encoders differ in code.
every_kind = pytest.mark.parametrize("kind", ["none", "linear", "dynamic_routing", "heads_and_layers_em", "everything"])
LABELS = torch.tensor([2, 0, 4])


def classifier(kind="heads_em", **fields):
    config = CapsuleAggregatedMarianConfig(**{**SHAPE, **ALL[kind], "num_labels": 5, **fields})
    return randomise(CapsuleAggregatedMarianForSequenceClassification(config).eval(), seed=0)


@every_kind
def test_reads_the_mean_of_the_real_positions(kind):
    model, source = classifier(kind), source_batch()
    states = model.model.encoder(**source).last_hidden_state
    means = torch.stack([rows[mask.bool()].mean(0) for rows, mask in zip(states, source["attention_mask"])])
    head = model.classification_head
    expected = head.out_proj(torch.tanh(head.dense(means)))
    torch.testing.assert_close(model(**source).logits, expected)


@every_kind
def test_padding_changes_nothing(kind):
    model, source = classifier(kind).double(), source_batch()
    expected = model(**source).logits
    padded = {name: F.pad(value, (0, 3)) for name, value in source.items()}
    torch.testing.assert_close(model(**padded).logits, expected)
    for row, length in enumerate(source["attention_mask"].sum(-1)):
        alone = {name: value[row : row + 1, :length] for name, value in source.items()}
        torch.testing.assert_close(model(**alone).logits[0], expected[row])
    # Without padding there need be no mask.
    torch.testing.assert_close(model(source["input_ids"][:1]).logits[0], expected[0])


def test_loss():
    model = classifier()
    outputs = model(**source_batch(), labels=LABELS)
    expected = -outputs.logits.log_softmax(-1)[range(3), LABELS]
    torch.testing.assert_close(outputs.loss, expected.mean())


@pytest.mark.parametrize("tied", [True, False])
@every_kind
def test_every_parameter_learns(kind, tied):
    model = classifier(kind, tie_word_embeddings=tied).train()
    model(**source_batch(), labels=LABELS).loss.backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.any(), name


@every_kind
def test_round_trip(kind, tmp_path):
    model = classifier(kind)
    model.save_pretrained(tmp_path)
    loaded, report = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert type(loaded) is CapsuleAggregatedMarianForSequenceClassification
    assert not any(report.values())
    assert torch.equal(loaded(**source_batch()).logits, model(**source_batch()).logits)


def test_other_classes_take_another_classifier(tmp_path):
    model = classifier()
    model.save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    loaded, report = AutoModelForSequenceClassification.from_pretrained(
        tmp_path, num_labels=3, ignore_mismatched_sizes=True, output_loading_info=True
    )
    assert {name for name, *_ in report["mismatched_keys"]} == {
        f"classification_head.out_proj.{part}" for part in ("weight", "bias")
    }
    assert loaded(**source_batch()).logits.isfinite().all()
    assert torch.equal(loaded.model(**source_batch())[0], model.model(**source_batch())[0])


@pytest.mark.parametrize(
    "fields",
    [{}, {"tie_word_embeddings": False}, {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23}],
)
@every_kind
def test_takes_the_encoder_of_a_translation_model(kind, fields, tmp_path):
    translator = aggregated(kind, **fields)
    translator.save_pretrained(tmp_path)
    model, report = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3, output_loading_info=True)
    assert {name.split(".")[0] for name in report["missing_keys"]} == {"classification_head"}
    assert not report["unexpected_keys"]
    expected = translator.get_encoder()(**source_batch()).last_hidden_state
    assert torch.equal(model.model(**source_batch()).last_hidden_state, expected)
    assert model(**source_batch()).logits.shape == (3, 3)


@pytest.mark.parametrize("problem_type", ["single_label_classification", "multi_label_classification", "regression"])
def test_accumulated_gradients_are_those_of_one_batch(problem_type, tmp_path):
    num_labels = 1 if problem_type == "regression" else 5
    single = {"single_label_classification": 3, "regression": 0.5}
    label = single.get(problem_type, [1.0, 0.0, 1.0, 1.0, 0.0])
    data = [{"input_ids": [3 + i, 5, 2], "attention_mask": [1, 1, 1], "labels": label} for i in range(4)]
    weights = []
    for size, accumulation in ((4, 1), (1, 4)):
        model = classifier(num_labels=num_labels, problem_type=problem_type, dropout=0.0)
        args = TrainingArguments(
            str(tmp_path),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulation,
            max_steps=1,
            learning_rate=0.1,
            optim="sgd",
            max_grad_norm=0.0,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
        )
        Trainer(model, args, train_dataset=data).train()
        weights.append(model.classification_head.out_proj.weight.detach())
    torch.testing.assert_close(*weights)


def test_resize_token_embeddings():
    model = classifier()
    before = model(**source_batch()).logits
    model.resize_token_embeddings(40)
    model.config.pad_token_id = 39
    assert type(model.config).from_dict(model.config.to_dict()).pad_token_id == 39
    assert model.get_input_embeddings().weight is model.model.shared.weight
    assert torch.equal(model(**source_batch()).logits, before)


def test_outputs():
    model = classifier("heads_and_layers_em")
    model.set_attn_implementation("eager")
    with pytest.raises(ValueError, match="output_routing is 'All'; allowed"):
        model(**source_batch(), output_routing="All")
    outputs = model(**source_batch(), output_routing=True, output_hidden_states=True, output_attentions=True)
    assert set(outputs.head_routing) == {"encoder_self.0", "encoder_self.1"}
    assert outputs.head_routing["encoder_self.1"].shape == (3, 7, 4, 16)
    assert outputs.encoder_layer_routing.shape == (3, 7, 2, 16)
    assert len(outputs.hidden_states) == 3
    assert [tuple(x.shape) for x in outputs.attentions] == [(3, 4, 7, 7)] * 2
    assert not any("routing" in name for name in model(**source_batch()))
    assert isinstance(model(**source_batch(), return_dict=False), tuple)
