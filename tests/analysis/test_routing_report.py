"""The report over a corpus: its tables, curves and page."""

from html.parser import HTMLParser

import pytest
import torch
from tiny_marian import tiny_model

from hf_capsule_mt import CapsuleAggregatedMarianForConditionalGeneration
from hf_capsule_mt.analysis.ablation import record_gates
from hf_capsule_mt.analysis.routing_report import report, routing_tables, write_report
from hf_capsule_mt.analysis.sentence import SentenceRouting
from hf_capsule_mt.analysis.statistics import RoutingStatistics

NOTHING = {"gates": {}, "worth": {"added": {}}, "routing": {}, "words": {}}
NOTHING |= {"past_and_future": None, "top_5_overlap": None, "layers_read": {}, "layer_choices": {}}
EVIL = "<script>alert('&')</script>"


def test_gates_begin_at_zero():
    fields = {"layer_aggregation": "em_routing", "head_aggregation": "simple_routing"}
    fields |= {"head_aggregation_cross_layers": [0]}
    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(tiny_model(), **fields)
    gates = record_gates(model)
    assert {"encoder layers", "decoder layers", "heads encoder_self.0", "heads cross.0"} <= set(gates)
    assert all(gate == {"mean": 0, "largest": 0} for gate in gates.values())
    with torch.no_grad():
        model.model.decoder.aggregation.gamma[0] = -0.8
    width = model.config.d_model
    assert record_gates(model)["decoder layers"] == pytest.approx({"mean": 0.8 / width, "largest": 0.8})
    assert record_gates(model)["encoder layers"]["largest"] == 0


def test_no_text_of_a_page_becomes_a_tag(tmp_path):
    settings = {"model": EVIL, "references": EVIL, "input_file": EVIL}
    record = {**NOTHING, "gates": {EVIL: {"mean": 0, "largest": 0}}, "settings": settings}
    environment = {"device": EVIL, "packages": {"torch": EVIL}, "date": EVIL}
    record |= {"architecture": EVIL, "sentences": 1, "environment": environment}
    routing = SentenceRouting((EVIL, "</s>"), ("x", "</s>"), EVIL, sentence=torch.full((1, 2, 1), 0.5))
    write_report(tmp_path, RoutingStatistics(), record, {EVIL: routing})
    tags = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: tags.append(tag)
    parser.feed((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert tags.count("img") == 1
    # The picture of a sentence comes first.
    assert tags.index("img") < tags.index("table")
    assert "script" not in tags


def test_the_head_says_what_was_measured_where():
    settings = {"model": "runs/gdr", "references": None, "input_file": "test.en"}
    environment = {"python": "3.11.7", "packages": {"torch": "2.13.0+cpu", "transformers": "5.24.0", "numpy": "2.3"}}
    environment |= {"device": "a processor", "cpu_threads": 1, "commit": "abc", "date": "2026-11-29"}
    record = {**NOTHING, "settings": settings, "architecture": "caps_nmt", "sentences": 3, "environment": environment}
    assert report(record) == [
        "runs/gdr (caps_nmt), 3 sentences of test.en, and the model's translations. "
        "a processor, torch 2.13.0+cpu, transformers 5.24.0, 2026-11-29."
    ]


def test_what_is_added_by_nothing_has_no_sign():
    worth = {"loss": 2.5, "added": {"heads": -0.0004, "encoder layers": 0.25}}
    [table] = routing_tables({**NOTHING, "worth": worth})
    assert table.rows[1:] == [["heads", "2.500", "0.000"], ["encoder layers", "2.500", "0.250"]]
