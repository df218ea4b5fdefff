"""What the script says about two records."""

import recorded_outputs
from recorded_outputs import Recorder, differences


def record(**outputs):
    recorder = Recorder()
    for name, output in outputs.items():
        recorder.add(name, lambda output=output: output)
    return recorder.outputs


def test_equal_outputs_do_not_differ():
    before = record(a=["one", {"score": -0.12341}], b="FOLDER/x is missing.")
    after = record(a=["one", {"score": -0.123412, "seconds": 5}], b="/tmp/recorded_outputs_ab/x is missing.")
    assert differences(before, after) == []


def test_what_differs_is_shown_from_there():
    long = "a " * recorded_outputs.SHOWN
    before = record(a=["one", f"{long}dog"], b="two")
    after = record(a=["one", f"{long}cat", "more"], c="two")
    shown = differences(before, after)
    assert [text.split("\n")[0] for text in shown] == ["a [1]", "a [2]", "b [0]", "c [0]"]
    assert [line.removesuffix('"')[-3:] for line in shown[0].split("\n")[1:]] == ["dog", "cat"]


def test_a_refusal_is_an_output():
    def refuse():
        raise ValueError("no such file")

    recorder = Recorder()
    recorder.add("a", refuse)
    assert recorder.outputs["a"][0]["preview"] == '"ValueError: no such file"'
