"""The benchmark command: its table, its record, and what it refuses."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.speed.benchmark import main
from benchmarks.speed.decoders_report import decoders_page
from hf_capsule_mt.decoding.precisions import PRECISIONS
from hf_capsule_mt.records import SpeedRecord, read

SMALL = ["d_model=16", "encoder_layers=1", "decoder_layers=1", "max_position_embeddings=128"]
QUICK = ["--vocab_size", "40", "--max_tokens", "96", "--batch_size", "1", "--new_tokens", "2", "--rounds", "1"]


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_rows_have_fields_of_their_own(capsys):
    rows = ["head-em-routing", "head-em-routing head_aggregation_encoder_layers=[ 0 ] routing_iterations=2"]
    fields = ["d_model=64", "encoder_layers=2", "decoder_layers=1", "max_position_embeddings=128"]
    main(["--methods", *rows, "--size", "tiny", "--config_overrides", *fields, *QUICK, "--device", "cpu"])
    table = [cells(line) for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [row[0] for row in table[3:]] == rows
    # 4 d^2 + 4 d + 2 d a layer.
    assert [row[2] for row in table[3:]] == ["+0.03M", "+0.02M"]


def test_run_prints_the_table_and_writes_the_record(tmp_path, capsys):
    record_file = tmp_path / "record.json"
    methods = ["--methods", "dynamic-routing", "em-routing", "--size", "tiny", "--config_overrides", *SMALL]
    main([*methods, *QUICK, "--device", "cpu", "--output_file", str(record_file)])
    table = [cells(line) for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [row[0] for row in table] == ["system", "---", "plain", "dynamic-routing", "em-routing"]
    assert [file.name for file in tmp_path.iterdir()] == ["record.json"]
    assert json.loads(record_file.read_text())["settings"]["methods"] == ["dynamic-routing", "em-routing"]
    record = read(SpeedRecord, record_file)
    assert record.environment.packages["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert record.environment.date
    for row in table[3:]:
        result = record.results[row[0]]
        assert row[1] == f"{result.parameters / 1e6:.2f}M"
        for rates, cell in ((result.training, row[4]), (result.decoding, row[6])):
            assert cell.split()[0] == f"{rates.method[0] / rates.plain[0]:.2f}"
        assert row[7:] == [f"{result.memory / 2**20:.0f}", f"{result.memory / result.plain_memory:.2f}"]


def test_rnmt_is_compared_with_rnmt(capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.speed.speed.MEMORY_LENGTH", 16)
    fields = ["d_model=64", "guided_capsule_dim=64"]
    main(["--methods", "rnmt-gdr", "--size", "tiny", "--config_overrides", *fields, *QUICK, "--device", "cpu"])
    output = capsys.readouterr().out
    assert "every round RNMT without capsules and the method take turns" in output
    _, guided = [cells(line) for line in output.splitlines() if line.startswith("|")][2:]
    # Votes 6 d^2, keys, queries, W_Omega and w; the network 5 d * 4 d + 4 d * d and its biases; the losses' maps 8 d^2.
    d = 64
    assert guided[2] == f"+{(6 * d * d + 3 * d * d + d + 24 * d * d + 5 * d + 8 * d * d) / 1e6:.2f}M"


def test_decoders_and_the_page_of_their_records(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.speed.decoders.find_spec", lambda name: None)
    (tmp_path / "records").mkdir()
    record_file = tmp_path / "records" / "small.json"
    rows = ["--decoders", "--methods", "linear-combination", "capsnmt", "--size", "tiny", "--memory_length", "3"]
    # Without the fields that CapsNMT does not have.
    main([*rows, "--config_overrides", "d_model=16", *QUICK, "--device", "cpu", "--output_file", str(record_file)])
    output = capsys.readouterr().out
    table = [cells(line) for line in output.splitlines() if line.startswith("|")]
    decoders = ["plain generate()", "generate()", *(f"engine {dtype}" for dtype in PRECISIONS)]
    assert table[0] == ["weights of", "reference, sentences/s", *decoders]
    assert [row[0] for row in table[2:4]] == ["linear-combination", "capsnmt"]
    record = read(SpeedRecord, record_file)
    assert record.results == {}
    found = record.decoders["linear-combination"]
    assert list(found.rates) == list(found.memory) == decoders
    for name, cell in zip(decoders[1:], table[2][3:]):
        assert cell.split()[0] == f"{found.rates[name][0] / found.rates[decoders[0]][0]:.2f}"
    # No plain model: its own generate() is what it is compared with.
    assert table[3][2:4] == ["", "1"]
    assert table[4:][2][:2] == ["linear-combination", "plain generate()"]
    page = tmp_path / "decoding.md"
    template = (
        '{{ speed("small") }}\n{{ memory("small") }}\n{{ ratio("small", "linear-combination", "generate()") == 1 }} '
    )
    template += '{{ has("small", "capsnmt", "generate()") }} {{ has("none", "", "") }}'
    (tmp_path / "decoding.md.jinja").write_text(template)
    main(["--page", str(page)])
    text = page.read_text()
    assert text.endswith("\nFalse True False")
    assert all(line in text for line in output.splitlines())
    mistakes = {
        "{{ nothing }}": "page.md.jinja cannot be filled: 'nothing' is undefined; correct it",
        '{{ ratio("small", "none", "generate()") }}': "asks for 'generate()' of 'none' in 'small', which was not meas",
        '{{ ratio("small", "capsnmt", "generate()") }}': "asks for 'plain generate()' of 'capsnmt' in 'small', which",
    }
    for template, message in mistakes.items():
        (tmp_path / "page.md.jinja").write_text(template)
        with pytest.raises(SystemExit):
            main(["--page", str(tmp_path / "page.md")])
        assert message in capsys.readouterr().err
        assert not (tmp_path / "page.md").exists()


def test_the_page_of_decoding_is_made_of_the_stored_records():
    page = Path(__file__).parents[2] / "benchmarks" / "decoding.md"
    assert page.read_text(encoding="utf-8") == decoders_page(page)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--decoders", "--dtype", "bfloat16"], "--dtype is bfloat16; with --decoders the weights are in float32"),
        (["--decoders", "--memory_length", "0"], "argument --memory_length: 0 is too small"),
        (["--memory_length", "5"], "--memory_length is of use with --decoders alone"),
        (["--page", "no/such/page.md"], "--page, by its template, names no/such/page.md.jinja, which is not a file"),
        (["--page", "page.md", "--output_file", "x.json"], "--page measures nothing; leave out --output_file"),
        (["--page", "page.md", "--decoders"], "--page measures nothing; leave out --decoders"),
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
    monkeypatch.setattr("benchmarks.speed.benchmark.compare_with_plain", None)
    with pytest.raises(SystemExit) as exit_:
        main(argv)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there(capsys):
    with pytest.raises(SystemExit):
        main(["--device", "cuda"])
    assert "error: --device cuda cannot be used" in capsys.readouterr().err
