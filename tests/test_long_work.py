"""Work in a thread, which ends when nobody waits for it."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from hf_capsule_mt.long_work import GivenUpError, LongWork, next_step


def test_work_that_is_given_up_ends_at_its_next_step():
    work = LongWork()
    started = Event()

    def count_for_ever():
        while True:
            started.set()
            next_step()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work.run, count_for_ever)
        assert started.wait(60)
        work.give_up()
        with pytest.raises(GivenUpError):
            future.result(60)
        # The thread does other work then, which nobody has given up.
        assert pool.submit(next_step).result(60) is None
        assert pool.submit(LongWork().run, next_step).result(60) is None


def test_work_elsewhere_goes_on():
    work = LongWork()
    work.give_up()
    with pytest.raises(GivenUpError):
        work.run(next_step)
    assert next_step() is None
