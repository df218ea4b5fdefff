"""Lines that arrive while others are dealt with."""

import threading

import pytest

from hf_capsule_mt.cli.translate import arrivals


def test_what_arrives_meanwhile_comes_together():
    typed = [threading.Event() for _ in range(3)]

    def lines():
        yield "a"
        typed[0].wait()
        yield from "bcd"
        typed[1].wait()
        yield "e"

    found = arrivals(lines(), 2)
    assert next(found) == ["a"]
    typed[0].set()
    together = [next(found)]
    while sum(map(len, together)) < 3:
        together.append(next(found))
    assert [line for lines_ in together for line in lines_] == ["b", "c", "d"]
    assert max(map(len, together)) <= 2
    typed[1].set()
    assert next(found) == ["e"]
    assert list(found) == []


def test_an_error_comes_after_the_lines_before_it():
    def lines():
        yield "a"
        raise ValueError("line 2 is bad")

    found = arrivals(lines(), 5)
    assert next(found) == ["a"]
    with pytest.raises(ValueError, match="line 2 is bad"):
        next(found)


def test_no_lines():
    assert list(arrivals([], 5)) == []
