from __future__ import annotations

import threading
import time

import pytest

from pt2hub.errors import DatabaseUnavailable, NotFound, StorageUnavailable
from pt2hub_workers.operations.cancellation import CancellationToken, Cancelled
from pt2hub_workers.operations.retries import retry_outage


def test_the_first_reason_stays_and_every_callback_comes_once() -> None:
    token, calls = CancellationToken(), list[str]()
    with token.calling(lambda: calls.append("outer")), token.calling(lambda: calls.append("inner")):
        token.check()
        token.set("cancelled")
        token.set("stopping")

    assert calls == ["outer", "inner"]
    assert token.reason == "cancelled"
    with pytest.raises(Cancelled) as caught:
        token.check()
    assert caught.value.reason == "cancelled"


def test_a_callback_comes_at_once_where_the_halt_came_before_and_never_after_its_block() -> None:
    token, calls = CancellationToken(), list[str]()
    with token.calling(lambda: calls.append("over")):
        pass
    token.set("stopping")
    with token.calling(lambda: calls.append("late")):
        assert calls == ["late"]


def test_an_outage_is_borne_and_the_answer_after_it_returned() -> None:
    answers: list[Exception | str] = [DatabaseUnavailable(), StorageUnavailable(), "found"]

    def call() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert retry_outage(call, CancellationToken()) == "found"


def test_an_outage_that_does_not_end_is_reported_and_other_errors_at_once() -> None:
    calls = list[int]()

    def away() -> None:
        calls.append(1)
        raise StorageUnavailable

    def missing() -> None:
        raise NotFound

    with pytest.raises(StorageUnavailable):
        retry_outage(away, CancellationToken(), seconds=0.5)
    assert len(calls) > 1
    with pytest.raises(NotFound):
        retry_outage(missing, CancellationToken())


def test_a_halt_ends_the_wait_for_an_outage() -> None:
    token, began = CancellationToken(), time.monotonic()
    threading.Timer(0.2, token.set, ["cancelled"]).start()

    def away() -> None:
        raise DatabaseUnavailable

    with pytest.raises(Cancelled):
        retry_outage(away, token)
    assert time.monotonic() - began < 5
