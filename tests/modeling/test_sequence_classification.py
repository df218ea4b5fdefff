"""The classifier: what it reads, what it learns, and where its encoder comes from."""

import pytest
import torch
from aggregated_models import ALL, SHAPE, aggregated, randomise, source_batch
from torch.nn import functional as F

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


@pytest.mark.parametrize(
    "fields",
    [{}, {"tie_word_embeddings": False}, {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23}],
)
@every_kind
def test_takes_the_encoder_of_a_translation_model(kind, fields, tmp_path):
    translator = aggregated(kind, **fields)
    translator.save_pretrained(tmp_path)
    kind, options = CapsuleAggregatedMarianForSequenceClassification, {"num_labels": 3, "output_loading_info": True}
    model, report = kind.from_pretrained(tmp_path, **options)
    assert {name.split(".")[0] for name in report["missing_keys"]} == {"classification_head"}
    assert not report["unexpected_keys"]
    expected = translator.get_encoder()(**source_batch()).last_hidden_state
    assert torch.equal(model.model(**source_batch()).last_hidden_state, expected)
    assert model(**source_batch()).logits.shape == (3, 3)
