"""The table of a benchmark: medians, spreads, and the papers' figures where they are of the same configuration."""

from dataclasses import replace

import pytest

from benchmarks.speed.speed_report import speed_report
from hf_capsule_mt import preset_config
from hf_capsule_mt.records import Comparison, Environment, Rates, SpeedRecord, SpeedSettings

ONE = Comparison(1, 1, Rates([1], [1]), Rates([1], [1]), 1, 1)
RECORD = SpeedRecord(
    settings=SpeedSettings(
        **{"size": "base", "config_overrides": [], "vocab_size": 32000, "dtype": "float32", "seed": 0},
        **{"max_tokens": 1024, "batch_size": 16, "num_beams": 4, "new_tokens": 24, "rounds": 3},
    ),
    results={},
    environment=Environment(
        packages={"torch": "2.13.0", "transformers": "5.23.0"},
        **{"python": "3.11", "device": "Some Processor", "cpu_threads": 2, "commit": None, "date": "2026-01-31"},
    ),
)


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def report(results, configs=None, **settings):
    record = replace(RECORD, results=results, settings=replace(RECORD.settings, **settings))
    return speed_report(record, configs or {method: preset_config(method, record.settings.size) for method in results})


def test_every_size_has_its_plain_model():
    wide = Comparison(2_000_000, 3_000_000, Rates([50], [25]), Rates([1], [1]), 1, 1)
    _, _, plain, one, other_plain, other, *_ = map(cells, report({"gdr": ONE, "em-routing": wide}).splitlines())
    assert [row[0] for row in (plain, one, other_plain, other)] == ["plain", "gdr", "plain", "em-routing"]
    assert (plain[1], plain[3], other_plain[1], other_plain[3]) == ("0.00M", "1", "2.00M", "50")


def test_table_has_medians_and_spreads():
    transformer = Comparison(
        60_500_000, 60_500_000, Rates([100, 200, 400], [100, 200, 400]), Rates([3.0], [3.0]), 2**30, 2**30
    )
    routed = Comparison(
        60_500_000, 82_500_000, Rates([300, 200, 100], [120, 120, 80]), Rates([2, 4, 8], [1, 3, 4]), 2**30, 5 * 2**28
    )
    text = report({"transformer": transformer, "em-routing": routed})
    header, _, plain, same, em, _, caption = text.splitlines()
    columns = ["system", "parameters", "added", "training, tokens/s", "of plain", "decoding, sentences/s", "of plain"]
    columns += ["training, MiB", "of plain", "paper: training", "paper: decoding"]
    assert cells(header) == columns
    assert cells(plain) == ["plain", "60.50M", "", "200", "1", "3.50", "1", "1024", "1", "", ""]
    assert cells(same)[2:7] == ["+0.00M", "200", "1.00 (1.00–1.00)", "3.00", "1.00 (1.00–1.00)"]
    expected = [
        "em-routing",
        "82.50M",
        "+22.00M",
        "120",
        "0.60 (0.40–0.80)",
        "3.00",
        "0.50 (0.50–0.75)",
        "1280",
        "1.25",
        "0.61",
        "0.80",
    ]
    assert cells(em) == expected
    for part in ("Some Processor", "2 threads", "torch 2.13.0", "transformers 5.23.0", "2026-01-31", "float32"):
        assert part in caption


def test_the_caption_has_the_settings():
    text = report({"linear-combination": ONE}, size="tiny", config_overrides=["d_model=64"], max_tokens=512)
    assert "`tiny`, with d_model=64, vocabulary of 32000" in text
    assert "up to 512 padded tokens" in text
    assert "of 4 sentences of 128 words" in text
    assert "paper" not in text


@pytest.mark.parametrize(
    ("method", "fields", "expected"),
    [
        ("transformer", {}, ["", ""]),
        ("dynamic-combination", {}, ["0.84", "0.91"]),
        ("head-simple-routing", {}, ["0.64", "0.99"]),
        ("head-em-routing", {}, ["0.62", "0.99"]),
        ("head-em-effective", {}, ["0.87", ""]),
        ("head-em-routing", {"head_aggregation_encoder_layers": [3, 4, 5]}, ["0.80", ""]),
        ("head-em-routing", {"head_aggregation_cross_layers": None}, ["0.45", "0.72"]),
        ("head-em-routing", {"head_aggregation_cross_layers": [0]}, ["", ""]),
        ("head-em-routing", {"encoder_layers": 3}, ["", ""]),
        ("head-em-routing", {"routing_iterations": 1}, ["", ""]),
        ("head-em-routing", {"head_aggregation_output": "residual"}, ["", ""]),
        ("head-em-routing", {"head_aggregation_input_norm": True}, ["", ""]),
        ("em-routing", {"num_output_capsules": 8}, ["", ""]),
        ("em-routing", {"layer_aggregation_sides": ["encoder"]}, ["", ""]),
        ("head-em-routing", {"layer_aggregation": "em_routing"}, ["", ""]),
        ("gdr", {}, ["0.67", "0.94"]),
        ("gdr", {"bow_loss_weight": 0, "bca_loss_weight": 0}, ["0.77", "0.94"]),
        ("gdr", {"bca_loss_weight": 0}, ["0.70", "0.94"]),
        ("gdr", {"bow_loss_weight": 0}, ["0.75", "0.94"]),
        ("gdr", {"num_redundant_capsules": 0}, ["0.69", "0.94"]),
        ("gdr", {"num_redundant_capsules": 1}, ["", ""]),
        ("gdr", {"guided_capsule_dim": 128}, ["", ""]),
        ("gdr", {"layer_aggregation": "em_routing"}, ["", ""]),
        ("gdr-attention", {}, ["", ""]),
        ("rnmt", {}, ["", ""]),
        ("rnmt-gdr", {}, ["0.62", "0.90"]),
        ("rnmt-gdr", {"bca_loss_weight": 0}, ["", ""]),
        ("rnmt-gdr", {"encoder_layers": 3}, ["", ""]),
        ("rnmt-gdr", {"sentence_aggregation": "capsule"}, ["", ""]),
    ],
)
def test_published_speeds_belong_to_a_configuration(method, fields, expected):
    text = report({"row": ONE}, {"row": preset_config(method, "base", **fields)})
    assert cells(text.splitlines()[3])[-2:] == expected
