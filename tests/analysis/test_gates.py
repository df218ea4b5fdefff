"""How far routing is switched on: what is in the weights, by the names that the rest of a report uses."""

import pytest
import torch
from tiny_marian import tiny_model

from hf_capsule_mt import CapsuleAggregatedMarianForConditionalGeneration
from hf_capsule_mt.analysis.routing_report import routing_tables
from hf_capsule_mt.analysis.worth import record_gates

BOTH = {"layer_aggregation": "em_routing", "head_aggregation": "simple_routing", "head_aggregation_cross_layers": [0]}


def test_what_begins_switched_off():
    marian = tiny_model()
    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(marian, **BOTH)
    gates = record_gates(model)
    assert {"encoder layers", "decoder layers", "heads encoder_self.0", "heads cross.0"} <= set(gates)
    assert all(gate == {"mean": 0, "largest": 0} for gate in gates.values())
    with torch.no_grad():
        model.model.decoder.aggregation.gamma[0] = -0.8
    width = model.config.d_model
    assert record_gates(model)["decoder layers"] == pytest.approx({"mean": 0.8 / width, "largest": 0.8})
    assert record_gates(model)["encoder layers"]["largest"] == 0


def test_they_are_a_table_of_the_report_beside_what_capsules_are_worth():
    worth = {"loss": 1.5, "added": {"encoder layers": -0.0004, "heads": 0.25}}
    others = {"worth": worth, "routing": {}, "words": {}, "past_and_future": None, "top_5_overlap": None}
    table, _ = routing_tables({**others, "gates": {"encoder layers": {"mean": 0.0125, "largest": 0.25}}})
    assert table.rows == [["place", "mean", "largest"], ["encoder layers", "0.0125", "0.2500"]]
    [table] = routing_tables({**others, "gates": {}})
    assert table.rows[1:] == [["encoder layers", "1.500", "0.000"], ["heads", "1.500", "0.250"]]
    assert routing_tables({**others, "gates": {}, "worth": {"loss": 1.5, "added": {}}}) == []
