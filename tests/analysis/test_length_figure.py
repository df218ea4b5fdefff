"""The figure shows what was scored."""

import pytest

from hf_capsule_mt.analysis.figures import draw_lengths, save_figure


def record(systems=2):
    def found(bucket):
        return {
            f"system {one}": {"bleu": 30 + one + bucket, "ratio": 1 - 0.1 * one + 0.01 * bucket}
            for one in range(systems)
        }

    buckets = [{"name": name, "sentences": 10, "systems": found(i)} for i, name in enumerate(["≤ 10", "11–20", "> 20"])]
    return {"buckets": [*buckets[:2], {"name": "none", "sentences": 0, "systems": {}}, buckets[2]]}


def test_what_is_drawn():
    bleu, ratio = draw_lengths(record()).axes
    assert [label.get_text() for label in bleu.get_xticklabels()] == ["≤ 10\n(10)", "11–20\n(10)", "> 20\n(10)"]
    lines = {line.get_label(): list(line.get_ydata()) for line in bleu.get_lines()}
    assert lines == {"system 0": [30, 31, 32], "system 1": [31, 32, 33]}
    lines = {line.get_label(): list(line.get_ydata()) for line in ratio.get_lines()[:2]}
    assert lines == {"system 0": pytest.approx([1, 1.01, 1.02]), "system 1": pytest.approx([0.9, 0.91, 0.92])}


def test_more_systems_than_colours():
    bleu, _ = draw_lengths(record(systems=13)).axes
    assert len({(line.get_color(), line.get_linestyle()) for line in bleu.get_lines()}) == 13


@pytest.mark.parametrize("name", ["p$x$q.de", r"a$\frac$.de", "_u.de"])
def test_names_are_drawn_as_they_are(name, tmp_path):
    """Not as formulas, and none is left out of the legend."""
    found = record(systems=1)
    for bucket in found["buckets"]:
        bucket["systems"] = dict(zip([name], bucket["systems"].values()))
    save_figure(draw_lengths(found), tmp_path / "lengths.svg")
    [text] = draw_lengths(found).legends[0].get_texts()
    assert text.get_text().replace(r"\$", "$").strip() == name


def test_a_file_is_written_whole(tmp_path):
    save_figure(draw_lengths(record()), tmp_path / "lengths.svg")
    assert [file.name for file in tmp_path.iterdir()] == ["lengths.svg"]
    assert (tmp_path / "lengths.svg").stat().st_size > 1000
