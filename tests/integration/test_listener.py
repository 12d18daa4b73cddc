"""Hearing of changed builds, over a real connection."""

from __future__ import annotations

import queue
import time
from pathlib import Path

import psycopg
import pytest

from pt2hub.server.db.notifications import CHANNEL, Listener

SECONDS = 10.0


@pytest.fixture
def heard() -> queue.Queue[str | None]:
    """What the listener told."""
    return queue.Queue()


def test_it_hears_every_change_at_once_and_goes_on_after_a_lost_connection(
    database_url: str, heard: queue.Queue[str | None]
) -> None:
    listener = Listener(database_url, heard.put)
    listener.start()
    with psycopg.connect(database_url, autocommit=True) as connection:
        assert heard.get(timeout=SECONDS) is None
        for name in ("first", "second"):
            connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, name))
            began = time.monotonic()
            assert heard.get(timeout=SECONDS) == name
            assert time.monotonic() - began < 1.0
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert heard.get(timeout=SECONDS) is None
        connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, "third"))
        assert heard.get(timeout=SECONDS) == "third"
    listener.stop()


def test_it_stops_in_no_time_and_leaves_nothing_open(
    database_url: str, heard: queue.Queue[str | None]
) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    listener = Listener(database_url, heard.put)
    listener.start()
    assert heard.get(timeout=SECONDS) is None
    time.sleep(0.1)  # it waits for the first change

    began = time.monotonic()
    listener.stop()

    assert time.monotonic() - began < 0.3
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_one_that_was_never_started_stops_as_well(database_url: str, heard: queue.Queue[str | None]) -> None:
    Listener(database_url, heard.put).stop()
