from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from pt2hub.errors import DatabaseUnavailable
from pt2hub.server import reaper
from pt2hub.server.reaper import Reaper

if TYPE_CHECKING:
    from pt2hub.server.container import Container


SERVICES = ("maintenance", "journal", "scrub", "collector", "retention")


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Maintenance:
    """Maintenance that only notes when it was asked."""

    def __init__(self) -> None:
        self.away = False
        self.reaped = 0
        self.called, self.tidying, self.tidied = threading.Event(), threading.Event(), threading.Event()
        self.tidied.set()
        self.clock, self.ahead = Clock(), 0.0
        self.slowly = 0.0

    def contact(self) -> float:
        if self.away:
            raise DatabaseUnavailable
        self.clock.now += self.slowly
        return self.clock.now + self.ahead

    def requeue_lost(self) -> list[str]:
        self.reaped += 1
        self.called.set()
        return []

    def write(self) -> int:
        return 0

    def run_in_turn(self, _wait: object) -> None:
        pass

    def is_due(self) -> bool:
        return False

    def tidy(self) -> None:
        self.tidying.set()
        self.tidied.wait(30)


class Reaping:
    """A reaper of lost workers, silent for 15 s, over a clock that tests move."""

    def __init__(self) -> None:
        self.maintenance = Maintenance()
        self.clock = self.maintenance.clock
        services = cast("Container", SimpleNamespace(**dict.fromkeys(SERVICES, self.maintenance)))
        self.reaper = Reaper(services, heartbeat_timeout=15.0, every=3.0, clock=self.clock)

    def look_for(self, seconds: float) -> int:
        """Looks every three seconds for so long; answers how often it reaped."""
        before, until = self.maintenance.reaped, self.clock.now + seconds
        while self.clock.now < until:
            self.reaper.look()
            self.clock.now += 3.0
        return self.maintenance.reaped - before


def test_a_reaper_that_has_just_begun_waits_as_long_as_a_worker_may_be_silent() -> None:
    reaping = Reaping()
    assert reaping.look_for(15.0) == 0
    assert reaping.look_for(9.0) == 3


def test_after_an_outage_workers_have_time_to_say_that_they_live() -> None:
    reaping = Reaping()
    reaping.look_for(30.0)
    reaping.maintenance.away = True
    with pytest.raises(DatabaseUnavailable):
        reaping.reaper.look()
    reaping.maintenance.away = False
    reaping.clock.now += 3.0
    assert reaping.look_for(15.0) == 0
    assert reaping.look_for(3.0) == 1


def test_a_reaper_that_was_frozen_itself_trusts_nothing_it_sees_then() -> None:
    reaping = Reaping()
    reaping.look_for(30.0)
    reaping.clock.now += 60.0  # SIGSTOP, or the whole machine was paused with its workers
    assert reaping.look_for(15.0) == 0
    assert reaping.look_for(3.0) == 1


def test_a_database_that_stood_still_gives_workers_time_to_say_that_they_live() -> None:
    reaping = Reaping()
    reaping.look_for(30.0)
    reaping.maintenance.slowly = 60.0  # asked before, answered after
    reaping.reaper.look()
    assert reaping.maintenance.reaped == 5
    reaping.maintenance.slowly = 0.0
    reaping.clock.now += 3.0
    assert reaping.look_for(12.0) == 0
    assert reaping.look_for(3.0) == 1


def test_an_outage_that_ends_just_before_the_limit_and_a_heartbeat_before_it_are_reckoned_together() -> None:
    reaping = Reaping()
    reaping.look_for(30.0)
    reaping.clock.now += 11.5  # since the last look 14.5; since the last heartbeat of some up to 17.5
    assert reaping.look_for(15.0) == 0


@pytest.mark.parametrize("jump", [60.0, -3600.0])
def test_a_database_whose_clock_jumps_makes_no_worker_lost(jump: float) -> None:
    reaping = Reaping()
    reaping.look_for(30.0)
    reaping.maintenance.ahead = jump
    assert reaping.look_for(15.0) == 0
    assert reaping.look_for(3.0) == 1


def test_a_reaping_that_fails_begins_the_wait_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    reaping = Reaping()
    reaping.look_for(30.0)

    def fail() -> list[str]:
        raise DatabaseUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(reaping.maintenance, "requeue_lost", fail)
        with pytest.raises(DatabaseUnavailable):
            reaping.reaper.look()
    assert reaping.look_for(15.0) == 0


def test_the_thread_goes_on_through_failures_and_ends_when_told() -> None:
    maintenance = Maintenance()
    maintenance.away = True
    reaper = Reaper(
        cast("Container", SimpleNamespace(**dict.fromkeys(SERVICES, maintenance))),
        heartbeat_timeout=0.0,
        every=0.005,
    )
    reaper.start()
    assert not maintenance.called.wait(0.05)
    maintenance.away = False
    assert maintenance.called.wait(5)
    reaper.stop()
    assert not [thread.name for thread in reaper._threads if thread.is_alive()]


def test_a_storage_that_hangs_does_not_keep_the_process_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "_TIDY_SECONDS", 0.005)
    monkeypatch.setattr(reaper, "_PATIENCE_SECONDS", 0.1)
    maintenance = Maintenance()
    maintenance.tidied.clear()
    stuck = Reaper(
        cast("Container", SimpleNamespace(**dict.fromkeys(SERVICES, maintenance))),
        heartbeat_timeout=0.0,
        every=0.005,
    )
    stuck.start()
    assert maintenance.tidying.wait(5)
    began = time.monotonic()
    stuck.stop()
    assert time.monotonic() - began < 15
    maintenance.tidied.set()
