"""The figure shows what was measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.studies.line_figures import draw_time_by_length
from hf_capsule_mt.analysis.figures import check_figure_file, save_figure
from hf_capsule_mt.records import Measurement, TimeByLengthRecord, read

STORED = Path(__file__).parents[2] / "benchmarks" / "records"

LENGTHS = [32, 64, 128]


@pytest.fixture
def record():
    medians = [
        Measurement(row, kind, length, factor * length)
        for kind in ("training", "decoding")
        for row, factor in (("transformer", 2e-3), ("capsnmt", 1e-3))
        for length in LENGTHS
    ]
    exponents = {kind: {"transformer": 1.234, "capsnmt": 1.0} for kind in ("training", "decoding")}
    stored = read(TimeByLengthRecord, STORED / "growth_tiny.json")
    return replace(stored, settings=replace(stored.settings, lengths=LENGTHS), medians=medians, exponents=exponents)


def test_what_is_drawn(record):
    panels = draw_time_by_length(record).axes
    assert [axes.get_title() for axes in panels] == ["One update", "Greedy decoding"]
    for axes in panels:
        lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()}
        assert lines == {
            "transformer (exponent 1.23)": (LENGTHS, [2e-3 * length for length in LENGTHS]),
            "capsnmt (exponent 1.00)": (LENGTHS, [1e-3 * length for length in LENGTHS]),
        }
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_every_row_is_drawn(record):
    rows = [f"row {number}" for number in range(8)]
    record.settings.methods[:] = rows
    medians = [Measurement(row, "decoding", 32, 1.0) for row in rows]
    record = replace(record, exponents={"decoding": dict.fromkeys(rows, 1.0)}, medians=medians)
    lines = draw_time_by_length(record).axes[0].get_lines()
    assert [line.get_label() for line in lines] == [f"{row} (exponent 1.00)" for row in rows]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 8


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_formats(record, tmp_path, ending):
    for name in ("one", "two"):
        save_figure(draw_time_by_length(record), tmp_path / f"{name}{ending}")
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [f"one{ending}", f"two{ending}"]
    assert files[0].stat().st_size > 1000


def test_no_figure(tmp_path):
    with pytest.raises(ValueError, match=r"growth\.txt is no figure; its name must end in \.png"):
        check_figure_file(tmp_path / "growth.txt")
