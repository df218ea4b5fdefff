"""The benchmark command: its table, its record, and what it refuses."""

import json

import pytest
import torch

from hf_capsule_mt import preset_config
from hf_capsule_mt.cli.benchmark import build_parser, main, report
from hf_capsule_mt.evaluation.speed import Comparison, Rates

SMALL = ["d_model=16", "encoder_layers=1", "decoder_layers=1", "max_position_embeddings=128"]
QUICK = ["--vocab_size", "40", "--max_tokens", "96", "--batch_size", "1", "--new_tokens", "2", "--rounds", "1"]
MADE_BY = {
    "packages": {"torch": "2.13.0", "transformers": "5.23.0"},
    "device": "Some Processor",
    "cpu_threads": 2,
    "date": "2026-01-31",
}


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def parse(*argv):
    args = build_parser().parse_args(argv)
    configs = {method: preset_config(method, args.size) for method in args.methods if method != "row"}
    return args, configs


def test_table_has_medians_and_spreads():
    args, configs = parse("--methods", "transformer", "em-routing")
    transformer = Comparison(
        60_500_000, 60_500_000, Rates([100, 200, 400], [100, 200, 400]), Rates([3.0], [3.0]), 2**30, 2**30
    )
    routed = Comparison(
        60_500_000, 82_500_000, Rates([300, 200, 100], [120, 120, 80]), Rates([2, 4, 8], [1, 3, 4]), 2**30, 5 * 2**28
    )
    text = report(args, configs, {"transformer": transformer, "em-routing": routed}, MADE_BY)
    header, _, plain, same, em, _, caption, *notes = text.splitlines()
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
    assert notes[1].startswith("Table 1's +37.8M for dynamic routing and +56.8M for EM")
    assert "14.7M" not in text


def test_notes_go_with_the_methods_shown():
    comparison = Comparison(1, 1, Rates([1], [1]), Rates([1], [1]), 1, 1)
    args, configs = parse("--methods", "linear-combination", "dynamic-combination", "--size", "tiny")
    text = report(args, configs, dict.fromkeys(configs, comparison), MADE_BY)
    assert "+14.7M for linear combination is not Eq. 3" in text
    assert "factored" not in text
    assert "paper" not in text
    assert "Zheng" not in text
    assert "have 5.2M" in report(*parse("--methods", "gdr"), {"gdr": comparison}, MADE_BY)
    args, _ = parse("--methods", "em-routing")
    joint = {"em-routing": preset_config("em-routing", "base", layer_aggregation_parameterization="joint")}
    assert "factored" not in report(args, joint, {"em-routing": comparison}, MADE_BY)


def test_rows_have_fields_of_their_own(capsys):
    rows = ["head-em-routing", "head-em-routing head_aggregation_encoder_layers=[ 0 ] routing_iterations=2"]
    fields = ["d_model=64", "encoder_layers=2", "decoder_layers=1", "max_position_embeddings=128"]
    main(["--methods", *rows, "--size", "tiny", "--config_overrides", *fields, *QUICK, "--device", "cpu"])
    table = [cells(line) for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [row[0] for row in table[3:]] == rows
    # 4 d^2 + 4 d + 2 d a layer.
    assert [row[2] for row in table[3:]] == ["+0.03M", "+0.02M"]


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
    comparison = Comparison(1, 1, Rates([1], [1]), Rates([1], [1]), 1, 1)
    args, _ = parse("--methods", "row")
    text = report(args, {"row": preset_config(method, "base", **fields)}, {"row": comparison}, MADE_BY)
    assert cells(text.splitlines()[3])[-2:] == expected


def test_run_prints_the_table_and_writes_the_record(tmp_path, capsys):
    record_file = tmp_path / "record.json"
    methods = ["--methods", "dynamic-routing", "em-routing", "--size", "tiny", "--config_overrides", *SMALL]
    main([*methods, *QUICK, "--device", "cpu", "--output_file", str(record_file)])
    table = [cells(line) for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [row[0] for row in table] == ["system", "---", "plain", "dynamic-routing", "em-routing"]
    assert [file.name for file in tmp_path.iterdir()] == ["record.json"]
    record = json.loads(record_file.read_text())
    assert record["settings"]["methods"] == ["dynamic-routing", "em-routing"]
    assert record["environment"]["packages"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert record["environment"]["date"]
    for row in table[3:]:
        result = record["results"][row[0]]
        assert row[1] == f"{result['parameters'] / 1e6:.2f}M"
        for name, cell in (("training", row[4]), ("decoding", row[6])):
            [ratio] = [method / plain for plain, method in zip(result[name]["plain"], result[name]["method"])]
            assert result[f"{name}_ratio"] == ratio
            assert cell.split()[0] == f"{ratio:.2f}"
        assert row[7:] == [f"{result['memory'] / 2**20:.0f}", f"{result['memory'] / result['plain_memory']:.2f}"]


def test_rnmt_is_compared_with_rnmt(capsys):
    fields = ["d_model=64", "guided_capsule_dim=64"]
    main(["--methods", "rnmt-gdr", "--size", "tiny", "--config_overrides", *fields, *QUICK, "--device", "cpu"])
    output = capsys.readouterr().out
    assert "every round RNMT without capsules and the method take turns" in output
    _, guided = [cells(line) for line in output.splitlines() if line.startswith("|")][2:]
    # Votes 6 d^2, keys, queries, W_Omega and w; the network 5 d * 4 d + 4 d * d and its biases; the losses' maps 8 d^2.
    d = 64
    assert guided[2] == f"+{(6 * d * d + 3 * d * d + d + 24 * d * d + 5 * d + 8 * d * d) / 1e6:.2f}M"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--methods", "capsnmt"], "caps_nmt has no plain model to be compared with"),
        (["--methods", "gdr", "rnmt-gdr"], "different plain models, {'gdr': 'marian', 'rnmt-gdr': 'rnmt'}"),
        (["--methods", "em-routin"], "em-routin"),
        (["--methods", ""], "method is ''"),
        (["--size", "huge"], "huge"),
        (["--device", "gpu"], "--device gpu cannot be used"),
        (["--rounds", "0"], "rounds is 0; it must be at least 1"),
        (["--vocab_size", "3"], "--vocab_size is 3; it must be at least 4"),
        (["--config_overrides", "d_model"], "config_overrides has 'd_model'; write name=value"),
        (["--config_overrides", "vocab_size=50"], "give it as --vocab_size"),
        (["--config_overrides", "num_output_capsules=7"], "num_output_capsules"),
        (["--output_file", "no/such/folder/record.json"], "create it first"),
    ],
)
def test_mistakes_end_it_before_anything_is_measured(argv, message, capsys, monkeypatch):
    monkeypatch.setattr("hf_capsule_mt.evaluation.speed.compare_with_plain", None)
    with pytest.raises(SystemExit) as exit_:
        main(argv)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there(capsys):
    with pytest.raises(SystemExit):
        main(["--device", "cuda"])
    assert "error: --device cuda cannot be used" in capsys.readouterr().err
