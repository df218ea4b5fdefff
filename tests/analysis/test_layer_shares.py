"""The picture and the table of which encoder layers each decoder layer reads."""

import pytest
import torch
from aggregated_models import aggregated, aggregated_m2m100
from routed_models import TOKENIZER, corpus_for, routed
from test_routing_report import NOTHING

from hf_capsule_mt.analysis.ablation import measure_worth, record_gates
from hf_capsule_mt.analysis.routing_figures import draw_routing
from hf_capsule_mt.analysis.routing_report import record_routing, routing_tables
from hf_capsule_mt.analysis.statistics import measure_routing
from hf_capsule_mt.translation.alignment.forced import teacher_force

TITLE = "Encoder layers that decoder layers read"


def read_one_by_one(model, corpus):
    """What the encoder says about each sentence, which has no padding then."""
    for line in corpus.lines:
        with torch.no_grad():
            yield teacher_force(
                model, [corpus.sources[line]], [corpus.targets[line]], output_routing=True, output_hidden_states=True
            ).output


@pytest.mark.parametrize("make", [aggregated, aggregated_m2m100])
def test_a_learned_mean_has_its_weights(make):
    model = make("source_linear", d_model=16, layer_aggregation_input_norm=False)
    means = measure_routing(model, corpus_for(model)).source_layers
    weights = [layer.aggregator.weight for layer in model.model.encoder.source_aggregation.layers]
    expected = torch.stack(weights).softmax(-1)
    assert expected.std() > 0.01
    torch.testing.assert_close(means, expected.double(), rtol=1e-5, atol=1e-6)


def test_attention_has_the_mean_over_source_words():
    """By its equation, from the hidden states of Transformers."""
    model = aggregated("source_attention")
    corpus = corpus_for(model)
    positions = []
    for output in read_one_by_one(model, corpus):
        layers = torch.stack(output.encoder_hidden_states, dim=-2)[0]
        norms = layers.square().mean(-1, keepdim=True).add(1e-6).sqrt()
        of_layers = []
        for layer in model.model.encoder.source_aggregation.layers:
            scores = (layers / norms) @ layer.aggregator.weight
            of_layers.append(scores.softmax(-1))
        positions.append(torch.stack(of_layers, dim=1))
    expected = torch.cat(positions).mean(0)
    means = measure_routing(model, corpus, max_tokens_per_batch=1000).source_layers
    torch.testing.assert_close(means, expected.double(), rtol=1e-4, atol=1e-6)


def test_routing_has_the_mean_over_capsules():
    model = aggregated("source_em_routing")
    corpus = corpus_for(model)
    positions = []
    for output in read_one_by_one(model, corpus):
        # `[decoder layers, source, encoder layers + 1, N]`.
        assignment = output.source_layer_routing[0]
        of_capsule = assignment / assignment.sum(-2, keepdim=True)
        positions.append(of_capsule.mean(-1).transpose(0, 1))
    expected = torch.cat(positions).mean(0)
    means = measure_routing(model, corpus, max_tokens_per_batch=1000).source_layers
    torch.testing.assert_close(means.sum(-1), torch.ones(len(means), dtype=torch.float64))
    torch.testing.assert_close(means, expected.double(), rtol=1e-4, atol=1e-6)


def test_the_picture_and_the_table_have_a_row_for_each_decoder_layer():
    model = aggregated("source_em_routing")
    statistics = measure_routing(model, corpus_for(model))
    record = {**NOTHING, **record_routing(statistics, TOKENIZER)}
    [table] = routing_tables(record)
    num_layers = model.config.encoder_layers
    assert table.rows[0] == ["decoder layer", *map(str, range(num_layers + 1))]
    assert [row[0] for row in table.rows[1:]] == ["1", "2"]
    for row, shares in zip(table.rows[1:], statistics.source_layers.tolist(), strict=True):
        assert list(map(float, row[1:])) == pytest.approx(shares, abs=1e-3)
    panel, _ = draw_routing(statistics, record)[TITLE].axes
    image = panel.get_images()[0].get_array()
    torch.testing.assert_close(torch.tensor(image.data), statistics.source_layers)
    assert [label.get_text() for label in panel.get_xticklabels()] == table.rows[0][1:]


@pytest.mark.parametrize("kind", ["everything", "source_dynamic"])
def test_models_without_shares_have_no_picture(kind):
    model = routed(kind)
    statistics = measure_routing(model, corpus_for(model))
    record = record_routing(statistics, TOKENIZER)
    assert record["source_layers"] is None
    assert TITLE not in draw_routing(statistics, record)


def test_the_source_of_each_decoder_layer_has_a_gate_and_all_have_a_worth():
    model = aggregated("source_em_routing", layer_aggregation_output="residual")
    gates = record_gates(model)
    assert set(gates) == {"source of decoder layer 1", "source of decoder layer 2"}
    for number, layer in enumerate(model.model.encoder.source_aggregation.layers, start=1):
        assert gates[f"source of decoder layer {number}"]["largest"] == pytest.approx(layer.gamma.abs().max().item())
    assert set(measure_worth(model, corpus_for(model))["added"]) == {"source"}
