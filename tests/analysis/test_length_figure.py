"""The figure shows what was scored."""

import pytest

from hf_capsule_mt.analysis.figures import draw_lengths


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
