"""The pictures and the tables of which layers a layer reads."""

import pytest
import torch
from aggregated_models import aggregated, aggregated_m2m100
from routed_models import TOKENIZER, corpus_for, read_pair, routed
from test_routing_report import NOTHING

from hf_capsule_mt.analysis.ablation import measure_worth, record_gates
from hf_capsule_mt.analysis.corpus import EncodedCorpus
from hf_capsule_mt.analysis.layer_shares import READING_TITLES
from hf_capsule_mt.analysis.routing_figures import draw_routing, look_for, sentence_pictures
from hf_capsule_mt.analysis.routing_report import record_routing, routing_tables
from hf_capsule_mt.analysis.statistics import measure_routing
from hf_capsule_mt.translation.alignment.forced import teacher_force

TITLE = "Encoder layers that decoder layers read"


def source_shares(statistics):
    return torch.stack(statistics.layers_read["source"])


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
    means = source_shares(measure_routing(model, corpus_for(model)))
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
    means = source_shares(measure_routing(model, corpus, max_tokens_per_batch=1000))
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
    means = source_shares(measure_routing(model, corpus, max_tokens_per_batch=1000))
    torch.testing.assert_close(means.sum(-1), torch.ones(len(means), dtype=torch.float64))
    torch.testing.assert_close(means, expected.double(), rtol=1e-4, atol=1e-6)


def test_the_picture_and_the_table_have_a_row_for_each_decoder_layer():
    model = aggregated("source_em_routing")
    statistics = measure_routing(model, corpus_for(model))
    record = {**NOTHING, **record_routing(statistics, TOKENIZER)}
    table, _ = routing_tables(record)
    num_layers = model.config.encoder_layers
    assert table.rows[0] == ["decoder layer", *map(str, range(num_layers + 1))]
    assert [row[0] for row in table.rows[1:]] == ["1", "2"]
    for row, shares in zip(table.rows[1:], source_shares(statistics).tolist(), strict=True):
        assert list(map(float, row[1:])) == pytest.approx(shares, abs=1e-3)
    panel, _ = draw_routing(statistics, record)[TITLE].axes
    image = panel.get_images()[0].get_array()
    torch.testing.assert_close(torch.tensor(image.data), source_shares(statistics))
    assert [label.get_text() for label in panel.get_xticklabels()] == table.rows[0][1:]


def test_how_clearly_layers_choose():
    """The largest weight of a learned mean, and the entropy. Even weights of n layers have 1 / n and log n."""
    model = aggregated("source_linear")
    first, second = (layer.aggregator.weight.data for layer in model.model.encoder.source_aggregation.layers)
    first.zero_()
    second.copy_(torch.tensor([0.5, 0.25, 0.25]).log())

    statistics = measure_routing(model, corpus_for(model))
    _, table = routing_tables({**NOTHING, **record_routing(statistics, TOKENIZER)})

    assert table.title == "How clearly layers choose"
    assert table.rows[1:] == [["decoder layer 1", "0.333", "1.099"], ["decoder layer 2", "0.500", "1.040"]]


def test_attention_chooses_at_each_word():
    """The mean of the largest shares of words is not the largest of their mean shares."""
    model = aggregated_m2m100("delta", d_model=16)
    for stack in (model.model.encoder, model.model.decoder):
        for layer in stack.stack_aggregation.layers:
            layer.aggregator.weight.data.normal_(std=2)

    statistics = measure_routing(model, corpus_for(model))

    assert set(statistics.layer_choices) == {"encoder", "decoder"}
    for what, choices in statistics.layer_choices.items():
        for choice, means in zip(choices, statistics.layers_read[what], strict=True):
            assert means.sum() == pytest.approx(1)
            assert 1 > choice["largest"] > means.max() + 1e-3
            assert 0 < choice["entropy"] < torch.special.entr(means).sum() - 1e-3


@pytest.mark.parametrize("kind", ["hyper", "mhc"])
def test_hyper_connections_have_no_shares_of_layers(kind):
    model = aggregated_m2m100(kind, d_model=16)
    statistics = measure_routing(model, corpus_for(model))
    assert statistics.layers_read == statistics.layer_choices == {}
    assert read_pair(model, "a b c", "d e").layers_read == {}


@pytest.mark.parametrize("make", [aggregated, aggregated_m2m100])
def test_a_sum_in_a_stack_has_its_weights(make):
    model = make("each_layer", d_model=16)
    layers_read = measure_routing(model, corpus_for(model)).layers_read
    assert list(layers_read) == ["encoder", "decoder"]
    for side, rows in layers_read.items():
        aggregations = getattr(model.model, side).stack_aggregation.layers
        for row, aggregation in zip(rows, aggregations, strict=True):
            torch.testing.assert_close(row, aggregation.aggregator.weight.double(), rtol=1e-5, atol=1e-6)


