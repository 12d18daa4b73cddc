from __future__ import annotations

import threading
import time

import pytest

from pt2hub.errors import DatabaseUnavailable, NotFound, StorageUnavailable
from pt2hub_workers.halting import Halt, Halted
from pt2hub_workers.outages import persisting


def test_the_first_reason_stays_and_every_callback_comes_once() -> None:
    halt, calls = Halt(), list[str]()
    with halt.calling(lambda: calls.append("outer")), halt.calling(lambda: calls.append("inner")):
        halt.check()
        halt.set("cancelled")
        halt.set("stopping")

    assert calls == ["outer", "inner"]
    assert halt.reason == "cancelled"
    with pytest.raises(Halted) as caught:
        halt.check()
    assert caught.value.reason == "cancelled"


def test_a_callback_comes_at_once_where_the_halt_came_before_and_never_after_its_block() -> None:
    halt, calls = Halt(), list[str]()
    with halt.calling(lambda: calls.append("over")):
        pass
    halt.set("stopping")
    with halt.calling(lambda: calls.append("late")):
        assert calls == ["late"]


def test_an_outage_is_borne_and_the_answer_after_it_returned() -> None:
    answers: list[Exception | str] = [DatabaseUnavailable(), StorageUnavailable(), "found"]

    def call() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert persisting(call, Halt()) == "found"


def test_an_outage_that_does_not_end_is_reported_and_other_errors_at_once() -> None:
    calls = list[int]()

    def away() -> None:
        calls.append(1)
        raise StorageUnavailable

    def missing() -> None:
        raise NotFound

    with pytest.raises(StorageUnavailable):
        persisting(away, Halt(), seconds=0.5)
    assert len(calls) > 1
    with pytest.raises(NotFound):
        persisting(missing, Halt())


def test_a_halt_ends_the_wait_for_an_outage() -> None:
    halt, began = Halt(), time.monotonic()
    threading.Timer(0.2, halt.set, ["cancelled"]).start()

    def away() -> None:
        raise DatabaseUnavailable

    with pytest.raises(Halted):
        persisting(away, halt)
    assert time.monotonic() - began < 5
