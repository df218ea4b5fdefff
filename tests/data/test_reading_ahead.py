"""The next item is made in a thread while the one before it is used."""

from itertools import count
from threading import Event

import pytest

from hf_capsule_mt.data.reading_ahead import each_one_ahead


def test_all_items_come_in_their_order():
    assert list(each_one_ahead(iter(range(100)))) == [*range(100)]
    assert list(each_one_ahead(iter(()))) == []


def test_it_is_one_item_ahead_and_no_more():
    made = []
    second, third = Event(), Event()
    events = {1: second, 2: third}

    def items():
        for number in count():
            made.append(number)
            events.get(number, Event()).set()
            yield number

    taken = each_one_ahead(items())
    assert next(taken) == 0
    assert second.wait(60)
    assert made == [0, 1]
    assert next(taken) == 1
    assert third.wait(60)
    assert made == [0, 1, 2]


def test_an_error_comes_after_the_items_before_it():
    class Panic(BaseException):
        """As tokenizers raises where its own code fails."""

    def items():
        yield 1
        raise Panic

    taken = each_one_ahead(items())
    assert next(taken) == 1
    with pytest.raises(Panic):
        next(taken)


def test_whoever_needs_no_more_ends_the_thread():
    ended = Event()
    taken = each_one_ahead(count(), ended)
    next(taken)
    assert not ended.is_set()
    taken.close()
    assert ended.is_set()