def test_attention_in_a_stack_has_the_mean_over_its_words():
    """By its equation, from the hidden states of Transformers: those of the decoder at target words."""
    fields = {"layer_aggregation": "attention", "layer_aggregation_input_norm": False}
    model = aggregated_m2m100("each_layer", d_model=16, **fields)
    corpus = corpus_for(model)
    for side, rows in measure_routing(model, corpus, max_tokens_per_batch=1000).layers_read.items():
        stack = getattr(model.model, side)
        below = []
        # The lowest layer reads the embeddings.
        hook = stack.layers[0].register_forward_hook(
            lambda layer, inputs, output, below=below: below.append(torch.stack([inputs[0], output], dim=-2)[0])
        )
        list(read_one_by_one(model, corpus))
        hook.remove()
        layers = torch.cat(below)
        norms = layers.square().mean(-1, keepdim=True).add(1e-6).sqrt()
        expected = ((layers / norms) @ stack.stack_aggregation.layers[0].aggregator.weight).softmax(-1).mean(0)
        torch.testing.assert_close(rows[0], expected.double(), rtol=1e-4, atol=1e-6)


def test_the_picture_of_a_stack_has_a_row_above_each_layer():
    model = aggregated("each_layer")
    statistics = measure_routing(model, corpus_for(model))
    weights = model.model.decoder.stack_aggregation.layers[1].aggregator.weight
    assert weights.min() < 0
    record = {**NOTHING, **record_routing(statistics, TOKENIZER)}
    encoder_table, decoder_table = routing_tables(record)
    assert encoder_table.rows[0] == ["above encoder layer", "0", "1", "2"]
    # The first layer cannot read the second.
    assert decoder_table.rows[1][-1] == ""
    assert list(map(float, decoder_table.rows[2][1:])) == pytest.approx(weights.tolist(), abs=1e-3)
    figures = draw_routing(statistics, record)
    assert list(figures) == ["Encoder layers that encoder layers read", "Decoder layers that decoder layers read"]
    panel, _ = figures["Decoder layers that decoder layers read"].axes
    [image] = panel.get_images()
    assert image.get_array()[1].data.tolist() == pytest.approx(weights.tolist())
    # 0 is in the middle, which is white.
    lowest, highest = image.get_clim()
    assert lowest == -highest < 0
    assert image.get_cmap()(0.5) == pytest.approx((1, 1, 1, 1), abs=0.05)


@pytest.mark.parametrize("kind", ["source_linear", "source_em_routing", "each_layer"])
def test_a_sentence_has_the_pictures_of_the_corpus(kind):
    model = aggregated(kind)
    corpus = EncodedCorpus(*[[TOKENIZER(line)["input_ids"]] for line in ("a b c", "d e")])
    statistics = measure_routing(model, corpus)
    routing = read_pair(model, "a b c", "d e")
    assert list(routing.layers_read) == list(statistics.layers_read) != []
    for what, shares in routing.layers_read.items():
        torch.testing.assert_close(shares, statistics.layers_read[what])
        draw = sentence_pictures(routing, 0)[READING_TITLES[what]]
        assert draw().axes
        assert "dark cell" in look_for(READING_TITLES[what])


@pytest.mark.parametrize("kind", ["everything", "source_dynamic"])
def test_models_without_shares_have_no_picture(kind):
    model = routed(kind)
    statistics = measure_routing(model, corpus_for(model))
    record = record_routing(statistics, TOKENIZER)
    assert record["layers_read"] == {}
    assert TITLE not in draw_routing(statistics, record)


def test_the_source_of_each_decoder_layer_has_a_gate_and_all_have_a_worth():
    model = aggregated("source_em_routing", layer_aggregation_output="residual")
    gates = record_gates(model)
    assert set(gates) == {"source of decoder layer 1", "source of decoder layer 2"}
    for number, layer in enumerate(model.model.encoder.source_aggregation.layers, start=1):
        assert gates[f"source of decoder layer {number}"]["largest"] == pytest.approx(layer.gamma.abs().max().item())
    assert set(measure_worth(model, corpus_for(model))["added"]) == {"source"}


def test_every_aggregate_in_a_stack_has_a_gate_of_its_own():
    model = aggregated("each_layer", layer_aggregation_output="residual")
    gates = record_gates(model)
    expected = {}
    for side in ("encoder", "decoder"):
        for number, layer in enumerate(getattr(model.model, side).stack_aggregation.layers, start=1):
            expected[f"above {side} layer {number}"] = pytest.approx(layer.gamma.abs().max().item())
    assert {place: gate["largest"] for place, gate in gates.items()} == expected
    assert len(expected) == 4
